"""From a recipe to everything a run holds: data first, weights after every check has passed.

Left out: the loop (train.py) and the record. `prepare` builds and checks what is cheap
(environment, template, prompts); `open_session` loads the weights and wires the rooms together.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from groupwise.algorithms import AlgorithmState
from groupwise.batches import split_rows
from groupwise.checkpoints import (
    best_checkpoint,
    checkpoint_steps,
    load_checkpoint,
    newest_complete,
    restore_model,
)
from groupwise.environments import Environment, environment_from_settings
from groupwise.errors import GroupwiseError, RecipeError
from groupwise.evaluation import EvaluationSets, evaluate, evaluation_sets
from groupwise.learner import CriticLearner, Learner, TrainingSettings
from groupwise.policies import (
    ModelInfo,
    Policy,
    base_identity,
    checkpoint_activations,
    choose_device,
    copy_trained,
    describe_model,
    has_adapter,
    load_policy,
    make_critic,
    runs_packed,
)
from groupwise.recipe import Recipe, find_recipe, load_recipe
from groupwise.samplers import Sampler, make_sampler
from groupwise.selection import curriculum_of
from groupwise.templates import Template
from groupwise.training.adapted import check_adapter, same_base
from groupwise.training.chats import check_turns, text_notes
from groupwise.training.collecting import Collector
from groupwise.training.directory import kept_directory
from groupwise.training.fitting import fit_of
from groupwise.training.freed_memory import give_back_freed_memory, keep_freed_memory
from groupwise.verifiers import Composite


@dataclass(frozen=True, slots=True)
class Prepared:
    """What is known before weights load: the data, how it is encoded, and how long it is."""

    recipe: Recipe
    environment: Environment
    model: ModelInfo
    evaluation_sets: EvaluationSets
    longest_prompt: int
    mean_prompt: float


def prepare(recipe: Recipe) -> Prepared:
    """Build the environment and the template, and check every prompt. No weights are loaded.

    Raises RecipeError for data that cannot be trained on, rows named.
    """
    choose_device(recipe.model.device)
    with kept_directory():
        environment = environment_from_settings(recipe.environment, seed=recipe.seed)
    _check_rewards(recipe, environment)
    model = describe_model(
        recipe.model.name,
        trust_remote_code=recipe.model.trust_remote_code,
        adapter=recipe.model.adapter,
    )
    if model.adapter is not None:
        check_adapter(recipe)
    model = replace(model, template=recipe.template.applied(model.template))
    check_turns(recipe, environment, model.template)
    environment.limits = replace(environment.limits, length=model.max_length)
    room = model.max_length - recipe.sampling.max_tokens
    lengths = environment.fit(
        lambda prompt: len(environment.prompt_ids(prompt, model.template)),
        room,
        drop=recipe.environment.drop_too_long,
        advice=f"model.name = {recipe.model.name!r} has positions for {model.max_length} tokens, "
        f"and sampling.max_tokens = {recipe.sampling.max_tokens} leaves {room} for a prompt. "
        "Shorten these prompts, lower sampling.max_tokens, or set environment.drop_too_long = true",
    ).values()
    curriculum_of(environment, recipe.selection)
    fit_of(recipe, model, max(lengths))
    return Prepared(
        recipe=recipe,
        environment=environment,
        model=model,
        evaluation_sets=evaluation_sets(environment, recipe.evaluation, seed=recipe.seed),
        longest_prompt=max(lengths),
        mean_prompt=sum(lengths) / len(lengths),
    )


def _check_rewards(recipe: Recipe, environment: Environment) -> None:
    """Whether the environment's scores hold what the algorithm reads. Raises RecipeError."""
    verifier = environment.verifier
    needs = recipe.algorithm.needs
    keep = needs.keep
    labels = list(verifier.labels) if isinstance(verifier, Composite) else []
    if keep is not None and keep.by not in ("accuracy", "reward", *labels):
        raise RecipeError(
            f"algorithm.filters: dynamic_sampling.by = {keep.by!r} is no verifier of environment "
            f"{environment.name!r}; it is one of {', '.join(['accuracy', 'reward', *labels])}"
        )
    is_product = isinstance(verifier, Composite) and verifier.combine == "product"
    if is_product and (needs.components or needs.step_rewards):
        read = "rewards of steps" if needs.step_rewards else "each verifier's own value"
        raise RecipeError(
            f'environment.combine = "product" makes one value a completion, but the algorithm '
            f'reads {read}; set environment.combine = "sum"'
        )
    recipe.algorithm.check(
        temperature=recipe.sampling.temperature,
        step_rewards=environment.gives_steps,
        num_components=len(verifier.labels) if isinstance(verifier, Composite) else None,
    )


