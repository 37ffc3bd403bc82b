"""The names of every metric that a run records; docs/metrics.md has their units and formulas."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. `<name>` in a name stands for any name: the entry is a pattern.

    `better` says which direction is progress, None where neither is. `measured` marks what a clock
    or the machine decides, which two equal runs do not share. `whole` marks counts.

    >>> Metric("verifier/<name>").matches("verifier/number")
    True
    """

    name: str
    better: Literal["higher", "lower"] | None = None
    measured: bool = False
    whole: bool = False

    @property
    def is_pattern(self) -> bool:
        return "<" in self.name

    def matches(self, name: str) -> bool:
        if not self.is_pattern:
            return name == self.name
        regex = re.sub(r"<[^>]*>", "[^/].*", re.escape(self.name))
        return re.fullmatch(regex, name) is not None


# A metric a line: its name and marks: higher or lower (which is better), measured, whole, and
# interval, which adds the bounds `_low` and `_high`.
_TABLE = """
step whole
reward higher
reward_std
verifier/<name> higher
groups/count whole
groups/no_signal lower
groups/solved higher
groups/distinct_1
groups/distinct_2
groups/answer_entropy
unscored lower whole
outcomes/<outcome> whole
custom/<name>
completions/count whole
completions/tokens_mean
completions/tokens_min
completions/tokens_max
completions/truncated
completions/repetition
completions/self_checks
turns/mean
turns/max whole
turns/limit/<limit> whole
turns/failed whole
turns/forced whole
turns/context_tokens
tools/<count> whole
plays/<count>
loss
surrogate
entropy
kl
kl/token
ratio/mean
ratio/min
ratio/max
clip/low
clip/high
clip/dual
sampler_gap/mean lower
sampler_gap/max lower
correction/<name>
teacher/untaught lower whole
teacher/kl lower
teacher/divergence lower
filter/<name>
value/<name>
algorithm/<name>
fit/<name>
selection/rounds whole
selection/trained whole
selection/discarded whole
selection/carried whole
selection/replayed whole
selection/skipped whole
selection/max_tokens whole
selection/level whole
ahead/<name>
grad_norm
learning_rate
updates whole
updates/skipped whole
updates/nonfinite lower whole
forward/tokens lower whole
forward/projected lower whole
forward/micro_batches whole
updates_total whole
version whole
staleness
tokens whole
tokens/trained whole
tokens/with_gradient higher whole
tokens/gradient_share higher
tokens_total whole
tokens_per_second higher measured
seconds/rollout lower measured
seconds/score lower measured
seconds/logprobs lower measured
seconds/learn lower measured
seconds/load lower measured
seconds/record lower measured
seconds/evaluate lower measured
seconds/step lower measured
memory/peak_bytes lower measured whole
eval/accuracy higher interval
eval/greedy higher interval
eval/heldout higher interval
eval/heldout_greedy higher interval
eval/strict higher interval
eval/heldout_strict higher interval
eval/gap lower
eval/strict_gap lower
eval/heldout_strict_gap lower
eval/strict_unscored lower whole
eval/prompts whole
eval/unscored lower whole
eval/tokens whole
eval/truncated
eval/verifier/<name> higher
eval/greedy_verifier/<name> higher
eval/heldout_verifier/<name> higher
eval/heldout_greedy_verifier/<name> higher
eval/solved higher
eval/distinct_1
eval/distinct_2
eval/answer_entropy
eval/pass@<k> higher
eval/maj@<k> higher
eval/split/<name> higher
eval/split_greedy/<name> higher
eval/guard/<name> higher
eval/guard_greedy/<name> higher
"""


def _metrics(line: str) -> Iterator[Metric]:
    name, *marks = line.split()
    better: Literal["higher", "lower"] | None = None
    if "higher" in marks or "lower" in marks:
        better = "higher" if "higher" in marks else "lower"
    yield Metric(name, better, "measured" in marks, "whole" in marks)
    if "interval" in marks:
        yield Metric(f"{name}_low", better)
        yield Metric(f"{name}_high", better)


METRICS: tuple[Metric, ...] = tuple(
    metric for line in _TABLE.split("\n") if line for metric in _metrics(line)
)
