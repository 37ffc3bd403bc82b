"""Metrics sent to TensorBoard, Weights & Biases, trackio or MLflow, beside the record."""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from groupwise.errors import RecipeError
from groupwise.records import RecordSettings, Value
from groupwise.training.callbacks import Callback
from groupwise.training.preparing import Prepared
from groupwise.training.session import Session

PACKAGES = {
    "tensorboard": "tensorboard",
    "wandb": "wandb",
    "trackio": "trackio",
    "mlflow": "mlflow",
}
"""What each logger imports."""

TRL_NAMES = {
    "completions/tokens_mean": "completions/mean_length",
    "completions/tokens_min": "completions/min_length",
    "completions/tokens_max": "completions/max_length",
    "completions/truncated": "completions/clipped_ratio",
    "clip/low": "clip_ratio/low_mean",
    "clip/high": "clip_ratio/high_mean",
    "groups/no_signal": "frac_reward_zero_std",
    "sampler_gap/mean": "sampling/sampling_logp_difference/mean",
    "sampler_gap/max": "sampling/sampling_logp_difference/max",
    "tokens_total": "num_tokens",
    "seconds/step": "step_time",
}
"""Our names that TRL's GRPOTrainer has others for; `verifier/NAME` is `rewards/NAME/mean`. Reward,
reward_std, kl, entropy, loss, grad_norm and learning_rate are called the same."""


class Backend(Protocol):
    """Where the numbers of a step go."""

    def log(self, values: Mapping[str, float], step: int) -> None: ...
    def close(self) -> None: ...


class MetricLogger(Callback):
    """Sends each step's metrics and evaluations to a backend; its failures never end a run."""

    def __init__(
        self, name: str, make: Callable[[Path, Mapping[str, Any]], Backend], names: str
    ) -> None:
        self.name, self.make, self.names = name, make, names
        self.folder = Path()
        self.backend: Backend | None = None

    def on_start(self, prepared: Prepared, folder: Path) -> None:
        self.folder = folder

    def on_ready(self, session: Session) -> None:
        recipe = session.recipe.model_dump(mode="json", exclude={"algorithm"})
        self._do(lambda: self._open(recipe | {"algorithm": session.recipe.algorithm.to_table()}))

    def _open(self, recipe: Mapping[str, Any]) -> None:
        self.backend = self.make(self.folder, recipe)

    def on_step(self, line: Mapping[str, Value]) -> None:
        self._send({key: v for key, v in line.items() if key != "step"}, int(line["step"] or 0))

    def on_evaluation(self, version: int, values: Mapping[str, Value]) -> None:
        if version == 0:  # later ones stand on their step's line
            self._send(values, 0)

    def on_end(self, summary: Mapping[str, Any], folder: Path) -> None:
        if self.backend is not None:
            self._do(self.backend.close)

    def _send(self, values: Mapping[str, Value], step: int) -> None:
        backend = self.backend
        if backend is not None:
            sent = {self._named(key): float(v) for key, v in values.items() if v is not None}
            self._do(lambda: backend.log(sent, step))

    def _named(self, name: str) -> str:
        if self.names != "trl":
            return name
        if name.startswith("verifier/"):
            return f"rewards/{name.removeprefix('verifier/')}/mean"
        return TRL_NAMES.get(name, name)

    def _do(self, action: Callable[[], Any]) -> None:
        try:
            action()
        except Exception as error:  # noqa: BLE001 (a dashboard's fault is not the run's)
            self.backend = None
            logging.getLogger("groupwise").warning(
                "%s failed and is off for the rest of this run: %r", self.name, error
            )


def loggers_of(settings: RecordSettings) -> list[Callback]:
    """The callbacks that `record.loggers` asks for. Raises RecipeError for a missing package."""
    made: list[Callback] = []
    for name in settings.loggers:
        if importlib.util.find_spec(PACKAGES[name]) is None:
            raise RecipeError(
                f"record.loggers = {name!r} needs the package {PACKAGES[name]}: "
                f"pip install {PACKAGES[name]}"
            )
        made.append(MetricLogger(name, _BACKENDS[name], settings.metric_names))
    return made


class _TensorBoard:
    def __init__(self, folder: Path, recipe: Mapping[str, Any]) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer: Any = SummaryWriter(log_dir=str(folder / "tensorboard"))

    def log(self, values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            self.writer.add_scalar(name, value, step)

    def close(self) -> None:
        self.writer.close()


class _Wandb:
    def __init__(self, folder: Path, recipe: Mapping[str, Any]) -> None:
        import wandb  # type: ignore[import-not-found]

        has_key = "WANDB_API_KEY" in os.environ or (Path.home() / ".netrc").is_file()
        self.run: Any = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "groupwise"),
            name=folder.name,
            id=_identity(folder),
            resume="allow",
            dir=str(folder),
            config=dict(recipe),
            mode=os.environ.get("WANDB_MODE") or ("online" if has_key else "offline"),
        )

    def log(self, values: Mapping[str, float], step: int) -> None:
        self.run.log(dict(values), step=step)

    def close(self) -> None:
        self.run.finish()


class _Trackio:
    def __init__(self, folder: Path, recipe: Mapping[str, Any]) -> None:
        import trackio  # type: ignore[import-not-found]

        self.module: Any = trackio
        trackio.init(project="groupwise", name=folder.name, config=dict(recipe), resume="allow")

    def log(self, values: Mapping[str, float], step: int) -> None:
        self.module.log(dict(values), step=step)

    def close(self) -> None:
        self.module.finish()


class _MLflow:
    def __init__(self, folder: Path, recipe: Mapping[str, Any]) -> None:
        import mlflow  # type: ignore[import-not-found]

        self.module: Any = mlflow
        if "MLFLOW_TRACKING_URI" not in os.environ:
            mlflow.set_tracking_uri(f"sqlite:///{folder / 'mlflow.db'}")
        mlflow.start_run(run_name=folder.name, tags={"folder": str(folder)})

    def log(self, values: Mapping[str, float], step: int) -> None:
        legal = {re.sub(r"[^\w\-. :/]", "_", name): value for name, value in values.items()}
        self.module.log_metrics(legal, step=step)

    def close(self) -> None:
        self.module.end_run()


_BACKENDS: dict[str, Callable[[Path, Mapping[str, Any]], Backend]] = {
    "tensorboard": _TensorBoard,
    "wandb": _Wandb,
    "trackio": _Trackio,
    "mlflow": _MLflow,
}


def _identity(folder: Path) -> str:
    """The same for a run and its continuation."""
    return hashlib.sha256(str(folder.absolute()).encode()).hexdigest()[:16]
