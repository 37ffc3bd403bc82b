"""Saves a policy as a float32 folder for transformers' Auto classes, or as a peft adapter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from groupwise.errors import RecipeError
from groupwise.policies.adapters import has_adapter, merged_copy, save_adapter
from groupwise.policies.heads import causal_lm
from groupwise.policies.policy import Policy
from groupwise.policies.quiet import quiet_transformers
from groupwise.records.files import check_place
from groupwise.templates import Template


def save_pretrained(policy: Policy, folder: str | Path, *, merge: bool = False) -> Path:
    """Write model, tokenizer, chat template and stop ids into `folder`; returns it.

    For a policy with an adapter only the adapter is saved, or with `merge` the whole model with the
    adapter merged into its weights; the policy is not changed.

    Raises RecipeError if the folder is not empty, and for `merge` without an adapter;
    GroupwiseError if the adapter's base model is in no folder.

    A model's generation config holds every stop id, so `generate` stops where the samplers do.
    """
    refuse_full(folder)
    target = Path(folder)
    adapted = has_adapter(policy.model)
    if merge and not adapted:
        raise RecipeError("merge: this policy has no adapter; drop merge to save the whole model")
    if adapted and not merge:
        save_adapter(policy.model, target)
        tokenizer_of(policy.template).save_pretrained(target)
        return target
    target.mkdir(parents=True, exist_ok=True)
    model = causal_lm(merged_copy(policy.model) if merge else policy.model)
    if getattr(model, "generation_config", None) is not None:
        model.generation_config.eos_token_id = sorted(policy.template.stop_ids) or None
        model.generation_config.pad_token_id = policy.template.pad_id
    with quiet_transformers():
        model.save_pretrained(target)
        tokenizer_of(policy.template).save_pretrained(target)
    return target


def refuse_full(folder: str | Path) -> None:
    """Raises RecipeError if `folder` is a file, not empty (nothing is overwritten) or below one."""
    target = Path(folder)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        kind = "not empty" if target.is_dir() else "a file"
        raise RecipeError(f"the folder {str(target)!r} is {kind}; name a new one for the model")
    check_place(target, "folder")


def tokenizer_of(template: Template) -> Any:
    """The template as a transformers tokenizer."""
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=template.tokenizer, **template.special_tokens
    )
    tokenizer.chat_template = template.chat_template
    return tokenizer
