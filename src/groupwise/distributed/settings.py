"""The `[compute]` table: where a run computes, on how many processes, how far ahead. No torch."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator


class ComputeSettings(BaseModel):
    """Where a run computes."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    processes: int = Field(
        1,
        ge=1,
        description="Processes of this machine that train together, the weights sharded over them "
        "(FSDP2); one a GPU where there are GPUs. Under torchrun its number of processes counts "
        "and this field is not read.",
    )
    deadline_seconds: float = Field(
        600.0,
        gt=0,
        le=1e9,
        description="How long a process waits for the others, at the start and in every exchange, "
        "before the run ends and names what it waited for.",
    )
    max_staleness: int = Field(
        0,
        ge=0,
        le=100,
        description="How many steps old a rollout that is learned from may be. 0: sample, then "
        "learn. More: sampling and verification go on while the policy learns, this many steps "
        "ahead, and the sampler holds a copy of the weights.",
    )
    stale: Literal["wait", "drop", "correct"] = Field(
        "wait",
        description="What keeps rollouts within max_staleness. wait: steps take the oldest groups "
        "first and wait for them. drop: steps take what is finished first, and drop groups that "
        "are older. correct: nothing is dropped, and algorithm.correction weighs what is older.",
    )
    park_after: int | None = Field(
        None,
        ge=1,
        description="A completion that has grown by so many tokens lets others go first; it "
        "continues with the next weights. Unset: it is sampled to its end.",
    )
    cluster: str | None = Field(
        None,
        description="A Ray cluster that the run is placed on: its address as host:port, or auto "
        "(the one at hand, else a local one). Needs groupwise[cluster] on every node and an "
        "output folder that they share.",
    )
    samplers: int = Field(
        0, ge=0, description="Sampler processes on the cluster; 0: the learner samples."
    )
    verifiers: int = Field(
        0, ge=0, description="Verifier processes on the cluster; 0: the learner verifies."
    )
    silence_seconds: float = Field(
        30.0,
        gt=0,
        le=1e9,
        description="A process on the cluster that answers nothing for so long is ended and "
        "replaced.",
    )
    restarts: int = Field(
        3, ge=0, description="How often a learner on the cluster that lost a process starts again."
    )

    @field_validator("cluster")
    @classmethod
    def _address(cls, value: str | None) -> str | None:
        if value is None or value == "auto":
            return value
        found = re.fullmatch(r"[^\s/:]+:([0-9]{1,5})", value)
        if found is None or not 0 < int(found[1]) < 65536:
            raise ValueError(
                f"compute.cluster = {value!r} is neither auto nor an address as host:port; give, "
                'for example, "10.0.0.1:6379"'
            )
        return value

    @model_validator(mode="after")
    def _ahead_or_not(self) -> ComputeSettings:
        if self.max_staleness and self.processes > 1:
            raise ValueError(
                f"max_staleness = {self.max_staleness} with processes = {self.processes}: only one "
                "process can sample ahead of learning; set one of the two to 0 or 1"
            )
        if not self.max_staleness and (self.park_after is not None or self.stale != "wait"):
            raise ValueError(
                "stale and park_after are of runs that sample ahead of learning; set "
                "max_staleness to 1 or more, or leave them out"
            )
        if self.cluster is None and (self.samplers or self.verifiers):
            raise ValueError(
                f"samplers = {self.samplers} and verifiers = {self.verifiers} are processes on a "
                'cluster; give cluster = "auto" or its address, or 0'
            )
        if self.cluster is not None and self.max_staleness:
            raise ValueError(
                f"max_staleness = {self.max_staleness} with cluster = {self.cluster!r}: a run that "
                "samples ahead of learning is one process; set max_staleness to 0"
            )
        return self
