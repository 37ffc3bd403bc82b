"""The `[compute]` table: where a run computes, and on how many processes. No torch."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class ComputeSettings(BaseModel):
    """Where a run computes."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    processes: int = Field(
        1,
        ge=1,
        le=1,
        description="Processes of this machine that train together, the weights sharded over them "
        "(FSDP2); one a GPU where there are GPUs. Under torchrun its number of processes counts "
        "and this field is not read.",
    )
    deadline_seconds: float = Field(
        600.0,
        gt=0,
        description="How long a process waits for the others, at the start and in every exchange, "
        "before the run ends and names what it waited for.",
    )
