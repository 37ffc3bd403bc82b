"""What a run reports: its record on disk, warnings, and what callbacks are told."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from groupwise.errors import VerifierError
from groupwise.evaluation import EvaluationResult, diversity, gap_alarm
from groupwise.learner import TokenDetails, peak_memory_bytes
from groupwise.records import RunWriter, Value, group_totals, open_run, rollout_rows
from groupwise.training.callbacks import Callback, Clock
from groupwise.training.collecting import Collected
from groupwise.training.session import Session
from groupwise.training.watches import ConstantWatch, NoSignalWatch
from groupwise.types import Batch


class Reporter:
    """Writes the record of one run and tells its callbacks."""

    def __init__(
        self, session: Session, writer: RunWriter, callbacks: Sequence[Callback] = ()
    ) -> None:
        self.session = session
        self.writer = writer
        self.callbacks = callbacks
        recipe = session.recipe
        self.constant = ConstantWatch()
        self.no_signal = NoSignalWatch(recipe.selection.no_signal_alarm, recipe.sampling.group_size)
        self.evaluations: dict[int, dict[str, Value]] = {}
        self.last_line: Mapping[str, Value] = {}
        self.nonfinite = 0
        self.started = time.perf_counter() - session.seconds_before

    @property
    def seconds(self) -> float:
        """Since the run began, the time before an interruption included."""
        return time.perf_counter() - self.started

    def restore(self) -> None:
        """Takes what the record already holds; warnings given before are not repeated."""
        record = open_run(self.writer.folder)
        for event in record.events("evaluation"):
            self.evaluations[event["version"]] = event["values"]
        if self.session.first_step:
            for line in record.metrics().to_pylist():
                self._take(line)
                self.no_signal.see(line["groups/no_signal"])

    def _take(self, line: Mapping[str, Value]) -> None:
        self.last_line = line
        self.nonfinite += int(line.get("updates/nonfinite") or 0)

    def warn(self, message: str, *, about: str) -> None:
        self.writer.event("warning", about=about, message=message)
        for callback in self.callbacks:
            callback.on_warning(message)

    def collected(self, collected: Collected, step: int) -> None:
        """The collector's notes. Raises VerifierError where the step has not a single score: it
        teaches nothing, and the verifier is broken."""
        rollouts = [rollout for group in collected.sampled for rollout in group.rollouts]
        if rollouts and not any(rollout.score.scored for rollout in rollouts):
            first = rollouts[0].score
            raise VerifierError(
                f"step {step}: none of its {len(rollouts)} rollouts could be scored; the first is "
                f"{first.outcome} ({first.reason or 'no reason given'})"
            )
        for note in collected.notes:
            self.warn(note, about="selection")

    def step(
        self,
        step: int,
        collected: Collected,
        batch: Batch,
        values: Mapping[str, Value],
        clock: Clock,
        details: TokenDetails | None = None,
    ) -> None:
        own: list[tuple[str, str]] = getattr(self.session.sampler, "take_notes", list)()
        taken = dict.fromkeys(chain.from_iterable(self.session.ranks.gather(own)))
        for about, note in (*self.session.learner.faults.take_notes(), *taken):
            self.warn(note, about=about)
        tokens = collected.num_tokens
        ages = [step - each.version for group in collected.groups for each in group.rollouts]
        self.session.tokens_total += tokens
        with clock("record"):
            self.writer.rollouts(step, _rows(step, collected, batch, details))
            spread = diversity(collected.sampled)
        line = self.writer.metrics(
            step,
            {
                **group_totals(collected.sampled),
                **{f"groups/{name}": value for name, value in spread.items()},
                **collected.metrics(),
                **{f"custom/{name}": value for name, value in collected.logs.metrics.items()},
                **batch.metrics,
                **values,
                **clock.metrics(),
                "version": step,
                "staleness": sum(ages) / len(ages) if ages else None,
                "tokens": tokens,
                "tokens/trained": int(batch.mask.sum()),
                **_with_gradient(batch, collected),
                "tokens_total": self.session.tokens_total,
                "tokens_per_second": tokens / clock.seconds["step"],
                "updates_total": self.session.learner.update,
                "memory/peak_bytes": peak_memory_bytes(self.session.policy.device),
            },
        )
        self._take(line)
        for callback in self.callbacks:
            callback.on_step(line)
        for warning in self.constant.see(collected.sampled):
            self.warn(warning, about="constant_verifier")
        for warning in self.no_signal.see(line["groups/no_signal"]):
            self.warn(warning, about="no_signal")

    def evaluation(self, version: int, result: EvaluationResult) -> dict[str, Value]:
        """Records an evaluation; warns where the strict verifiers' accuracy falls behind."""
        values = self.evaluations[version] = dict(result.metrics)
        self.writer.evaluation(version, values, rows=result.rows)
        for callback in self.callbacks:
            callback.on_evaluation(version, values)
        unrated = [each.value for each in result.scores if each.outcome == "no_verdict"]
        if unrated and version == min(self.evaluations):
            self.warn(no_verdict(unrated), about="no_verdict")
        gaps = [self.evaluations[each].get("eval/strict_gap") for each in sorted(self.evaluations)]
        alarm = self.session.recipe.evaluation.strict_gap_alarm
        warning = gap_alarm(gaps, alarm, version=version)
        if warning is not None:
            self.warn(warning, about="strict_gap")
        return values

    def summary(self, status: str) -> dict[str, Any]:
        """What `summary.json` says. `*_last` are of the newest evaluation."""
        first = self.evaluations.get(0, {})
        last = self.evaluations.get(max(self.evaluations, default=0), {})
        accuracies = {
            f"eval/{name}_{when}": values.get(f"eval/{name}")
            for name in ("accuracy", "greedy", "heldout")
            for when, values in (("first", first), ("last", last))
        }
        return {
            "status": status,
            "steps": self.session.policy.version,
            "seconds": round(self.seconds, 3),
            "tokens": self.session.tokens_total,
            **accuracies,
            "eval/first": first,
            "eval/last": last,
            "kl_last": self.last_line.get("kl"),
            "reward_last": self.last_line.get("reward"),
            "updates/nonfinite": self.nonfinite,
        }


