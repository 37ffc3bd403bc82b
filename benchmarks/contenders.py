"""Who is measured, in which precision, at what; and what a contender's process must answer.

Left out: how each one does it (ours.py, generate.py, trl_trainer.py, openvino_peer.py, kernels.py).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from benchmarks.workload import Workload

Answer = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Command:
    """One repeat: a phase's work with `tokens` new tokens a row. `number` keys its noise."""

    phase: str
    tokens: int
    number: int


class Running(Protocol):
    """A contender with its model loaded, in a process of its own."""

    detail: dict[str, Any]
    """What a reader must know beside the name: threads, kernels, weight format."""

    def serve(self, commands: Iterator[Command], answer: Answer) -> None:
        """Do each command and answer it with numbers.

        `seconds` always; `tokens` sampled; a step also has `rollout_seconds`, `train_seconds` and
        `optimizer_seconds`. Returns when the commands end.
        """


@dataclass(frozen=True)
class Contender:
    """A row of the table. `module` holds `start(workload, **options) -> Running`.

    `needs` is the distribution it comes with; `small` says whether it also runs at the tiny size.
    """

    name: str
    label: str
    dtype: str
    module: str
    phases: tuple[str, ...]
    options: dict[str, Any] = field(default_factory=dict)
    needs: str | None = None
    small: bool = True

    def start(self, workload: Workload) -> Running:
        started: Running = importlib.import_module(self.module).start(workload, **self.options)
        return started


_BF16, _FP32 = {"dtype": "bfloat16"}, {"dtype": "float32"}

CONTENDERS = (
    Contender(
        "groupwise-bf16", "groupwise", "bf16, fp32 masters", "benchmarks.ours",
        ("rollout", "natural", "step"), _BF16,
    ),
    Contender(
        "groupwise-fp32", "groupwise", "fp32", "benchmarks.ours", ("rollout", "step"), _FP32,
    ),
    Contender(
        "groupwise-int8", "groupwise, quantised rollouts", "int8 sampler, bf16, fp32 masters",
        "benchmarks.ours", ("rollout", "step"), {**_BF16, "quantise": "int8"},
        small=False,
    ),
    Contender(
        "groupwise-checkpointed", "groupwise, activation checkpointing", "bf16, fp32 masters",
        "benchmarks.ours", ("step",), {**_BF16, "checkpointing": True},
    ),
    Contender(
        "generate-bf16", "transformers `generate`", "bf16", "benchmarks.generate",
        ("rollout", "natural"), _BF16,
    ),
    Contender(
        "generate-fp32", "transformers `generate`", "fp32", "benchmarks.generate",
        ("rollout",), _FP32,
    ),
    Contender(
        "trl-bf16", "TRL GRPOTrainer", "bf16 model", "benchmarks.trl_trainer",
        ("rollout", "natural", "step"), {"dtype": "bfloat16", "autocast": False},
        needs="trl", small=False,
    ),
    Contender(
        "trl-autocast", "TRL GRPOTrainer", "fp32 model, bf16 autocast", "benchmarks.trl_trainer",
        ("step",), {"dtype": "float32", "autocast": True}, needs="trl", small=False,
    ),
    Contender(
        "trl-fp32", "TRL GRPOTrainer", "fp32", "benchmarks.trl_trainer",
        ("rollout", "step"), {"dtype": "float32", "autocast": False}, needs="trl", small=False,
    ),
    Contender(
        "openvino", "OpenVINO GenAI", "4-bit weights (GGUF Q4_1)", "benchmarks.openvino_peer",
        ("rollout", "natural"), needs="openvino-genai", small=False,
    ),
    Contender(
        "kernels-bf16", "the kernels alone", "bf16", "benchmarks.kernels", ("rollout",), _BF16,
    ),
    Contender(
        "kernels-fp32", "the kernels alone", "fp32", "benchmarks.kernels", ("rollout",), _FP32,
    ),
)  # fmt: skip
BY_NAME = {contender.name: contender for contender in CONTENDERS}


def serve_simply(
    work: Callable[[Command], dict[str, Any]], commands: Iterator[Command], answer: Answer
) -> None:
    """`Running.serve` for a contender whose repeat is one call."""
    for command in commands:
        answer(work(command))