@dataclass(slots=True)
class Session:
    """Everything a run holds in memory. `tokens_total` is its only counter beside the learner's
    and the collector's state."""

    recipe: Recipe
    environment: Environment
    evaluation_sets: EvaluationSets
    template: Template
    policy: Policy
    sampler: Sampler
    learner: Learner
    collector: Collector
    state: AlgorithmState
    tokens_total: int = 0
    first_step: int = 0
    seconds_before: float = 0.0
    base: dict[str, str | None] | None = None

    def counters(self, seconds: float) -> dict[str, Any]:
        """What a checkpoint holds beside weights and optimiser; `seconds` since the run began."""
        return {
            "base": self.base,
            "seconds": seconds,
            "learner": self.learner.state_dict(),
            "tokens_total": self.tokens_total,
            "algorithm": self.state.state_dict(),
        }

    def load_counters(self, counters: Mapping[str, Any], step: int) -> None:
        """Put back what `counters` gave. GroupwiseError where the frozen weights are others now."""
        same_base(counters, self.base)
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
                if old is not new:  # an adapter's base is shared
                    old.lerp_(new, share)

    def extra_tensors(self) -> dict[str, torch.Tensor]:
        """What a checkpoint holds beside the policy: the collector's state, the critic, and the
        reference where it moves (else the model's start gives it)."""
        found: dict[str, torch.Tensor] = {"collector.state": self.collector.tensor()}
        reference, critic = self.learner.reference, self.learner.critic
        if self.recipe.algorithm.kl.refresh_every and reference is not None:
            found |= {f"reference.{name}": p for name, p in self._own_of(reference).items()}
        if critic is not None:
            found |= {f"critic.{name}": tensor for name, tensor in critic.tensors().items()}
        return found

    def _own_of(self, reference: Policy) -> dict[str, torch.nn.Parameter]:
        """The reference's parameters that it does not share with the policy."""
        shared = {id(parameter) for parameter in self.policy.model.parameters()}
        named = reference.model.named_parameters()
        return {name: parameter for name, parameter in named if id(parameter) not in shared}

    def load_extra_tensors(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Put back what `extra_tensors` gave. Raises GroupwiseError where it does not fit."""
        groups: dict[str, dict[str, torch.Tensor]] = {
            "collector": {},
            "reference": {},
            "critic": {},
        }
        for name, tensor in tensors.items():
            owner, _, rest = name.partition(".")
            groups.setdefault(owner, {})[rest] = tensor
        if "state" not in groups["collector"]:
            raise GroupwiseError(
                "the checkpoint has no collector.state, which says which prompts come next: it "
                "was written by another version or changed since; start the run again"
            )
        self.collector.load_tensor(groups["collector"]["state"])
        self._load_reference(groups["reference"])
        if self.learner.critic is not None:
            self.learner.critic.load_tensors(groups["critic"])

    def _load_reference(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Put back a reference that moves; any other is the model's start."""
        reference = self.learner.reference
        if reference is None or not self.recipe.algorithm.kl.refresh_every:
            return
        own = self._own_of(reference)
        shapes = {name: tensor.shape for name, tensor in tensors.items()}
        if shapes != {name: parameter.shape for name, parameter in own.items()}:
            raise GroupwiseError(
                f"the checkpoint does not fit the reference: it holds {len(tensors)} tensors of "
                f"it, and {len(own)} of these shapes are wanted; start the run again"
            )
        with torch.no_grad():
            for name, tensor in tensors.items():
                own[name].copy_(tensor)

    def close(self) -> None:
        self.sampler.close()
        self.environment.close()
        give_back_freed_memory()


def _fitted(prepared: Prepared, policy: Policy) -> TrainingSettings:
    """The training settings within the memory budget; the policy recomputes activations if need
    be."""
    recipe = prepared.recipe
    fit = fit_of(recipe, prepared.model, prepared.longest_prompt)
    if fit is None:
        return recipe.training
    if fit.gradient_checkpointing and not recipe.model.gradient_checkpointing:
        checkpoint_activations(policy.model)
    return recipe.training.model_copy(update={"micro_batch_tokens": fit.micro_batch_tokens})


def open_session(prepared: Prepared) -> Session:
    """Load the policy (and its frozen reference, where one is needed) and build the rest."""
    recipe = prepared.recipe
    policy = policy_of(recipe)
    training = _fitted(prepared, policy)
    needs = recipe.algorithm.needs
    reference = None
    if needs.ref_logprobs or recipe.training.measure_kl:
        reference = frozen_copy(policy)
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
    )
    sampler = sampler_of(recipe, policy)
    state = recipe.algorithm.init_state()
    if recipe.training.keep_memory and policy.device.type == "cpu":
        keep_freed_memory()
    return Session(
        recipe=recipe,
        environment=prepared.environment,
        evaluation_sets=prepared.evaluation_sets,
        template=prepared.model.template,
        policy=policy,
        sampler=sampler,
        learner=learner,
        collector=Collector(recipe, prepared.environment, sampler, prepared.model.template, state),
        state=state,
        base=base_identity(policy.model) if has_adapter(policy.model) else None,
    )


