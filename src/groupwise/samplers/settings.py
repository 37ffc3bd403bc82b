"""The recipe's [sampling] table. No torch."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from groupwise.samplers.servers.settings import ServerSettings, SglangSettings, VllmSettings
from groupwise.suggestions import unknown
from groupwise.types import LEAST_TEMPERATURE

SAMPLERS = ("auto", "local", "transformers", "vllm", "sglang")


def why_no_sampler(name: str) -> str | None:
    """None for the name of a sampler that a recipe can ask for, else what is wrong with it."""
    if name in SAMPLERS:
        return None
    if name == "scripted":
        return (
            "sampling.sampler = 'scripted': it says what a test tells it and samples nothing; "
            "build samplers.ScriptedSampler(template, script) and pass the object"
        )
    return unknown(f"sampling.sampler = {name!r}", name, SAMPLERS)


class SamplingSettings(BaseModel):
    """How completions are sampled for training."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    sampler: str = Field(
        default="auto",
        description="`auto` (the fastest one that supports the model), `local` (own; a "
        "family that it does not decode falls back, and says so), `transformers`, or `vllm` or "
        "`sglang` (servers of [sampling.vllm] or [sampling.sglang]).",
    )
    group_size: int = Field(
        default=8,
        ge=1,
        description="Completions per prompt; the group is the baseline. 1 only for algorithms that "
        "do not compare completions of a prompt (ppo, reinforce).",
    )
    temperature: float = Field(
        default=1.0,
        ge=LEAST_TEMPERATURE,
        description="Divides the logits; training needs it above 0.",
    )
    max_tokens: int = Field(default=128, ge=1, description="The most tokens a completion may have.")
    top_p: float = Field(
        default=1.0,
        gt=0.0,
        le=1.0,
        description="Sample from the fewest tokens with this much probability. What was kept is "
        "stored, and the learner scores the same distribution.",
    )
    top_k: int = Field(
        default=0, ge=0, description="Sample from this many most likely tokens; 0 keeps all."
    )
    min_p: float = Field(
        default=0.0,
        ge=0.0,
        le=1.0,
        description="Sample from tokens with at least this share of the likeliest one's "
        "probability.",
    )
    routing_replay: bool = Field(
        default=False,
        description="Of a mixture of experts: the learner's passes take the experts that the "
        "sampler chose for every token, and weigh them by its own router.",
    )
    stop: tuple[str, ...] = Field(
        default=(), description="Texts that end a completion, beside the model's own stop ids."
    )
    deadline: float | None = Field(
        default=600.0,
        gt=0.0,
        description="Seconds after which unfinished completions are returned as they are.",
    )
    thinking_budget: int | None = Field(
        default=None,
        ge=1,
        description="Tokens of a turn after which thinking that is not closed is closed by force "
        "and the answer is sampled; must be below max_tokens. The forced text is context: attended "
        "to, never trained on, never read by a verifier.",
    )
    thinking_start: str = Field(
        default="<think>",
        min_length=1,
        description="What opens thinking, where the chat template does not open it already.",
    )
    thinking_stop: str = Field(
        default="</think>", min_length=1, description="What closes thinking."
    )
    thinking_end: str = Field(
        default="\n</think>\n\n",
        description="The text that is put behind thinking that has spent its budget; it must hold "
        "thinking_stop.",
    )
    quantise: Literal["int8"] | None = Field(
        default=None,
        description="`int8`: the local sampler's matrices and their inputs are rounded to 8 bits, "
        "which is faster on CPUs with VNNI or AMX; the learner's weights are not. The algorithm "
        "must correct for the difference: `truncate` where it names no correction.",
    )
    batch_rows: int = Field(default=128, ge=1, description="The most completions decoded at once.")
    cache_gigabytes: float | None = Field(
        default=None,
        gt=0.0,
        description="What the keys and values of completions being decoded may take (1e9 bytes); "
        "fewer are decoded at once where it is little. Default: a quarter of the whole memory.",
    )

    vllm: VllmSettings | None = Field(default=None, description='The servers of sampler = "vllm".')
    sglang: SglangSettings | None = Field(
        default=None, description='The servers of sampler = "sglang", tested against a stub alone.'
    )

    @property
    def servers(self) -> ServerSettings | None:
        """The table of the sampler, where it samples on servers."""
        return self.vllm or self.sglang

    @model_validator(mode="after")
    def _servers_fit(self) -> SamplingSettings:
        for name, table in (("vllm", self.vllm), ("sglang", self.sglang)):
            if (self.sampler == name) != (table is not None):
                raise ValueError(
                    f"sampling.sampler = {self.sampler!r} with{'' if table else 'out'} a table "
                    f'[sampling.{name}]; give both, for example servers = ["http://127.0.0.1:8000"'
                    "], or neither"
                )
        if self.cache_gigabytes is not None and self.sampler not in ("auto", "local"):
            raise ValueError(
                f"sampling.cache_gigabytes = {self.cache_gigabytes:g}: the sampler "
                f'{self.sampler!r} does not read it; set sampler = "local", or leave it out'
            )
        if self.servers is not None and (self.top_p < 1.0 or self.top_k or self.min_p):
            raise ValueError(
                f"sampling.sampler = {self.sampler!r}: top_p, top_k and min_p cannot be set, "
                "because such a server does not say which tokens it kept; leave them out, or "
                "sample with `local`"
            )
        return self

    @model_validator(mode="after")
    def _local_quantises(self) -> SamplingSettings:
        if self.quantise is not None and self.sampler not in ("auto", "local"):
            raise ValueError(
                f"sampling.quantise = {self.quantise!r}: the sampler {self.sampler!r} does not "
                'quantise; set sampler = "local", or leave it out'
            )
        return self

    @model_validator(mode="after")
    def _thinking_fits(self) -> SamplingSettings:
        if self.thinking_budget is None:
            return self
        if self.thinking_budget >= self.max_tokens:
            raise ValueError(
                f"thinking_budget = {self.thinking_budget} leaves nothing of max_tokens = "
                f"{self.max_tokens} for the answer; give less, or more max_tokens"
            )
        if self.thinking_stop not in self.thinking_end:
            raise ValueError(
                f"thinking_end = {self.thinking_end!r} does not close the thinking; it must hold "
                f"thinking_stop ({self.thinking_stop!r})"
            )
        return self

    @model_validator(mode="after")
    def _experts_are_noted(self) -> SamplingSettings:
        if self.routing_replay and self.sampler not in ("auto", "local", "transformers"):
            raise ValueError(
                f"routing_replay = true: sampler = {self.sampler!r} does not say which experts it "
                'chose; sample with "local" or "transformers", or set it to false'
            )
        return self

    @field_validator("sampler")
    @classmethod
    def _known_sampler(cls, value: str) -> str:
        problem = why_no_sampler(value)
        if problem is not None:
            raise ValueError(problem)
        return value

    @field_validator("stop")
    @classmethod
    def _no_empty_stop(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if "" in value:
            raise ValueError("sampling.stop: a stop string is empty; give at least one character")
        return value
