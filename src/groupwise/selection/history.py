"""How every prompt went lately: how often it was sampled, and its last visits' results.

Plain numbers by stable prompt id, JSON-able, whole in the checkpoint.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from groupwise.types import Group


class Visit(NamedTuple):
    """One sampled group: scored completions, the sum of their accuracies, all of its completions
    and their tokens."""

    scored: int
    passed: float
    completions: int
    tokens: int


def mean_accuracy(group: Group) -> float | None:
    """Over a group's scored rollouts, None where it has none."""
    scored = [each.score.accuracy for each in group.rollouts if each.score.accuracy is not None]
    return sum(scored) / len(scored) if scored else None


@dataclass(slots=True)
class PromptHistory:
    """One prompt: how often it was sampled, when last, and its newest visits."""

    visits: int = 0
    last_step: int = -1
    recent: deque[Visit] = field(default_factory=deque[Visit])


class History:
    """Every sampled prompt's history; `window` newest visits of each count."""

    def __init__(self, window: int) -> None:
        self.window = window
        self._of: dict[str, PromptHistory] = {}
        self._completions = 0
        self._tokens = 0

    def __getitem__(self, prompt_id: str) -> PromptHistory:
        """The prompt's history, an empty one where it was never sampled."""
        return self._of.get(prompt_id) or PromptHistory()

    def next_visit(self, prompt_id: str, step: int) -> int:
        """The number of the visit that begins now, from 0: its noise has never been drawn."""
        seen = self._of.setdefault(prompt_id, PromptHistory(recent=deque(maxlen=self.window)))
        seen.visits += 1
        seen.last_step = step
        return seen.visits - 1

    def see(self, group: Group) -> None:
        """A sampled group's results; its greedy completion does not count."""
        accuracies = [rollout.score.accuracy for rollout in group.rollouts]
        scored = [each for each in accuracies if each is not None]
        tokens = sum(rollout.num_tokens for rollout in group.rollouts)
        visit = Visit(len(scored), sum(scored), len(group.rollouts), tokens)
        self._of[group.prompt.id].recent.append(visit)
        self._completions += visit.completions
        self._tokens += visit.tokens

    def rate(self, prompt_id: str, visits: int = 1) -> float | None:
        """The share of the newest visits' scored completions that passed; None before `visits`."""
        scored, passed, _, _ = self._sums(prompt_id)
        if len(self[prompt_id].recent) < visits or not scored:
            return None
        return passed / scored

    def smoothed(self, prompt_id: str) -> float:
        """(passed + 1)/(scored + 2) over the newest visits: never 0 or 1, and 0.5 before any.

        The mean of the rate's posterior under a uniform prior (Laplace's rule of succession).
        """
        scored, passed, _, _ = self._sums(prompt_id)
        return (passed + 1.0) / (scored + 2.0)

    def tokens(self, prompt_id: str) -> float | None:
        """Expected tokens of one completion: the prompt's newest visits, else all prompts' mean."""
        _, _, completions, tokens = self._sums(prompt_id)
        if completions:
            return tokens / completions
        return self._tokens / self._completions if self._completions else None

    def _sums(self, prompt_id: str) -> Visit:
        """The newest visits together."""
        recent = self[prompt_id].recent
        return Visit(*map(sum, zip(*recent))) if recent else Visit(0, 0.0, 0, 0)

    def state_dict(self) -> dict[str, Any]:
        return {
            "completions": self._completions,
            "tokens": self._tokens,
            "prompts": {
                prompt_id: [seen.visits, seen.last_step, [list(visit) for visit in seen.recent]]
                for prompt_id, seen in self._of.items()
            },
        }

    def load_state_dict(self, data: Mapping[str, Any]) -> None:
        self._completions = int(data["completions"])
        self._tokens = int(data["tokens"])
        self._of = {
            prompt_id: PromptHistory(
                int(visits), int(last), deque((Visit(*v) for v in recent), maxlen=self.window)
            )
            for prompt_id, (visits, last, recent) in data["prompts"].items()
        }
