"""Routing replay for mixtures of experts: notes which experts a pass chose, and repeats a choice.

Only the choice is repeated. A router's weights over the chosen experts are computed anew from its
own logits, with gradient (Ma et al. 2025, "Stabilizing MoE Reinforcement Learning by Aligning
Training and Inference Routers", arXiv:2510.11370; Zheng et al. 2025, arXiv:2507.18071, section 5.3,
replays the old policy's choice). It is the `topk` inside the router that is replaced, so that what
a family does before and after it stays its own.
Shapes: N tokens, L layers with experts, E experts of a layer, K of them chosen.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from groupwise.errors import RecipeError
from groupwise.policies.policy import evaluating

_TOPK = (torch.topk, Tensor.topk)
NO_EXPERTS = "it has no experts that a router chooses among"


@dataclass(frozen=True)
class Routers:
    """The routers of a decoder in the order of its layers; each chooses K of E experts."""

    modules: tuple[nn.Module, ...]
    num_experts: int
    top_k: int

    @contextmanager
    def choosing(self, given: Tensor | None) -> Iterator[list[Tensor]]:
        """Inside, token n takes the experts `given` [N, L, K], its own where they are negative or
        nothing is given. Yields the ids [N, K] taken, an entry for every call of a router."""
        chosen: list[Tensor] = []
        with ExitStack() as hooks:
            for layer, module in enumerate(self.modules):
                mode = _Choice(self, None if given is None else given[:, layer], chosen)
                before = module.register_forward_pre_hook(mode.enter)
                hooks.callback(before.remove)
                after = module.register_forward_hook(mode.leave, always_call=True)
                hooks.callback(after.remove)
            yield chosen

    def tensor(self, experts: Sequence[bytes], device: torch.device) -> Tensor:
        """[N, L, K] ids from one entry a token (`Completion.experts`), -1 where it is empty.

        Raises ValueError where an entry is not of L x K ids, or an id is not below E.
        """
        shape = (len(self.modules), self.top_k)
        unknown = np.full(shape, -1, np.int16).tobytes()
        sizes = {len(each) for each in experts} - {0, len(unknown)}
        if sizes:
            raise ValueError(
                f"experts of a token: {min(sizes)} bytes; {shape[0]} layers of {shape[1]} experts "
                f"make {len(unknown)}"
            )
        flat = np.frombuffer(b"".join(each or unknown for each in experts), np.int16)
        if flat.size and flat.max() >= self.num_experts:
            raise ValueError(f"expert {flat.max()} of a token: there are {self.num_experts}")
        return torch.from_numpy(flat.reshape(-1, *shape).astype(np.int64)).to(device)


@contextmanager
def replaying(decoder: nn.Module, given: Tensor | None) -> Iterator[None]:
    """`Routers.choosing` of the decoder's routers; nothing changes where nothing is given."""
    with ExitStack() as stack:
        if given is not None:
            stack.enter_context(routers_of(decoder).choosing(given))
        yield


class _Choice(TorchFunctionMode):
    """While its router runs: the choice among its experts is the given one, and is noted."""

    def __init__(self, routers: Routers, given: Tensor | None, chosen: list[Tensor]) -> None:
        super().__init__()
        self.routers, self.given, self.chosen = routers, given, chosen

    def enter(self, *_: Any) -> None:
        self.__enter__()  # type: ignore[no-untyped-call]

    def leave(self, *_: Any) -> None:
        self.__exit__(None, None, None)  # type: ignore[no-untyped-call]

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        size = (self.routers.num_experts, self.routers.top_k)
        if func not in _TOPK or (args[0].shape[-1], made.indices.shape[-1]) != size:
            return made
        ids = made.indices
        if self.given is not None:
            ids = torch.where(self.given < 0, ids, self.given)
            made = torch.return_types.topk((args[0].gather(-1, ids), ids))
        self.chosen.append(ids)
        return made


@contextmanager
def noting(decoder: nn.Module, wanted: bool) -> Iterator[list[Tensor]]:
    """What `Routers.choosing` yields for the decoder's routers; nothing unless it is wanted."""
    with ExitStack() as stack:
        yield stack.enter_context(routers_of(decoder).choosing(None)) if wanted else []


def stacked(chosen: Sequence[Tensor]) -> Tensor | None:
    """[N, L, K] int16 from what `noting` gave of one pass; None from nothing."""
    return torch.stack(list(chosen), dim=1).to(torch.int16) if chosen else None


def packed_experts(table: Tensor | None) -> list[bytes]:
    """One entry a token (`Completion.experts`) from ids [N, L, K] int16; none without a table."""
    return [] if table is None else [each.tobytes() for each in table.cpu().numpy()]


# --- which routers a model has ------------------------------------------------------------------

_FOUND: weakref.WeakKeyDictionary[nn.Module, Routers | str] = weakref.WeakKeyDictionary()


def find_routers(decoder: nn.Module) -> Routers | str:
    """The decoder's routers, or the reason why their choice cannot be replayed; found once.

    Which modules route is what the family says itself: those whose logits transformers gives as
    `router_logits`. Whether their choice is understood is tried on a few tokens.
    """
    if decoder not in _FOUND:
        _FOUND[decoder] = _search(decoder)
    return _FOUND[decoder]


def routers_of(decoder: nn.Module) -> Routers:
    """The same. Raises RecipeError with the reason."""
    found = find_routers(decoder)
    if isinstance(found, str):
        raise RecipeError(f"experts: {type(decoder).__name__} cannot replay them: {found}")
    return found


def router_modules(model: nn.Module) -> tuple[nn.Module, ...]:
    """The routers of a decoder or a whole model, whose weights may be on the meta device."""
    recorded = (getattr(model, "_can_record_outputs", None) or {}).get("router_logits")
    kind = getattr(recorded, "target_class", None)
    return tuple(each for each in model.modules() if kind and isinstance(each, kind))


@torch.no_grad()
def _search(decoder: Any) -> Routers | str:
    modules = router_modules(decoder)
    if not modules:
        return NO_EXPERTS
    device = next(decoder.parameters()).device
    vocabulary = int(decoder.get_input_embeddings().weight.shape[0])
    ids = (torch.arange(1, 5, device=device) * 7919 % vocabulary)[None]
    outputs: list[Any] = []
    unknown = "its routers do not give logits, weights and the ids of the chosen experts"
    with evaluating(decoder), ExitStack() as hooks:
        for module in modules:
            handle = module.register_forward_hook(lambda *given: outputs.append(given[-1]))
            hooks.callback(handle.remove)
        decoder(input_ids=ids, use_cache=False)
        first = outputs[0] if outputs else None
        if not isinstance(first, tuple) or len(first) != 3:
            return unknown
        routers = Routers(modules, int(first[0].shape[-1]), int(first[2].shape[-1]))
        outputs.clear()
        with routers.choosing(None) as chosen:
            decoder(input_ids=ids, use_cache=False)
    theirs = [output[2] for output in outputs]
    same = [a.shape == b.shape and bool((a == b).all()) for a, b in zip(theirs, chosen)]
    return routers if len(theirs) == len(chosen) == len(modules) and all(same) else unknown
