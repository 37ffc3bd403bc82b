"""The `process` stage: a reward model of steps, or of outcomes, from labelled solutions.

The labels come from rows (people's, or another stage's), or from `rollouts`: the stage's input
samples solutions and completes each of their steps several times (Math-Shepherd). The model is the
input's decoder with a linear head of two labels on every token; the verifier
`process_reward_model` loads the folder and reads it as this stage does.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from groupwise.algorithms.process import step_loss
from groupwise.environments.readers import Row
from groupwise.errors import GroupwiseError, RecipeError
from groupwise.policies import Policy, describe_model
from groupwise.records.files import json_line, write_text
from groupwise.stages.classifier import (
    check_start,
    classifier_policy,
    tokenizer_at,
    write_classifier,
)
from groupwise.stages.data_stage import DataStage
from groupwise.stages.keeping import SamplingStage
from groupwise.stages.prefixes import Labelling
from groupwise.stages.stage import ROWS, CheckContext, Rows, Stage, StageContext, StageResult
from groupwise.stages.step_rows import Labels, StepData, StepExample, step_example
from groupwise.stages.traces import Source
from groupwise.templates import Template
from groupwise.training.preparing import Prepared
from groupwise.training.process import Interrupted, Interruption
from groupwise.verifiers import check_verdicts
from groupwise.verifiers.process.boundaries import SEPARATOR

LABELLED = "labelled.jsonl"


class StepLoss:
    """Binary cross-entropy at each labelled step's last token, summed; divided by their number."""

    def count(self, example: StepExample) -> float:
        return float(len(example.places))

    def trained(self, example: StepExample) -> int:
        return len(example.places)

    def size(self, example: StepExample) -> int:
        return len(example.ids)

    def digest(self, example: StepExample) -> bytes:
        parts = (example.ids, example.places)
        ids = b"".join(struct.pack(f"<q{len(part)}q", len(part), *part) for part in parts)
        return ids + struct.pack(f"<{len(example.labels)}d", *example.labels)

    def sum_loss(
        self, policy: Policy, examples: Sequence[StepExample]
    ) -> tuple[Tensor, Mapping[str, float]]:
        odds = step_log_odds(policy, examples)
        labels = torch.tensor([label for each in examples for label in each.labels]).to(odds)
        found, right = odds.detach(), labels > 0.5
        hits = ((found > 0) == right).float().masked_fill(found == 0, 0.5)
        return step_loss(odds, labels).sum(), {
            "accuracy": float(hits.sum()),
            "probability": float(found.sigmoid().sum()),
            "label": float(labels.sum()),
        }


def step_log_odds(policy: Policy, examples: Sequence[StepExample]) -> Tensor:
    """[N] float32: the log-odds that each labelled step is right, example by example;
    `policy.model` is a token classifier."""
    rows = [torch.tensor(each.ids) for each in examples]
    pad = policy.template.pad_id or 0
    ids = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=pad)
    ones = [torch.ones_like(row) for row in rows]
    mask = nn.utils.rnn.pad_sequence(ones, batch_first=True)
    with policy.compute():
        logits: Tensor = policy.model(
            input_ids=ids.to(policy.device), attention_mask=mask.to(policy.device)
        ).logits.float()
    at = [(row, place) for row, each in enumerate(examples) for place in each.places]
    numbers, places = torch.tensor(at).T.to(logits.device)
    chosen = logits[numbers, places]
    return chosen[:, 1] - chosen[:, 0]


class Rollouts(BaseModel):
    """Labels from completions of each step's prefix (Math-Shepherd, arXiv 2312.08935)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    completions: int = Field(
        8,
        ge=1,
        description="Completions of a prefix; sampling.group_size is the number of solutions of a "
        "prompt.",
    )


class Process(DataStage):
    """Steps' labels from rows; `variant` gives the class of labels from completions."""

    kind: ClassVar[str] = "process"
    changes_weights: ClassVar[bool] = False
    leaves_policy: ClassVar[bool] = False
    leaves_scorer: ClassVar[str | None] = "process_reward_model"

    data: tuple[StepData, ...] = Field(
        min_length=1, description="The sources of solutions, mixed; one table or a list of them."
    )
    labels: Labels = Field(
        "soft",
        description="soft: a step's label as it is. hard: 1 where it is above 0 (any completion is "
        "right). outcome: one label a completion, its last step's, at its end.",
    )
    separator: str = Field(
        SEPARATOR,
        description='What ends a step: an empty line, "\\n" for lines, a closing tag; "" is turns '
        "alone.",
    )

    @classmethod
    def variant(cls, table: Mapping[str, Any]) -> type[Stage]:
        if bool(table.get("data")) == ("rollouts" in table):
            raise RecipeError(
                "give data (rows with labelled steps) or rollouts (labels from completions), one "
                "of two"
            )
        return ProcessRollouts if "rollouts" in table else cls

    @classmethod
    def variants(cls) -> tuple[type[Stage], ...]:
        return (cls, ProcessRollouts)

    def objective(self) -> StepLoss:
        return StepLoss()

    def maker(self, source: StepData, template: Template) -> Callable[[Row], list[StepExample]]:
        tokenizer = tokenizer_at(template)

        def make(row: Row) -> list[StepExample]:
            found = source.solutions(row)
            return [step_example(tokenizer, each, self.separator, self.labels) for each in found]

        return make

    def key(self, example: StepExample) -> bytes:
        return repr(example.prompt_ids).encode()

    def check(self, context: CheckContext) -> Any:
        self.check_model(context)
        return super().check(context)

    def check_model(self, context: CheckContext) -> None:
        """Refuse an input that cannot become such a model. Raises RecipeError."""
        info = describe_model(
            context.model, trust_remote_code=self.model.trust_remote_code, classifier=True
        )
        check_start(info.config, context.model, "token", self.model.adapter is not None)

    def run(self, context: StageContext) -> StageResult:
        policy = classifier_policy(self, context.model, "token")
        train, heldout, about = self.examples(context, policy.template, policy.max_length)
        config: Any = policy.model.config
        config.step_separator = "" if self.labels == "outcome" else self.separator
        about["labelled_steps"] = sum(len(each.places) for each in train)
        fitted = self.fit(
            context, policy, self.objective(), train, heldout, about=about, padded=True
        )
        adapted = self.model.adapter is not None
        output = write_classifier(policy, context.folder, adapted=adapted)
        return StageResult(fitted.first, fitted.last, output, fitted.data_hash)


