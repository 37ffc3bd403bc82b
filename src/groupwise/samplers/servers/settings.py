"""The recipe's tables [sampling.vllm] and [sampling.sglang]. No torch."""

from __future__ import annotations

import os
import shutil
import sys
from typing import ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from groupwise.errors import RecipeError
from groupwise.verifiers.judge.endpoint import key_headers

_FLAGS_OF_THE_RUN = {"--model", "--host", "--port", "--served-model-name", "--logprobs-mode"}


class ServerSettings(BaseModel):
    """Which servers sample, and how they get the weights."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    engine: ClassVar[str]

    servers: tuple[str, ...] = Field(
        default=(), description='Running servers, as "http://127.0.0.1:8000".'
    )
    folder: str | None = Field(
        default=None,
        min_length=1,
        description="Where weights are written for the servers; servers on other machines must "
        "see it at the same path. Default: a temporary folder.",
    )
    refresh_seconds: float = Field(
        default=600.0,
        gt=0.0,
        description="Seconds within which a server must have taken new weights.",
    )
    silent_seconds: float = Field(
        default=30.0,
        gt=0.0,
        description="Seconds without a token after which a server with requests is asked for its "
        "health; one that is paused or does not answer is left out, and others do its work.",
    )
    key_variable: str | None = Field(
        default=None,
        min_length=1,
        description="The environment variable with the servers' API key.",
    )

    @field_validator("servers")
    @classmethod
    def _addresses(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for url in value:
            if not _is_address(url):
                raise ValueError(
                    f"sampling.{cls.engine}.servers: {url!r} is not an address; give, for example, "
                    '"http://127.0.0.1:8000"'
                )
        found = tuple(url.rstrip("/").removesuffix("/v1") for url in value)
        if len(set(found)) < len(found):
            raise ValueError(f"sampling.{cls.engine}.servers = {list(value)}: one is named twice")
        return found

    def headers(self) -> dict[str, str]:
        """What every request says. Raises RecipeError where the key's variable is not set."""
        return key_headers(self.key_variable, f"sampling.{self.engine}.key_variable")


class VllmSettings(ServerSettings):
    """Which vLLM servers sample, and how they get the weights."""

    engine: ClassVar[str] = "vllm"

    servers: tuple[str, ...] = Field(
        default=(),
        description='Running servers, as "http://127.0.0.1:8000". They need the variable '
        "VLLM_SERVER_DEV_MODE=1 and the flag --logprobs-mode processed_logprobs.",
    )
    python: str | None = Field(
        default=None,
        min_length=1,
        description="A Python interpreter that has vLLM: the run starts a server with it on this "
        "machine, and ends it.",
    )
    arguments: tuple[str, ...] = Field(
        default=(),
        description="Further flags of the server that the run starts, one item each, as "
        '["--max-model-len", "4096"].',
    )
    start_seconds: float = Field(
        default=600.0, gt=0.0, description="Seconds within which a server must have started."
    )
    refresh: Literal["folder", "lora", "nccl"] = Field(
        default="folder",
        description="How a server gets new weights. `folder`: it reads a folder that the run "
        "writes. `lora`: the same, of the adapter alone, under a new name each version (server "
        "flag --enable-lora). `nccl`: between GPUs, by vLLM's weight transfer (needs vLLM 0.28 or "
        "newer in the run's own environment).",
    )
    sleep: bool = Field(
        default=False,
        description="Servers give back their GPU memory between two calls of the sampler, for "
        "servers on the learner's own GPUs (server flag --enable-sleep-mode).",
    )

    @model_validator(mode="after")
    def _one_source(self) -> VllmSettings:
        if bool(self.servers) == (self.python is not None):
            raise ValueError(
                "sampling.vllm: give either servers, a list of addresses, or python, an "
                "interpreter that has vLLM"
            )
        if self.arguments and self.python is None:
            raise ValueError("sampling.vllm.arguments are for a server that `python` starts")
        flags = {item.partition("=")[0].replace("_", "-") for item in self.arguments}
        taken = sorted(flags & _FLAGS_OF_THE_RUN)
        if taken:
            raise ValueError(
                f"sampling.vllm.arguments = {list(self.arguments)}: the run sets {taken[0]} "
                'itself; leave it out (other flags are taken, as ["--max-model-len", "4096"])'
            )
        return self


class SglangSettings(ServerSettings):
    """Which SGLang servers sample. Tested against a stub alone."""

    engine: ClassVar[str] = "sglang"

    servers: tuple[str, ...] = Field(
        min_length=1,
        description='Running servers, as "http://127.0.0.1:30000", started with the flag '
        "--enable-deterministic-inference where draws are to repeat.",
    )


def check_here(settings: ServerSettings | None, *, adapter: bool) -> None:
    """Whether this machine and a policy with or without an `adapter` have what the table asks for.

    Raises RecipeError.
    """
    if settings is None:
        return
    settings.headers()
    if not isinstance(settings, VllmSettings):
        return
    if settings.refresh == "lora" and not adapter:
        raise RecipeError(
            'sampling.vllm.refresh = "lora": the policy has no adapter; add a table '
            '[model.adapter], or set refresh = "folder"'
        )
    python = settings.python
    if python is not None and shutil.which(os.path.expanduser(python)) is None:
        raise RecipeError(
            f"sampling.vllm.python = {python!r} is not a program here; give the interpreter of an "
            f"environment with vLLM, as this one's is {sys.executable!r}"
        )


def _is_address(url: str) -> bool:
    try:  # reading a port that is not a number up to 65535 raises ValueError
        parts = urlsplit(url)
        place = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        # A name and password would be in the record; the API key has a variable of its own.
        return bool(place) and not (parts.query or parts.fragment or parts.username)
    except ValueError:
        return False
