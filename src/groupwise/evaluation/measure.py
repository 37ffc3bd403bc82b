"""Evaluates one version of the policy: every prompt once, sampled and greedy, in one collection.

It does not depend on training's group size: `samples` completions a prompt (1 is fine), at the
training temperature, plus one greedy. Noise is keyed by (seed, "evaluation", prompt, version), so
the same version of the same run always gives the same figures.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from groupwise.distributed import ALONE, Ranks
from groupwise.environments import Environment
from groupwise.errors import RecipeError, VerifierError
from groupwise.evaluation.result import EvaluationResult, SetResult, summarise
from groupwise.evaluation.strict import strict_metrics
from groupwise.instants import passed
from groupwise.randomness import stream_key
from groupwise.records.settings import EvaluationSettings
from groupwise.rollouts import collect
from groupwise.samplers import Sampler, SamplingSettings
from groupwise.templates import Template
from groupwise.types import Group, Prompt

TRAINING_SPLIT = "train"


@dataclass(frozen=True, slots=True)
class EvaluationSets:
    """Which prompts are evaluated: by split, which splits are held out, guards, and remarks.

    `notes` are sentences for the user, to print and record before the first evaluation.
    """

    splits: Mapping[str, Sequence[Prompt]]
    heldout: Collection[str]
    guards: Mapping[str, Sequence[Prompt]] = field(default_factory=dict[str, Sequence[Prompt]])
    notes: Sequence[str] = ()

    @property
    def num_prompts(self) -> int:
        """Prompts of one evaluation, guards included."""
        return sum(map(len, self.splits.values())) + sum(map(len, self.guards.values()))


def evaluation_sets(
    environment: Environment, settings: EvaluationSettings, *, seed: int
) -> EvaluationSets:
    """The prompts to evaluate, the same for a whole run.

    Without `settings.splits` every split that is not a guard is evaluated. From a split with more
    than `max_prompts` prompts a keyed choice is taken, in the split's order.

    Raises RecipeError naming the splits that there are.
    """
    chosen = settings.splits or [s for s in environment.splits if s not in settings.guards]
    for name, given in (("splits", chosen), ("guards", settings.guards)):
        for split in given:
            if split not in environment.splits:
                raise RecipeError(
                    f"evaluation.{name} holds {split!r}, which environment {environment.name!r} "
                    f"does not have; it has {', '.join(environment.splits)}"
                )
    splits, guards = (
        {s: choose(environment.prompts(split=s), settings.max_prompts, seed) for s in names}
        for names in (chosen, settings.guards)
    )
    heldout = tuple(s for s in splits if s != TRAINING_SPLIT and splits[s])
    note = (
        "nothing is held out: every evaluated prompt is also trained on, so eval/heldout and "
        "eval/gap stay empty and eval/accuracy may be memory"
    )
    return EvaluationSets(splits, heldout, guards, () if heldout else (note,))


def choose(prompts: Sequence[Prompt], limit: int | None, seed: int) -> list[Prompt]:
    """At most `limit` prompts, those with the smallest key, in their own order."""
    if limit is None or len(prompts) <= limit:
        return list(prompts)
    keys = {p.id: (stream_key(seed, "evaluation", "choice", p.id), p.id) for p in prompts}
    kept = {p.id for p in sorted(prompts, key=lambda p: keys[p.id])[:limit]}
    return [p for p in prompts if p.id in kept]


def evaluate(
    environment: Environment,
    sampler: Sampler,
    template: Template,
    *,
    settings: EvaluationSettings,
    sampling: SamplingSettings,
    seed: int,
    version: int,
    sets: EvaluationSets | None = None,
    ranks: Ranks = ALONE,
) -> EvaluationResult:
    """Evaluate the weights that the sampler holds.

    `settings.samples` completions a prompt at `sampling.temperature` with `sampling.max_tokens`,
    and one greedy. `sets` are the prompts (those of `evaluation_sets` by default). A prompt that is
    in several sets is sampled once. An environment's strict verifier scores the same completions.

    Raises RecipeError for a split that is not there, VerifierError as collection does and where
    nothing could be scored, ValueError where there is no prompt.
    """
    if sets is None:
        sets = evaluation_sets(environment, settings, seed=seed)
    prompts = {p.id: p for each in (*sets.splits.values(), *sets.guards.values()) for p in each}
    if not prompts:
        raise ValueError("no prompts to evaluate")
    groups = collect(
        environment,
        sampler,
        template,
        [(prompt, version) for prompt in prompts.values()],
        group_size=settings.samples,
        sampling=sampling,
        seed=seed,
        purpose="evaluation",
        step=version,
        greedy=True,
        ranks=ranks,
    )
    passed("evaluation")
    result = result_of(groups, sets, settings=settings, version=version)
    if environment.strict is None or not ranks.leads:  # only the record reads it
        return result
    strict = strict_metrics(groups, sets, environment.strict, environment.judged_for)
    return replace(result, strict=strict)


def result_of(
    groups: Sequence[Group], sets: EvaluationSets, *, settings: EvaluationSettings, version: int
) -> EvaluationResult:
    """The result of scored groups, one a prompt."""
    by_id = {group.prompt.id: group for group in groups}
    asked = {p.id for each in sets.splits.values() for p in each}
    heldout = {p.id for name in sets.heldout for p in sets.splits[name]}
    trained = asked - heldout

    def over(ids: Collection[str]) -> SetResult:
        chosen = [group for name, group in by_id.items() if name in ids]
        return summarise(chosen, pass_ks=settings.pass_at_k, maj_ks=settings.maj_at_k)

    result = EvaluationResult(
        version=version,
        overall=over(asked),
        heldout=over(heldout) if heldout else None,
        trained=over(trained) if trained else None,
        splits={name: over({p.id for p in each}) for name, each in sets.splits.items()},
        guards={name: over({p.id for p in each}) for name, each in sets.guards.items()},
        groups=tuple(groups),
    )
    scores = result.scores
    if not any(score.scored for score in scores):
        raise VerifierError(
            f"evaluation of version {version}: none of its {len(scores)} completions could be "
            f"scored; the first is {scores[0].outcome} ({scores[0].reason or 'no reason given'})"
        )
    return result
