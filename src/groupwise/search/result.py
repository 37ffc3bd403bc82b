"""What a search found: accuracy against samples and tokens, with intervals and cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from groupwise.evaluation import maj_at_k, mean_interval, pass_at_k
from groupwise.search.methods import above_mean, best_of_n, best_of_n_accuracy, best_of_n_kl, vote
from groupwise.search.settings import SearchSettings

Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A completion as a choice sees it: its answer (None: none was found), whether that is right,
    its score (None: not scored), and its share of the choice where shares are stated."""

    text: str
    answer: str | None
    correct: bool
    score: float | None = None
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class SearchPoint:
    """Accuracy with `samples` completions a prompt; `tokens` is what they cost on average.

    `pass_at_k`: how often one of them is right, which no choice among them exceeds. `kl`: nats
    from the policy at most, for methods that choose one by its score. `budget`: tokens of
    thinking, where they were limited.
    """

    samples: int
    accuracy: float
    accuracy_interval: Interval
    tokens: float
    pass_at_k: float | None = None
    kl: float | None = None
    budget: int | None = None


@dataclass(frozen=True, slots=True)
class SearchResult:
    """A search over a set of prompts; `points` by samples, the last one is the search itself.

    `tokens` are all that were sampled; `unscored` counts completions without a score. `diversity`
    has distinct-1, distinct-2 and the answers' entropy in nats (prompts' mean), and for verbalised
    sampling those of plain sampling. `counts` says how often something was forced or fell back.
    """

    method: str
    scorer: str | None
    prompts: int
    points: Sequence[SearchPoint]
    tokens: int
    seconds: float
    unscored: int = 0
    diversity: Mapping[str, Mapping[str, float | None]] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    notes: Sequence[str] = ()

    @property
    def accuracy(self) -> float:
        return self.points[-1].accuracy

    def to_dict(self) -> dict[str, Any]:
        """For `--json`: the last point's accuracy and interval at the top."""
        last = self.points[-1]
        first = {"accuracy": last.accuracy, "accuracy_interval": list(last.accuracy_interval)}
        return {"method": self.method, **first, "samples": last.samples, **asdict(self)}


def points_of(
    groups: Sequence[Sequence[Candidate]], settings: SearchSettings, tokens: int
) -> list[SearchPoint]:
    """Accuracy with 1, 2, 4, ... samples and with all of them, from one set of completions.

    Majority and best of n are exact over all draws without replacement; other votes average
    disjoint blocks of completions in the order in which they were sampled.
    """
    size = settings.samples
    counts = sorted({size, *(2**i for i in range(size.bit_length()) if 2**i <= size)})
    points = []
    for k in counts:
        shares = [accuracy_at(group, settings, k) for group in groups]
        passed = [
            pass_at_k(num_samples=size, num_correct=sum(c.correct for c in group), k=k) or 0.0
            for group in groups
        ]
        points.append(
            SearchPoint(
                k,
                sum(shares) / len(shares),
                mean_interval(shares, len(groups) * (size // k)),
                tokens / len(groups) * k / size,
                sum(passed) / len(passed),
                best_of_n_kl(k) if settings.method in ("best_of_n", "process") else None,
            )
        )
    return points


def accuracy_at(group: Sequence[Candidate], settings: SearchSettings, k: int) -> float:
    """How often the method's choice among k of a prompt's completions is right."""
    scores = [each.score for each in group]
    correct = [each.correct for each in group]
    if settings.method in ("best_of_n", "process"):
        return best_of_n_accuracy(scores, correct, k) or 0.0
    if settings.method == "majority" and not settings.above_mean:
        return maj_at_k([each.answer for each in group], correct, k=k) or 0.0
    blocks = [group[start : start + k] for start in range(0, len(group) - k + 1, k)]
    return sum(_vote_accuracy(block, settings) for block in blocks) / len(blocks)


def _vote_accuracy(block: Sequence[Candidate], settings: SearchSettings) -> float:
    if settings.above_mean:
        block = [block[place] for place in above_mean([each.score for each in block])]
    weights = [each.score for each in block] if settings.method == "weighted" else None
    chosen = vote([each.answer for each in block], weights)
    right = [_right(block, answer) for answer in chosen]
    return sum(right) / len(right) if right else 0.0


def _right(block: Sequence[Candidate], answer: str) -> float:
    """The share of right completions among those with this answer."""
    own = [each.correct for each in block if each.answer == answer]
    return sum(own) / len(own)


def choose(group: Sequence[Candidate], settings: SearchSettings) -> str | None:
    """The text that the method answers with; the first of those tied, None where it has none."""
    scores = [each.score for each in group]
    if settings.method in ("best_of_n", "process"):
        places = best_of_n(scores)
        return group[places[0]].text if places else None
    kept = [group[i] for i in above_mean(scores)] if settings.above_mean else list(group)
    weights = [each.score for each in kept] if settings.method == "weighted" else None
    answers = vote([each.answer for each in kept], weights)
    return next((each.text for each in kept if each.answer in answers[:1]), None)
