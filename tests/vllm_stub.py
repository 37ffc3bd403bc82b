"""A server on the loopback that answers like vLLM's, on a small model, and fails as a test says."""

from __future__ import annotations

import copy
import hashlib
import json
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

import loopback
from groupwise.policies import Policy, score, weights_hash
from groupwise.policies.heads import causal_lm, text_config
from groupwise.samplers.transformers_sampler import TransformersSampler
from groupwise.types import Request


class Stub:
    """The state of a server; `faults` are what it does wrong now.

    Faults: `half` and `unchanged` (a reload that loads half or nothing, and answers 200), `refused`
    (a reload answers 500, and a later completion ends the engine), `hangs` (a reload never
    answers), `stale` (a reset keeps what the cache holds), `raw` (log-probabilities before the
    temperature), `stays_paused`, `paused` (requests wait), `dead` (completions answer 500), `drops`
    (a stream ends after two tokens), `silent` (it never starts), `stalls` (it waits after three
    tokens), `other_tokenizer`, `other_model`, `nan`, `packed` (checksums are of nothing),
    `no_dev_mode`, `outside` (an id that the vocabulary does not have), `longer` (an id without a
    log-probability), `nan_literal`, `other_prompt`. `failures` completions answer 500, and later
    ones are right; after `reloads_before_hanging` reloads one hangs; `prefix` stands before every
    path. `answers` are by path what is replied in place of the right thing.
    """

    completions = "/v1/completions"

    def __init__(self, policy: Policy) -> None:
        self.policy = copy.copy(policy)
        self.policy.model = copy.deepcopy(causal_lm(policy.model)).eval()
        self.cached = self.policy
        self.faults: set[str] = set()
        self.answers: dict[str, Any] = {}
        self.calls: list[str] = []
        self.bodies: list[dict[str, Any]] = []
        self.keys: set[str | None] = set()
        self.version = "default"
        self.resets = 0
        self.paused = self.asleep = False
        self.engine_dead = False
        self.max_length = policy.max_length
        self.url = self.prefix = ""
        self.failures = 0
        self.reloads_before_hanging: int | None = None
        self.gone = lambda: None
        self._lock, self._reloads = threading.Lock(), threading.Lock()

    # What is asked.

    def get(self, path: str) -> tuple[int, Any]:
        if path == "/health":
            return 200, None
        if path == "/is_paused" and "no_dev_mode" not in self.faults:
            return 200, {"is_paused": self.paused}
        if path == "/weight_info":
            return 200, {"weight_version": self.version}
        if path == "/get_world_size":
            return 200, {"world_size": 2}
        if path == "/version":
            return 200, {"version": "stub"}
        if path == "/v1/models":
            own = {"id": "policy", "max_model_len": self.max_length, "root": "policy"}
            return 200, {"data": [own]}
        return 404, {"error": path}

    def post(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        if path.startswith("/pause"):
            self.paused = True
        elif path.startswith("/sleep"):
            self.asleep = True
        elif path == "/wake_up":
            self.asleep = False
        elif path == "/resume":
            self.paused = "stays_paused" in self.faults
        elif path == "/tokenize":
            ids = list(self.policy.template.encode(body["prompt"]))
            return 200, {"tokens": ids[::-1] if "other_tokenizer" in self.faults else ids}
        elif path == "/collective_rpc":
            if body["method"] == "get_model_inspection":
                return 200, {"results": [self._printed()]}
            with self._reloads:  # the engine does one after the other
                return self._reload(Path(body["kwargs"]["weights_path"]))
        elif path == "/reset_prefix_cache":
            self.resets += 1
            if self.resets % 2:  # blocks are still held
                return 200, {"success": False}
            self.cached = self.cached if "stale" in self.faults else self.policy
            return 200, {"success": True}
        elif path == "/weight_checker":
            weights = weights_hash(self.policy.model.state_dict())
            nothing = hashlib.sha256(b"").hexdigest()
            return 200, {"checksums": {"all": nothing if "packed" in self.faults else weights}}
        elif path == "/update_weight_version":
            self.version = body["new_version"]
        else:
            return 404, {"error": path}
        return 200, None

    def _printed(self) -> str:
        """As vLLM prints a model of three layers or so."""
        config = text_config(self.policy.model)
        last = config.num_hidden_layers - ("other_model" not in self.faults)
        return (
            f"(embed_tokens): VocabParallelEmbedding(embedding_dim={config.hidden_size}, "
            f"org_vocab_size={config.vocab_size})\n (layers): ModuleList()(\n"
            f" (0-{last}): {last + 1} x LlamaDecoderLayer()("
        )

    def _reload(self, folder: Path) -> tuple[int, Any]:
        if self.reloads_before_hanging is not None:
            self.faults |= set() if self.reloads_before_hanging else {"hangs", "hanging"}
            self.reloads_before_hanging -= 1
        if "hangs" in self.faults:
            while "hangs" in self.faults:
                time.sleep(0.05)
            return 500, {"error": "too late"}
        self.engine_dead = "refused" in self.faults or not folder.is_dir()
        if self.engine_dead:
            return 500, {"error": "reload failed"}
        tensors = load_file(folder / "model.safetensors")
        if "half" in self.faults:
            tensors = dict(sorted(tensors.items())[: len(tensors) // 2])
        if "unchanged" in self.faults:
            tensors = {}
        self.policy = copy.copy(self.policy)
        self.policy.model = copy.deepcopy(self.policy.model)
        self.policy.model.load_state_dict(tensors, strict=False)
        return 200, {"results": [None]}

    # What is sampled.

    def failure(self) -> str | None:
        """Why a completion cannot start, once the server is not paused."""
        while (self.paused or {"paused", "silent"} & self.faults) and "closed" not in self.faults:
            time.sleep(0.02)
        if "closed" in self.faults:  # its thread may outlive the test: no torch in it
            return "closed"
        if self.asleep:
            return "asleep"
        if self.failures > 0:
            self.failures -= 1
            return "bad gateway"
        return "engine dead" if self.engine_dead or "dead" in self.faults else None

    def completion(self, body: dict[str, Any]) -> dict[str, Any]:
        """The whole of a choice, logprobs as vLLM gives them."""
        template = copy.copy(self.policy.template)
        template.stop_ids = frozenset(body.get("stop_token_ids") or ())
        greedy = body["temperature"] == 0
        policy = copy.copy(self.cached)
        policy.template = template
        request = Request(
            tuple(body["prompt"]),
            key=body["seed"],
            max_tokens=body["max_tokens"],
            temperature=1.0 if greedy else body["temperature"],
            greedy=greedy,
            stop_strings=tuple(body.get("stop") or ()),
            top_k=body.get("logprobs") or 0,
        )
        with self._lock:
            made = TransformersSampler(policy).sample([request])[0]
            logprobs = list(made.sampler_logprobs)
            if "raw" in self.faults:
                logprobs = score(self.policy, request.prompt_ids, made.token_ids).tolist()
            if {"nan", "nan_literal"} & self.faults:
                logprobs[-1] = None if "nan" in self.faults else float("nan")
            prompt = None
            if body.get("prompt_logprobs") is not None:
                rest = request.prompt_ids[1:]
                values = score(self.policy, request.prompt_ids[:1], rest).tolist()
                prompt = [None, *({str(i): {"logprob": v}} for i, v in zip(rest, values))]
        top = None
        if made.top_ids is not None and made.top_logprobs is not None:
            top = [
                {f"token_id:{i}": v for i, v in zip(ids, values)}
                for ids, values in zip(made.top_ids, made.top_logprobs)
            ]
        return {
            "token_ids": list(made.token_ids),
            "prompt_token_ids": list(request.prompt_ids),
            "logprobs": {"token_logprobs": logprobs, "top_logprobs": top},
            "prompt_logprobs": prompt,
            "finish_reason": made.finish_reason,
        }

    def asked(self, body: dict[str, Any]) -> dict[str, Any]:
        """A request as vLLM's."""
        return body

    def whole(self, choice: dict[str, Any]) -> dict[str, Any]:
        return {"choices": [choice]}

    def chunks(self, choice: dict[str, Any]) -> Iterator[dict[str, Any]]:
        return ({"choices": [piece]} for piece in self.pieces(choice))

    def pieces(self, choice: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The choice as a stream of single tokens."""
        for place, token in enumerate(choice["token_ids"]):
            while "stalls" in self.faults and place == 3:
                time.sleep(0.02)
            if "drops" in self.faults and place == 2:
                return
            last = place + 1 == len(choice["token_ids"])
            given = choice["logprobs"]
            ids = [10**8 if "outside" in self.faults else token] * (1 + ("longer" in self.faults))
            prompt = choice["prompt_token_ids"][:: -1 if "other_prompt" in self.faults else 1]
            yield {
                "token_ids": ids,
                "prompt_token_ids": prompt if place == 0 else None,
                "logprobs": {
                    "token_logprobs": [given["token_logprobs"][place]],
                    "top_logprobs": given["top_logprobs"] and [given["top_logprobs"][place]],
                },
                "finish_reason": choice["finish_reason"] if last else None,
            }


@contextmanager
def vllm_stub(
    policy: Policy,
    *faults: str,
    context: ssl.SSLContext | None = None,
    kind: type[Stub] = Stub,
) -> Iterator[Stub]:
    """A stub that serves a copy of the policy's present weights; over https with a `context`."""
    stub = kind(policy)
    stub.faults |= set(faults)

    class Handler(loopback.Handler):
        def do_GET(self) -> None:
            stub.calls.append(self.path)
            stub.keys.add(self.headers["Authorization"])
            self.reply(*stub.get(self.path.removeprefix(stub.prefix)))

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or "{}") or {}
            stub.calls.append(self.path)
            path = self.path.removeprefix(stub.prefix)
            if path != stub.completions:
                self.reply(*stub.post(path, body))
                return
            stub.bodies.append(body)
            if (failure := stub.failure()) is not None:
                self.reply(500, {"error": failure})
                return
            choice = stub.completion(stub.asked(body))
            if not body.get("stream"):
                self.reply(200, stub.whole(choice))
                return
            self.send_response(200)
            self.send_header("Connection", "close")
            self.end_headers()
            for chunk in stub.chunks(choice):
                self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
                self.wfile.flush()
            self.wfile.write(b"data: [DONE]\n\n")
            self.close_connection = True

        def reply(self, status: int, body: Any) -> None:
            if self.path in stub.answers:
                status, body = 200, stub.answers[self.path]
            text = b"" if body is None else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

    server = loopback.Server(Handler, context)
    stub.url = server.url
    stub.gone = server.stop
    try:
        yield stub
    finally:
        stub.faults = {"closed"}
        stub.paused = False
        server.stop()
        server.thread.join()


def moved(policy: Policy, size: float = 0.05, seed: int = 1) -> Policy:
    """The policy after an update: noise is added to its weights, in place."""
    noise = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.add_(size * torch.randn(parameter.shape, generator=noise))
    return policy
