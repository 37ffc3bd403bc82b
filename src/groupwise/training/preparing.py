"""What a recipe needs before weights load: the data, the template, and every check of both."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import torch

from groupwise.distributed import world_size
from groupwise.environments import Environment, environment_from_settings
from groupwise.errors import RecipeError
from groupwise.evaluation import EvaluationSets, evaluation_sets
from groupwise.planning import Fit, MemoryInputs, fit_learning, shape_from_config
from groupwise.policies import ModelInfo, check_base, choose_device, choose_dtype, describe_model
from groupwise.recipe import Recipe
from groupwise.samplers.local.weights import why_not_int8
from groupwise.samplers.servers.settings import check_here
from groupwise.scorers import SELF, check_classifiers, check_teachers
from groupwise.selection import curriculum_of
from groupwise.templates import Template
from groupwise.training.process import kept_directory
from groupwise.verifiers import Composite, Verifier, check_verdicts


@dataclass(frozen=True, slots=True)
class Prepared:
    """What is known before weights load: the data, how it is encoded, and how long it is."""

    recipe: Recipe
    environment: Environment
    model: ModelInfo
    evaluation_sets: EvaluationSets
    longest_prompt: int
    mean_prompt: float


def prepare(recipe: Recipe, pending: Collection[str] = ()) -> Prepared:
    """Build the environment and the template, and check every prompt. No weights are loaded.

    `pending` are model folders that will be there once their verifiers need them.
    Raises RecipeError for data that cannot be trained on, rows named.
    """
    check_several(recipe, world_size(recipe.compute.processes))
    _check_sampler(recipe, choose_device(recipe.model.device))
    with kept_directory():
        environment = environment_from_settings(recipe.environment, seed=recipe.seed)
    if recipe.compute.max_staleness:
        _check_ahead(recipe, environment)
    _check_rewards(recipe, environment)
    for verifier in filter(None, (environment.verifier, environment.strict)):
        check_classifiers(verifier, pending)
    check_base(recipe.model.name, recipe.model.adapter, recipe.model.device)
    model = describe_model(
        recipe.model.name,
        trust_remote_code=recipe.model.trust_remote_code,
        adapter=recipe.model.adapter,
    )
    check_here(recipe.sampling.servers, adapter=model.adapter is not None)
    if model.adapter is not None:
        _check_adapter(recipe)
    if recipe.sampling.routing_replay and not model.num_routers:
        raise RecipeError(
            f"sampling.routing_replay = true: model.name = {recipe.model.name!r} has no experts "
            "that a router chooses among; set it to false"
        )
    model = replace(model, template=recipe.template.applied(model.template))
    rewriting = _rewriting(environment, model.template)
    if rewriting is not None and recipe.template.history == "refuse":
        raise RecipeError(
            f"the chat template of model.name = {recipe.model.name!r} {rewriting}, but training "
            "keeps what was sampled, so the model would be trained on chats that nobody sends it. "
            'Set template.history = "keep" to train on them all the same, or use another model'
        )
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
    if recipe.teacher is not None:
        check_teachers(
            recipe.teacher,
            model,
            environment,
            max(lengths) + recipe.sampling.max_tokens,
            recipe.model.trust_remote_code,
        )
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


def _check_ahead(recipe: Recipe, environment: Environment) -> None:
    """What cannot be sampled while the policy learns. Raises RecipeError."""
    set_to = f"compute.max_staleness = {recipe.compute.max_staleness}"
    if environment.player is not None:
        raise RecipeError(
            f"{set_to}: environment {environment.name!r} runs whole programs, which cannot be "
            "paused where the weights change, nor kept in a checkpoint; set 0"
        )
    if recipe.sampling.routing_replay:
        raise RecipeError(
            f"{set_to} with sampling.routing_replay = true: completions of a group may begin with "
            "different weights, so its prompt has no one choice of experts; set one of them off"
        )


def check_several(recipe: Recipe, processes: int) -> None:
    """What does not run on several processes. Raises RecipeError."""
    if processes == 1:
        return
    vllm = recipe.sampling.vllm
    for is_asked, field, why in (
        (
            recipe.algorithm.needs.values,
            f"algorithm {recipe.algorithm.name!r}",
            "a critic is not sharded",
        ),
        (recipe.compute.max_staleness, "compute.max_staleness", "only one process samples ahead"),
        (
            vllm is not None and vllm.sleep,
            "sampling.vllm.sleep",
            "a server would sleep while another process samples",
        ),
        (
            vllm is not None and vllm.refresh == "nccl",
            'sampling.vllm.refresh = "nccl"',
            "it was not run so",
        ),
        (recipe.sampling.routing_replay, "sampling.routing_replay", "it was not run so"),
        (
            recipe.model.in_4_bits,
            "model.adapter.base",
            "4-bit weights are not sharded",
        ),
        (
            ":" in recipe.model.device,
            f"model.device = {recipe.model.device!r}",
            "all would share it",
        ),
    ):
        if is_asked:
            raise RecipeError(
                f"{field} on {processes} processes (compute.processes, or torchrun's): {why}; use "
                "one process, or leave it out"
            )
    device = choose_device(recipe.model.device).type
    if device not in ("cpu", "cuda"):
        raise RecipeError(
            f"compute.processes = {processes}: weights are sharded on cpu and cuda, and "
            f'model.device = {recipe.model.device!r} is {device}; give 1, or device = "cpu"'
        )


def _check_rewards(recipe: Recipe, environment: Environment) -> None:
    """Whether the environment's scores hold what the algorithm reads. Raises RecipeError."""
    verifier = environment.verifier
    needs = recipe.algorithm.needs
    keep = needs.keep
    labels = list(verifier.labels) if isinstance(verifier, Composite) else []
    legal = ["accuracy", "reward", *labels]
    if keep is not None and keep.by not in legal:
        raise RecipeError(
            f"algorithm.filters: dynamic_sampling.by = {keep.by!r} is not a verifier of "
            f"environment {environment.name!r}; give one of {', '.join(legal)}"
        )
    _check_verdicts(recipe, verifier)
    is_product = isinstance(verifier, Composite) and verifier.combine == "product"
    if is_product and (needs.components or needs.step_rewards):
        read = "rewards of steps" if needs.step_rewards else "each verifier's own value"
        raise RecipeError(
            f'environment.combine = "product" makes one value a completion, but the algorithm '
            f'reads {read}; set environment.combine = "sum"'
        )
    recipe.algorithm.check(
        temperature=recipe.sampling.temperature,
        step_rewards=environment.verifier.gives_steps,
        num_components=len(verifier.labels) if isinstance(verifier, Composite) else None,
    )


