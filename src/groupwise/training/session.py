"""Everything a run holds in memory: `open_session` loads the weights and connects the rooms."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from groupwise.algorithms import AlgorithmState
from groupwise.batches import split_rows
from groupwise.distributed import ALONE, Ranks, copy_weights, put_, shard, whole
from groupwise.environments import Environment
from groupwise.errors import GroupwiseError, RecipeError
from groupwise.evaluation import EvaluationSets
from groupwise.learner import CriticLearner, Learner
from groupwise.policies import (
    Policy,
    base_identity,
    checkpoint_activations,
    copy_trained,
    has_adapter,
    load_policy,
    make_critic,
    runs_packed,
    sequence_logprobs,
    why_no_replay,
)
from groupwise.randomness import stream_key
from groupwise.recipe import Recipe
from groupwise.samplers import Sampler, sampler_of
from groupwise.samplers.contract import QUANTISED_TOLERANCE, TOLERANCE
from groupwise.scorers import SELF, Teachers
from groupwise.templates import Template
from groupwise.training.ahead import AheadCollector, Schedule
from groupwise.training.collecting import Collector
from groupwise.training.preparing import Prepared, fit_of, text_notes
from groupwise.training.process import give_back_freed_memory, keep_freed_memory
from groupwise.types import Request


@dataclass(slots=True)
class Session:
    """Everything a run holds in memory. `tokens_total` is its only counter besides the state of
    the learner and of the collector. `sampled` is what the sampler reads: the policy itself, or a
    whole copy of one whose weights are sharded over `ranks`."""

    recipe: Recipe
    environment: Environment
    evaluation_sets: EvaluationSets
    template: Template
    policy: Policy
    sampled: Policy
    sampler: Sampler
    learner: Learner
    collector: Collector
    state: AlgorithmState
    teachers: Teachers | None = None
    tokens_total: int = 0
    first_step: int = 0
    seconds_before: float = 0.0
    base: dict[str, str | None] | None = None
    threads_before: int = 1
    ranks: Ranks = ALONE

    def counters(self, seconds: float) -> dict[str, Any]:
        """What a checkpoint holds besides weights and optimiser; `seconds` since the run began."""
        return {
            "base": self.base,
            "seconds": seconds,
            "learner": self.learner.state_dict(),
            "tokens_total": self.tokens_total,
            "algorithm": self.state.state_dict(),
            "teachers": {} if self.teachers is None else self.teachers.hashes,
        }

    def load_counters(self, counters: Mapping[str, Any], step: int) -> None:
        """Put back what `counters` gave. GroupwiseError if the frozen weights differ."""
        same_base(counters, self.base)
        if self.teachers is not None:
            self.teachers.same(counters["teachers"])
        self.learner.load_state_dict(counters["learner"])
        self.seconds_before = float(counters["seconds"])
        self.tokens_total = int(counters["tokens_total"])
        self.state.load_state_dict(counters["algorithm"])
        self.first_step = step
        self.policy.version = step

    def notes(self) -> list[str]:
        """What a person should know before the first step."""
        found = [
            *self.evaluation_sets.notes,
            *self.environment.notes,
            *text_notes(self.environment, self.template),
            *getattr(self.sampler, "notes", ()),
        ]
        for source in (self.environment.verifier, self.recipe.algorithm):
            warnings = getattr(source, "warnings", None)
            found += warnings() if callable(warnings) else list(warnings or ())
        return found

    def load_sampler(self, version: int) -> None:
        """The sampler takes the policy's present weights, as those of `version`."""
        self.policy.version = self.sampled.version = version
        if self.sampled is not self.policy:
            copy_weights(self.policy, self.sampled)
        self.sampler.load(self.sampled, version)

    def refresh_reference(self, version: int) -> None:
        """Mix the policy into the reference where the algorithm's KL schedule says so."""
        share = self.recipe.algorithm.kl.mix_at(version)
        if share == 0.0 or self.learner.reference is None:
            return
        pairs = zip(
            self.learner.reference.model.parameters(), self.policy.model.parameters(), strict=True
        )
        with torch.no_grad():
            for old, new in pairs:
                if new.requires_grad:
                    old.lerp_(new, share)

    def extra_tensors(self) -> dict[str, torch.Tensor]:
        """What a checkpoint holds besides the policy: the collector's state, the critic, and the
        reference where it moves (else the model's start gives it)."""
        found: dict[str, torch.Tensor] = {"collector.state": self.collector.tensor()}
        reference, critic = self.learner.reference, self.learner.critic
        if self.recipe.algorithm.kl.refresh_every and reference is not None:
            found |= {f"reference.{name}": whole(p) for name, p in self._own_of(reference).items()}
        if critic is not None:
            found |= {f"critic.{name}": tensor for name, tensor in critic.tensors().items()}
        return found

    def _own_of(self, reference: Policy) -> dict[str, torch.nn.Parameter]:
        """The reference's parameters but those that an adapter leaves frozen."""
        trained = {name for name, p in self.policy.model.named_parameters() if p.requires_grad}
        return {n: p for n, p in reference.model.named_parameters() if n in trained}

    def load_extra_tensors(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Put back what `extra_tensors` gave. Raises GroupwiseError where it does not fit."""

        def of(owner: str) -> dict[str, torch.Tensor]:
            start = f"{owner}."
            return {n.removeprefix(start): t for n, t in tensors.items() if n.startswith(start)}

        if "collector.state" not in tensors:
            raise GroupwiseError(
                "the checkpoint has no collector.state, which says which prompts come next: it "
                "was written by another version or changed since; start the run again"
            )
        self.collector.load_tensor(tensors["collector.state"])
        if self.learner.critic is not None:
            self.learner.critic.load_tensors(of("critic"))
        reference, stored = self.learner.reference, of("reference")
        if reference is None or not self.recipe.algorithm.kl.refresh_every:
            return
        own = self._own_of(reference)
        shapes = {name: tensor.shape for name, tensor in stored.items()}
        if shapes != {name: parameter.shape for name, parameter in own.items()}:
            raise GroupwiseError(
                f"the checkpoint does not fit the reference: it holds {len(stored)} tensors of "
                f"it, and {len(own)} of these shapes are wanted; start the run again"
            )
        for name, tensor in stored.items():
            put_(own[name], tensor)

    def close(self) -> None:
        self.collector.close()
        self.sampler.close()
        self.environment.close()
        torch.set_num_threads(self.threads_before)
        give_back_freed_memory()


def open_session(
    prepared: Prepared, schedule: Schedule | None = None, ranks: Ranks = ALONE
) -> Session:
    """Load the policy (and its frozen reference, where one is needed) and build the rest; several
    `ranks` shard what trains, and its reference.

    `schedule` are the lines of the asynchronous run that is replayed.
    """
    recipe = prepared.recipe
    policy, training = policy_of(recipe), recipe.training
    problem = why_no_replay(policy) if recipe.sampling.routing_replay else None
    if problem is not None:
        raise RecipeError(
            f"sampling.routing_replay = true: model.name = {recipe.model.name!r} cannot replay its "
            f"routing: {problem}; set it to false"
        )
    fit = fit_of(recipe, prepared.model, prepared.longest_prompt)
    if fit is not None:  # within the memory budget
        training = training.model_copy(update={"micro_batch_tokens": fit.micro_batch_tokens})
        if fit.gradient_checkpointing and not recipe.model.gradient_checkpointing:
            checkpoint_activations(policy.model)
    needs = recipe.algorithm.needs
    reference = None
    if needs.ref_logprobs or recipe.training.measure_kl:
        reference = frozen_copy(policy)
    teachers = teachers_of(prepared, policy)
    base = base_identity(policy.model) if has_adapter(policy.model) else None
    sampled = policy
    if ranks.size > 1:
        sampled = frozen_copy(policy, alone=True)
        for each in filter(None, (policy, reference)):
            shard(each, ranks)
    critic = None
    if needs.values:
        made = make_critic(policy, shared=recipe.training.critic == "shared")
        critic = CriticLearner(made, policy, recipe.algorithm, training)
    learner = Learner(
        policy,
        recipe.algorithm,
        training,
        temperature=recipe.sampling.temperature,
        divide=partial(split_rows, whole_groups=needs.whole_groups, padded=not runs_packed(policy)),
        reference=reference,
        critic=critic,
        ranks=ranks,
    )
    sampler = sampler_of(recipe.sampling, sampled, ranks)
    state = recipe.algorithm.init_state()
    if recipe.training.keep_memory and policy.device.type == "cpu":
        keep_freed_memory()
    threads_before = torch.get_num_threads()
    rows = training.prompts_per_step * recipe.sampling.group_size
    torch.set_num_threads(num_threads(training.threads, policy, rows))
    return Session(
        recipe=recipe,
        environment=prepared.environment,
        evaluation_sets=prepared.evaluation_sets,
        template=prepared.model.template,
        policy=policy,
        sampled=sampled,
        sampler=sampler,
        learner=learner,
        collector=collector_of(prepared, policy, sampler, state, schedule, ranks),
        state=state,
        teachers=teachers,
        base=base,
        threads_before=threads_before,
        ranks=ranks,
    )


def collector_of(
    prepared: Prepared,
    policy: Policy,
    sampler: Sampler,
    state: AlgorithmState,
    schedule: Schedule | None,
    ranks: Ranks,
) -> Collector:
    """The collector; one that works ahead of learning has a sampler and weights of its own, unless
    the sampler is an engine that holds weights itself."""
    recipe, environment, template = prepared.recipe, prepared.environment, prepared.model.template
    if not recipe.compute.max_staleness:
        return Collector(recipe, environment, sampler, template, state, ranks)
    own = None if recipe.sampling.servers is not None else frozen_copy(policy)
    sampler = sampler if own is None else sampler_of(recipe.sampling, own)
    return AheadCollector(recipe, environment, sampler, template, state, own, schedule)


_SMALL = 100_000_000
"""Parameters times completions of a step, below which a second thread makes no step faster: its
operations take a few microseconds, about what it takes to wake the thread."""


def num_threads(setting: int | str, policy: Policy, rows: int) -> int:
    """Threads of one operation: the setting, or by the size of the model and the rows of a step."""
    if isinstance(setting, int):
        return setting
    is_small = policy.device.type == "cpu" and policy.num_parameters * rows < _SMALL
    return 1 if is_small else torch.get_num_threads()


def teachers_of(prepared: Prepared, policy: Policy) -> Teachers | None:
    """The recipe's teachers, frozen; the policy as it is now for one that teaches itself."""
    recipe = prepared.recipe
    settings = recipe.teacher
    if settings is None:
        return None
    policies = {}
    for name in settings.names:
        if name == SELF:
            policies[name] = frozen_copy(policy)
            continue
        model = recipe.model
        policies[name] = load_policy(
            name,
            dtype=model.dtype,
            device=model.device,
            trust_remote_code=model.trust_remote_code,
            seed=recipe.seed,
        )
        policies[name].model.requires_grad_(False)
    return Teachers(
        settings,
        policies,
        prepared.environment,
        prepared.model.template,
        settings.temperature or recipe.sampling.temperature,
    )


def frozen_copy(policy: Policy, *, alone: bool = False) -> Policy:
    """The policy as it is now, without gradients: the reference.

    Under an adapter it has its own copy of the adapter and shares the frozen weights, unless it is
    `alone`.
    """
    reference = copy.copy(policy)
    reference.model = copy.deepcopy(policy.model) if alone else copy_trained(policy.model)
    reference.model.requires_grad_(False)
    reference.model.eval()
    return reference


def policy_of(recipe: Recipe) -> Policy:
    return load_policy(
        recipe.model.name,
        dtype=recipe.model.dtype,
        device=recipe.model.device,
        trust_remote_code=recipe.model.trust_remote_code,
        gradient_checkpointing=recipe.model.gradient_checkpointing,
        adapter=recipe.model.adapter,
        seed=recipe.seed,
    )


_ROWS, _TOKENS = 4, 8


def check_agreement(session: Session) -> float:
    """The mean gap, in nats, between the sampler's and the policy's log-probabilities of the same
    tokens: four completions of one prompt, of at most 8 tokens.

    Raises GroupwiseError where it is beyond the precision's tolerance.
    """
    recipe, policy = session.recipe, session.policy
    prompt = session.environment.prompts(1)[0]
    prompt_ids = session.environment.prompt_ids(prompt, session.template)
    temperature = recipe.sampling.temperature
    completions = session.sampler.sample(
        [
            Request(
                prompt_ids=prompt_ids,
                key=stream_key(recipe.seed, "probe", "agreement", row),
                max_tokens=min(_TOKENS, recipe.sampling.max_tokens),
                temperature=temperature,
            )
            for row in range(_ROWS)
        ]
    )
    ids = [list(completion.token_ids) for completion in completions]
    with torch.no_grad():
        output = sequence_logprobs(policy, [prompt_ids] * _ROWS, ids, temperature=temperature)
    gaps: list[float] = [
        abs(learner - sampler)
        for row, completion in zip(output.logprobs.tolist(), completions, strict=True)
        for learner, sampler in zip(row, completion.sampler_logprobs)  # rows are padded behind
    ]
    gap, tolerance = sum(gaps) / len(gaps), TOLERANCE.get(policy.dtype, 0.1)
    if recipe.sampling.quantise is not None:
        tolerance = QUANTISED_TOLERANCE
    if not gap <= tolerance:
        raise GroupwiseError(
            f"the sampler does not sample from the policy of version {policy.version}: on "
            f"{len(gaps)} tokens after prompt {prompt.id!r} their log-probabilities are "
            f"{gap:.3g} nats apart on average, and {tolerance} is the most that the precision "
            "explains; it holds other weights. No rollout was sampled"
        )
    return gap


def same_base(counters: Mapping[str, Any], base: Mapping[str, Any] | None) -> None:
    """Refuses a checkpoint over other frozen weights than those it was trained over.

    `counters` are the checkpoint's, `base` the policy's own `base_identity`, None without an
    adapter. Raises GroupwiseError.
    """
    before, now = counters.get("base") or {}, base or {}
    if before.get("hash") == now.get("hash"):
        return
    are, were = (
        f"{each.get('name') or 'a merged model'} ({each['hash'][:12]})"
        if each.get("hash")
        else "none"
        for each in (now, before)
    )
    raise GroupwiseError(
        "the frozen weights under the adapter are not those that the checkpoint was trained over: "
        f"they are {are} and were {were}; put the old ones back"
    )
