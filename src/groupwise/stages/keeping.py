"""Which sampled completions are learned from, and why each of the others is not."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from groupwise.algorithms import preset
from groupwise.environments import EnvironmentSettings
from groupwise.errors import GroupwiseError, RecipeError
from groupwise.recipe import Recipe, check_record
from groupwise.records.files import json_line, write_text
from groupwise.samplers import SamplingSettings
from groupwise.stages.chats import TokenExample, chat_examples, check_length, raw_example
from groupwise.stages.stage import DROPPED, ROWS, CheckContext, Stage, StageContext
from groupwise.stages.traces import SAMPLED, Trace
from groupwise.templates import Template
from groupwise.texts import counted, listed
from groupwise.training.preparing import Prepared, prepare
from groupwise.types import Prompt
from groupwise.verifiers import check_label, check_verdicts


class TraceFilter(BaseModel):
    """Bounds on one verifier's value, whatever its weight."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    verifier: str = Field(description="The label of one of the environment's verifiers.")
    at_least: float | None = Field(None, description="The smallest value that passes.")
    at_most: float | None = Field(None, description="The largest value that passes.")
    missing: Literal["keep", "drop"] = Field(
        "keep", description="What becomes of a completion that the verifier does not apply to."
    )

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        if self.at_least is None and self.at_most is None:
            raise ValueError(f"the filter on {self.verifier!r} has no bound; give at_least")
        return self

    def fault(self, parts: Mapping[str, float | None]) -> str:
        """Why a completion with these values does not pass; "" where it does."""
        value = parts.get(self.verifier)
        if value is None:
            return f"without {self.verifier}" if self.missing == "drop" else ""
        if self.at_least is not None and value < self.at_least:
            return f"{self.verifier} below {self.at_least:g}: {value:g}"
        if self.at_most is not None and value > self.at_most:
            return f"{self.verifier} above {self.at_most:g}: {value:g}"
        return ""


