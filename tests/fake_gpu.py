"""A device that computes on the CPU and refuses what a GPU would refuse.

Its tensors say that they are elsewhere (`device.type` is "fakegpu", PyTorch's slot for a backend
written in Python), so whatever asks for the CPU by name, mixes devices, calls an operator that
only CPUs have or reads a value where none may be read, is an error here too. Values are exact, so
a whole run is compared with one on the CPU. `register` changes the process: use a child.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import transformers
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

NAME = "fakegpu"
# CUDA takes indices and scalars from the CPU, and copies between devices.
_INDEXING = ("index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index")
_COPIES = ("copy_", "_to_copy", "set_data")


class Elsewhere(Tensor):
    """A tensor on the device; `raw` is where its values are."""

    raw: Tensor

    @staticmethod
    def __new__(cls, raw: Tensor) -> Elsewhere:
        return torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined,no-any-return]
            cls,
            raw.size(),
            strides=raw.stride(),
            storage_offset=raw.storage_offset(),
            dtype=raw.dtype,
            device=f"{NAME}:0",
        )

    def __init__(self, raw: Tensor) -> None:
        self.raw = raw

    def tolist(self) -> Any:
        return self.to("cpu").tolist()

    def untyped_storage(self) -> torch.UntypedStorage:
        return self.raw.untyped_storage()

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return _run(func, args, kwargs or {})


class FakeGpu(TorchDispatchMode):
    """While it is on, tensors can be made on the device."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return _run(func, args, kwargs or {})


_reads = {"allowed": True}


@contextmanager
def no_reads() -> Iterator[None]:
    """Inside, no value may reach the CPU: a CUDA graph can be captured of it."""
    _reads["allowed"] = False
    try:
        yield
    finally:
        _reads["allowed"] = True


def _run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    leaves = tree_leaves((args, kwargs))
    ours = [each for each in leaves if isinstance(each, Elsewhere)]
    asked = next((each for each in leaves if isinstance(each, torch.device)), None)
    is_here = asked is not None and asked.type == "cpu"
    if not ours and (asked is None or asked.type != NAME):
        return func(*args, **kwargs)
    if ours:
        _refuse(func, leaves, is_here)
    args, kwargs = tree_map_only(Elsewhere, lambda tensor: tensor.raw, (args, kwargs))
    cpu = torch.device("cpu")
    args, kwargs = tree_map_only(torch.device, lambda _: cpu, (args, kwargs))
    name = func.overloadpacket.__name__
    if name == "_fused_sdp_choice":
        return 0  # by plain operators
    if name == "histc" and not args[0].is_floating_point():  # only CUDA counts integers
        return Elsewhere(func(args[0].float(), *args[1:], **kwargs).to(args[0].dtype))
    made = func(*args, **kwargs)
    if is_here or (name == "copy_" and not isinstance(leaves[0], Elsewhere)):
        return made
    known = {id(each.raw): each for each in ours}
    return tree_map_only(
        Tensor, lambda raw: known[id(raw)] if id(raw) in known else Elsewhere(raw), made
    )


def _refuse(func: Any, leaves: list[Any], is_here: bool) -> None:
    name = func.overloadpacket.__name__
    if func.namespace in ("mkldnn", "onednn", "quantized") or name.endswith(("_for_cpu", "_cpu")):
        raise RuntimeError(f"{func}: an operator that only CPUs have")
    if not _reads["allowed"] and (is_here or name in ("_local_scalar_dense", "nonzero")):
        raise RuntimeError(f"{func}: a value is read, which no graph can capture")
    away = [each for each in leaves if type(each) is Tensor and each.dim() > 0]
    if away and name not in (*_INDEXING, *_COPIES):
        raise RuntimeError(f"{func}: tensors on two devices")


def register() -> torch.device:
    """Make the device known to PyTorch, for as long as the process lives."""
    from torch.utils import backend_registration as backends

    class Module(backends._DummyBackendModule):
        def get_amp_supported_dtype(self) -> list[torch.dtype]:
            return [torch.bfloat16]

    backends._setup_privateuseone_for_python_backend(NAME, backend_module=Module())
    torch._C._set_only_lift_cpu_tensors(True)  # `torch.tensor` copies as any other operator does
    torch.inference_mode = torch.no_grad  # wrapped tensors have version counters
    moved = transformers.PreTrainedModel.to

    def tied(model: Any, *given: Any, **named: Any) -> Any:
        made = moved(model, *given, **named)
        made.tie_weights()  # `to` makes new parameters of another type, one for each name
        return made

    transformers.PreTrainedModel.to = tied
    return torch.device(NAME, 0)
