"""The plan of a pipeline, stage by stage, from what is known before any weight loads."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from groupwise.cli.tables import plain_table
from groupwise.planning import Plan
from groupwise.stages import Pipeline, check_pipeline
from groupwise.stages.reinforcement import Reinforcement
from groupwise.training.planned import plan_of


class PipelinePlan:
    """The plan of every stage of a pipeline, in the order of the run."""

    def __init__(self, pipeline: Pipeline) -> None:
        every = check_pipeline(pipeline)
        self.stages: list[tuple[str, str, Plan | list[tuple[str, str]]]] = []
        for node in pipeline.order:
            prepared = every[node.name]
            is_run = isinstance(node.stage, Reinforcement)
            plan = plan_of(prepared) if is_run else node.stage.plan(prepared)
            self.stages.append((node.name, node.stage.kind, plan))

    def to_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "stages": [
                {
                    "name": name,
                    "kind": kind,
                    "plan": made.to_dict() if isinstance(made, Plan) else dict(made),
                }
                for name, kind, made in self.stages
            ]
        }

    def print(self, console: Console) -> None:
        shown: list[tuple[str, Plan]] = []
        for name, kind, made in self.stages:
            console.print(f"stage {name} ({kind})")
            if not isinstance(made, Plan):
                console.print(plain_table(("quantity", "value"), made))
                continue
            if not shown:
                made.print(console)
            else:
                before, like = shown[-1]
                made.print(console, before, like)
            shown.append((name, made))
