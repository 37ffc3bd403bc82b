"""The metric table: every metric that a run records, with name, unit and exact formula.

Left out: computing the values (`totals.py` for rollouts; the loss's are made where the loss is),
and writing them (`metrics.py` makes a line of them).

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


def _rollout_metrics() -> Iterator[Metric]:
    yield Metric(
        "reward",
        "reward",
        "mean of the rewards (weighted sum of the verifiers, before the algorithm's shapers) over "
        "the step's scored rollouts",
        "higher",
    )
    yield Metric(
        "reward_std",
        "reward",
        "mean over groups with two or more scored rollouts of the group's population standard "
        "deviation of rewards (ddof 0): the spread inside groups, never over the batch",
    )
    yield Metric(
        "verifier/<name>",
        "score",
        "mean of that verifier's value over the rollouts to which it applied; rollouts without a "
        "value are skipped, not counted as 0",
        "higher",
    )
    yield Metric("groups/count", "groups", "groups collected in the step", whole=True)
    yield Metric(
        "groups/no_signal",
        "share",
        "share of groups with fewer than two scored rollouts, or whose rewards differ (largest "
        "minus smallest) by at most 1e-6 of the largest magnitude plus 1e-7: their centred "
        "advantages are 0",
        "lower",
    )
    yield Metric(
        "unscored",
        "rollouts",
        "rollouts that no verifier could score; outside every statistic and without loss weight",
        "lower",
        whole=True,
    )
    yield Metric(
        "outcomes/<outcome>", "rollouts", "rollouts with that outcome of the score", whole=True
    )
    yield Metric(
        "custom/<name>",
        "any",
        "what a reward function logged with log_metric(name, value) in the step, as it was given",
    )
    yield Metric("completions/count", "rollouts", "rollouts collected in the step", whole=True)
    for part, words in (("mean", "mean"), ("min", "smallest"), ("max", "largest")):
        yield Metric(
            f"completions/tokens_{part}",
            "tokens",
            f"{words} number of tokens that the policy chose in a rollout (stop id included, "
            "context of later turns excluded)",
        )
    yield Metric(
        "completions/truncated",
        "share",
        "share of rollouts that did not end by themselves (finish reason other than stop)",
    )
    yield from _turn_metrics()


def _turn_metrics() -> Iterator[Metric]:
    """Of rollouts that may have several turns; a plain single turn has none of them."""
    yield Metric("turns/mean", "turns", "mean number of completions in such a rollout")
    yield Metric("turns/max", "turns", "largest number of completions in a rollout", whole=True)
    yield Metric(
        "turns/limit/<limit>",
        "rollouts",
        "rollouts that went on and were ended by that limit: turns, tokens (sampling.max_tokens), "
        "length (positions of the model) or seconds",
        whole=True,
    )
    yield Metric(
        "turns/failed",
        "rollouts",
        "rollouts that ended because their environment failed",
        whole=True,
    )
    yield Metric("turns/forced", "rollouts", "rollouts whose thinking spent its budget", whole=True)
    yield Metric(
        "turns/context_tokens",
        "tokens",
        "mean number of ids between completions (environment, tools, template, forced text)",
    )
    yield Metric(
        "tools/<count>",
        "any",
        "sum over rollouts: calls, errors (calls that gave one), timeouts (among the errors), and "
        "calls of each tool as tools/calls/<tool>",
        whole=True,
    )
    yield Metric("plays/<count>", "any", "sum over rollouts of a play's own count")


def _loss_metrics() -> Iterator[Metric]:
    yield Metric(
        "loss",
        "loss",
        "sum over t of weight_t * (-surrogate_t + kl_coef * kl_t), mean over the step's updates. "
        "Not a progress signal: at ratio 1 centred advantages cancel and it is near 0 while the "
        "gradient is not. Read reward and grad_norm",
    )
    yield Metric(
        "surrogate",
        "loss",
        "sum over t of weight_t * surrogate_t, summed over the step's updates: the policy term "
        "alone, before the minus sign; not a progress signal either",
    )
    yield Metric(
        "entropy",
        "nats/token",
        "mean over t of the entropy of the distribution sampled from (after temperature)",
    )
    yield Metric(
        "kl",
        "nats/completion",
        "(1/B) sum over i of sum over t in i of k3, k3 = exp(ref - lp) - (ref - lp) - 1, against "
        "the reference; None without a reference",
    )
    yield Metric(
        "kl/token",
        "nats/token",
        "sum over t of k3 divided by the number of t; None without a reference",
    )
    for part, words in (("mean", "mean"), ("min", "smallest"), ("max", "largest")):
        yield Metric(
            f"ratio/{part}",
            "ratio",
            f"{words} over the t of the step's updates of the ratio that the surrogate uses "
            "(token or sequence level, before any clip; exp(lp - old) where it uses none); exactly "
            "1 in a first on-policy update",
        )
    yield Metric(
        "clip/low",
        "share",
        "share of t with A < 0 and ratio below the lower bound: tokens whose gradient the minimum "
        "cut; A > 0 below the bound is not clipped and not counted",
    )
    yield Metric(
        "clip/high",
        "share",
        "share of t with A > 0 and ratio above the upper bound: tokens whose gradient the minimum "
        "cut; A < 0 above the bound is not clipped and not counted",
    )
    yield Metric(
        "clip/dual",
        "share",
        "share of t with A < 0 and ratio above the dual clip's bound; None without a dual clip",
    )
    yield Metric(
        "sampler_gap/mean",
        "nats/token",
        "mean over t of |old - smp| (lp at the first update where old is not recomputed): the "
        "sampler's and the learner's disagreement about the same weights",
        "lower",
    )
    yield Metric("sampler_gap/max", "nats/token", "largest |old - smp| of the step", "lower")
    yield Metric(
        "correction/<name>",
        "weight or share",
        "of the sampler correction's raw weight exp(old - smp), a token or a sequence each, before "
        "it is truncated or masked: mean, min, max; discarded (share of weights out of bounds); "
        "ess ((sum w)^2 / sum w^2, divided by their number)",
    )
    yield Metric(
        "filter/<name>",
        "rollouts",
        "rollouts that the named filter removed from the loss (their rewards stay in the metrics)",
    )
    yield Metric(
        "value/<name>",
        "reward",
        "of a critic's values V and returns R (the PPO comparator): mean and return (means over t "
        "before the step's updates), explained (1 - var(R - V) / var(R) before them), error (mean "
        "over t of (V - R)^2 in the updates), loss (the value loss, mean over updates) and "
        "grad_norm (of the critic's own parameters, mean over updates)",
    )
    yield Metric(
        "algorithm/<name>",
        "see the algorithm",
        "a quantity of one part of the algorithm, defined on the algorithm's page (adaptive "
        "entropy coefficient, tokens kept by the top-entropy rule, value loss)",
    )


def _selection_metrics() -> Iterator[Metric]:
    yield Metric(
        "selection/rounds",
        "rounds",
        "how often the step sampled prompts: 1, more where dynamic sampling refilled it, 0 where "
        "enough groups were waiting",
        whole=True,
    )
    for name, words in (
        ("trained", "that the step learned from, replayed ones included"),
        ("discarded", "that will never be learned from: without signal, the rest of one of which "
         "some completions are learned from, surplus that is not carried"),
        ("carried", "that wait for the next step: kept by dynamic sampling beyond a full step"),
        ("replayed", "learned from again, from the replay buffer"),
    ):  # fmt: skip
        yield Metric(f"selection/{name}", "groups", f"groups {words}", whole=True)
    yield Metric(
        "selection/skipped",
        "steps",
        "1 where the step had no group to learn from and made no update, else 0",
        whole=True,
    )
    yield Metric(
        "selection/max_tokens",
        "tokens",
        "limit on a completion in the step: sampling.max_tokens, or its schedule's value",
        whole=True,
    )
    yield Metric(
        "selection/level",
        "levels",
        "place of the curriculum's newest open level, from 0; None without a curriculum",
        whole=True,
    )


def _update_metrics() -> Iterator[Metric]:
    yield Metric(
        "grad_norm",
        "norm",
        "L2 norm of the gradient over all trained parameters before clipping, mean over the step's "
        "updates",
    )
    yield Metric(
        "learning_rate", "1/update", "learning rate of the step's last update; counts updates only"
    )
    yield Metric("updates", "updates", "optimiser updates made in the step", whole=True)
    yield Metric(
        "updates/skipped",
        "updates",
        "updates of the plan that were not made: no token had a non-zero advantage, or the KL stop "
        "ended the step; they advance neither optimiser nor schedule",
        whole=True,
    )
    yield Metric(
        "forward/tokens",
        "tokens",
        "tokens that the policy's and the reference's decoders ran over to score and to learn from "
        "the step's rollouts, padding included, backward passes not counted again: per micro-batch "
        "each distinct prompt once and each completion without its last token",
        "lower",
        whole=True,
    )
    yield Metric(
        "forward/projected",
        "tokens",
        "positions among them that the output layer ran over: every completion token once a pass",
        "lower",
        whole=True,
    )
    yield Metric(
        "forward/micro_batches", "passes", "forward passes that these were divided into", whole=True
    )
    yield Metric(
        "updates_total",
        "updates",
        "updates made since the run began, this step included",
        whole=True,
    )
    yield Metric("version", "steps", "version of the policy that the step started from", whole=True)
    yield Metric(
        "staleness",
        "steps",
        "mean over the rollouts that the step learns from of step minus the oldest version in the "
        "rollout; 0 = on policy",
    )
    yield Metric(
        "tokens",
        "tokens",
        "tokens that the policy chose in the training rollouts sampled in the step, refills and "
        "what was discarded included",
        whole=True,
    )
    yield Metric(
        "tokens/trained", "tokens", "tokens in the batch's mask after the filters", whole=True
    )
    yield Metric(
        "tokens/with_gradient",
        "tokens",
        "tokens in the batch's mask whose advantage is not 0",
        "higher",
        whole=True,
    )
    yield Metric(
        "tokens/gradient_share",
        "share",
        "`tokens/with_gradient` divided by the tokens that the policy chose in the rollouts that "
        "the step learns from or discards: what is carried on counts in the step that uses it",
        "higher",
    )
    yield Metric(
        "tokens_total",
        "tokens",
        "sum of `tokens` since the run began, this step included",
        whole=True,
    )


def _measured_metrics() -> Iterator[Metric]:
    yield Metric(
        "tokens_per_second",
        "tokens/s",
        "tokens divided by seconds/step",
        "higher",
        measured=True,
    )
    parts = {
        "rollout": "sampling the rollouts, environments included",
        "score": "waiting for verifiers",
        "logprobs": "old and reference log-probabilities, and a critic's values",
        "learn": "forward, backward and optimiser updates",
        "load": "giving the sampler the new version",
        "record": "writing the record and checkpoints",
        "evaluate": "evaluation at the end of the step",
        "step": "the whole step",
    }
    for part, words in parts.items():
        yield Metric(f"seconds/{part}", "s", f"wall clock of {words}", "lower", measured=True)
    yield Metric(
        "memory/peak_bytes",
        "bytes",
        "largest memory so far: allocated on the device, or resident on a CPU",
        "lower",
        measured=True,
        whole=True,
    )


_STRICT = "environment.strict_verifiers, which training never sees"


def _evaluation_metrics() -> Iterator[Metric]:
    sampled = "mean over prompts of the share of the prompt's scored completions that are correct"
    greedy = "share of prompts whose greedy completion is correct"
    heldout = "the prompts that training never samples"
    interval = "bound of the 95 % interval of `{}` ({})"
    wilson = "Wilson, one trial a prompt"
    cluster = "Wilson with the effective sample size that the spread between prompts leaves"
    for name, words, method in (
        (
            "eval/accuracy",
            f"{sampled}, at the training temperature, over all evaluated prompts",
            cluster,
        ),
        ("eval/greedy", f"{greedy}, over all evaluated prompts", wilson),
        ("eval/heldout", f"`eval/accuracy` over {heldout}", cluster),
        ("eval/heldout_greedy", f"`eval/greedy` over {heldout}", wilson),
        ("eval/strict", f"`eval/accuracy` by the strict verifiers ({_STRICT})", cluster),
        ("eval/heldout_strict", f"`eval/strict` over {heldout}", cluster),
    ):
        yield Metric(name, "share", words, "higher")
        yield Metric(f"{name}_low", "share", f"lower {interval.format(name, method)}", "higher")
        yield Metric(f"{name}_high", "share", f"upper {interval.format(name, method)}", "higher")
    yield Metric(
        "eval/gap",
        "share",
        "`eval/accuracy` over the evaluated training prompts minus `eval/heldout`; a gap that "
        "grows means memorised prompts",
        "lower",
    )
    for scope in ("", "heldout_"):
        yield Metric(
            f"eval/{scope}strict_gap",
            "share",
            "mean over prompts of the share of the prompt's completions, scored by both, that are "
            "correct for the reward, minus that for the strict verifiers"
            + (f"; over {heldout}" if scope else "")
            + "; a gap that grows means that the reward is being gamed",
            "lower",
        )
    yield Metric(
        "eval/strict_unscored",
        "rollouts",
        "sampled completions that the strict verifiers could not score; excluded from theirs",
        "lower",
        whole=True,
    )
    yield Metric("eval/prompts", "prompts", "prompts evaluated, each once", whole=True)
    yield Metric(
        "eval/unscored",
        "rollouts",
        "sampled and greedy completions without a score; excluded",
        "lower",
        whole=True,
    )
    yield Metric(
        "eval/tokens", "tokens", "tokens chosen by the policy in the evaluation", whole=True
    )
    yield Metric("eval/truncated", "share", "share of sampled completions that did not end")
    for scope, words in (
        ("eval/verifier/<name>", "sampled completions"),
        ("eval/greedy_verifier/<name>", "greedy completions"),
        ("eval/heldout_verifier/<name>", "sampled completions of held-out prompts"),
        ("eval/heldout_greedy_verifier/<name>", "greedy completions of held-out prompts"),
    ):
        yield Metric(
            scope,
            "score",
            f"mean over prompts of the prompt's mean value of that verifier, {words}",
            "higher",
        )
    yield Metric(
        "eval/pass@<k>",
        "share",
        "mean over prompts of 1 - C(n - c, k) / C(n, k), c of n completions correct; one without a "
        "score is not, and `eval/unscored` counts it; prompts with n < k are left out",
        "higher",
    )
    yield Metric(
        "eval/maj@<k>",
        "share",
        "mean over prompts of the probability that the most frequent answer of k completions is "
        "correct; a tie counts by its correct share",
        "higher",
    )
    yield Metric(
        "eval/split/<name>", "share", "`eval/accuracy` over the prompts of that split", "higher"
    )
    yield Metric(
        "eval/split_greedy/<name>",
        "share",
        "`eval/greedy` over the prompts of that split",
        "higher",
    )
    yield Metric(
        "eval/guard/<name>",
        "share",
        "`eval/accuracy` on a guard set: prompts beside the task that must not get worse",
        "higher",
    )
    yield Metric("eval/guard_greedy/<name>", "share", "`eval/greedy` on a guard set", "higher")


METRICS: tuple[Metric, ...] = (
    Metric("step", "steps", "the step's number, from 0", whole=True),
    *_rollout_metrics(),
    *_loss_metrics(),
    *_selection_metrics(),
    *_update_metrics(),
    *_measured_metrics(),
    *_evaluation_metrics(),
)
"""The table. An evaluation stands on the line of the step after which it was made (version step +
1); the one before the first step is in the record's evaluations."""
