"""A classifier and its tokenizer from a folder or a hub id, refused if its head is not trained.

transformers gives a checkpoint without a classification head a random one and a warning; a reward
from that is noise, so it is an error here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch

from groupwise.errors import RecipeError
from groupwise.policies import choose_device
from groupwise.policies.quiet import quiet_transformers

Task = Literal["sequence", "token"]


@dataclass(frozen=True, slots=True)
class Classifier:
    """`model` in evaluation mode on `device`, float32; `max_length` in tokens."""

    model: Any
    tokenizer: Any
    device: torch.device
    max_length: int


def load_classifier(name: str, task: Task, device: str, trust_remote_code: bool) -> Classifier:
    """Raises RecipeError: no such model, no head of that kind, an untrained head, no tokenizer."""
    import transformers

    kinds = {
        "sequence": transformers.AutoModelForSequenceClassification,
        "token": transformers.AutoModelForTokenClassification,
    }
    chosen = choose_device(device)
    with quiet_transformers():
        try:
            tokenizer = transformers.AutoTokenizer.from_pretrained(
                name, trust_remote_code=trust_remote_code
            )
            model, info = kinds[task].from_pretrained(
                name,
                dtype=torch.float32,
                trust_remote_code=trust_remote_code,
                output_loading_info=True,
            )
        except (OSError, ValueError, KeyError) as error:
            first = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise RecipeError(f"model = {name!r}: no {task} classifier loads: {first}") from error
    missing = sorted(info["missing_keys"])
    if missing:
        raise RecipeError(
            f"model = {name!r} has no trained weights for {', '.join(missing[:3])}: it is not a "
            f"{task} classifier; give a reward model's folder or hub id"
        )
    model.to(chosen)
    model.eval()
    limits = [getattr(model.config, "max_position_embeddings", None), tokenizer.model_max_length]
    known = [int(limit) for limit in limits if limit is not None and limit < 10**9]
    return Classifier(model, tokenizer, chosen, min(known, default=10**9))
