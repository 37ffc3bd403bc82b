"""Weights between GPUs, by vLLM's own weight transfer (0.28 or newer).

Not executed yet: it needs CUDA, and vLLM in the learner's environment. A test drives it with a
stand-in for vLLM's classes."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from groupwise.errors import RecipeError
from groupwise.policies.heads import causal_lm
from groupwise.policies.policy import Policy
from groupwise.ports import free_port
from groupwise.samplers.servers.server import Server, ServerError


async def transfer(
    server: Server, policy: Policy, seconds: float, made: dict[str, Callable[[], Any]]
) -> None:
    """Send the policy's weights; `made` keeps the connection of each address. vLLM's calls block,
    so in a thread. Raises ServerError, RecipeError where vLLM is not in this environment."""
    try:
        async with asyncio.timeout(seconds):
            if server.url not in made:
                workers = await server.read("GET", "/get_world_size", _world_size)
                made[server.url] = await asyncio.to_thread(transfer_to, server, policy, workers)
            await asyncio.to_thread(made[server.url])
    except (TimeoutError, OSError, RuntimeError) as error:
        made.pop(server.url, None)
        raise ServerError(f"{server.url}: weight transfer: {error!r}") from error


def _world_size(reply: Any) -> int:
    return int(reply["world_size"])


def transfer_to(server: Server, policy: Policy, workers: int) -> Callable[[], Any]:
    """A function that sends the policy's weights to a server with so many workers; vLLM starts,
    updates and finishes. Raises RecipeError where vLLM is not in this environment."""
    try:
        from vllm.distributed.weight_transfer import (
            HTTPVLLMWeightSyncClient,
            ModuleSource,
            WeightTransferTrainerFactory,
        )
        from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerInitInfo
    except ImportError as error:
        raise RecipeError(
            f'sampling.vllm.refresh = "nccl": {error}; it needs vLLM 0.28 or newer in this '
            'environment, or refresh = "folder"'
        ) from error
    address = (urlsplit(server.url).hostname or "", 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
        way.connect(address)  # sends nothing: it finds which of this machine's addresses is seen
        host = way.getsockname()[0]
    engine = WeightTransferTrainerFactory.trainer_init(
        init_info=NCCLTrainerInitInfo(
            master_address=host, master_port=free_port(host), world_size=1 + workers, rank=0
        ),
        client=HTTPVLLMWeightSyncClient(server.url),
        source=ModuleSource(causal_lm(policy.model)),
    )
    return engine.send_weights  # type: ignore[no-any-return]
