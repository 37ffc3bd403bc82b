"""Models with a head that stages train: a score of a whole text, or of each token.

The head is linear on the policy's own decoder, as transformers' classifiers have it.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

from groupwise.errors import RecipeError
from groupwise.policies import (
    Policy,
    choose_dtype,
    describe_model,
    has_adapter,
    is_classifier,
    merged_copy,
)
from groupwise.policies.export import tokenizer_of
from groupwise.policies.heads import causal_lm
from groupwise.policies.quiet import quiet_transformers
from groupwise.scorers.classifiers import Task, load_classifier
from groupwise.stages.output import write_whole
from groupwise.stages.stage import Stage
from groupwise.templates import Template

LABELS: Mapping[Task, int] = {"sequence": 1, "token": 2}


def classifier_of(policy: Policy, task: Task = "sequence", *, adapted: bool = False) -> Any:
    """A policy's decoder as a classifier of whole texts (one label) or of tokens (wrong, right),
    whose head is 0 everywhere.

    With `adapted` the adapter stays, and only it and the head train; else it is merged and all
    weights train. Raises RecipeError where transformers has no such form of the model.
    """
    import transformers

    kinds = {
        "sequence": transformers.AutoModelForSequenceClassification,
        "token": transformers.AutoModelForTokenClassification,
    }
    merge = has_adapter(policy.model) and not adapted
    lm = causal_lm(merged_copy(policy.model) if merge else policy.model)
    config = copy.deepcopy(lm.config)
    config.num_labels = LABELS[task]
    config.pad_token_id = policy.template.pad_id
    try:
        with torch.device("meta"), quiet_transformers():
            model = kinds[task].from_config(config)
    except ValueError as error:
        raise RecipeError(
            f"model {policy.name!r}: transformers has no {task} classifier of this architecture "
            f"({type(lm).__name__}); start from another model"
        ) from error
    setattr(model, model.base_model_prefix, getattr(lm, lm.base_model_prefix))
    left = [name for name, tensor in model.named_parameters() if tensor.is_meta]
    heads = {name.rpartition(".")[0] for name in left}
    if len(heads) != 1 or "." in (head := heads.pop()):
        raise RecipeError(
            f"model {policy.name!r}: {type(model).__name__} has more than a linear head "
            f"({', '.join(left[:3])}); start from another model"
        )
    old = getattr(model, head)
    made = nn.Linear(
        old.in_features,
        LABELS[task],
        bias=old.bias is not None,
        device=policy.device,
        dtype=torch.float32,
    )
    for tensor in made.parameters():
        nn.init.zeros_(tensor)
    setattr(model, head, made)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(not adapted or name.startswith(head) or ".lora_" in name)
    return model.eval()


def check_start(config: Any, model: str, task: Task, adapted: bool) -> None:
    """Refuse a classifier of another kind or number of labels, or with an adapter. Raises
    RecipeError."""
    if not is_classifier(config):
        return
    kinds = ", ".join(config.architectures)
    own, wanted = f"{task.capitalize()}Classification", LABELS[task]
    if own not in kinds or config.num_labels != wanted:
        raise RecipeError(
            f"the model {model!r} is a classifier with {config.num_labels} labels ({kinds}), and "
            f"this stage trains a {task} classifier that has {wanted}; start from a language model "
            "or from what such a stage left"
        )
    if adapted:
        raise RecipeError(
            f"model.adapter: the model {model!r} is a reward model already, which is trained "
            "further as a whole; leave the adapter out, or start from a language model"
        )


def classifier_policy(stage: Stage, model: str, task: Task) -> Policy:
    """A stage's input with a head as a `Policy`, whose `model` is a classifier; a language model
    gets a head of zeros."""
    remote = stage.model.trust_remote_code
    info = describe_model(model, trust_remote_code=remote, classifier=True)
    if not is_classifier(info.config):
        policy = stage.policy(model)
        policy.model = classifier_of(policy, task, adapted=stage.model.adapter is not None)
        return policy
    found = load_classifier(model, task, stage.model.device, remote)
    template = stage.template.applied(info.template)
    dtype = choose_dtype(stage.model.dtype, found.device, info.num_parameters)
    return Policy(model, found.model, template, found.device, dtype, info.max_length)


def write_classifier(policy: Policy, folder: Path, *, adapted: bool) -> Path:
    """Write a classifier with its tokenizer as `folder/model`, an adapter merged into its weights;
    returns its path."""
    model: Any = merged_copy(policy.model) if adapted else policy.model

    def write(target: Path) -> None:
        target.mkdir(parents=True)
        with quiet_transformers():
            model.save_pretrained(target)
            tokenizer_of(policy.template).save_pretrained(target)

    return write_whole(folder, write)


@lru_cache(maxsize=2)
def tokenizer_at(template: Template) -> Any:
    """The template's tokenizer, by which a verifier reads."""
    return tokenizer_of(template)