def sampler_of(recipe: Recipe, policy: Policy) -> Sampler:
    """The sampler that a recipe asks for, over this policy."""
    settings = recipe.sampling
    return make_sampler(
        settings.sampler,
        policy,
        batch_rows=settings.batch_rows,
        cache_gigabytes=settings.cache_gigabytes,
    )


def frozen_copy(policy: Policy) -> Policy:
    """The policy as it is now, without gradients: the reference.

    Under an adapter it has its own copy of the adapter and shares the frozen weights.
    """
    reference = copy.copy(policy)
    reference.model = copy_trained(policy.model)
    reference.model.requires_grad_(False)
    reference.model.eval()
    return reference


def evaluate_source(
    source: str | Path,
    overrides: Mapping[str, Any] | None = None,
    *,
    step: int | None = None,
    best: bool = False,
) -> dict[str, float | int | None]:
    """The evaluation metrics of a run's checkpoint, or of a recipe's model as it is.

    `source` is a run's folder or a recipe; `overrides` as in `load_recipe` (more samples, other
    splits). Raises RecipeError.
    """
    is_run = (Path(source) / "recipe.toml").is_file()
    file = Path(source) / "recipe.toml" if is_run else find_recipe(str(source))
    prepared = prepare(load_recipe(file, overrides))
    recipe = prepared.recipe
    policy = trained_policy(source, step=step, best=best) if is_run else policy_of(recipe)
    sampler = sampler_of(recipe, policy)
    try:
        result = evaluate(
            prepared.environment,
            sampler,
            prepared.model.template,
            settings=recipe.evaluation,
            sampling=recipe.sampling,
            seed=recipe.seed,
            version=policy.version,
            sets=prepared.evaluation_sets,
        )
    finally:
        sampler.close()
        prepared.environment.close()
    return dict(result.metrics)


def trained_policy(run: str | Path, *, step: int | None = None, best: bool = False) -> Policy:
    """The policy of a run's checkpoint: the newest, the one after `step` steps, or the best.

    `best` goes by the recipe's `checkpoints.best`. Raises RecipeError where there is none.
    """
    folder = Path(run)
    if not (folder / "recipe.toml").is_file():
        raise RecipeError(f"{str(folder)!r} holds no run (no recipe.toml)")
    recipe = load_recipe(folder / "recipe.toml")
    path = _checkpoint_path(folder / "checkpoints", recipe, step, best)
    policy = policy_of(recipe)
    checkpoint = load_checkpoint(path)
    if has_adapter(policy.model):
        same_base(checkpoint.state, base_identity(policy.model))
    restore_model(policy.model, checkpoint)
    policy.version = checkpoint.step
    return policy


def _checkpoint_path(folder: Path, recipe: Recipe, step: int | None, best: bool) -> Path:
    steps = checkpoint_steps(folder)
    if step is not None:
        if step not in steps:
            raise RecipeError(f"step = {step}: no such checkpoint in {folder}; there are {steps}")
        return folder / f"step_{step:06d}"
    if best:
        metric, direction = recipe.checkpoints.best, recipe.checkpoints.direction
        if metric is None or direction is None:
            raise RecipeError("the run's recipe names no checkpoints.best; give a step")
        found = best_checkpoint(folder, metric, direction)
    else:
        found = newest_complete(folder)
    if found is None:
        raise RecipeError(f"{folder} holds no complete checkpoint yet")
    return found


def policy_of(recipe: Recipe) -> Policy:
    """The policy that a recipe starts from."""
    return load_policy(
        recipe.model.name,
        dtype=recipe.model.dtype,
        device=recipe.model.device,
        trust_remote_code=recipe.model.trust_remote_code,
        gradient_checkpointing=recipe.model.gradient_checkpointing,
        adapter=recipe.model.adapter,
        seed=recipe.seed,
    )