def _check_verdicts(recipe: Recipe, verifier: Verifier) -> None:
    """What reads whether completions are right needs verdicts. Raises RecipeError."""
    selection, keep = recipe.selection, recipe.algorithm.needs.keep
    tables = {f"selection.{name}" for name in ("pool", "curriculum", "sizes", "replay")
              if getattr(selection, name) is not None}  # fmt: skip
    tables |= {"selection.order = 'weighted'"} if selection.order == "weighted" else set()
    by_accuracy = keep is not None and keep.by == "accuracy"
    rates = any(each.kind == "pass_rate" for each in recipe.algorithm.filters)
    tables |= {"algorithm.filters"} if by_accuracy or rates else set()
    for reader in sorted(tables):
        check_verdicts(verifier, reader)


def _check_sampler(recipe: Recipe, device: torch.device) -> None:
    """Whether the sampler gives what is asked for. Raises RecipeError."""
    problem = why_not_int8(device) if recipe.sampling.quantise is not None else None
    if problem is not None:
        raise RecipeError(f"sampling.quantise = 'int8': {problem}; leave it out")
    if recipe.sampling.servers is not None and recipe.algorithm.needs.entropies != "none":
        raise RecipeError(
            f"sampling.sampler = {recipe.sampling.sampler!r}: algorithm {recipe.algorithm.name!r} "
            "needs the entropy at every token, which servers do not give; sample with `local`"
        )


