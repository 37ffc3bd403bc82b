"""A plan on named hardware: time, cost, and what each method would hold there."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from groupwise.planning.hardware import Hardware, StepTime, step_time
from groupwise.planning.methods import USABLE, Method, adapter_parameters, methods
from groupwise.planning.render import bytes_text, seconds_text, table
from groupwise.planning.run_plan import Plan

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True, slots=True)
class Estimate:
    """`price` is of one device and hour, None where it was not given. A hardware that was not
    measured is computed from its maker's figures."""

    plan: Plan
    hardware: Hardware
    count: int
    time: StepTime
    methods: tuple[Method, ...]
    price: float | None

    @property
    def run_seconds(self) -> float:
        """All steps; evaluations, verifiers and tools left out."""
        return self.plan.inputs.steps * self.time.step

    def cost(self, seconds: float) -> float | None:
        return None if self.price is None else self.price * self.count * seconds / 3600

    @property
    def beside(self) -> int:
        """Bytes on every device besides weights, gradients and moments."""
        memory = self.plan.memory
        kinds = ("activations", "logits")
        learning = sum(memory.learning.get(kind, 0) for kind in kinds)
        return max(learning, sum(memory.sampling.values()) // self.count)

    @property
    def rows(self) -> list[tuple[str, int, int, int | None]]:
        """(method, bytes on one device, bytes on each of `count`, the fewest devices)."""
        return [
            (
                each.name,
                each.total + self.beside,
                each.total // self.count + self.beside,
                each.devices(self.hardware.memory, self.beside),
            )
            for each in self.methods
        ]

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "hardware": asdict(self.hardware),
            "count": self.count,
            "computed": not self.hardware.measured,
            "step": self.time.to_dict(),
            "run_seconds": self.run_seconds,
            "cost_step": self.cost(self.time.step),
            "cost_run": self.cost(self.run_seconds),
            "methods": {each.name: dict(each.states) for each in self.methods},
            "devices": {name: fewest for name, _, _, fewest in self.rows},
        }

    def print(self, console: Console) -> None:
        """Time and cost, and the methods side by side."""
        console.print(table(self._title(), ("quantity", "value"), self._times()))
        limit = USABLE * self.hardware.memory
        rows = [
            (name, _fits(one, limit), _fits(each, limit), "-" if fewest is None else f"{fewest:,}")
            for name, one, each, fewest in self.rows
        ]
        columns = ("method", "one device", f"each of {self.count}, sharded", "fewest devices")
        title = f"memory by method, {self.plan.inputs.shape.parameters:,} parameters"
        console.print(table(title, columns, [rows]))
        console.print(
            f"computed at 16 bytes a trained parameter and 2 a frozen one, with "
            f"{bytes_text(self.beside)} of activations, keys and values on each; ! does not fit in "
            f"the usable {USABLE:.0%} of a device's {bytes_text(self.hardware.memory)}. "
            "The first table is this learner's own layout (float32 weights)",
            highlight=False,
        )

    def _title(self) -> str:
        if self.hardware.measured:
            return f"time on {self.hardware.name} (measured speed)"
        return f"time on {self.count} x {self.hardware.name} (computed)"

    def _times(self) -> list[list[tuple[str, str]]]:
        made, costs = self.time, [self.cost(self.time.step), self.cost(self.run_seconds)]
        names = ("cost of a step", "cost of the run")
        rows = [
            ("tokens a completion", f"{made.mean_tokens:,.4g}"),
            ("a step, sampling", seconds_text(made.sampling)),
            ("a step, log-probabilities", seconds_text(made.logprobs)),
            ("a step, learning", seconds_text(made.learning)),
            ("a step", seconds_text(made.step)),
            ("the run's steps", seconds_text(self.run_seconds)),
        ]
        return [rows, [(n, f"{c:,.3g}") for n, c in zip(names, costs) if c is not None]]


def _fits(size: int, limit: float) -> str:
    return f"{bytes_text(size)}{'' if size <= limit else ' !'}"


def estimate(
    plan: Plan,
    hardware: Hardware,
    count: int = 1,
    *,
    price: float | None = None,
    mean_tokens: float | None = None,
) -> Estimate:
    """A plan on `count` such devices, completions `mean_tokens` long (else the limit)."""
    shape = plan.inputs.shape
    adapter = plan.inputs.adapter_parameters or adapter_parameters(shape)
    return Estimate(
        plan, hardware, count, step_time(plan, hardware, count, mean_tokens),
        methods(shape.parameters, adapter), price,
    )  # fmt: skip
