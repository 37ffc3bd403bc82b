"""The metric table: every metric that a run records, with name, unit and exact formula.

Legend of the formulas: i a rollout, t a token that the policy chose and that trains (the batch's
mask), n_i the number of such tokens in rollout i, B the rollouts with n_i > 0, A the advantage;
lp, old, ref, smp the log-probabilities of the learner now, of the learner at the start of the step,
of the reference, and as the sampler reported them, all after temperature.
"""

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

    >>> Metric("verifier/<name>", "reward", "mean").matches("verifier/number")
    True
    """

    name: str
    unit: str
    definition: str
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


# A metric is a line "name | unit | marks" and its definition, indented. Marks: higher or lower
# (which is better), measured, whole, and interval with its method, which adds `_low` and `_high`.
# Braces hold alternatives, each of which makes a metric; all braces of a metric go together.
_TABLE = """
step | steps | whole
    the step's number, from 0
reward | reward | higher
    mean of the rewards (weighted sum of the verifiers, before the algorithm's shapers) over the
    step's scored rollouts
reward_std | reward
    mean over groups with two or more scored rollouts of the group's population standard deviation
    of rewards (ddof 0): the spread inside groups, never over the batch
verifier/<name> | score | higher
    mean of that verifier's value over the rollouts to which it applied; rollouts without a value
    are skipped, not counted as 0
groups/count | groups | whole
    groups collected in the step
groups/no_signal | share | lower
    share of groups with fewer than two scored rollouts, or whose rewards differ (largest minus
    smallest) by at most 1e-6 of the largest magnitude plus 1e-7: their centred advantages are 0
unscored | rollouts | lower, whole
    rollouts that no verifier could score; outside every statistic and without loss weight
outcomes/<outcome> | rollouts | whole
    rollouts with that outcome of the score
custom/<name> | any
    what a reward function logged with log_metric(name, value) in the step, as it was given
completions/count | rollouts | whole
    rollouts collected in the step
completions/tokens_{mean,min,max} | tokens
    {mean,smallest,largest} number of tokens that the policy chose in a rollout (stop id included,
    context of later turns excluded)
completions/truncated | share
    share of rollouts that did not end by themselves (finish reason other than stop)
turns/mean | turns
    mean number of completions in such a rollout
turns/max | turns | whole
    largest number of completions in a rollout
turns/limit/<limit> | rollouts | whole
    rollouts that went on and were ended by that limit: turns, tokens (sampling.max_tokens), length
    (positions of the model) or seconds
turns/failed | rollouts | whole
    rollouts that ended because their environment failed
turns/forced | rollouts | whole
    rollouts whose thinking spent its budget
turns/context_tokens | tokens
    mean number of ids between completions (environment, tools, template, forced text)
tools/<count> | any | whole
    sum over rollouts: calls, errors (calls that gave one), timeouts (among the errors), and calls
    of each tool as tools/calls/<tool>
plays/<count> | any
    sum over rollouts of a play's own count
loss | loss
    sum over t of weight_t * (-surrogate_t + kl_coef * kl_t), mean over the step's updates. Not a
    progress signal: at ratio 1 centred advantages cancel and it is near 0 while the gradient is
    not. Read reward and grad_norm
surrogate | loss
    sum over t of weight_t * surrogate_t, summed over the step's updates: the policy term alone,
    before the minus sign; not a progress signal either
entropy | nats/token
    mean over t of the entropy of the distribution sampled from (after temperature)
kl | nats/completion
    (1/B) sum over i of sum over t in i of k3, k3 = exp(ref - lp) - (ref - lp) - 1, against the
    reference; None without a reference
kl/token | nats/token
    sum over t of k3 divided by the number of t; None without a reference
ratio/{mean,min,max} | ratio
    {mean,smallest,largest} over the t of the step's updates of the ratio that the surrogate uses
    (token or sequence level, before any clip; exp(lp - old) where it uses none); exactly 1 in a
    first on-policy update
clip/{low,high} | share
    share of t with A {<,>} 0 and ratio {below,above} the {lower,upper} bound: tokens whose gradient
    the minimum cut; A {>,<} 0 {below,above} the bound is not clipped and not counted
clip/dual | share
    share of t with A < 0 and ratio above the dual clip's bound; None without a dual clip
sampler_gap/mean | nats/token | lower
    mean over t of |old - smp| (lp at the first update where old is not recomputed): the sampler's
    and the learner's disagreement about the same weights
sampler_gap/max | nats/token | lower
    largest |old - smp| of the step
correction/<name> | weight or share
    of the sampler correction's raw weight exp(old - smp), a token or a sequence each, before it is
    truncated or masked: mean, min, max; discarded (share of weights out of bounds); ess ((sum w)^2
    / sum w^2, divided by their number)
filter/<name> | rollouts
    rollouts that the named filter removed from the loss (their rewards stay in the metrics)
value/<name> | reward
    of a critic's values V and returns R (the PPO comparator): mean and return (means over t before
    the step's updates), explained (1 - var(R - V) / var(R) before them), error (mean over t of (V -
    R)^2 in the updates), loss (the value loss, mean over updates) and grad_norm (of the critic's
    own parameters, mean over updates)
