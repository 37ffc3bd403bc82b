"""What a person watches while a run goes on: one live display, or one line a step in a log.

All of it goes to standard error. The loss is not shown: at ratio 1 it is near 0 while the policy
learns, and the display says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from groupwise.records import Value
from groupwise.texts import counted
from groupwise.training.callbacks import Callback
from groupwise.training.preparing import Prepared
from groupwise.training.session import Session

_SHOWN = (
    ("reward", "reward", "{:.3f}"),
    ("groups/no_signal", "no signal", "{:.0%}"),
    ("entropy", "entropy", "{:.3f}"),
    ("kl", "KL", "{:.3f}"),
    ("grad_norm", "grad norm", "{:.3f}"),
    ("completions/tokens_mean", "tokens", "{:.1f}"),
    ("tokens_per_second", "tokens/s", "{:.0f}"),
    ("seconds/step", "s/step", "{:.2f}"),
)
_SHOWN_FITTING = (
    ("loss", "loss", "{:.4f}"),
    ("fit/eval_loss", "held-out loss", "{:.4f}"),
    ("grad_norm", "grad norm", "{:.3f}"),
    ("learning_rate", "learning rate", "{:.2g}"),
    ("tokens/trained", "tokens", "{:.0f}"),
    ("seconds/step", "s/step", "{:.2f}"),
)
_NOTE = (
    "The loss value is not a progress signal (at ratio 1 it is near 0 while the policy learns): "
    "read reward, accuracy and gradient norm."
)


def show(value: Value, form: str) -> str:
    return "-" if value is None else form.format(value)


class ProgressDisplay(Callback):
    """Rewards, accuracy and speed, live on a terminal and as lines elsewhere."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.live: Live | None = None
        self.lines: list[Mapping[str, Value]] = []
        self.accuracies: dict[int, Mapping[str, Value]] = {}
        self.progress = Progress(
            TextColumn("step"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=console,
        )
        self.task = self.progress.add_task("steps", total=1)

    def on_stage(self, name: str, kind: str, folder: Path) -> None:
        self.stop()
        self.lines.clear()
        self.accuracies.clear()
        self.say(f"stage {name} ({kind})")

    def on_start(self, prepared: Prepared, folder: Path) -> None:
        from groupwise.training.planned import plan_of

        self.say(plan_of(prepared).summary_line())
        self.say(f"record: {folder}")

    def on_ready(self, session: Session) -> None:
        policy = session.policy
        self.say(
            f"policy {policy.name} on {policy.device}, {str(policy.dtype).removeprefix('torch.')}; "
            f"{policy.num_parameters:,} parameters, {policy.num_trained:,} of them train"
        )
        self.say(_NOTE, style="dim")
        steps = session.recipe.training.steps
        self.progress.update(self.task, total=steps, completed=session.first_step)
        if self.console.is_terminal:
            self.live = Live(self._render(), console=self.console, refresh_per_second=4)
            self.live.start()

    def on_evaluation(self, version: int, values: Mapping[str, Value]) -> None:
        self.accuracies[version] = values
        if "fit/eval_loss" in values:
            self.say(
                f"after {counted(version, 'step')}: held-out loss {values['fit/eval_loss']:.4f}"
            )
        elif self.live is None:
            self.say(f"after {counted(version, 'step')}: {_accuracy(values)}")

    def on_step(self, line: Mapping[str, Value]) -> None:
        self.lines.append(line)
        self.progress.update(self.task, completed=int(line["step"] or 0) + 1)
        if self.live is not None:
            self.live.update(self._render())
            return
        fitting = "fit/examples" in line
        if fitting and int(line["step"] or 0) % 10 and line.get("fit/eval_loss") is None:
            return  # a step takes milliseconds
        shown = _SHOWN_FITTING if fitting else _SHOWN
        parts = [f"{label} {show(line.get(key), form)}" for key, label, form in shown]
        self.say(f"step {line['step']}: {', '.join(parts)}")

    def on_warning(self, message: str) -> None:
        self.say(f"note: {message}")

    def on_end(self, summary: Mapping[str, Any], folder: Path) -> None:
        self.stop()

    def say(self, text: str, style: str | None = None) -> None:
        """A line on standard error, above the live display."""
        self.console.print(text, style=style, highlight=False, soft_wrap=True, markup=False)

    def stop(self) -> None:
        """End the live display; safe to call twice."""
        if self.live is not None:
            self.live.stop()
            self.live = None

    def _render(self) -> Group:
        table = Table(box=None, pad_edge=False)
        table.add_column("step", justify="right")
        for _, label, _ in _SHOWN:
            table.add_column(label, justify="right")
        for line in self.lines[-8:]:
            table.add_row(
                str(line["step"]), *(show(line.get(key), form) for key, _, form in _SHOWN)
            )
        latest = max(self.accuracies, default=None)
        accuracy = "" if latest is None else _accuracy(self.accuracies[latest])
        return Group(
            self.progress,
            table,
            Text(f"after {counted(latest or 0, 'step')}: {accuracy}"),
            Text(_NOTE, "dim"),
        )


def only_heldout(values: Mapping[str, Value]) -> bool:
    """Whether every evaluated prompt is held out, so that a gap to the others has no value."""
    return values.get("eval/heldout") is not None and values.get("eval/gap") is None


def _accuracy(values: Mapping[str, Value]) -> str:
    parts = [("held-out sampled", "eval/heldout"), ("held-out greedy", "eval/heldout_greedy")]
    if not only_heldout(values):
        parts = [("sampled", "eval/accuracy"), ("greedy", "eval/greedy"), *parts]
    shown = [
        f"{label} {show(values[key], '{:.1%}')}"
        for label, key in parts
        if values.get(key) is not None
    ]
    nothing = "nothing evaluated" if values.get("eval/prompts") is None else "no accuracy"
    return "accuracy " + ", ".join(shown) if shown else nothing