class ProcessRollouts(SamplingStage, Process):
    """Steps' labels from completions of the stage's input, kept as rows."""

    makes: ClassVar[frozenset[Rows]] = frozenset({"steps"})
    small: ClassVar[Mapping[str, Any]] = {
        "prompts": 4,
        "sampling.group_size": 2,
        "sampling.max_tokens": 16,
        "rollouts.completions": 2,
        "training.steps": 2,
        "training.examples_per_step": 4,
    }

    data: tuple[StepData, ...] = Field((), max_length=0, description="None: see `rollouts`.")
    rollouts: Rollouts = Field(
        description="In place of data: the input samples sampling.group_size solutions of each "
        "prompt and completes each of their steps."
    )

    def check(self, context: CheckContext) -> Any:
        self.check_model(context)
        describe_model(context.model, trust_remote_code=self.model.trust_remote_code)
        self.training.check(None if self.heldout_share else 0)
        found = self.prepared(context)
        check_verdicts(found.environment.verifier, "rollouts")
        return found

    def plan(self, prepared: Any) -> list[tuple[str, str]]:
        solutions = len(self.chosen(prepared)) * self.sampling.group_size
        each, tokens = self.rollouts.completions, self.sampling.max_tokens
        return [
            ("solutions", f"{solutions:,}"),
            ("completions a label", f"{each}, but for the last step of a solution, which has none"),
            ("tokens at most", f"{solutions * tokens:,}, and {each * tokens:,} a label"),
        ]

    def run(self, context: StageContext) -> StageResult:
        prepared: Prepared = context.prepared
        policy = self.policy(context.model)
        counts = self._label(context, policy)
        prepared.environment.close()
        source = StepData(path=str(context.folder / ROWS), chat=False, on_bad_row="drop")
        found, _ = self.found(source, context.folder, policy.template, policy.max_length)
        made = Process.run(self, replace(context, prepared={0: found}))
        return StageResult(made.first, {**made.last, **counts}, made.output, made.data_hash)

    def _label(self, context: StageContext, policy: Policy) -> dict[str, float]:
        """Write the labelled rows, or read them; the cost in figures."""
        prepared: Prepared = context.prepared
        source = Source(
            prepared.environment, self.chosen(prepared), self.sampling, self.seed, policy.template
        )
        context.folder.mkdir(parents=True, exist_ok=True)
        labelling = Labelling(source, self.rollouts.completions, self.separator)
        counts, rows = Counter[str](), list[dict[str, Any]]()
        with Interruption() as interruption:
            for done, line in enumerate(labelling.stored(context.folder / LABELLED, policy), 1):
                counts.update(line["counts"])
                rows += line["rows"]
                if interruption.number is not None and done < len(source.prompts):
                    raise Interrupted(
                        interruption.number,
                        f"interrupted after the labels of {done} of {len(source.prompts)} prompts",
                    )
        solutions = len(rows) + sum(counts[name] for name in counts if name.startswith("dropped/"))
        for name, words in (
            ("unaligned", "steps have no label: their last token belongs to the next step too"),
            ("unscored", "steps have no label: none of their completions was scored"),
            ("dropped/unscored", f"of {solutions} solutions dropped: the verifier gave no score"),
            ("dropped/empty", f"of {solutions} solutions dropped: they are blank"),
        ):
            if counts[name]:
                context.warn(f"{counts[name]} {words}")
        if not rows:
            raise GroupwiseError(f"rollouts: none of {solutions} solutions can be labelled")
        write_text(context.folder / ROWS, "".join(map(json_line, rows)))
        found = {f"labels/{name}": float(counts[name]) for name in sorted(counts)}
        return {
            "labels/solutions": float(len(rows)),
            **found,
            "labels/tokens_a_label": counts["tokens"] / max(counts["labels"], 1),
        }