def no_verdict(values: Sequence[float | None]) -> str:
    """The warning that there is no accuracy, with the values that have no verdict."""
    found = [value for value in values if value is not None]
    return (
        f"{len(found)} completions have a value ({min(found):.4g} to {max(found):.4g}) and no "
        "verdict: what counts as correct is not known, so there is no accuracy or pass rate, only "
        "the reward. Set correct_from in [[environment.verifiers]] to the value of a right answer"
    )


def _rows(
    step: int, collected: Collected, batch: Batch, details: TokenDetails | None
) -> list[dict[str, Any]]:
    """The record's rows: what was learned from with its advantages, then what else was sampled."""
    advantages = batch.advantages.tolist()
    count = sum(len(group.sequences) for group in collected.fresh)
    learned = [
        *rollout_rows(step, collected.fresh, advantages[:count]),
        *rollout_rows(step, collected.again, advantages[count:], kind="replayed"),
    ]
    if details is not None:
        _add_details([row for row in learned if row["kind"] != "greedy"], batch, details)
    rows = [
        *learned,
        *rollout_rows(step, collected.waiting, kind="waiting"),
        *rollout_rows(step, collected.discarded, kind="discarded"),
    ]
    for name, column in collected.logs.columns.items():
        for row in rows:
            row.setdefault(name, column.get((row["prompt_id"], row["text"])))
    return rows


def _add_details(rows: Sequence[dict[str, Any]], batch: Batch, details: TokenDetails) -> None:
    """Per-token columns of the batch's rows; a row that no update used keeps nulls."""
    tables = {
        "learner_logprobs": details.logprobs,
        "entropies": details.entropies,
        "loss_weights": details.loss_weights,
    }
    for place, row in enumerate(rows):
        width = len(row["completion_ids"])
        if batch.old_logprobs is not None:
            row["old_logprobs"] = batch.old_logprobs[place, :width].tolist()
        for name, table in tables.items():
            values = table[place, :width]
            if not bool(values.isnan().any()):
                row[name] = values.tolist()


def _with_gradient(batch: Batch, collected: Collected) -> dict[str, Value]:
    """How many of the batch's tokens have an advantage, and their share of what the step settled.

    Surplus groups are settled by the step that learns from them or discards them, so no token is
    in two steps' shares, and none is above 1.
    """
    advantages = batch.advantages
    per_token = advantages.unsqueeze(1) if advantages.dim() == 1 else advantages
    useful = int((batch.mask & (per_token != 0)).sum())
    settled = [*collected.groups, *collected.discarded]
    tokens = sum(each.num_tokens for group in settled for each in group.sequences)
    return {
        "tokens/with_gradient": useful,
        "tokens/gradient_share": useful / tokens if tokens else None,
    }
