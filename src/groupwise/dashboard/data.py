"""What a page shows of a run, as JSON: answers, curves, findings, groups of rollouts.

A file holds all of it, with a stated sample of the groups. A served page has the first screen and
asks for the rest, of the whole record.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import cache, cached_property
from pathlib import Path
from statistics import median
from typing import Any

from groupwise import __version__
from groupwise.dashboard.index import GroupIndex, Row, Wanted
from groupwise.dashboard.questions import answers
from groupwise.dashboard.samples import distributions, passes, spaced
from groupwise.doctor import diagnose
from groupwise.doctor.facts import Facts
from groupwise.records import Run, diff, text_hash
from groupwise.records.files import write_json
from groupwise.texts import checks_itself, from_json, repeated_share, shortened

GROUPS = 120
"""Groups in a file; the doctor's samples first, then prompts that recur, then over the steps."""
TOKENS = 600
"""Tokens of a completion that carry their values; what follows is plain text."""
CHARACTERS = 20_000
"""Of a text; what follows is counted."""
POINTS = 2_000
"""Of a curve, evenly over the steps."""
SEEN = "seen.json"

_TOKEN_COLUMNS = (
    "sampler_logprobs", "old_logprobs", "learner_logprobs", "entropies", "loss_weights",
    "token_advantages",
)  # fmt: skip


class RunView:
    """One run as pages show it. Made once and asked again and again while the run goes on."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.index = GroupIndex(run)

    def overview(self) -> dict[str, Any]:
        """The first screen and the curves, of the record as it is now."""
        run = self.run
        self.index.stale = True
        facts, found = Facts(run), diagnose(run)
        doctor = found.to_dict()
        self.index.name(
            [(s["step"], s["prompt_id"]) for each in doctor["findings"] for s in each["samples"]]
        )
        return {
            "version": __version__,
            "name": str(run.folder),
            "summary": run.summary,
            "recipe": run.recipe_text,
            "family": _family(run.recipe),
            "answers": [asdict(each) for each in answers(facts, found)],
            "doctor": doctor,
            "curves": _curves(facts),
            "rollouts": sum(int(value) for value in facts.series("completions/count")),
            "plan": _plan(facts),
            "seen": self.seen(),
            "events": run.events()[-200:],
        }

    def whole(self, groups: int) -> dict[str, Any]:
        """Everything that a file holds."""
        return {
            **self.overview(),
            "groups": self.sample(groups),
            "distributions": self.distributions(),
            "passes": self.passes(),
        }

    def groups(self, wanted: Wanted, offset: int = 0, limit: int = 1) -> dict[str, Any]:
        """Some of the groups that are wanted, with their rollouts, and how many there are."""
        total, lines = self.index.find(wanted, offset, limit)
        return {"total": total, "groups": self._read(lines)}

    def facets(self) -> dict[str, list[Any]]:
        """The values that filters offer."""
        return self.index.facets()

    def visits(self, prompt_id: str) -> list[list[Any]]:
        """[step, mean reward] of every group of a prompt."""
        return [[line["step"], line["reward"]] for line in self.index.visits(prompt_id)]

    def distributions(self) -> dict[str, Any]:
        return distributions(self.run)

    def passes(self) -> list[dict[str, Any]]:
        return passes(self.run, [each["version"] for each in self.run.evaluations().to_pylist()])

    def sample(self, limit: int) -> list[dict[str, Any]]:
        """At most `limit` groups: named ones, three prompts over their visits, then over steps."""
        find = self.index.find
        chosen = [line for line in find(Wanted(), limit=limit // 2)[1] if line["named"]]
        for prompt_id in self.index.repeated(3):
            chosen += spaced(self.index.visits(prompt_id), limit // 12)
        steps = self.index.facets()["step"]
        steps = spaced(steps, max(1, min(len(steps), limit // 8)))
        each = max(1, (limit - len(chosen)) // max(1, len(steps)))
        for step in steps:
            total = find(Wanted(step=str(step)))[0]
            for place in spaced(range(total), each):
                chosen += find(Wanted(step=str(step)), place)[1]
        lines = {_key(line): line for line in chosen}
        kept = list(lines.values())[:limit]
        return self._read(sorted(kept, key=lambda line: (not line["named"], line["step"])))

    def seen(self) -> list[str]:
        """The keys of the rollouts that a person has read, as the page makes them."""
        try:
            keys = from_json((self.run.folder / SEEN).read_text("utf-8"))
        except (OSError, ValueError):
            return []
        return [key for key in keys if isinstance(key, str)] if isinstance(keys, list) else []

    def add_seen(self, keys: Iterable[str]) -> None:
        """Keep keys beside the record. Raises OSError where its folder cannot be written."""
        write_json(self.run.folder / SEEN, list(dict.fromkeys([*self.seen(), *keys]))[-20_000:])

    def _read(self, lines: Sequence[Row]) -> list[dict[str, Any]]:
        """The groups of these lines of the index, in their order."""
        steps: dict[int, set[tuple[Any, ...]]] = {}
        for line in lines:
            steps.setdefault(line["step"], set()).add(_key(line)[1:])
        rows: dict[tuple[Any, ...], list[Row]] = {}
        for step, keys in steps.items():
            for row in self.run.group_rows(step, keys):
                key = (step, row["prompt_id"], row.get("visit"), row.get("kind"))
                rows.setdefault(key, []).append(row)
        found = [(line, rows[_key(line)]) for line in lines if _key(line) in rows]
        return [self._group(line, members) for line, members in found]

    def _group(self, line: Row, rows: list[Row]) -> dict[str, Any]:
        shared = {name: line[name] for name in ("step", "prompt_id", "visit", "kind", "named")}
        return {
            **shared,
            "prompt": shortened(rows[0].get("prompt") or "", CHARACTERS),
            "answer": rows[0].get("answer"),
            "parts_at": _parting([row["completion_ids"] for row in rows]),
            "rows": [self._rollout(row) for row in rows],
        }

    def _rollout(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """A rollout with its tokens' texts and values, cut to `TOKENS`."""
        ids = row["completion_ids"][:TOKENS]
        names = (
            "group_index", "version", "finish_reason", "reward", "rewards", "outcome", "reason",
            "advantage", "limit", "output",
        )  # fmt: skip
        shown = {name: row.get(name) for name in names}
        shown["text"] = shortened(row["text"], CHARACTERS)
        shown["messages"] = shortened(row.get("messages") or "", CHARACTERS)
        shown["tokens"] = [self._token_text(each) for each in ids]
        shown["cut"] = max(0, len(row["completion_ids"]) - len(ids))
        shown["mask"] = (row.get("mask") or [True] * len(ids))[:TOKENS]
        for name in _TOKEN_COLUMNS:
            values = row.get(name)
            shown[name] = None if values is None else _rounded(values[:TOKENS])
        shown["repetition"] = round(repeated_share(row["completion_ids"] or row["text"].split()), 3)
        shown["checks_itself"] = checks_itself(row["text"])
        return shown

    @cached_property
    def _token_text(self) -> Callable[[int], str]:
        return token_texts(self.run)


