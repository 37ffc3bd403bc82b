"""Nestings of tensors as safetensors and JSON: bit for bit, tied ones once, no pickle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


def save_tensors(path: Path, tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """Write tensors; returns the aliases (tied name -> stored name), which are stored once."""
    from safetensors.torch import save_file

    stored: dict[str, Tensor] = {}
    names: dict[tuple[Any, ...], str] = {}
    storages: set[int] = set()
    aliases: dict[str, str] = {}
    for name, tensor in tensors.items():
        tensor = tensor.detach()
        storage = tensor.untyped_storage().data_ptr()
        place = (storage, tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype)
        if tensor.numel() and place in names:
            aliases[name] = names[place]
            continue
        names[place] = name
        # Two different views of one storage cannot be written as they are.
        shared = bool(tensor.numel()) and storage in storages
        storages.add(storage)
        stored[name] = tensor.clone() if shared else tensor.contiguous()
    save_file(stored, path)
    return aliases


def load_tensors(path: Path, aliases: Mapping[str, str]) -> dict[str, Tensor]:
    """What `save_tensors` wrote, on the CPU; `aliases` as it returned them."""
    from safetensors.torch import load_file

    tensors: dict[str, Tensor] = load_file(path, device="cpu")
    tensors.update({name: tensors[stored] for name, stored in aliases.items()})
    return tensors


def pack(value: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    """A nesting as JSON; its tensors go to `tensors` and leave their name behind."""
    import torch

    if isinstance(value, torch.Tensor):
        tensors[path] = value
        return {"tensor": path}
    if isinstance(value, Mapping):
        items = [[key, pack(inner, f"{path}/{key}", tensors)] for key, inner in value.items()]
        if not all(isinstance(key, (str, int)) for key in value):
            raise TypeError(f"keys at {path or 'the top'} must be texts or whole numbers")
        return {"mapping": items}
    if isinstance(value, (list, tuple)):
        inner = [pack(item, f"{path}/{number}", tensors) for number, item in enumerate(value)]
        return {"tuple" if isinstance(value, tuple) else "list": inner}
    check_plain(value, path)
    return {"value": value}


def unpack(packed: Any, tensors: Mapping[str, Tensor]) -> Any:
    """The nesting that `pack` was given."""
    ((kind, value),) = packed.items()
    if kind == "tensor":
        return tensors[value]
    if kind == "mapping":
        return {key: unpack(inner, tensors) for key, inner in value}
    if kind in ("list", "tuple"):
        items = [unpack(item, tensors) for item in value]
        return tuple(items) if kind == "tuple" else items
    return value


def tensor_names(packed: Any) -> list[str]:
    """The names that `pack` left behind, in order."""
    ((kind, value),) = packed.items()
    if kind == "tensor":
        return [value]
    inner = [each for _, each in value] if kind == "mapping" else value
    return [n for each in inner for n in tensor_names(each)] if isinstance(inner, list) else []


def check_plain(value: Any, path: str) -> None:
    """Refuse what JSON would change: keys that are not texts, tuples of unknown types, tensors."""
    if value is None or isinstance(value, (str, bool, int, float)):
        return
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise TypeError(f"{path}: key {key!r} is not a text, and JSON would make it one")
            check_plain(inner, f"{path}.{key}")
        return
    if isinstance(value, Sequence):
        for number, inner in enumerate(value):
            check_plain(inner, f"{path}[{number}]")
        return
    raise TypeError(f"{path} is a {type(value).__name__}; give numbers, texts, lists and mappings")