class Rules(BaseModel):
    """What is kept of a prompt's completions."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    keep: Literal["correct", "best", "above_mean", "all"] = Field(
        "correct",
        description="Completions that the verifier finds correct, the best of each prompt by "
        "reward (see `best`), those whose reward is above the mean of their prompt's (none where "
        "all are equal), or all.",
    )
    at_least: float | None = Field(
        None,
        description='With keep = "correct" the least accuracy (1 where left out), with "best" and '
        '"above_mean" the least reward.',
    )
    best: int = Field(1, ge=1, description='With keep = "best": how many of a prompt are kept.')
    per_prompt: int | None = Field(None, ge=1, description="The most completions of one prompt.")
    duplicates: bool = Field(
        False,
        description="Keep a text that was sampled again for the same prompt: its share is then "
        "the sampler's, and not one of a kind.",
    )
    filters: tuple[TraceFilter, ...] = Field(
        (), description="Bounds on single verifiers, say a language's share."
    )
    min_length: int = Field(0, ge=0, description="The fewest tokens of a completion.")
    max_length: int | None = Field(None, ge=1, description="The most tokens of a completion.")
    unfinished: bool = Field(
        False, description="Keep completions that did not end by themselves too."
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.keep == "all" and self.at_least is not None:
            raise ValueError(
                f'at_least = {self.at_least:g} with keep = "all", which asks for no verdict; set '
                'keep = "correct" (accuracy) or "best" (reward)'
            )
        if self.keep == "correct" and self.at_least is not None and not 0 < self.at_least <= 1:
            raise ValueError(
                f'at_least = {self.at_least:g} with keep = "correct" is an accuracy, above 0 and '
                'at most 1; give 1, or set keep = "best" for a reward'
            )
        if self.keep != "best" and self.best != 1:
            raise ValueError(
                f'best = {self.best} has no effect with keep = "{self.keep}"; set keep = "best", '
                f"or per_prompt = {self.best}"
            )
        if self.max_length is not None and self.max_length < self.min_length:
            raise ValueError(
                f"max_length = {self.max_length} is below min_length = {self.min_length}"
            )
        return self

    def is_right(self, trace: Trace) -> bool:
        """Whether a trace passes as correct."""
        least = self.at_least if self.keep == "correct" and self.at_least is not None else 1.0
        return not trace.fault and trace.accuracy is not None and trace.accuracy >= least

    def fault(self, trace: Trace) -> str:
        """Why a trace is dropped for itself, whatever else its prompt has; "" where it is not."""
        if trace.fault.startswith("not finished"):
            if not self.unfinished:
                return trace.fault
        elif trace.fault:
            return f"failed: {trace.fault}"
        judged = self.keep if trace.how == SAMPLED else "correct"
        if judged == "correct" and not self.is_right(trace):
            return f"not correct: {trace.outcome}"
        ranked = judged in ("best", "above_mean")
        if ranked and trace.reward is None:
            return f"no reward: {trace.outcome}"
        if ranked and self.at_least is not None and (trace.reward or 0) < self.at_least:
            return f"reward below {self.at_least:g}: {trace.reward:g}"
        if trace.tokens is not None and trace.tokens < self.min_length:
            return f"shorter than {counted(self.min_length, 'token')}"
        tokens, most = trace.tokens, self.max_length
        if tokens is not None and most is not None and tokens > most:
            return f"longer than {counted(most, 'token')}"
        return next((fault for each in self.filters if (fault := each.fault(trace.parts))), "")


@dataclass(slots=True)
class Kept:
    """Traces that are learned from and those that are not, as rows with their reasons."""

    rows: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    dropped: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    @property
    def reasons(self) -> dict[str, int]:
        """How many traces each reason dropped."""
        return dict(Counter(row["reason"].partition(":")[0] for row in self.dropped))


def keep(traces: Sequence[Trace], rules: Rules) -> Kept:
    """Which traces are learned from: every one ends among `rows` or `dropped`, with its reason."""
    prompts: dict[str, list[Trace]] = defaultdict(list)
    for trace in traces:
        prompts[trace.prompt_id].append(trace)
    found = Kept()
    for group in prompts.values():
        reasons = _reasons(group, rules)
        for trace, reason in zip(group, reasons, strict=True):
            row = {**trace.row, "prompt_id": trace.prompt_id, "outcome": trace.outcome}
            row |= {"how": trace.how, "reward": trace.reward, "parts": dict(trace.parts)}
            better = "above the mean" if rules.keep == "above_mean" else "among the best"
            why = "correct" if rules.is_right(trace) else better
            why = "no verdict asked" if rules.keep == "all" and trace.how == SAMPLED else why
            (found.dropped if reason else found.rows).append({**row, "reason": reason or why})
    return found


def _reasons(group: Sequence[Trace], rules: Rules) -> list[str]:
    """Why each trace of one prompt is dropped, "" for those that are kept."""
    reasons = [rules.fault(trace) for trace in group]
    if rules.keep == "above_mean":
        rewards = [e.reward for e in group if e.how == SAMPLED and e.reward is not None]
        mean = math.fsum(rewards) / max(len(rewards), 1)
        for place, trace in enumerate(group):
            low = trace.how == SAMPLED and (trace.reward or 0.0) <= mean
            reasons[place] = reasons[place] or ("not above the mean of its prompt" if low else "")
    texts: set[str] = set()
    for place, trace in enumerate(group):
        if not reasons[place] and not rules.duplicates and trace.text in texts:
            reasons[place] = "a duplicate"
        elif not reasons[place]:
            texts.add(trace.text)
    left = [place for place, reason in enumerate(reasons) if not reason]
    if rules.keep == "best":
        left.sort(key=lambda place: (-(group[place].reward or 0.0), place))
        for place in left[rules.best :]:
            reasons[place] = f"not among the best {rules.best}"
        left = left[: rules.best]
    for place in left[rules.per_prompt :] if rules.per_prompt is not None else ():
        reasons[place] = f"more than {rules.per_prompt} of its prompt"
    return reasons


class SamplingStage(Stage):
    """A stage that has completions of an environment's prompts sampled."""

    environment: EnvironmentSettings = Field(description="Prompts, turns and verifier.")
    sampling: SamplingSettings = Field(
        default_factory=SamplingSettings,
        description="How completions are sampled; group_size is their number for a prompt.",
    )
    prompts: int | None = Field(None, ge=1, description="So many training prompts; all if unset.")
    skip: int = Field(0, ge=0, description="Training prompts that are passed over first.")

    def prepared(self, context: CheckContext) -> Prepared:
        """The environment and the input's template. Raises RecipeError."""
        check_record(self)
        found = prepare(
            Recipe(
                seed=self.seed,
                model=self.model.model_copy(update={"name": context.model}),
                template=self.template,
                environment=self.environment,
                algorithm=preset("reinforce"),
                sampling=self.sampling,
            ),
            context.pending,
        )
        count = len(found.environment)
        if not self.chosen(found):
            raise RecipeError(
                f"skip = {self.skip}: the environment has {count} training prompts, so none is "
                "left; give less"
            )
        if self.prompts is not None and self.prompts > count - self.skip:
            behind = f", {count - self.skip} after skip = {self.skip}" if self.skip else ""
            raise RecipeError(
                f"prompts = {self.prompts}: the environment has {count} training prompts{behind}; "
                f"give at most {count - self.skip}, or leave it out for all of them"
            )
        return found

    def sources(self, prepared: Any) -> dict[str, str]:
        return {"environment's data": prepared.environment.describe()["data_hash"]}

    def chosen(self, prepared: Prepared) -> list[Prompt]:
        """The prompts that are sampled from."""
        prompts = prepared.environment.prompts()[self.skip :]
        return prompts if self.prompts is None else prompts[: self.prompts]

    def plan(self, prepared: Prepared) -> list[tuple[str, str]]:
        count = len(self.chosen(prepared))
        return [("prompts, completions", f"{count:,}, {count * self.sampling.group_size:,}")]