def pair(a: Run, b: Run) -> dict[str, Any]:
    """Where two runs part: the first step, what differs in it, and the recipes' differences."""
    found = diff(a, b)
    return {
        "first_step": found.first_step,
        "causes": [str(each) for each in found.causes[:12]],
        "recipe": [str(each) for each in found.recipe[:40]],
    }


def _key(line: Mapping[str, Any]) -> tuple[Any, ...]:
    return (line["step"], line["prompt_id"], line["visit"], line["kind"])


def _family(recipe: Mapping[str, Any]) -> str:
    """Equal for runs whose recipes differ in the seed alone."""
    rest = {name: value for name, value in recipe.items() if name != "seed"}
    return text_hash(json.dumps(rest, sort_keys=True, default=str))[:12]


def _plan(facts: Facts) -> list[dict[str, Any]]:
    """What was planned before the run beside what it took; nothing where no plan was recorded."""
    planned = facts.planned
    if planned is None:
        return []
    peak = max(facts.series("memory/peak_bytes"), default=0.0)
    phases = zip(*(facts.series(f"seconds/{name}") for name in ("rollout", "learn")), strict=False)
    seconds = [math.fsum(each) for each in phases]
    rows = (
        ("memory that the run takes, at its peak", "bytes", planned["memory"],
         peak - planned["resident"] if peak > planned["peak"] else None),
        ("rollout and learning, a step (planned: every completion at its limit)", "s",
         planned["step_seconds"], median(seconds) if seconds else None),
        ("tokens a step, at most", "tokens", planned.get("tokens"),
         max(facts.series("tokens"), default=None)),
    )  # fmt: skip
    return [dict(zip(("name", "unit", "planned", "measured"), row, strict=True)) for row in rows]


def _curves(facts: Facts) -> dict[str, Any]:
    """Each metric as [steps, values], of the steps and of the evaluations (by version)."""
    curves: dict[str, Any] = {}
    for lines, at in ((facts.lines, "step"), (facts.evaluations, "version")):
        for name in dict.fromkeys(key for line in lines for key in line):
            points = [(line[at], line[name]) for line in lines if line.get(name) is not None]
            if points and name != at and (at == "version" or not name.startswith("eval/")):
                curves[name] = [list(each) for each in zip(*spaced(points, POINTS), strict=True)]
    return curves


def _parting(ids: Sequence[Sequence[int]]) -> int | None:
    """The first place at which the members of a group differ; None for one member or no ids."""
    if len(ids) < 2 or not all(ids):
        return None
    shortest = min(map(len, ids))
    return next((n for n in range(shortest) if len({row[n] for row in ids}) > 1), shortest)


def _rounded(values: Iterable[float | None]) -> list[float | None]:
    return [None if v is None or not math.isfinite(v) else float(f"{v:.4g}") for v in values]


def token_texts(run: Run) -> Callable[[int], str]:
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
