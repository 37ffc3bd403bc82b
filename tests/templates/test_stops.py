"""Stop strings: found over token boundaries at the first token possible, text cut, ids kept."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from groupwise.errors import RecipeError
from groupwise.templates import StopStrings, Template
from toy_tokenizers import byte_bpe, words

TEXTS = ["</answer> and more </answer>", "answer> é日本 </ans wer>", "\n\nQ: a\n\n"]


def end(stops: StopStrings, ids: Sequence[int]) -> int | None:
    """How many tokens a sampler would keep."""
    return next((n for n in range(1, len(ids) + 1) if stops.ended(ids[:n])), None)


def test_a_stop_string_over_two_tokens() -> None:
    table = {0: "4</ans", 1: "wer", 2: "> and", 3: " more"}
    stops = StopStrings(["</answer>"], lambda ids: "".join(table[i] for i in ids))
    assert end(stops, [0, 1, 2, 3]) == 3
    assert stops.cut("4</answer> and") == "4</answer>"


def test_the_string_that_ends_first_wins() -> None:
    stops = StopStrings(["bcd", "b"], lambda ids: "")
    assert stops.cut("abcd") == "ab"
    assert StopStrings(["x"], lambda ids: "").cut("abcd") == "abcd"
    assert not StopStrings([], lambda ids: "")
    assert not StopStrings([], lambda ids: "anything").ended([1])


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(RecipeError, match="stop: a stop string is empty"):
        StopStrings(["ok", ""], lambda ids: "")


def test_tags_that_are_special_tokens_can_be_stop_strings() -> None:
    template = Template(
        words(["<pad>", "<eos>", "</answer>"], [*"ab"]),
        None,
        special_tokens={"eos_token": "<eos>", "pad_token": "<pad>"},
    )
    stops = template.stop_strings(["</answer>"])
    assert end(stops, [3, 2, 4]) == 2


@pytest.mark.parametrize("seed", range(3))
def test_the_window_finds_what_the_whole_text_shows(seed: int) -> None:
    """Random ids of a byte-level tokenizer, characters split over tokens included."""
    tokenizer = byte_bpe(TEXTS, special=["<e>"])
    template = Template(tokenizer, None, special_tokens={"eos_token": "<e>"})
    rng = random.Random(seed)
    pieces = [template.encode(text) for text in (*TEXTS, "é", "日", "</", "answer", ">", "\n", " ")]
    found = 0
    for _ in range(60):
        ids: list[int] = []
        while len(ids) < 60:
            piece = rng.choice(pieces)
            cut = rng.randrange(len(piece)) if rng.random() < 0.4 else 0
            ids.extend(piece[cut:] or (rng.randrange(tokenizer.get_vocab_size()),))
        for strings in (["</answer>"], ["\n\n", "日本"], [" ", "xyz"]):
            stops = template.stop_strings(strings)
            whole = next(
                (
                    n
                    for n in range(1, len(ids) + 1)
                    if any(s in template.decode_completion(ids[:n]) for s in strings)
                ),
                None,
            )
            assert end(stops, ids) == whole
            found += whole is not None
    assert found > 60
