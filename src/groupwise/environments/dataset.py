"""Prompts with answers from a file, a folder, a generator or a `datasets` name, checked before
anything loads.

Columns are mapped by name, every other column reaches the verifiers. Rows that cannot be used are
refused with their place named; dropping them is opt-in and counted. Nothing is evaluated on
training rows: held-out prompts come from their own file or split, or from a seeded share. Left
out: data that is read as the run goes (stream.py) and several sources in one run (mixture.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from groupwise.environments.base import Environment
from groupwise.environments.checks import first_of
from groupwise.environments.dataset_settings import DatasetSettings
from groupwise.environments.identity import normalised_text, prompt_id, with_unique_ids
from groupwise.environments.overlap import HeldOut, Overlap
from groupwise.environments.readers import read_rows
from groupwise.environments.stream import StreamEnvironment
from groupwise.environments.tasks import (
    Task,
    accepted,
    check_splits,
    check_tasks,
    heldout_rows,
    refuse_overlap,
    tasks_of,
)
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
    check_splits(settings)
    verifier = compose(verifiers)
    if settings.streaming:
        return StreamEnvironment(settings, seed, verifier)
    rows = read_rows(settings.source(seed), settings.limit)
    train = tasks_of(rows, settings, verifier, seed)
    heldout = tasks_of(heldout_rows(settings, seed), settings, verifier, seed)
    if settings.heldout_share is not None:
        if heldout:
            raise RecipeError(
                "environment.heldout_share is set together with heldout_path or heldout_split; "
                "keep one of them"
            )
        train, heldout = _split(train, settings.heldout_share, seed)
    return _checked(train, heldout, settings, verifier)


def _checked(
    train: list[Task], heldout: list[Task], settings: DatasetSettings, verifier: Verifier
) -> Environment:
    """Columns, gold answers, duplicates and overlap; then the environment with what was counted."""
    everything = [*train, *heldout]
    check_tasks(everything, settings, verifier)
    num_rows = len(everything)
    train = accepted(train, settings, verifier)
    heldout = accepted(heldout, settings, verifier)
    dropped = num_rows - len(train) - len(heldout)
    if not train:
        raise RecipeError(
            f"{settings.where}: no training prompt is left; the verifier rejects all "
            f"{dropped} gold answers that were dropped"
        )
    train, overlaps = _apart(train, heldout, settings)
    if settings.on_conflict == "refuse" and (conflicts := _conflicting([*train, *heldout], _asked)):
        raise RecipeError(
            f"{settings.where}: the same prompt has different gold answers: {first_of(conflicts)}. "
            'Correct them, or set on_conflict = "allow"'
        )
    duplicates = len(train) - len({task.prompt.id for task in train})
    heldout_duplicates = len(heldout) - len({task.prompt.id for task in heldout})
    if settings.on_duplicate == "drop":
        train, heldout = (
            list({task.prompt.id: task for task in reversed(tasks)}.values())[::-1]
            for tasks in (train, heldout)
        )
    prompts, _ = with_unique_ids(task.prompt for task in [*train, *heldout])
    facts = {
        "duplicates": duplicates,
        "heldout_duplicates": heldout_duplicates,
        "conflicting_answers": len(_conflicting(train, normalised_text)),
        **overlaps,
        "dropped_bad_answers": dropped,
        "arguments": settings.model_dump(mode="json"),
    }
    splits = {"train": prompts[: len(train)], "heldout": prompts[len(train) :]}
    made = Environment(settings.environment_name, verifier, splits, facts)
    made.on_overlap = settings.on_overlap
    made.places = {
        prompt.id: task.where for prompt, task in zip(prompts, [*train, *heldout], strict=True)
    }
    return made


def _apart(
    train: list[Task], heldout: list[Task], settings: DatasetSettings
) -> tuple[list[Task], dict[str, int]]:
    """The training tasks that `on_overlap` leaves, and counts."""
    index = HeldOut([task.prompt for task in heldout], settings.near_overlap)
    found = Overlap([task.prompt for task in train], index)
    counts = {
        "overlap": len({other for _, other in found.exact}),
        "near_overlap": len({other for _, other in found.near}),
    }
    if settings.on_overlap == "refuse":
        pairs = [
            [(train[number].where, heldout[other].where) for number, other in each]
            for each in (found.exact, found.near)
        ]
        refuse_overlap(settings, pairs[0], pairs[1])
    if settings.on_overlap == "drop":
        gone = {number for number, _ in [*found.exact, *found.near]}
        train = [task for number, task in enumerate(train) if number not in gone]
        counts["dropped_overlap"] = len(gone)
        if not train:
            raise RecipeError(
                f"{settings.where}: no training prompt is left; all {len(gone)} are also held out, "
                'and on_overlap = "drop" takes them out of training'
            )
    return train, counts


def _split(tasks: list[Task], share: float, seed: int) -> tuple[list[Task], list[Task]]:
    """A seeded share of the distinct prompts, with all their copies, held out."""
    texts = {normalised_text(task.prompt) for task in tasks}
    order = sorted(texts, key=lambda text: (stream_key(seed, "data", "heldout", text), text))
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
    train = [task for task in tasks if normalised_text(task.prompt) not in held]
    return train, [task for task in tasks if normalised_text(task.prompt) in held]


def _asked(prompt: Prompt) -> str:
    return prompt_id(prompt.messages, prompt.text)


def _conflicting(tasks: Sequence[Task], key: Callable[[Prompt], str]) -> list[str]:
    """The rows of each prompt that comes with more than one answer, for a message."""
    rows: dict[str, dict[str, str]] = {}
    for task in tasks:
        answers = rows.setdefault(key(task.prompt), {})
        answers.setdefault(str(task.prompt.answer).strip(), task.where)
    return [
        " and ".join(f"{where} (answer {answer!r:.60})" for answer, where in answers.items())
        for answers in rows.values()
        if len(answers) > 1
    ]
