"""Gives a server new weights, and makes sure before that it is a server of the same model."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress

from groupwise.errors import RecipeError
from groupwise.policies.heads import text_config
from groupwise.policies.policy import Policy
from groupwise.samplers.servers.probe import TEXT
from groupwise.samplers.servers.server import Server, ServerError

Take = Callable[[], Awaitable[None]]


async def same_model(server: Server, policy: Policy) -> None:
    """Connects to a server, which is resumed where it was left paused.

    Raises RecipeError for a server of another tokenizer, vocabulary or model, ServerError where it
    does not answer.
    """
    try:
        found = await server.connect()
    except ServerError as error:
        if error.status != 404:
            raise
        hint = f"a {server.kind} server has this call"
        hint += f" {server.missing}" if server.version else ""
        raise ServerError(f"{error}; {hint}", 404) from error
    ids = list(policy.template.encode(TEXT))
    if found != ids:
        raise RecipeError(
            f"the {server.kind} server {server.url} has another tokenizer than {policy.name}: it "
            f"reads "
            f"{TEXT[:20]!r}... as {found[:6]}..., and the policy's is {ids[:6]}..."
        )
    config = text_config(policy.model)
    for name, value in (await server.shape()).items():
        ours = getattr(config, name, value)
        if ours != value:
            raise RecipeError(
                f"the {server.kind} server {server.url} serves another model than "
                f"{policy.name}: its {name} is {value}, and the policy's {ours}; "
                "start it with the policy's folder"
            )


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
