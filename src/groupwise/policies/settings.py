"""The recipe's [model] table. No torch."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

DType = Literal["auto", "float32", "bfloat16"]


class AdapterSettings(BaseModel):
    """The `[model.adapter]` table: small trained matrices over frozen weights."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    kind: Literal["lora"] = Field(
        default="lora",
        description="LoRA: a linear layer computes with W + alpha / rank * B A, and A and B train. "
        "B starts at 0, so the run starts from the model as it is.",
    )
    rank: int = Field(default=16, ge=1, description="Rows of A and columns of B.")
    alpha: float = Field(default=32.0, gt=0, description="Scale of B A, divided by the rank.")
    dropout: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="Dropout before A. Sampling and scoring are without it, so reinforcement "
        "learning takes 0 alone.",
    )
    target_modules: Literal["all-linear"] | tuple[str, ...] = Field(
        default="all-linear",
        description="Linear layers by the end of their names, as `q_proj` or `mlp.down_proj`. "
        "`all-linear`: every one but the output layer.",
    )

    base: Literal["whole", "nf4"] = Field(
        default="whole",
        description="How the frozen model is held. nf4: its linear layers in 4 bits, rounded by "
        "bitsandbytes (QLoRA); CUDA alone, in one process, needs groupwise[qlora].",
    )

    @field_validator("target_modules", mode="before")
    @classmethod
    def _targets(cls, value: Any) -> Any:
        names = isinstance(value, list | tuple) and all(isinstance(name, str) for name in value)
        if value == "all-linear" or (names and value):
            return value
        raise ValueError(f'target_modules = {value!r}: give "all-linear" or a list of layer names')


class ModelSettings(BaseModel):
    """Which model is trained, in which precision, and where."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(
        default="tiny",
        min_length=1,
        description="A built-in model (`tiny`, `smollm2-135m`), a model folder, a hub id, or "
        "`module:function`, a function that builds a model and returns its folder.",
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
    adapter: AdapterSettings | None = Field(
        default=None,
        description="Train an adapter over the frozen model in place of the model's own weights.",
    )

    @property
    def in_4_bits(self) -> bool:
        """Whether the frozen model under the adapter is held in 4 bits."""
        return self.adapter is not None and self.adapter.base == "nf4"
