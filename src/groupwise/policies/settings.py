"""The recipe's [model] table. No torch."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

DType = Literal["auto", "float32", "bfloat16"]


class ModelSettings(BaseModel):
    """Which model is trained, in which precision, and where."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(
        default="tiny",
        min_length=1,
        description="A built-in model (`tiny`, `smollm2-135m`), a model folder, or a hub id.",
    )
    dtype: DType = Field(
        default="auto",
        description="Compute precision; master weights are always float32. `auto`: bfloat16 where "
        "the machine is fast in it and the model is not tiny, else float32.",
    )
    device: str = Field(
        default="auto",
        description="`auto` (cuda, else mps, else cpu), or a torch device such as `cpu`.",
    )
    trust_remote_code: bool = Field(
        default=False, description="Run Python code that comes with the model. Off unless asked."
    )
    gradient_checkpointing: bool = Field(
        default=False,
        description="Recompute activations in the backward pass: about half the memory for 5 to "
        "35 % more time.",
    )