algorithm/<name> | see the algorithm
    a quantity of one part of the algorithm, defined on the algorithm's page (adaptive entropy
    coefficient, tokens kept by the top-entropy rule, value loss)
selection/rounds | rounds | whole
    how often the step sampled prompts: 1, more where dynamic sampling refilled it, 0 where enough
    groups were waiting
selection/trained | groups | whole
    groups that the step learned from, replayed ones included
selection/discarded | groups | whole
    groups that will never be learned from: without signal, the rest of one of which some
    completions are learned from, surplus that is not carried
selection/carried | groups | whole
    groups that wait for the next step: kept by dynamic sampling beyond a full step
selection/replayed | groups | whole
    groups learned from again, from the replay buffer
selection/skipped | steps | whole
    1 where the step had no group to learn from and made no update, else 0
selection/max_tokens | tokens | whole
    limit on a completion in the step: sampling.max_tokens, or its schedule's value
selection/level | levels | whole
    place of the curriculum's newest open level, from 0; None without a curriculum
grad_norm | norm
    L2 norm of the gradient over all trained parameters before clipping, mean over the step's
    updates
learning_rate | 1/update
    learning rate of the step's last update; counts updates only
updates | updates | whole
    optimiser updates made in the step
updates/skipped | updates | whole
    updates of the plan that were not made: no token had a non-zero advantage, or the KL stop ended
    the step; they advance neither optimiser nor schedule
forward/tokens | tokens | lower, whole
    tokens that the policy's and the reference's decoders ran over to score and to learn from the
    step's rollouts, padding included, backward passes not counted again: per micro-batch each
    distinct prompt once and each completion without its last token
forward/projected | tokens | lower, whole
    positions among them that the output layer ran over: every completion token once a pass
forward/micro_batches | passes | whole
    forward passes that these were divided into
updates_total | updates | whole
    updates made since the run began, this step included
version | steps | whole
    version of the policy that the step started from
staleness | steps
    mean over the rollouts that the step learns from of step minus the oldest version in the
    rollout; 0 = on policy
tokens | tokens | whole
    tokens that the policy chose in the training rollouts sampled in the step, refills and what was
    discarded included
tokens/trained | tokens | whole
    tokens in the batch's mask after the filters
tokens/with_gradient | tokens | higher, whole
    tokens in the batch's mask whose advantage is not 0
tokens/gradient_share | share | higher
    `tokens/with_gradient` divided by the tokens that the policy chose in the rollouts that the step
    learns from or discards: what is carried on counts in the step that uses it
tokens_total | tokens | whole
    sum of `tokens` since the run began, this step included
tokens_per_second | tokens/s | higher, measured
    tokens divided by seconds/step
seconds/rollout | s | lower, measured
    wall clock of sampling the rollouts, environments included
seconds/score | s | lower, measured
    wall clock of waiting for verifiers
seconds/logprobs | s | lower, measured
    wall clock of old and reference log-probabilities, and a critic's values
seconds/learn | s | lower, measured
    wall clock of forward, backward and optimiser updates
seconds/{load,record} | s | lower, measured
    wall clock of {giving the sampler the new version,writing the record and checkpoints}
seconds/{evaluate,step} | s | lower, measured
    wall clock of {evaluation at the end of the step,the whole step}
