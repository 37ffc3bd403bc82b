"""Sharded tensors on disk, by `torch.distributed.checkpoint`: every rank writes its own share, and
any number of ranks reads them again.

Its index is a pickle. It is read with the classes that describe tensors alone, so that a file of
somebody else's cannot run code.
"""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from groupwise.distributed.ranks import Ranks
from groupwise.errors import GroupwiseError

if TYPE_CHECKING:
    from torch import Tensor

INDEX = ".metadata"
"""The file that says which tensors are where."""
_CHECKPOINT = "torch.distributed.checkpoint"
_ALLOWED = {
    f"{_CHECKPOINT}.metadata": {
        "Metadata", "TensorStorageMetadata", "ChunkStorageMetadata", "TensorProperties",
        "MetadataIndex", "StorageMeta", "_MEM_FORMAT_ENCODING",
    },
    f"{_CHECKPOINT}.filesystem": {"_StorageInfo"},
    "torch": {"Size", "float64", "float32", "bfloat16", "float16", "int64", "int32", "uint8"},
    "torch.serialization": {"_get_layout"},
    "pathlib": {"PosixPath", "WindowsPath"},
}  # fmt: skip


class _Index(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if name not in _ALLOWED.get(module, ()):
            raise pickle.UnpicklingError(f"{INDEX} names {module}.{name}, which is not of tensors")
        return super().find_class(module, name)


def _reader(folder: Path) -> Any:
    """The reader of a folder of shards, its index already read."""
    from torch.distributed.checkpoint import FileSystemReader

    class Reader(FileSystemReader):  # type: ignore[misc]
        def read_metadata(self, *_: Any, **__: Any) -> Any:
            return index

    try:
        with (folder / INDEX).open("rb") as file:
            index = _Index(file).load()
    except (pickle.UnpicklingError, EOFError, OSError, AttributeError, TypeError) as error:
        raise GroupwiseError(f"{folder} cannot be read: {error}") from error
    return Reader(folder)


def save_shards(folder: Path, tensors: Mapping[str, Tensor], ranks: Ranks) -> None:
    """Write tensors into a folder; every rank calls it. Raises OSError naming the ranks that could
    not write."""
    import torch.distributed.checkpoint as dcp

    try:
        dcp.save(dict(tensors), checkpoint_id=folder, process_group=ranks.objects)
    except dcp.api.CheckpointException as error:
        raise OSError(_failures(error)) from error


def shard_names(folder: Path) -> set[str]:
    """The names of the tensors in a folder. Raises GroupwiseError."""
    return set(_reader(folder).read_metadata().state_dict_metadata)


def load_shards(folder: Path, tensors: Mapping[str, Tensor]) -> None:
    """Read tensors by name into those given, sharded or whole. Raises GroupwiseError where names
    or shapes do not fit. Where they are sharded every rank calls it."""
    import torch.distributed.checkpoint as dcp

    alone = not any(hasattr(tensor, "full_tensor") for tensor in tensors.values())
    reader = _reader(folder)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*no_dist|.*torch.distributed is disabled")
            dcp.load(dict(tensors), storage_reader=reader, no_dist=alone)
    except dcp.api.CheckpointException as error:  # what breaks an exchange off is not one
        raise GroupwiseError(f"{folder} does not fit: {_failures(error)}") from error


def _failures(error: Any) -> str:
    """What failed on which rank, without tracebacks."""
    return "; ".join(
        f"rank {rank}: {type(each).__name__}: {each}" for rank, (each, _) in error.failures.items()
    )
