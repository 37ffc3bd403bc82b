"""A plan as text: one line for the start of a run, one table for `groupwise plan`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from groupwise.texts import counted

if TYPE_CHECKING:
    from rich.table import Table

    from groupwise.planning.run_plan import Plan

_UNITS = ("B", "kB", "MB", "GB", "TB")


def bytes_text(size: float) -> str:
    """A size with a decimal unit.

    >>> bytes_text(421_120), bytes_text(112e9)
    ('421 kB', '112 GB')
    """
    for unit in _UNITS:
        if size < 999.5 or unit == _UNITS[-1]:
            return f"{size:.3g} {unit}" if size < 99.5 else f"{size:.0f} {unit}"
        size /= 1000
    raise AssertionError("the loop returns at its last unit")


def size_text(parameters: float) -> str:
    """A policy's size as people say it.

    >>> [size_text(each) for each in (70e9, 1.5e6, 2e12)]
    ['70B parameters', '1.5M parameters', '2,000B parameters']
    """
    size, unit = (parameters / 1e9, "B") if parameters >= 1e9 else (parameters / 1e6, "M")
    return f"{round(size, 2 if size < 100 else 0):,g}{unit} parameters"


def seconds_text(seconds: float) -> str:
    """A time in the unit that fits.

    >>> [seconds_text(each) for each in (0.0123, 5.0, 300.0, 90_000.0)]
    ['12.3 ms', '5 s', '5 min', '25 h']
    """
    for size, unit in ((3600.0, "h"), (60.0, "min"), (1.0, "s")):
        if seconds >= 2 * size or (unit == "s" and seconds >= 1):
            return f"{seconds / size:.3g} {unit}"
    return f"{1000 * seconds:.3g} ms"


def summary_line(plan: Plan) -> str:
    """Prompts, completions, tokens, steps, memory: one line."""
    given = plan.inputs
    return (
        f"{counted(given.steps, 'step')} of {counted(given.prompts_per_step, 'prompt')} x "
        f"{given.group_size} completions ({plan.completions_per_step:,} completions, at most "
        f"{plan.max_tokens_per_step:,} tokens a step), "
        f"{counted(plan.updates_per_step, 'update')} a step; {plan.steps_per_epoch:.4g} steps an "
        f"epoch, {plan.epochs:.3g} epochs of {counted(given.train_prompts, 'prompt')}; "
        f"{given.shape.parameters:,} parameters{_trained(plan)}, about "
        f"{bytes_text(plan.memory.peak)} of memory{_in_each(plan)}; checkpoints of "
        f"{bytes_text(plan.checkpoint_bytes)}"
    )


def _in_each(plan: Plan) -> str:
    number = plan.inputs.processes
    return "" if number == 1 else f" in each of {number} processes"


def _trained(plan: Plan) -> str:
    count = plan.inputs.adapter_parameters
    return "" if count is None else f" and {count:,} of an adapter, which train"


def table(title: str, columns: Sequence[str], sections: Iterable[Iterable[Sequence[str]]]) -> Table:
    """A table whose first column is text and whose others are numbers, in sections of rows."""
    from rich.table import Table

    made = Table(title=title, title_justify="left")
    for number, name in enumerate(columns):
        made.add_column(name, justify="right" if number else "left")
    for section in sections:
        for row in section:
            made.add_row(*row)
        made.add_section()
    return made


def plan_table(plan: Plan) -> Table:
    """The whole plan, quantity by quantity."""
    return table(f"plan: {plan.inputs.model}", ("quantity", "value"), _sections(plan))


def differing_rows(plan: Plan, other: Plan) -> list[tuple[str, str]]:
    """The quantities whose values are not those of another plan; `-` where only it has one."""
    own, others = (dict(chain.from_iterable(_sections(each))) for each in (plan, other))
    gone = [(name, "-") for name in others if name not in own]
    return [row for row in own.items() if others.get(row[0]) != row[1]] + gone


def _sections(plan: Plan) -> Iterator[list[tuple[str, str]]]:
    given, memory = plan.inputs, plan.memory
    yield [
        ("prompts to train on", f"{given.train_prompts:,}"),
        ("prompt tokens, mean and longest", f"{given.mean_prompt:.1f}, {given.longest_prompt:,}"),
        ("prompts a step", f"{given.prompts_per_step:,}"),
        ("completions a prompt (group_size)", f"{given.group_size:,}"),
        ("completions a step", f"{plan.completions_per_step:,}"),
        ("tokens a step, at most", f"{plan.max_tokens_per_step:,}"),
        ("updates a step", f"{plan.updates_per_step:,}"),
        ("steps an epoch", f"{plan.steps_per_epoch:,.4g}"),
    ]
    yield [
        ("steps", f"{given.steps:,}"),
        ("epochs", f"{plan.epochs:,.4g}"),
        ("updates", f"{plan.total_updates:,}"),
        ("prompts", f"{plan.total_prompts:,}"),
        ("completions", f"{plan.total_completions:,}"),
        ("tokens, at most", f"{plan.max_total_tokens:,}"),
    ]
    yield [
        ("evaluations", f"{plan.evaluations:,}"),
        ("prompts an evaluation", f"{given.evaluated_prompts:,}"),
        ("completions an evaluation", f"{plan.completions_per_evaluation:,}"),
        ("tokens an evaluation, at most", f"{plan.max_tokens_per_evaluation:,}"),
    ]
    trained = given.adapter_parameters
    parameters = [("parameters", f"{given.shape.parameters:,}")]
    parameters += [] if trained is None else [("parameters of the adapter", f"{trained:,}")]
    number = given.processes
    held = "memory" if number == 1 else "memory of a process"
    yield parameters + [(f"{held}, {name}", bytes_text(size)) for name, size in memory.rows]
    peaks = [
        (f"{held} while sampling, estimated", bytes_text(memory.peak_sampling)),
        (f"{held} while learning, estimated", bytes_text(memory.peak_learning)),
    ]
    if number > 1:
        peaks += [
            (f"{held} while starting, estimated", bytes_text(memory.peak_starting)),
            (f"memory of all {number} processes, at most", bytes_text(number * memory.peak)),
        ]
    yield peaks
    yield [
        ("a checkpoint", bytes_text(plan.checkpoint_bytes)),
        ("checkpoints written", f"{plan.checkpoints_written:,}"),
        ("disk for checkpoints, at most", bytes_text(plan.disk_bytes)),
    ]