def _check_adapter(recipe: Recipe) -> None:
    """What does not go with an adapter. Raises RecipeError."""
    settings, kl = recipe.model.adapter, recipe.algorithm.kl
    if settings is not None and settings.dropout > 0:
        raise RecipeError(
            f"model.adapter.dropout = {settings.dropout}: completions are sampled and scored "
            "without dropout, and a loss with it would be of another policy; give 0"
        )
    if recipe.model.in_4_bits and recipe.sampling.servers is not None:
        raise RecipeError(
            f"model.adapter.base = 'nf4' with sampling.sampler = {recipe.sampling.sampler!r}: its "
            'servers hold the whole base, which is another model; give "whole", or '
            'sampler = "local"'
        )
    if kl.refresh_every and kl.refresh_mix != 1.0:
        raise RecipeError(
            f"algorithm.kl.refresh_mix = {kl.refresh_mix}: a mixture of two adapters does not "
            "have their rank; with an adapter give 1 (the reference becomes the policy)"
        )
    if recipe.algorithm.needs.values and recipe.training.critic == "separate":
        raise RecipeError(
            'training.critic = "separate" trains a second model of full size beside an adapter; '
            'with an adapter give "shared"'
        )


def _rewriting(environment: Environment, template: Template) -> str | None:
    """What the chat template does to earlier turns of this environment, None where it is nothing.

    Raises RecipeError where it does not take the environment's messages.
    """
    role = environment.answer_role
    if role is None:
        return None
    prompts = environment.prompts(split="all")
    system = any(message.get("role") == "system" for each in prompts for message in each.messages)
    shown = next((each for each in prompts if each.tools), prompts[0])
    found = template.rewrites(role, system=system, **environment.variables_for(shown))
    return None if found is None else f"{found} once a message of the role {role!r} follows"


def text_notes(environment: Environment, template: Template) -> list[str]:
    """What is legal and often not meant, about chats and their template."""
    notes = []
    rewriting = _rewriting(environment, template)
    if rewriting is not None:
        notes.append(f"the chat template {rewriting}; the run keeps what was sampled")
    first = environment.prompts(1)[0]
    if first.text is not None and template.chat_template is not None:
        notes.append(
            "the prompts are raw text, though the model has a chat template: right for a text to "
            "continue, wrong for a question; environment.chat = true makes a data set's texts "
            "user messages"
        )
    return notes


def fit_of(recipe: Recipe, model: ModelInfo, longest_prompt: int) -> Fit | None:
    """Micro-batch and recomputation within `training.memory_budget`; None without a budget.

    `longest_prompt` in tokens. Raises RecipeError naming the smallest budget that works.
    """
    training, needs = recipe.training, recipe.algorithm.needs
    if training.memory_budget is None:
        return None
    device = choose_device(recipe.model.device)
    dtype = choose_dtype(recipe.model.dtype, device, model.num_parameters)
    return fit_learning(
        MemoryInputs(
            shape=shape_from_config(model.config, model.num_parameters),
            dtype="bfloat16" if "bfloat16" in str(dtype) else "float32",
            optimizer=training.optimizer,
            reference=needs.ref_logprobs or training.measure_kl,
            ahead=recipe.compute.max_staleness > 0,
            gradient_checkpointing=recipe.model.gradient_checkpointing,
            tokens=training.micro_batch_tokens,
            rows=1,
            row_tokens=longest_prompt + recipe.sampling.max_tokens,
            adapter_parameters=None if model.adapter is None else model.adapter.parameters,
            critic=training.critic if needs.values else None,
            teacher_parameters=teacher_parameters(recipe, model),
            processes=world_size(recipe.compute.processes),
            nf4=recipe.model.in_4_bits,
        ),
        int(training.memory_budget * 1e9),
    )


def teacher_parameters(recipe: Recipe, model: ModelInfo) -> int:
    """Parameters that the recipe's teachers hold beside the policy; one that teaches itself is a
    copy of what trains."""
    if recipe.teacher is None:
        return 0
    own = model.num_parameters if model.adapter is None else model.adapter.parameters
    remote = recipe.model.trust_remote_code
    return sum(
        own if name == SELF else describe_model(name, trust_remote_code=remote).num_parameters
        for name in recipe.teacher.names
    )
