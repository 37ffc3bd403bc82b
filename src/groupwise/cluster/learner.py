"""One process of the learner, in a process of Ray's."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from groupwise.cluster.roles import attach
from groupwise.cluster.workers import Worker
from groupwise.ports import free_port
from groupwise.texts import from_toml
from groupwise.training.process import Interrupted, Interruption
from groupwise.training.start import train


class LearnerRank(Worker):
    """One process of the learner. The first one writes the record, for the others too."""

    writer: Any = None

    def address(self) -> tuple[str, int]:
        """This node's address and a port that is free on it."""
        import ray

        host = ray.util.get_node_ip_address()
        return host, free_port(host)

    def run(
        self, variables: Mapping[str, str], output: str, resume: bool, group: Any,
        losses: Sequence[Mapping[str, Any]], first: Any,
    ) -> tuple[int, str] | None:  # fmt: skip
        """Train. What `Interrupted` says, where it was asked to stop. `losses` are events of
        earlier attempts, `first` the process of rank 0."""
        os.environ.update(variables)
        rank = int(variables["RANK"])

        def connect(session: Any, writer: Any) -> None:
            self.writer = writer
            for loss in losses if rank == 0 else ():
                writer.event(**loss)
            attach(session, group, rank, writer.event if rank == 0 else first.note.remote)

        try:
            train(
                from_toml(self.recipe.to_toml()), output=output, resume=resume, attach=connect
            )  # fmt: skip
        except Interrupted as error:  # has a form that does not travel
            return error.exit_code - 128, str(error)
        return None

    def note(self, kind: str, **fields: Any) -> None:
        """An event of another process."""
        if self.writer is not None:
            self.writer.event(kind, **fields)

    def stop(self, number: int) -> bool:
        """Stop after the step that runs, with a checkpoint, as after that signal. False where no
        step runs yet."""
        active = Interruption.active
        if active is not None:
            active.number = number
        return active is not None
