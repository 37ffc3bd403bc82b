"""Training on several processes: who this process is, what they exchange, and sharded weights."""

from __future__ import annotations

from groupwise.distributed.settings import ComputeSettings as ComputeSettings
