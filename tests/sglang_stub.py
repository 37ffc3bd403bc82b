"""A server on the loopback that answers like SGLang's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from groupwise.policies import weights_hash
from groupwise.policies.heads import text_config
from vllm_stub import Stub


class SglangStub(Stub):
    """`Stub` in SGLang's wire format. More faults: `seedless` (no deterministic inference),
    `incremental` (a piece of a stream holds new tokens alone), `own_stop` (it ends after two tokens
    at a stop id of its own), `cut` (it says that the prompt is shorter)."""

    completions = "/generate"

    def get(self, path: str) -> tuple[int, Any]:
        if path == "/ready":
            return 503 if self.paused else 200, None
        if path == "/server_info":
            follows = "seedless" not in self.faults
            return 200, {"version": "stub", "enable_deterministic_inference": follows}
        if path == "/model_info":
            kind = text_config(self.policy.model).model_type
            kind = "other" if "other_model" in self.faults else kind
            return 200, {"model_type": kind, "weight_version": self.version}
        return super().get(path) if path == "/v1/models" else (404, {"error": path})

    def post(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        if path == "/pause_generation":
            return super().post("/pause", body)
        if path == "/continue_generation":
            return super().post("/resume", body)
        if path.startswith("/flush_cache"):
            self.cached = self.cached if "stale" in self.faults else self.policy
            return 200, None
        if path == "/update_weights_from_disk":
            status, _ = self._reload(Path(body["model_path"]))
            return (200 if status == 200 else 400), {"success": status == 200, "message": "done"}
        if path == "/weights_checker":
            return 200, {"ranks": [{"per_gpu_checksum": weights_hash(self._state())}]}
        return super().post(path, body)

    def _state(self) -> dict[str, Any]:
        return dict(self.policy.model.state_dict())

    def asked(self, body: dict[str, Any]) -> dict[str, Any]:
        params = body["sampling_params"]
        # It has no other stop ids of its own than those that are ignored.
        stops = () if params["ignore_eos"] else params["stop_token_ids"]
        return {
            "prompt": body["input_ids"],
            "max_tokens": params["max_new_tokens"],
            "temperature": params["temperature"],
            "seed": params["sampling_seed"],
            "stop": params.get("stop"),
            "stop_token_ids": stops,
            "logprobs": body.get("top_logprobs_num"),
            "prompt_logprobs": 0 if body["logprob_start_len"] == 0 else None,
        }

    def whole(self, choice: dict[str, Any]) -> dict[str, Any]:
        *_, last = self._replies(choice, incremental=False)
        prompt = choice["prompt_logprobs"]
        if prompt is not None:
            values = [None, *(next(iter(each.values()))["logprob"] for each in prompt[1:])]
            pairs = zip(values, choice["prompt_token_ids"], strict=True)
            last["meta_info"]["input_token_logprobs"] = [[*pair, None] for pair in pairs]
        return last

    def chunks(self, choice: dict[str, Any]) -> Iterator[dict[str, Any]]:
        return self._replies(choice, incremental="incremental" in self.faults)

    def _replies(self, choice: dict[str, Any], incremental: bool) -> Iterator[dict[str, Any]]:
        logprobs: list[Any] = []
        top: list[Any] = []
        for count, piece in enumerate(self.pieces(choice), start=1):
            if incremental:
                logprobs, top = [], []
            given = piece["logprobs"]
            (token,), (logprob,) = piece["token_ids"], given["token_logprobs"]
            logprobs.append([logprob, token, None])
            for each in given["top_logprobs"] or ():
                names = [name.removeprefix("token_id:") for name in each]
                top.append([[v, int(n), None] for n, v in zip(names, each.values())])
            reason = piece["finish_reason"] and {"type": piece["finish_reason"], "matched": token}
            if "own_stop" in self.faults and count == 2:
                reason = {"type": "stop", "matched": token}
            meta = {
                "prompt_tokens": len(choice["prompt_token_ids"]) - ("cut" in self.faults),
                "completion_tokens": count,
                "output_token_logprobs": list(logprobs),
                "output_top_logprobs": list(top) or None,
                "finish_reason": reason,
            }
            yield {"output_ids": [each[1] for each in logprobs], "meta_info": meta}
            if reason is not None:
                return
