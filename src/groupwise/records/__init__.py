"""The run on disk: recipe, environment, every metric, every rollout; write, read, diff. No torch.

A run folder holds `recipe.toml` (resolved), `environment.json`, `metrics.jsonl` (one line a step),
`rollouts/step_NNNNNN.parquet`, `evaluations/`, `events.jsonl`, `checkpoints/` and, at the end,
`summary.json`.
"""

from groupwise.records.compare import Diff, Difference, diff
from groupwise.records.files import data_hash, file_hash, text_hash
from groupwise.records.machine import available_cpus, describe_machine, memory_bytes
from groupwise.records.metric_table import METRICS, Metric
from groupwise.records.metrics import (
    COMMON_KEYS,
    Value,
    complete_step,
    find_metric,
    metrics_markdown,
)
from groupwise.records.reader import Run, open_run
from groupwise.records.rows import REQUIRED_COLUMNS, rollout_rows
from groupwise.records.settings import CheckpointSettings, EvaluationSettings
from groupwise.records.totals import Totals, group_totals, has_signal
from groupwise.records.writer import SUMMARY_KEYS, RunWriter, refuse_in_use

__all__ = [
    "METRICS",
    "COMMON_KEYS",
    "SUMMARY_KEYS",
    "REQUIRED_COLUMNS",
    "Metric",
    "Totals",
    "Value",
    "Run",
    "RunWriter",
    "Diff",
    "Difference",
    "CheckpointSettings",
    "EvaluationSettings",
    "available_cpus",
    "complete_step",
    "data_hash",
    "describe_machine",
    "diff",
    "file_hash",
    "find_metric",
    "group_totals",
    "has_signal",
    "memory_bytes",
    "metrics_markdown",
    "open_run",
    "refuse_in_use",
    "rollout_rows",
    "text_hash",
]
