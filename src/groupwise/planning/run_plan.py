"""The plan of a run: how much it samples, learns, holds and writes, before anything loads.

Every number has its unit in its name; prompts, completions and tokens are never mixed.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from groupwise.planning.memory import (
    CriticKind,
    DTypeName,
    MemoryInputs,
    MemoryPlan,
    Optimizer,
    checkpoint_file_bytes,
    memory_plan,
)
from groupwise.planning.render import differing_rows, plan_table, summary_line, table
from groupwise.planning.shape import ModelShape

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanInputs:
    """What a plan is made from: plain numbers out of a recipe, its data and its model.

    `train_prompts` and `evaluated_prompts` count the data; `longest_prompt` and `mean_prompt` are
    in tokens. `greedy_rollouts`: the algorithm asks for one greedy completion a prompt.
    `max_rounds` and `oversample` are dynamic sampling's bounds, None without it: a round samples
    `oversample` times the prompts that are missing, at most `max_rounds` rounds a step.
    `adapter_parameters`: those of an adapter over the frozen model, None without one.
    `process_bytes` is what a process takes beside tensors, once its imports are done; `processes`
    train together; `nf4`: an adapter's base is in 4 bits; `available_bytes` is the memory that the
    processes share, None where it is not known.
    """

    model: str
    shape: ModelShape
    train_prompts: int
    evaluated_prompts: int
    longest_prompt: int
    mean_prompt: float
    prompts_per_step: int
    group_size: int
    max_tokens: int
    steps: int
    passes: int = 1
    minibatches: int = 1
    micro_batch_tokens: int = 2048
    batch_rows: int = 128
    evaluate_every: int = 0
    evaluation_samples: int = 1
    checkpoint_every: int = 0
    checkpoints_kept: int = 1
    best_kept: int = 0
    optimizer: Optimizer = "adamw"
    dtype: DTypeName = "float32"
    reference: bool = False
    critic: CriticKind | None = None
    teacher_parameters: int = 0
    gradient_checkpointing: bool = False
    greedy_rollouts: bool = False
    ahead: bool = False
    max_rounds: int | None = None
    oversample: float = 1.0
    adapter_parameters: int | None = None
    process_bytes: int = 0
    processes: int = 1
    nf4: bool = False
    available_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """The numbers of a run. Token counts are upper bounds: every completion at `max_tokens`, and
    every round that dynamic sampling may make. Completions are those that a full step learns from.

    `steps_per_epoch` and `epochs` may be fractions: prompts are visited without a gap between
    epochs, so any number of prompts a step is legal. `evaluations` counts the first and last.
    """

    inputs: PlanInputs
    completions_per_step: int
    max_tokens_per_step: int
    steps_per_epoch: float
    epochs: float
    updates_per_step: int
    total_updates: int
    total_prompts: int
    total_completions: int
    max_total_tokens: int
    evaluations: int
    completions_per_evaluation: int
    max_tokens_per_evaluation: int
    memory: MemoryPlan
    checkpoint_bytes: int
    checkpoints_written: int
    disk_bytes: int
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON-able values."""
        peaks = {n: getattr(self.memory, n) for n in ("peak_sampling", "peak_learning", "peak")}
        peaks["in_all"] = self.memory.peak * self.inputs.processes
        memory = {**asdict(self.memory), **peaks}
        return {**asdict(self), "memory": memory, "notes": list(self.notes)}

    def summary_line(self) -> str:
        """The plan in one line, for the start of a run."""
        return summary_line(self)

    def print(self, console: Console, stage: str = "", like: Plan | None = None) -> None:
        """The whole plan as tables; with `like`, the plan of an earlier stage, what differs."""
        if like is None:
            console.print(plan_table(self))
        elif rows := differing_rows(self, like):
            console.print(table(f"as stage {stage}, except", ("quantity", "value"), [rows]))
        else:
            console.print(f"the same plan as stage {stage}", highlight=False)
        for note in self.notes:
            if like is None or note not in like.notes:
                console.print(f"note: {note}", highlight=False)


