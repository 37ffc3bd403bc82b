"""The run on disk: recipe, environment, every metric, every rollout; write, read, diff. No torch.

A run folder holds `recipe.toml` (resolved), `environment.json`, `metrics.jsonl` (one line a step),
`rollouts/step_NNNNNN.parquet`, `evaluations/`, `events.jsonl`, `checkpoints/`, an asynchronous
run's `schedule.jsonl` and, at the end, `summary.json`.
"""

from groupwise.records.compare import diff as diff
from groupwise.records.files import file_hash as file_hash
from groupwise.records.files import recipe_hash as recipe_hash
from groupwise.records.files import text_hash as text_hash
from groupwise.records.machine import available_cpus as available_cpus
from groupwise.records.machine import describe_machine as describe_machine
from groupwise.records.machine import memory_bytes as memory_bytes
from groupwise.records.metric_table import METRICS as METRICS
from groupwise.records.metrics import COMMON_KEYS as COMMON_KEYS
from groupwise.records.metrics import Value as Value
from groupwise.records.metrics import complete_step as complete_step
from groupwise.records.metrics import find_metric as find_metric
from groupwise.records.reader import Run as Run
from groupwise.records.reader import check_single as check_single
from groupwise.records.reader import open_run as open_run
from groupwise.records.rows import REQUIRED_COLUMNS as REQUIRED_COLUMNS
from groupwise.records.rows import rollout_rows as rollout_rows
from groupwise.records.settings import CheckpointSettings as CheckpointSettings
from groupwise.records.settings import EvaluationSettings as EvaluationSettings
from groupwise.records.settings import RecordSettings as RecordSettings
from groupwise.records.totals import group_totals as group_totals
from groupwise.records.totals import has_signal as has_signal
from groupwise.records.writer import SCHEDULE as SCHEDULE
from groupwise.records.writer import SUMMARY_KEYS as SUMMARY_KEYS
from groupwise.records.writer import RunWriter as RunWriter
from groupwise.records.writer import SilentWriter as SilentWriter
from groupwise.records.writer import refuse_in_use as refuse_in_use