memory/peak_bytes | bytes | lower, measured, whole
    largest memory so far: allocated on the device, or resident on a CPU
eval/accuracy | share | higher, interval effective
    mean over prompts of the share of the prompt's completions that are correct (one without a score
    is not), at the training temperature, over all evaluated prompts; none where a value above 1 has
    no verdict (`correct_from` of its verifier gives it one)
eval/greedy | share | higher, interval wilson
    share of prompts whose greedy completion is correct, over all evaluated prompts
eval/{heldout,heldout_greedy} | share | higher, interval {effective,wilson}
    `eval/{accuracy,greedy}` over the prompts that training never samples
eval/strict | share | higher, interval effective
    `eval/accuracy` by the strict verifiers (environment.strict_verifiers, which training never
    sees)
eval/heldout_strict | share | higher, interval effective
    `eval/strict` over the prompts that training never samples
eval/gap | share | lower
    `eval/accuracy` over the evaluated training prompts minus `eval/heldout`; a gap that grows means
    memorised prompts
eval/{,heldout_}strict_gap | share | lower
    mean over prompts of the share of the prompt's completions, scored by both, that are correct for
    the reward, minus that for the strict verifiers;{, over the prompts that training never
    samples;} a gap that grows means that the reward is being gamed
eval/strict_unscored | rollouts | lower, whole
    sampled completions that the strict verifiers could not score; excluded from theirs
eval/prompts | prompts | whole
    prompts evaluated, each once
eval/unscored | rollouts | lower, whole
    sampled and greedy completions without a score; none of them counts as correct
eval/tokens | tokens | whole
    tokens chosen by the policy in the evaluation
eval/truncated | share
    share of sampled completions that did not end
eval/{,greedy_,heldout_,heldout_greedy_}verifier/<name> | score | higher
    mean over prompts of the prompt's mean value of that verifier, {sampled,greedy,sampled,greedy}
    completions{,, of held-out prompts, of held-out prompts}
eval/pass@<k> | share | higher
    mean over prompts of 1 - C(n - c, k) / C(n, k), c of n completions correct; one without a score
    is not, and `eval/unscored` counts it; prompts with n < k are left out
eval/maj@<k> | share | higher
    mean over prompts of the probability that the most frequent answer of k completions is correct;
    a tie counts by its correct share
eval/{split,split_greedy}/<name> | share | higher
    `eval/{accuracy,greedy}` over the prompts of that split
eval/guard/<name> | share | higher
    `eval/accuracy` on a guard set: prompts beside the task that must not get worse
eval/guard_greedy/<name> | share | higher
    `eval/greedy` on a guard set
"""

_METHODS = {
    "interval wilson": "Wilson, one trial a prompt",
    "interval effective": "Wilson with the effective sample size that the spread between prompts "
    "leaves",
}


def _metrics(block: str) -> Iterator[Metric]:
    """The metrics of one block of the table."""
    head, *lines = block.strip().splitlines()
    name, unit, *rest = head.split(" | ")
    marks = rest[0].split(", ") if rest else []
    definition = " ".join(line.strip() for line in lines)
    better: Literal["higher", "lower"] | None = None
    if "higher" in marks or "lower" in marks:
        better = "higher" if "higher" in marks else "lower"
    yield Metric(name, unit, definition, better, "measured" in marks, "whole" in marks)
    for mark in marks:
        if mark in _METHODS:
            for end, bound in (("low", "lower"), ("high", "upper")):
                words = f"{bound} bound of the 95 % interval of `{name}` ({_METHODS[mark]})"
                yield Metric(f"{name}_{end}", unit, words, better)


def _expanded(block: str) -> Iterator[str]:
    """The block once for each alternative in its braces."""
    braces = r"\{([^}]*)\}"
    first = re.search(braces, block)
    if first is None:
        yield block
        return
    for place in range(len(first[1].split(","))):
        yield re.sub(braces, lambda found: found[1].split(",")[place], block)  # noqa: B023


METRICS: tuple[Metric, ...] = tuple(
    metric
    for block in re.split(r"\n(?=\S)", _TABLE.strip())
    for each in _expanded(block)
    for metric in _metrics(each)
)
"""The table. An evaluation stands on the line of the step after which it was made (version step +
1); the one before the first step is in the record's evaluations."""