def plan(inputs: PlanInputs) -> Plan:
    """Work out a run's numbers.

    >>> from groupwise.planning.shape import SMOLLM2_135M
    >>> made = plan(PlanInputs(model="smollm2-135m", shape=SMOLLM2_135M, train_prompts=32,
    ...     evaluated_prompts=8, longest_prompt=40, mean_prompt=35.0, prompts_per_step=4,
    ...     group_size=8, max_tokens=64, steps=16))
    >>> made.completions_per_step, made.max_tokens_per_step, made.steps_per_epoch, made.epochs
    (32, 2048, 8.0, 2.0)
    """
    completions = inputs.prompts_per_step * (inputs.group_size + inputs.greedy_rollouts)
    row_tokens = inputs.longest_prompt + inputs.max_tokens
    a_round = math.ceil(inputs.prompts_per_step * inputs.oversample)
    a_round *= inputs.group_size + inputs.greedy_rollouts
    most = a_round * (inputs.max_rounds or 1)
    evaluations = _scheduled(inputs.steps, inputs.evaluate_every) + 1
    per_evaluation = inputs.evaluated_prompts * (inputs.evaluation_samples + 1)
    written = _scheduled(inputs.steps, inputs.checkpoint_every)
    size = checkpoint_file_bytes(
        inputs.shape, inputs.optimizer, inputs.adapter_parameters, inputs.critic
    )
    # One more than stays: the new one is whole before the old one goes.
    at_once = min(written, inputs.checkpoints_kept + 1 + inputs.best_kept)
    # A prompt runs once a group, a completion without its last token.
    group_tokens = inputs.longest_prompt + inputs.group_size * (inputs.max_tokens - 1)
    update_tokens = math.ceil(inputs.prompts_per_step / inputs.minibatches) * group_tokens
    memory = memory_plan(
        MemoryInputs(
            shape=inputs.shape,
            dtype=inputs.dtype,
            optimizer=inputs.optimizer,
            reference=inputs.reference,
            gradient_checkpointing=inputs.gradient_checkpointing,
            tokens=max(row_tokens, min(inputs.micro_batch_tokens, update_tokens)),
            rows=min(inputs.batch_rows, -(-max(a_round, per_evaluation) // inputs.processes)),
            row_tokens=row_tokens,
            adapter_parameters=inputs.adapter_parameters,
            critic=inputs.critic,
            teacher_parameters=inputs.teacher_parameters,
            process=inputs.process_bytes,
            ahead=inputs.ahead,
            processes=inputs.processes,
            nf4=inputs.nf4,
        )
    )
    updates = inputs.passes * inputs.minibatches
    return Plan(
        inputs=inputs,
        completions_per_step=completions,
        max_tokens_per_step=most * inputs.max_tokens,
        steps_per_epoch=inputs.train_prompts / inputs.prompts_per_step,
        epochs=inputs.steps * inputs.prompts_per_step / inputs.train_prompts,
        updates_per_step=updates,
        total_updates=inputs.steps * updates,
        total_prompts=inputs.steps * inputs.prompts_per_step,
        total_completions=inputs.steps * completions,
        max_total_tokens=inputs.steps * most * inputs.max_tokens,
        evaluations=evaluations,
        completions_per_evaluation=per_evaluation,
        max_tokens_per_evaluation=per_evaluation * inputs.max_tokens,
        memory=memory,
        checkpoint_bytes=size,
        checkpoints_written=written,
        disk_bytes=size * at_once,
        notes=tuple(_notes(inputs, memory)),
    )


def no_signal_share(success_rate: float, group_size: int) -> float:
    """Expected share of groups whose rewards are all equal, for a right-or-wrong reward.

    p^G + (1 - p)^G, prompts all at success rate p.

    >>> [round(no_signal_share(0.1819, size), 3) for size in (2, 4, 8)]
    [0.702, 0.449, 0.201]
    """
    if not 0 <= success_rate <= 1:
        raise ValueError(f"success_rate = {success_rate}; a share is within 0 and 1")
    return float(success_rate**group_size + (1 - success_rate) ** group_size)


def refill_factor(success_rate: float, group_size: int) -> float:
    """How many groups dynamic sampling samples for one that it keeps, prompts all at one rate.

    1/(1 - p^G - (1 - p)^G); infinite where no group can have signal.

    >>> [round(refill_factor(p, 8), 2) for p in (0.02, 0.2, 0.5, 0.85, 0.95)]
    [6.7, 1.2, 1.01, 1.37, 2.97]
    """
    signal = 1.0 - no_signal_share(success_rate, group_size)
    return 1.0 / signal if signal > 0 else math.inf


def _scheduled(steps: int, every: int) -> int:
    """How often something happens that is due every so many steps and after the last one."""
    if steps == 0:
        return 0
    return math.ceil(steps / every) if every else 1


def _notes(inputs: PlanInputs, memory: MemoryPlan) -> list[str]:
    notes = []
    if inputs.prompts_per_step > inputs.train_prompts:
        notes.append(
            f"{inputs.prompts_per_step} prompts a step and {inputs.train_prompts} in the data: "
            "prompts are visited more than once within a step, each visit with its own noise"
        )
    if 2 <= inputs.group_size < 4:
        share = no_signal_share(0.2, inputs.group_size)
        notes.append(
            f"with {inputs.group_size} completions a prompt, {share:.0%} of the groups have no "
            "signal at a success rate of 20 %; raise sampling.group_size if groups/no_signal stays "
            "high"
        )
    if inputs.max_rounds is not None:
        rates = (0.2, 0.5, 0.85)
        factors = ", ".join(f"{refill_factor(rate, inputs.group_size):.2g}" for rate in rates)
        notes.append(
            f"dynamic sampling refills a step until {inputs.prompts_per_step} groups carry signal, "
            f"in at most {inputs.max_rounds} rounds; at success rates of 20, 50 and 85 % that is "
            f"expected to take {factors} times a step's own tokens"
        )
    peak, several = memory.peak * inputs.processes, inputs.processes > 1
    if inputs.available_bytes is not None and peak > inputs.available_bytes:
        notes.append(
            f"the estimated peak of {peak / 1e9:.1f} GB"
            f"{f' of {inputs.processes} processes' if several else ''} exceeds the "
            f"{inputs.available_bytes / 1e9:.1f} GB of this machine; lower "
            f"{'compute.processes, ' if several else ''}training.micro_batch_tokens or "
            "sampling.batch_rows, or set model.gradient_checkpointing"
        )
    return notes
