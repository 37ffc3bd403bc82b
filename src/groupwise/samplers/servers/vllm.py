"""vLLM's wire format."""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from groupwise.samplers.rows import Row
from groupwise.samplers.servers.probe import SAMPLED, TEMPERATURE, Reply
from groupwise.samplers.servers.server import CALL_SECONDS, Piece, Server, ServerError, seed_of

_NOTHING = hashlib.sha256(b"").hexdigest()
# Where a printed model has the fields of its configuration.
_SHAPE = {
    "vocab_size": r"org_vocab_size=(\d+)",
    "hidden_size": r"embedding_dim=(\d+)",
    "num_hidden_layers": r"\((?:\d+-)?(\d+)\): (?:\d+ x )?\w+(?:Layer|Block)\(",
}


class VllmServer(Server):
    kind = "vLLM"
    completions = "/v1/completions"
    pause_call = ("/pause?mode=abort", None)
    resume_call = ("/resume", None)
    sleep_call = ("/sleep?level=1", None)
    wake_call = ("/wake_up", None)
    weights_path = "/weight_info"
    missing = "where VLLM_SERVER_DEV_MODE=1 is set"
    raw = "with --logprobs-mode processed_logprobs"
    hint = (
        ". (vLLM on a CPU takes embeddings tied to the output layer only in part, unless the run "
        "starts the server)"
    )
    draws = (
        "vLLM draws its own tokens: equal keys give equal seeds, and a resumed or repeated run has "
        "the same ids only as far as vLLM repeats itself"
    )

    async def read_version(self) -> str:
        await self.call("GET", "/health")
        return str(await self.read("GET", "/version", lambda reply: str(reply["version"])))

    async def is_paused(self) -> bool:
        return bool(await self.read("GET", "/is_paused", lambda reply: reply["is_paused"]))

    async def shape(self) -> dict[str, Any]:
        """What the model says of itself when printed; nothing where vLLM does not print it."""
        asked = {"method": "get_model_inspection"}
        try:
            path = "/collective_rpc"
            printed = await self.read("POST", path, lambda reply: str(reply["results"]), asked)
        except ServerError as error:
            if error.status is None:
                raise
            return {}
        found = {name: [int(n) for n in re.findall(each, printed)] for name, each in _SHAPE.items()}
        found["num_hidden_layers"] = [n + 1 for n in found["num_hidden_layers"]]  # places from 0
        return {name: max(numbers) for name, numbers in found.items() if numbers}

    async def own_checksums(self, seconds: float) -> Any:
        found = await self.read(
            "POST",
            "/weight_checker",
            lambda reply: dict(reply["checksums"]),
            {"action": "checksum"},
            seconds,
        )
        return None if _NOTHING in found.values() else found  # a CPU's kernels hold copies

    async def reset_cache(self) -> None:
        deadline = time.monotonic() + CALL_SECONDS

        def is_done(reply: Any) -> bool:
            return reply is None or bool(reply.get("success", True))

        while not await self.read("POST", "/reset_prefix_cache", is_done):
            if time.monotonic() > deadline:
                raise ServerError(f"{self.url} does not reset its cache of prompts")
            await asyncio.sleep(0.02)

    async def load_folder(self, folder: Path, seconds: float) -> None:
        asked = {"method": "reload_weights", "kwargs": {"weights_path": str(folder)}}
        await self.call("POST", "/collective_rpc", asked, seconds)

    async def score(self, ids: Sequence[int], biases: Mapping[str, float], seconds: float) -> Reply:
        shared = {
            "model": self.model, "prompt": list(ids), "seed": 0, "ignore_eos": True, "top_p": 1.0,
            "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0, "return_token_ids": True,
            "return_tokens_as_token_ids": True, "logit_bias": dict(biases),
        }  # fmt: skip

        def sampled(reply: Any) -> tuple[tuple[int, ...], torch.Tensor]:
            choice = reply["choices"][0]
            logprobs = choice["logprobs"]["token_logprobs"]
            return tuple(choice["token_ids"]), torch.tensor(logprobs, dtype=torch.float64)

        def scored(reply: Any) -> torch.Tensor:
            given = reply["choices"][0]["prompt_logprobs"]
            values = [
                row[str(token)]["logprob"] for row, token in zip(given[1:], ids[1:], strict=True)
            ]
            return torch.tensor(values, dtype=torch.float64)

        # First what reads the cache of prompts: the other request does not.
        body = {**shared, "max_tokens": SAMPLED, "temperature": TEMPERATURE, "logprobs": 0}
        behind = await self.read("POST", self.completions, sampled, body, seconds)
        body = {**shared, "max_tokens": 1, "temperature": 1.0, "prompt_logprobs": 0}
        fixed = await self.read("POST", self.completions, scored, body, seconds)
        return Reply(fixed, *behind)

    def body(
        self, row: Row, stop_ids: frozenset[int], biases: Mapping[str, float]
    ) -> dict[str, Any]:
        request = row.request
        return {
            "model": self.model,
            "prompt": list(row.context),
            "max_tokens": request.max_tokens - len(row.ids),
            "temperature": 0.0 if request.greedy else request.temperature,
            "seed": seed_of(row),
            "top_p": 1.0,
            "top_k": 0,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "logit_bias": dict(biases),
            "stop": list(request.stop_strings),
            "stop_token_ids": sorted(stop_ids),
            "ignore_eos": True,  # the template's stop ids are all that end it
            "logprobs": request.top_k,
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
            "stream": True,
            "stream_interval": 8,  # tokens a piece of the stream
        }

    def piece(self, chunk: Mapping[str, Any], sent: list[int], taken: int) -> Piece:
        if not chunk["choices"]:
            return Piece()
        (choice,) = chunk["choices"]
        read = choice.get("prompt_token_ids")
        self.read_as_sent(read is None or read == sent, f"{read and read[:8]}...", sent)
        found = choice.get("logprobs") or {}
        top = [
            [(value, int(name.removeprefix("token_id:"))) for name, value in given.items()]
            for given in found.get("top_logprobs") or ()
        ]
        ids, logprobs = choice.get("token_ids") or (), found.get("token_logprobs") or ()
        return Piece(ids, logprobs, top, choice.get("finish_reason"))


async def load_adapter(server: Server, folder: Path, name: str, seconds: float) -> None:
    """An adapter. Its name is new, so nothing that older weights made is found under it."""
    asked = {"lora_name": name, "lora_path": str(folder)}
    await server.call("POST", "/v1/load_lora_adapter", asked, seconds)
    older, server.model = server.model, name
    if older.startswith("version-"):
        with suppress(ServerError):
            await server.call("POST", "/v1/unload_lora_adapter", {"lora_name": older})
