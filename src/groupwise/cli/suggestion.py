"""What `groupwise suggest` found: its report, and the recipe with the reason of each value."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import tomli_w
from rich.console import Console

from groupwise.cli.tables import plain_table
from groupwise.errors import RecipeError
from groupwise.evaluation.prospects import BAR, LEAST_SIGNAL, USUAL, Prospects
from groupwise.recipe import load_recipe, read_table
from groupwise.records.files import write_for_user
from groupwise.stages import check_pipeline, load_pipeline
from groupwise.texts import counted
from groupwise.training.preparing import Prepared, prepare
from groupwise.types import Prompt

_SAYS = {
    "amplify": (
        "group_rl",
        "RL has something to amplify",
        "start with a group method and a reward of 0 or 1",
    ),
    "too_hard": (
        "supervised_first",
        "RL has nothing to amplify: the policy is almost never right",
        "start with supervised training (a teacher's traces, if there is one) or easier prompts",
    ),
    "split": (
        "supervised_first",
        "RL has nothing to amplify: each prompt is solved nearly always or nearly never",
        "leave out what is always solved and start the rest with supervised training",
    ),
    "too_easy": (
        "harder_data",
        "RL has nothing to amplify: the policy is almost always right",
        "start with harder prompts, or keep the model as it is",
    ),
}
"""By verdict: the method, what it means, and what to do."""
_INFORMATIVE = 16
"""Groups with a signal that a step should hold."""
_RATES = ((1e7, 3e-4, 1e-3), (1e9, 1e-5, 2e-5), (math.inf, 1e-6, 1e-5))
"""Parameters below which a model takes these learning rates: in RL, in a supervised stage."""


@dataclass
class Suggestion:
    """Where to start with a model on some prompts.

    `verifier` says which one was chosen and why; `tables` are the recipe's given ones, whose values
    stay; `cap` is the most tokens sampled; `starts` are prompts with right completions, for a
    policy that solves none.
    """

    data: str
    model: str
    verifier: str
    tables: Mapping[str, Any]
    prepared: Prepared
    prospects: Prospects
    cap: int
    starts: Sequence[tuple[Prompt, str]] = ()
    recipe: Path | None = None

    @cached_property
    def verdict(self) -> str:
        """Whether RL has anything to amplify, how sure that is, and what to start with."""
        found = self.prospects
        share, (low, high) = found.no_signal[USUAL]
        _, what, start = _SAYS[found.verdict]
        what += (
            f" ({1 - share:.0%} [{1 - high:.0%}, {1 - low:.0%}] of groups of {USUAL} hold right "
            f"and wrong completions; {LEAST_SIGNAL:.0%} is the least that is worth a run)"
        )
        if found.is_sure:
            return f"{what}: {start}"
        cause = f"from {counted(len(found.rates), 'prompt')}; measure more (--prompts)"
        if found.is_cut and found.verdict != "amplify":
            cause = "from completions that were cut off; raise --sampling.max_tokens"
        return f"cannot tell {cause}. The estimate says: {what}; then {start}"

    @cached_property
    def notes(self) -> list[str]:
        """What else the figures say."""
        found, whole, notes = self.prospects, self.prospects.summary, []
        largest = max(found.no_signal)
        best, greedy = whole.pass_at_k[largest] or 0.0, whole.greedy or 0.0
        if found.verdict == "amplify" and best - greedy < 0.05:
            notes.append(
                f"greedy decoding is right on {greedy:.0%} of the prompts, {largest} samples on "
                f"{best:.0%}: RL will mostly sharpen what greedy decoding can do already"
            )
        if found.verdict == "amplify" and found.length(0.9) <= 8:
            notes.append('short completions: rejection sampling (preset "raft") may be enough')
        if found.verdict == "amplify" and found.never + found.always > len(found.rates) / 2:
            notes.append(
                f"{found.never} prompts were never solved and {found.always} always: they teach "
                'nothing at any group size; leave them out, or use preset "dapo"'
            )
        if found.verdict != "amplify" and greedy > (whole.accuracy or 0.0) + LEAST_SIGNAL:
            notes.append(
                f"greedy decoding is right on {greedy:.0%} of the prompts, sampling on "
                f"{whole.accuracy:.0%}: measure again with a lower --sampling.temperature"
            )
        if self._cut:
            notes.append(
                f"{whole.truncated:.0%} of the completions were cut off at {self.cap} "
                "tokens; measure again with a larger --sampling.max_tokens"
            )
        if self.starts:
            notes.append(
                "the supervised stage learns gold answers alone; traces of a teacher teach more"
            )
        elif _SAYS[found.verdict][0] == "supervised_first":
            notes.append(
                "the verifier cannot write out its gold answers, so the recipe is RL alone; put a "
                "supervised or a distillation stage before it"
            )
        return notes

    @property
    def _cut(self) -> bool:
        return (self.prospects.summary.truncated or 0.0) > 0.01

    @cached_property
    def values(self) -> dict[str, tuple[Any, str]]:
        """Suggested fields of the recipe, by dotted name, with the reason; a given one stays."""
        found, model = self.prospects, self.prepared.model
        num_prompts = len(self.prepared.environment)
        room = model.max_length - self.prepared.longest_prompt
        size = found.group_size()
        share = found.no_signal[size][0]
        few = f"fewer than {BAR:.0%} of groups without signal"
        why = f"the smallest with {few}: {share:.0%}"
        if share >= BAR:
            why = f"no size has {few}; more than this one gain little: {share:.0%}"
        prompts = min(math.ceil(_INFORMATIVE / max(1 - share, LEAST_SIGNAL)), num_prompts)
        filled = f"{prompts * (1 - share):.0f} groups with a signal a step"
        if found.verdict != "amplify":
            size, why = USUAL, "the usual one; too little signal to choose by"
            prompts, filled = min(_INFORMATIVE, num_prompts), "not measured"
        starts = (len(model.template.encode(text)) for _, text in self.starts)
        longest = max([found.length(0.99), *starts])
        tokens, cap = 1.5 * longest, f"1.5 times the 99 % quantile of the lengths, {longest}"
        if self._cut:
            tokens, cap = 2.0 * self.cap, f"twice {self.cap}, which cut off completions"
        rates = next(each for each in _RATES if model.num_parameters < each[0])
        by_size = f"by the model's size, {model.num_parameters:,} parameters; not measured"
        values = {
            "sampling.group_size": (size, why),
            "sampling.max_tokens": (min(8 * math.ceil(tokens / 8), room), cap),
            "training.prompts_per_step": (prompts, filled),
            "training.steps": (100, "a first run; not measured"),
            "training.learning_rate": (rates[1], by_size),
        }
        for dotted in values:
            table, field = dotted.split(".")
            if field in self.tables.get(table, {}):
                values[dotted] = self.tables[table][field], "as given"
        if self.starts:
            values["start.learning_rate"] = rates[2], by_size
        return values

    @staticmethod
    def rows_path(output: Path) -> Path:
        """Where the rows of a supervised stage are written, beside the recipe."""
        return output.with_suffix(".rows.jsonl")

    def write(self, output: Path) -> None:
        """Write the recipe, and a supervised stage's rows beside it, once it has passed the checks
        of `groupwise train`. Raises RecipeError."""
        tables = read_table(self.tables)
        values = {dotted: value for dotted, (value, _) in self.values.items()}
        rate = values.pop("start.learning_rate", None)
        for dotted, value in values.items():
            table, field = dotted.split(".")
            tables.setdefault(table, {})[field] = value
        if self.starts:
            rows = self.rows_path(output)
            write_for_user(rows, "".join(map(_row, self.starts)), "--output")
            is_chat = self.starts[0][0].text is None
            start = {
                "kind": "supervised",
                "name": "start",
                "data": {"path": str(rows), "chat": is_chat},
                "training": {"learning_rate": rate, "epochs": 3.0},
            }
            rl = {"kind": "rl", "name": "rl", "training": tables.pop("training")}
            tables["stages"] = [start, rl]
            try:
                check_pipeline(load_pipeline(tables))
            except RecipeError:
                rows.unlink()
                raise
        else:
            prepare(load_recipe(tables)).environment.close()
        write_for_user(output, self._text(tables), "--output")
        self.recipe = output

    def _text(self, tables: Mapping[str, Any]) -> str:
        """The recipe as TOML, each suggested value under its reason."""
        lines = [_comment(f"{self.model} on {self.data}: {self.verdict}.")]
        lines += [_comment(f"{note}.") for note in self.notes]
        if self.verifier:
            lines.append(_comment(f"{self.verifier}."))
        section = stage = ""
        for line in ["", *tomli_w.dumps(tables).splitlines()]:
            key, _, value = line.partition(" = ")
            if line.startswith("["):
                section = line.strip("[]").removeprefix("stages.")
            elif section == "stages" and key == "name":
                stage = value.strip('"')
            owner = "start" if section == "training" and stage == "start" else section
            if f"{owner}.{key}" in self.values:
                lines.append(_comment(self.values[f"{owner}.{key}"][1]))
            lines.append(line)
        return "\n".join(lines) + "\n"

    def print(self, console: Console) -> None:
        """The report: figures with 95 % intervals, values with reasons, verdict and notes."""
        figures = self.prospects.figures
        rows = []
        for name, value in figures.items():
            if name.endswith(("_low", "_high")):
                continue
            text = "-" if value is None else f"{value:.3g}"
            if figures.get(f"{name}_low") is not None:
                text += f" [{figures[f'{name}_low']:.3g}, {figures[f'{name}_high']:.3g}]"
            rows.append((name, text))
        console.print(plain_table(("measured", "value"), rows))
        console.print()
        chosen = [(name, str(value), why) for name, (value, why) in self.values.items()]
        console.print(plain_table(("suggested", "value", "reason"), chosen))
        for line in (self.verdict, *self.notes):
            console.print(f"\n{line}.")

    def to_dict(self) -> dict[str, Any]:
        """For `--json`."""
        found = self.prospects
        return {
            "data": self.data,
            "model": self.model,
            "verifier": self.verifier or None,
            "method": _SAYS[found.verdict][0],
            "amplify": found.verdict == "amplify",
            "sure": found.is_sure,
            "verdict": self.verdict,
            "notes": self.notes,
            "figures": found.figures,
            "rates": list(found.rates),
            "suggested": {
                name: {"value": value, "reason": why} for name, (value, why) in self.values.items()
            },
            "recipe": None if self.recipe is None else str(self.recipe),
        }


def _comment(text: str) -> str:
    return textwrap.fill(text, 100, initial_indent="# ", subsequent_indent="# ")


def _row(start: tuple[Prompt, str]) -> str:
    """One line of the rows that a supervised stage reads."""
    prompt, text = start
    if prompt.text is not None:
        return json.dumps({"prompt": prompt.text, "completion": text}) + "\n"
    messages = [*map(dict, prompt.messages), {"role": "assistant", "content": text}]
    tools = {"tools": [dict(each) for each in prompt.tools]} if prompt.tools else {}
    return json.dumps({"messages": messages, **tools}, default=str) + "\n"
