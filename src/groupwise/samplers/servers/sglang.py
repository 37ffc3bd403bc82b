"""SGLang's wire format, of its own `/generate` (as in release 0.5.23).

Tested against a stub alone: no SGLang server was ever run with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from groupwise.samplers.rows import Row
from groupwise.samplers.servers.probe import SAMPLED, TEMPERATURE, Reply
from groupwise.samplers.servers.server import CALL_SECONDS, Piece, Server, ServerError, seed_of

_EVERY = {
    "top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0,
    "frequency_penalty": 0.0, "min_new_tokens": 0, "skip_special_tokens": False,
    "no_stop_trim": True,
}  # fmt: skip


class SglangServer(Server):
    kind = "SGLang"
    kept_back = 2  # it cuts max_new_tokens to that without a word
    completions = "/generate"
    pause_call = ("/pause_generation", {"mode": "abort"})
    resume_call = ("/continue_generation", {})
    weights_path = "/model_info"
    missing = "from release 0.5.23 on"
    raw = "without SGLANG_RETURN_ORIGINAL_LOGPROB"
    draws = (
        "SGLang draws its own tokens: equal keys give equal seeds, which a server follows where it "
        "was started with --enable-deterministic-inference"
    )

    async def read_version(self) -> str:
        def read(reply: Any) -> tuple[str, bool]:
            return str(reply["version"]), bool(reply.get("enable_deterministic_inference"))

        version, follows = await self.read("GET", "/server_info", read)
        if not follows:
            self.draws = (
                f"{self.url} was started without --enable-deterministic-inference: SGLang ignores "
                "seeds, and no run or completion can be repeated"
            )
        return str(version)

    async def is_paused(self) -> bool:
        try:
            await self.call("GET", "/ready")
        except ServerError as error:
            if error.status != 503:
                raise
            return True
        return False

    async def shape(self) -> dict[str, Any]:
        return {
            "model_type": await self.read("GET", "/model_info", lambda reply: reply["model_type"])
        }

    async def own_checksums(self, seconds: float) -> Any:
        def read(reply: Any) -> list[str]:
            return [each["per_gpu_checksum"] for each in reply["ranks"]]

        return await self.read("POST", "/weights_checker", read, {"action": "checksum"}, seconds)

    async def reset_cache(self) -> None:
        await self.call("POST", f"/flush_cache?timeout={CALL_SECONDS / 2:g}")

    async def load_folder(self, folder: Path, seconds: float) -> None:
        asked = {"model_path": str(folder)}
        done = await self.read(
            "POST", "/update_weights_from_disk", lambda reply: reply["success"], asked, seconds
        )
        if done is not True:
            raise ServerError(f"{self.url} did not load {folder}")

    async def score(self, ids: Sequence[int], biases: Mapping[str, float], seconds: float) -> Reply:
        shared = {**_EVERY, "ignore_eos": True, "logit_bias": dict(biases) or None}

        def asked(count: int, temperature: float, start: int) -> dict[str, Any]:
            params = {**shared, "max_new_tokens": count, "temperature": temperature}
            return _body(ids, {**params, "sampling_seed": 0}, start)

        def sampled(reply: Any) -> tuple[tuple[int, ...], torch.Tensor]:
            given = reply["meta_info"]["output_token_logprobs"]
            logprobs = torch.tensor([each[0] for each in given], dtype=torch.float64)
            return tuple(each[1] for each in given), logprobs

        def scored(reply: Any) -> torch.Tensor:
            given = reply["meta_info"]["input_token_logprobs"]
            if [each[1] for each in given] != list(ids):
                raise ValueError("other ids")
            return torch.tensor([each[0] for each in given[1:]], dtype=torch.float64)

        # First what reads the cache of prompts: the other request does not.
        path = self.completions
        behind = await self.read("POST", path, sampled, asked(SAMPLED, TEMPERATURE, -1), seconds)
        return Reply(await self.read("POST", path, scored, asked(1, 1.0, 0), seconds), *behind)

    def body(
        self, row: Row, stop_ids: frozenset[int], biases: Mapping[str, float]
    ) -> dict[str, Any]:
        request = row.request
        params = {
            **_EVERY,
            "max_new_tokens": request.max_tokens - len(row.ids),
            "temperature": 0.0 if request.greedy else request.temperature,
            "sampling_seed": seed_of(row),
            "logit_bias": dict(biases) or None,
            "stop": list(request.stop_strings) or None,
            "stop_token_ids": sorted(stop_ids) or None,
            "ignore_eos": not stop_ids,  # it would ignore the others as well
            "stream_interval": 8,  # tokens a piece of the stream
        }
        return {
            **_body(row.context, params, -1),
            "top_logprobs_num": request.top_k,
            "stream": True,
        }

    def piece(self, chunk: Mapping[str, Any], sent: list[int], taken: int) -> Piece:
        meta = chunk["meta_info"]
        count = meta["prompt_tokens"]
        self.read_as_sent(count == len(sent), f"{count} ids", sent)
        given = meta["output_token_logprobs"]
        # A piece holds all tokens so far, or the new ones alone (--incremental-streaming-output).
        new = max(0, meta["completion_tokens"] - taken)
        fresh = given[len(given) - new :] if new <= len(given) else ()
        if len(fresh) != new:
            raise ServerError(f"{self.url}: {new} new ids with {len(given)} logprobs")
        top = [
            [(value, token) for value, token, *_ in each]
            for each in (meta.get("output_top_logprobs") or ())[-new:]
        ]
        reason = meta.get("finish_reason") or {}
        kind = reason.get("type")
        if kind == "stop" and isinstance(reason.get("matched"), int):
            kind = f"its own stop id {reason['matched']}"  # the policy's ended the row already
        return Piece([each[1] for each in fresh], [each[0] for each in fresh], top, kind)


def _body(ids: Sequence[int], params: Mapping[str, Any], start: int) -> dict[str, Any]:
    """A request; log-probabilities of the prompt from `start` on, which -1 leaves out."""
    return {
        "input_ids": list(ids),
        "sampling_params": dict(params),
        "return_logprob": True,
        "logprob_start_len": start,
        "return_text_in_logprobs": False,
    }
