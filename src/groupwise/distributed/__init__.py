"""Training on several processes: who this process is, what they exchange, and sharded weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from groupwise.lazy import lazy_names

if TYPE_CHECKING:
    from groupwise.distributed.launch import first_process as first_process
    from groupwise.distributed.launch import joined as joined
    from groupwise.distributed.launch import world_size as world_size
    from groupwise.distributed.ranks import ALONE as ALONE
    from groupwise.distributed.ranks import Ranks as Ranks
    from groupwise.distributed.settings import ComputeSettings as ComputeSettings
    from groupwise.distributed.sharding import copy_weights as copy_weights
    from groupwise.distributed.sharding import put_ as put_
    from groupwise.distributed.sharding import shard as shard
    from groupwise.distributed.sharding import whole as whole

__getattr__, __all__ = lazy_names(__name__, __file__)
