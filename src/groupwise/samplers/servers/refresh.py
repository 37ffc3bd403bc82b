"""Gives a server new weights, and makes sure before that it is a server of the same model."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from groupwise.errors import RecipeError
from groupwise.policies.heads import text_config
from groupwise.policies.policy import Policy
from groupwise.samplers.servers.probe import TEXT
from groupwise.samplers.servers.server import Server, ServerError

Take = Callable[[], Awaitable[None]]
# Where a printed model has the fields of its configuration.
_SHAPE = {
    "vocab_size": r"org_vocab_size=(\d+)",
    "hidden_size": r"embedding_dim=(\d+)",
    "num_hidden_layers": r"\((?:\d+-)?(\d+)\): (?:\d+ x )?\w+(?:Layer|Block)\(",
}


async def same_model(server: Server, policy: Policy) -> None:
    """Connects to a server, which is resumed where it was left paused.

    Raises RecipeError for a server of another tokenizer, vocabulary or model, ServerError where it
    does not answer.
    """
    try:
        found = await _connect(server)
    except ServerError as error:
        if error.status != 404:
            raise
        hint = "a vLLM server has this call"
        hint += " where VLLM_SERVER_DEV_MODE=1 is set" if server.engine else ""
        raise ServerError(f"{error}; {hint}", 404) from error
    ids = list(policy.template.encode(TEXT))
    if found != ids:
        raise RecipeError(
            f"sampling.vllm: {server.url} has another tokenizer than {policy.name}: it reads "
            f"{TEXT[:20]!r}... as {found[:6]}..., and the policy's is {ids[:6]}..."
        )
    config = text_config(policy.model)
    for name, value in (await _shape(server)).items():
        ours = getattr(config, name, value)
        if ours != value:
            raise RecipeError(
                f"sampling.vllm: {server.url} serves another model than {policy.name}: its {name} "
                f"is {value}, and the policy's {ours}; start it with the policy's folder"
            )


async def _connect(server: Server) -> list[int]:
    """What a fixed text's ids are there; reads the server's model name and longest row."""
    await server.call("GET", "/health")
    server.engine = await server.read("GET", "/version", lambda reply: str(reply["version"]))
    if await server.is_paused():
        await server.resume()
    server.model, server.max_length = await server.read("GET", "/v1/models", _own_model)
    asked = {"model": server.model, "prompt": TEXT, "add_special_tokens": False}
    found: list[int] = await server.read(
        "POST", "/tokenize", lambda reply: list(reply["tokens"]), asked
    )
    return found


def _own_model(reply: Any) -> tuple[str, int]:
    """The name of the model that is no adapter, and the longest row that it takes."""
    own, *_ = (each for each in reply["data"] if not each.get("parent"))
    return str(own["id"]), int(own["max_model_len"])


async def _shape(server: Server) -> dict[str, int]:
    """What the server's model says of itself when printed; nothing where vLLM does not print it."""
    asked = {"method": "get_model_inspection"}
    try:
        path = "/collective_rpc"
        printed = await server.read("POST", path, lambda reply: str(reply["results"]), asked)
    except ServerError as error:
        if error.status is None:
            raise
        return {}
    found = {name: [int(n) for n in re.findall(each, printed)] for name, each in _SHAPE.items()}
    found["num_hidden_layers"] = [n + 1 for n in found["num_hidden_layers"]]  # places from 0
    return {name: max(numbers) for name, numbers in found.items() if numbers}


async def refresh(server: Server, take: Take, back: Take | None) -> None:
    """The server takes new weights and drops what it made from the old ones.

    Raises ServerError where it does not, with the last good weights put `back`. The server is not
    left paused.
    """
    try:
        await server.pause()
        try:
            await take()
        except ServerError:
            if back is not None:  # a failed load leaves an engine that the next row ends
                with suppress(ServerError):
                    await back()
                    await server.reset_cache()
            raise
        await server.reset_cache()
        await server.call("POST", "/update_weight_version", {"new_version": server.weights})
    finally:
        await server.resume()


async def load_folder(server: Server, folder: Path, seconds: float) -> None:
    """The weights in a folder, which the server reads."""
    asked = {"method": "reload_weights", "kwargs": {"weights_path": str(folder)}}
    await server.call("POST", "/collective_rpc", asked, seconds)


async def load_adapter(server: Server, folder: Path, name: str, seconds: float) -> None:
    """An adapter. Its name is new, so nothing that older weights made is found under it."""
    asked = {"lora_name": name, "lora_path": str(folder)}
    await server.call("POST", "/v1/load_lora_adapter", asked, seconds)
    older, server.model = server.model, name
    if older.startswith("version-"):
        with suppress(ServerError):
            await server.call("POST", "/v1/unload_lora_adapter", {"lora_name": older})
