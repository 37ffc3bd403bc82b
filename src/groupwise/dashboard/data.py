"""What a page shows of a run, as JSON: answers, curves, findings, and a stated sample of groups."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from groupwise import __version__
from groupwise.dashboard.questions import answers
from groupwise.doctor import diagnose
from groupwise.doctor.facts import Facts
from groupwise.doctor.texts import checks_itself, repetition
from groupwise.records import METRICS, Run

GROUPS = 120
"""Groups in a page; the doctor's samples first, then evenly over the steps."""
TOKENS = 600
"""Tokens of a completion that carry their values; what follows is plain text."""

_TOKEN_COLUMNS = (
    "sampler_logprobs", "old_logprobs", "learner_logprobs", "entropies", "loss_weights",
    "token_advantages",
)  # fmt: skip


def run_data(run: Run, groups: int = GROUPS) -> dict[str, Any]:
    """Everything of one run that a page shows."""
    facts, found = Facts(run), diagnose(run)
    return {
        "version": __version__,
        "name": str(run.folder),
        "summary": run.summary,
        "recipe": run.recipe_text,
        "answers": [asdict(each) for each in answers(facts, found)] if facts.lines else [],
        "doctor": found.to_dict(),
        "curves": _curves(facts),
        "metrics": [{"name": each.name, "better": each.better} for each in METRICS],
        "groups": chosen_groups(run, facts, _wanted(found.to_dict()), groups),
        "rollouts": sum(int(value) for value in facts.series("completions/count")),
        "events": run.events()[-200:],
    }


def _curves(facts: Facts) -> dict[str, Any]:
    """Each metric as [steps, values], of the steps and of the evaluations (by version)."""
    curves: dict[str, Any] = {}
    for name in dict.fromkeys(key for line in facts.lines for key in line):
        points = [(line["step"], line[name]) for line in facts.lines if line.get(name) is not None]
        if points and name != "step" and not name.startswith("eval/"):
            curves[name] = [list(each) for each in zip(*points, strict=True)]
    for name in dict.fromkeys(key for each in facts.evaluations for key in each):
        made = [(e["version"], e[name]) for e in facts.evaluations if e.get(name) is not None]
        if made and name != "version":
            curves[name] = [list(each) for each in zip(*made, strict=True)]
    return curves


def _wanted(diagnosis: Mapping[str, Any]) -> list[tuple[int, str]]:
    """Step and prompt of the groups that the doctor's samples are of."""
    return [
        (sample["step"], sample["prompt_id"])
        for finding in diagnosis["findings"]
        for sample in finding["samples"]
    ]


def chosen_groups(
    run: Run, facts: Facts, wanted: Sequence[tuple[int, str]], limit: int
) -> list[dict[str, Any]]:
    """At most `limit` groups: those `wanted`, then as many of each of some steps."""
    first = list(dict.fromkeys(wanted))[: limit // 2]
    steps = [int(line["step"]) for line in facts.lines]
    spaced = _spaced(steps, max(1, min(len(steps), limit // 8)))
    each = max(1, (limit - len(first)) // max(1, len(spaced)))
    made: dict[tuple[Any, ...], dict[str, Any]] = {}
    text_of = token_texts(run)
    for step in sorted({*spaced, *(step for step, _ in first)}):
        groups = _groups_of(run, step)
        picked = [key for key in groups if (step, key[0]) in first]
        if step in spaced:
            picked += _spaced([key for key in groups if key not in picked], each)
        for key in picked:
            rows = [_shown(row, text_of) for row in groups[key]]
            made[(step, *key)] = {
                "step": step,
                "prompt_id": key[0],
                "named": (step, key[0]) in first,
                "prompt": groups[key][0]["prompt"],
                "answer": groups[key][0].get("answer"),
                "parts_at": _parting([row["completion_ids"] for row in groups[key]]),
                "rows": rows,
            }
    return sorted(made.values(), key=lambda group: (not group["named"], group["step"]))[:limit]


def _spaced(values: Sequence[Any], number: int) -> list[Any]:
    """`number` of the values, evenly spaced, the last among them."""
    if len(values) <= number:
        return list(values)
    if number == 1:
        return [values[-1]]
    places = {round(n * (len(values) - 1) / (number - 1)) for n in range(number)}
    return [values[place] for place in sorted(places)]


def _groups_of(run: Run, step: int) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in run.rollouts(step).to_pylist():
        key = (row["prompt_id"], row.get("visit"), row.get("kind"))
        groups.setdefault(key, []).append(row)
    return groups


def _parting(ids: Sequence[Sequence[int]]) -> int | None:
    """The first place at which the members of a group differ; None for one member or no ids."""
    if len(ids) < 2 or not all(ids):
        return None
    shortest = min(map(len, ids))
    return next((n for n in range(shortest) if len({row[n] for row in ids}) > 1), shortest)


def _shown(row: Mapping[str, Any], text_of: Any) -> dict[str, Any]:
    """A rollout with its tokens' texts and values, cut to `TOKENS`."""
    ids = row["completion_ids"][:TOKENS]
    shown = {
        name: row.get(name)
        for name in (
            "group_index", "kind", "version", "text", "finish_reason", "reward", "rewards",
            "outcome", "reason", "advantage", "messages", "limit",
        )
    }  # fmt: skip
    shown["tokens"] = [text_of(each) for each in ids]
    shown["cut"] = max(0, len(row["completion_ids"]) - len(ids))
    shown["mask"] = row.get("mask", [])[:TOKENS]
    for name in _TOKEN_COLUMNS:
        values = row.get(name)
        shown[name] = None if values is None else _rounded(values[:TOKENS])
    shown["repetition"] = round(repetition(row), 3)
    shown["checks_itself"] = checks_itself(row["text"])
    return shown


def _rounded(values: Iterable[float]) -> list[float | None]:
    return [None if not math.isfinite(v) else float(f"{v:.4g}") for v in values]


def token_texts(run: Run) -> Any:
    """A function from an id to its text, by the tokenizer of the run's model where it is at hand.

    Nothing is imported, built or fetched for it; without the tokenizer an id shows as its number.
    """
    folder = _model_folder(run)
    if folder is None:
        return lambda number: f"⟨{number}⟩"
    from groupwise.templates.folder import read_tokenizer

    tokenizer = read_tokenizer(folder)

    @cache
    def text(number: int) -> str:
        shown: str = tokenizer.decode([number], skip_special_tokens=False)
        return shown or tokenizer.id_to_token(number) or f"⟨{number}⟩"

    return text


def _model_folder(run: Run) -> Path | None:
    from groupwise.policies.cache import cache_folder
    from groupwise.policies.catalogue import get_model

    name = run.recipe.get("model", {}).get("name")
    if not isinstance(name, str):
        return None
    entry = get_model(name)
    folder = Path(name) if entry is None else cache_folder() / "models" / entry.folder_name()
    return folder if (folder / "tokenizer.json").is_file() else None