class TraceStage(Rules, SamplingStage):
    """A stage that keeps some of the completions."""

    def prepared(self, context: CheckContext) -> Prepared:
        found = super().prepared(context)
        verifier = found.environment.verifier
        if self.keep == "correct":
            check_verdicts(verifier, 'keep = "correct"')
        for each in self.filters:
            check_label(verifier, each.verifier, "filters: verifier")
        return found

    def kept(
        self, context: StageContext, traces: Sequence[Trace], template: Template, longest: int
    ) -> tuple[Kept, list[TokenExample]]:
        """What is kept, also as examples; both files of rows are written.

        Raises GroupwiseError where nothing is kept.
        """
        for each in self.filters:
            judged = [trace.parts for trace in traces if trace.reward is not None]
            if judged and not any(each.verifier in parts for parts in judged):
                raise GroupwiseError(
                    f"filters: no completion has a value of {each.verifier!r}, only of "
                    f"{', '.join(sorted(set().union(*judged))) or 'the whole'}; give one of these"
                )
        found, examples = keep(traces, self), list[TokenExample]()
        rows, found.rows = found.rows, []
        for row in rows:
            try:
                examples += _examples(row, template, longest)
            except (ValueError, RecipeError) as error:
                found.dropped.append({**row, "reason": f"not learnable: {error}"})
                continue
            found.rows.append(row)
        write_kept(context, found)
        return found, examples


SAMPLE_MORE = (
    'Sample more for a prompt (sampling.group_size), loosen what drops them (keep = "all"), or '
    "start from a better model"
)


def write_kept(context: StageContext, found: Kept, advice: str = SAMPLE_MORE) -> None:
    """Both files of rows. Raises GroupwiseError with the advice where nothing is kept."""
    write_text(context.folder / ROWS, "".join(map(json_line, found.rows)))
    write_text(context.folder / DROPPED, "".join(map(json_line, found.dropped)))
    total = len(found.rows) + len(found.dropped)
    for reason, number in found.reasons.items():
        context.warn(f"{number} of {total} rows dropped: {reason}")
    if not found.rows:
        raise GroupwiseError(
            f"all {counted(len(found.dropped), 'row was', 'rows were')} dropped "
            f"({listed(found.reasons)}; {DROPPED} has "
            f"each with its reason): nothing is learned from. {advice}"
        )


def trace_counts(traces: Sequence[Trace], kept: Kept, rules: Rules) -> dict[str, float | int]:
    """The headline figures of a stage that keeps traces."""
    return {
        "traces/sampled": len(traces),
        "traces/correct": sum(map(rules.is_right, traces)),
        "traces/kept": len(kept.rows),
        "traces/dropped": len(kept.dropped),
        **{f"traces/dropped/{reason}": count for reason, count in kept.reasons.items()},
        "traces/tokens": sum(each.tokens or 0 for each in traces),
    }


def _examples(row: Mapping[str, Any], template: Template, longest: int) -> list[TokenExample]:
    """A trace as the ids that are learned. Raises ValueError where it cannot be learned from."""
    if "messages" in row:
        found = chat_examples(template, row["messages"], values=row)
    else:
        found = [raw_example(template, row["prompt"], row["completion"])]
    check_length(max(each.tokens for each in found), longest)
    return found
