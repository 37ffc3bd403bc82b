"""Prompts with answers from a file, a folder, a generator or a `datasets` name, checked before
anything loads.

Columns are mapped by name, every other column reaches the verifiers. Rows that cannot be used are
refused with their place named; dropping them is opt-in and counted. Nothing is evaluated on
training rows: held-out prompts come from their own file or split, or from a seeded share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain

from groupwise.environments.base import Environment
from groupwise.environments.checks import (
    check_columns,
    check_values,
    first_of,
    rejected_answers,
    rejected_message,
)
from groupwise.environments.dataset_settings import DatasetSettings
from groupwise.environments.identity import normalised_text, prompt_id, with_unique_ids
from groupwise.environments.overlap import Placed, keep_apart
from groupwise.environments.prompt_rows import prompt_of
from groupwise.environments.readers import Row, Source, is_file, read_rows
from groupwise.errors import RecipeError
from groupwise.randomness import stream_key
from groupwise.types import Prompt
from groupwise.verifiers import Verifier, VerifierTables, compose

__all__ = ["DatasetSettings", "from_rows"]


def from_rows(settings: DatasetSettings, seed: int, verifiers: VerifierTables = ()) -> Environment:
    """The environment of the rows that the settings name.

    Raises RecipeError naming the column or row that cannot be used.
    """
    if not verifiers:
        raise RecipeError(
            f"{settings.where} needs a verifier; add [[environment.verifiers]] with, for instance, "
            'name = "number"'
        )
    _check_splits(settings)
    verifier = compose(verifiers)
    source = Source(settings.path, settings.config, settings.split, seed)
    train = _placed(read_rows(source, settings.limit), settings, verifier, seed)
    heldout = _placed(_heldout_rows(settings, seed), settings, verifier, seed)
    if settings.heldout_share is not None:
        train, heldout = _split(train, settings.heldout_share, seed)
    everything = [*train, *heldout]
    check_columns(
        verifier,
        [each.prompt for each in everything],
        settings.where,
        [each.where for each in everything],
    )
    train, heldout = (_accepted(each, settings, verifier) for each in (train, heldout))
    dropped = len(everything) - len(train) - len(heldout)
    if not train:
        raise RecipeError(
            f"{settings.where}: no training prompt is left; the verifier rejects all "
            f"{dropped} gold answers that were dropped"
        )
    facts: dict[str, object] = {"dropped_bad_answers": dropped}
    kept = keep_apart(train, heldout, settings.on_overlap, settings.where, settings.near_overlap)
    facts |= {"overlap": kept.overlap, "near_overlap": kept.near}
    if settings.on_overlap == "drop":
        facts["dropped_overlap"] = len(kept.dropped)
        train = [each for place, each in enumerate(train) if place not in kept.dropped]
        if not train:
            raise RecipeError(
                f"{settings.where}: no training prompt is left; all {len(kept.dropped)} are also "
                'held out, and on_overlap = "drop" takes them out of training'
            )
    if settings.on_conflict == "refuse" and (conflicts := _conflicting([*train, *heldout], _asked)):
        raise RecipeError(
            f"{settings.where}: the same prompt has different gold answers: {first_of(conflicts)}. "
            'Correct them, or set on_conflict = "allow"'
        )
    for fact, side in (("duplicates", train), ("heldout_duplicates", heldout)):
        first = {each.prompt.id: each for each in reversed(side)}
        facts[fact] = len(side) - len(first)
        if settings.on_duplicate == "drop":
            side[:] = reversed(first.values())
    facts["conflicting_answers"] = len(_conflicting(train, normalised_text))
    facts["arguments"] = settings.model_dump(mode="json")
    prompts, _ = with_unique_ids(each.prompt for each in chain(train, heldout))
    splits = {"train": prompts[: len(train)], "heldout": prompts[len(train) :]}
    made = Environment(settings.environment_name, verifier, splits, facts)
    made.on_overlap = settings.on_overlap
    made.places = {
        prompt.id: each.where for prompt, each in zip(prompts, chain(train, heldout), strict=True)
    }
    return made


def _check_splits(settings: DatasetSettings) -> None:
    """`RecipeError` where a split or a configuration is named of a file, which has none."""
    for field, path in (
        ("config", settings.path),
        ("split", settings.path),
        ("heldout_split", settings.heldout_path or settings.path),
    ):
        value = getattr(settings, field)
        if value not in (None, "train") and is_file(path):
            advice = "configurations; leave config out"
            if field != "config":
                advice = "splits; name another file in heldout_path, or set heldout_share"
            raise RecipeError(
                f"environment.{field} = {value!r}: {path!r} is one file and has no {advice}"
            )


def _heldout_rows(settings: DatasetSettings, seed: int) -> list[Row]:
    """The rows of `heldout_path` or `heldout_split`; none where neither is set."""
    given = "heldout_path" if settings.heldout_path else "heldout_split"
    value = getattr(settings, given)
    if value is None:
        return []
    path, split = settings.heldout_path or settings.path, settings.heldout_split or settings.split
    if (path, split) == (settings.path, settings.split):
        raise RecipeError(
            f"environment.{given} = {value!r} is the training data itself; held-out rows differ"
        )
    field = "environment.heldout_path" if settings.heldout_path else "environment.path"
    return read_rows(Source(path, settings.config, split, seed, field))


def _placed(
    rows: Sequence[Row], settings: DatasetSettings, verifier: Verifier, seed: int
) -> list[Placed]:
    """The prompts of rows; `RecipeError` naming the first row that cannot be one."""
    for row in rows:
        check_values(row.values, row.where)
    prepared = (settings.prepared(row, seed) for row in rows)
    return [Placed(row.where, prompt_of(row, settings, verifier)) for row in prepared]


def _accepted(placed: list[Placed], settings: DatasetSettings, verifier: Verifier) -> list[Placed]:
    """Those whose gold answer the verifier accepts; refused or dropped otherwise."""
    rejected = dict(rejected_answers(verifier, [each.prompt for each in placed]))
    if rejected and settings.on_bad_answer == "refuse":
        rows = []
        for place, reason in rejected.items():
            where, prompt = placed[place]
            raw = prompt.columns.get(settings.answer, prompt.answer)  # before answer_pattern
            rows.append(f"{where} (answer {raw!r:.60}): {reason}")
        raise RecipeError(
            f"{settings.where}: {rejected_message(rows)}. Correct them, or set "
            'on_bad_answer = "drop"'
        )
    return [each for place, each in enumerate(placed) if place not in rejected]


def _split(placed: list[Placed], share: float, seed: int) -> tuple[list[Placed], list[Placed]]:
    """A seeded share of the distinct prompts, with all their copies, held out."""
    texts = [normalised_text(each.prompt) for each in placed]
    order = sorted(set(texts), key=lambda text: (stream_key(seed, "data", "heldout", text), text))
    num = round(share * len(order))
    if len(order) == 1:
        raise RecipeError(
            f"environment.heldout_share = {share}: there is one prompt, which cannot be on both "
            "sides; give more rows"
        )
    if not 0 < num < len(order):
        raise RecipeError(
            f"environment.heldout_share = {share} of {len(order)} distinct prompts holds out "
            f"{num}; give a share that leaves at least one on each side, for instance "
            f"{max(1, len(order) // 5) / max(len(order), 2):.3g}"
        )
    held = set(order[:num])
    sides: tuple[list[Placed], list[Placed]] = ([], [])
    for each, text in zip(placed, texts, strict=True):
        sides[text in held].append(each)
    return sides


def _asked(prompt: Prompt) -> str:
    return prompt_id(prompt.messages, prompt.text)


def _conflicting(placed: Sequence[Placed], key: Callable[[Prompt], str]) -> list[str]:
    """The rows of each prompt that comes with more than one answer, for a message."""
    rows: dict[str, dict[str, str]] = {}
    for where, prompt in placed:
        answers = rows.setdefault(key(prompt), {})
        answers.setdefault(str(prompt.answer).strip(), where)
    return [
        " and ".join(f"{where} (answer {answer!r:.60})" for answer, where in answers.items())
        for answers in rows.values()
        if len(answers) > 1
    ]
