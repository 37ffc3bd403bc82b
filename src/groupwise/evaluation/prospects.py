"""Whether a policy's completions give reinforcement learning anything to amplify, and at which
group size.

A group has a signal where it holds right and wrong completions. All figures are means over prompts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from groupwise.errors import RecipeError
from groupwise.evaluation.estimates import mean_interval, no_signal_share
from groupwise.evaluation.result import Interval, SetResult, named, summarise
from groupwise.types import Group

SIZES = (2, 4, 8, 16, 32)
USUAL = 8
"""The group size at which the verdict is given."""
LEAST_SIGNAL = 0.1
"""Share of groups of the usual size with a signal below which there is nothing to amplify."""
BAR = 0.25
"""The group size is the smallest one with a smaller share of groups without signal."""
_CLOSE = 0.05


@dataclass(frozen=True, slots=True)
class Prospects:
    """What was measured. `rates` are the prompts' shares of right completions, `no_signal` the
    share of groups of each size without a signal and its 95 % interval, `lengths` the tokens of
    every completion, ascending, `answered` the share in which the verifier found an answer.
    """

    summary: SetResult
    samples: int
    rates: tuple[float, ...]
    no_signal: dict[int, tuple[float, Interval]]
    lengths: tuple[int, ...]
    answered: float

    @property
    def verdict(self) -> Literal["amplify", "too_hard", "split", "too_easy"]:
        """By the estimate; whether the data suffice for it is `is_sure`. `split`: every prompt is
        solved nearly always or nearly never."""
        if 1 - self.no_signal[USUAL][0] >= LEAST_SIGNAL:
            return "amplify"
        rate = sum(self.rates) / len(self.rates)
        if rate < LEAST_SIGNAL:
            return "too_hard"
        return "split" if rate <= 1 - LEAST_SIGNAL else "too_easy"

    @property
    def is_sure(self) -> bool:
        """Whether the whole interval of the share with a signal is on the verdict's side, and no
        verdict against RL comes from completions that were cut off."""
        low, high = self.no_signal[USUAL][1]
        if self.verdict == "amplify":
            return 1 - high >= LEAST_SIGNAL
        return 1 - low < LEAST_SIGNAL and not self.is_cut

    @property
    def is_cut(self) -> bool:
        """Whether so many completions were cut off that they may hide what the policy can do."""
        return (self.summary.truncated or 0.0) > LEAST_SIGNAL

    @property
    def never(self) -> int:
        """Prompts without a right completion."""
        return self.rates.count(0.0)

    @property
    def always(self) -> int:
        """Prompts without a wrong completion."""
        return self.rates.count(1.0)

    def length(self, quantile: float) -> int:
        """Tokens that this share of the completions does not exceed."""
        return self.lengths[min(int(quantile * len(self.lengths)), len(self.lengths) - 1)]

    def group_size(self, bar: float = BAR) -> int:
        """The smallest measured size whose share without signal is below the bar; where there is
        none, the smallest within 0.05 of the least share."""
        shares = {size: share for size, (share, _) in self.no_signal.items()}
        limit = max(bar, min(shares.values()) + _CLOSE)
        return next(size for size, share in shares.items() if share < limit)

    @property
    def figures(self) -> dict[str, Any]:
        """Every figure by name; shares are within 0 and 1, lengths in tokens."""
        whole = self.summary
        found: dict[str, Any] = {
            "prompts": len(self.rates),
            "samples": self.samples,
            **named("accuracy", whole.accuracy, whole.accuracy_interval),
            **named("greedy", whole.greedy, whole.greedy_interval),
            **{f"pass@{k}": value for k, value in whole.pass_at_k.items()},
        }
        for size, each in self.no_signal.items():
            found |= named(f"no_signal@{size}", *each)
        found |= {"never_solved": self.never, "always_solved": self.always}
        found |= {"answered": self.answered, "truncated": whole.truncated}
        found |= {"unscored": whole.unscored}
        found |= {f"verifier/{name}": value for name, value in whole.parts.items()}
        found["tokens_mean"] = sum(self.lengths) / len(self.lengths)
        return found | {f"tokens_q{q}": self.length(q / 100) for q in (50, 90, 99, 100)}


def prospects_of(groups: Sequence[Group]) -> Prospects:
    """The prospects of scored groups of one size, one a prompt, each with its greedy rollout.

    Raises RecipeError where no completion has a score, a score has no verdict, or the groups are
    smaller than the usual size.
    """
    samples = min(len(group.rollouts) for group in groups)
    if samples < USUAL:
        raise RecipeError(f"samples = {samples}; give {USUAL} or more")
    sizes = [size for size in SIZES if size <= samples]
    summary = summarise(groups, pass_ks=[1, *sizes])
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    first = rollouts[0].score
    if not any(rollout.score.scored for rollout in rollouts):
        raise RecipeError(
            f"none of {len(rollouts)} completions could be scored; the first is {first.outcome} "
            f"({first.reason or 'no reason given'}); correct the rows or name another verifier"
        )
    if summary.accuracy is None:
        raise RecipeError(
            "the verifier gives values without a verdict (right or wrong); set its correct_from"
        )
    right = [sum(r.score.outcome == "correct" for r in group.rollouts) for group in groups]
    no_signal: dict[int, tuple[float, Interval]] = {}
    for size in sizes:
        each = (no_signal_share(num_samples=samples, num_correct=n, size=size) for n in right)
        shares = [share for share in each if share is not None]
        no_signal[size] = sum(shares) / len(shares), mean_interval(shares, len(rollouts))
    found = (r.score.scored and r.score.outcome != "no_answer" for r in rollouts)
    return Prospects(
        summary=summary,
        samples=samples,
        rates=tuple(n / samples for n in right),
        no_signal=no_signal,
        lengths=tuple(sorted(rollout.num_tokens for rollout in rollouts)),
        answered=sum(found) / len(rollouts),
    )
