"""Characters to tokens without encoding: ids are decoded, never made again."""

from __future__ import annotations

import doctest
import random

import pytest

from groupwise.templates import Template, alignment, token_ends
from toy_tokenizers import byte_bpe, merging, words


def test_examples() -> None:
    assert doctest.testmod(alignment).failed == 0


def test_every_character_of_a_text_of_single_characters() -> None:
    template = Template(words(["<e>"], list("abc")), None, stop_ids=(0,), pad_id=0)
    ids = (1, 2, 3, 1, 0)
    text = template.decode_completion(ids)
    assert text == "abca"
    ends = token_ends(ids, text, [1, 2, 3, 4], template.decode_completion)
    assert ends == (0, 1, 2, 4)  # the whole text ends with its stop id
    cut = token_ends(ids[:4], text, [1, 4], template.decode_completion)
    assert cut == (0, 3)


def test_ids_that_encoding_would_not_give() -> None:
    """[a, b] decodes to what encodes to [ab]: positions are of the ids that were sampled."""
    tokenizer = merging()
    template = Template(tokenizer, None, stop_ids=(3,), pad_id=3)
    assert token_ends((0, 1, 2, 3), "abab", [1, 2, 3, 4], template.decode_completion) == (
        0,
        1,
        2,
        3,
    )


def test_characters_of_several_tokens_and_tokens_of_several_characters() -> None:
    """Every end of random texts with emoji against a slow search over all prefixes."""
    texts = ["3 + 4 = 7\n", "7 * 2 = 14\n", "🙂🙃 naïve ümlaut\n", "日本語 text\n"]
    template = Template(byte_bpe(texts, merges=60, special=["<e>"]), None, stop_ids=(0,), pad_id=0)
    draw = random.Random(0)
    for _ in range(40):
        text = "".join(draw.choice(texts) for _ in range(3))
        text = text[: draw.randint(1, len(text))]
        ids = template.encode(text)
        assert template.decode_completion(ids) == text
        ends = list(range(1, len(text) + 1))
        found = token_ends(ids, text, ends, template.decode_completion)
        for end, place in zip(ends, found, strict=True):
            reached = [
                count
                for count in range(1, len(ids) + 1)
                if template.decode_completion(ids[:count])[:end] == text[:end]
            ]
            assert place == (len(ids) if end == len(text) else reached[0]) - 1


@pytest.mark.parametrize("end", [0, 5])
def test_an_end_outside_the_text_is_refused(end: int) -> None:
    with pytest.raises(ValueError, match=f"after {end} of the 2 characters"):
        token_ends([0, 1], "ab", [end], lambda ids: "ab"[: len(ids)])
