"""`Policy`: a causal language model with its template, device and precision."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from groupwise.templates import Template


@dataclass
class Policy:
    """A model, its template and how it computes. The same object is trained and sampled from.

    `model` is a transformers causal language model with float32 parameters: they are the master
    weights. `dtype` is the precision of its matrix products: under bfloat16 they run in autocast,
    the residual stream stays float32. `version` is the number of finished steps.
    `max_length` is the longest sequence (prompt and completion) the model has positions for.
    `root` is what passes go through where the weights are sharded over processes.
    """

    name: str
    model: nn.Module
    template: Template
    device: torch.device
    dtype: torch.dtype
    max_length: int
    version: int = 0
    root: nn.Module | None = None

    def compute(self) -> Any:
        """The context in which this policy's forward passes run."""
        if self.dtype == torch.float32:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=self.dtype)

    @cached_property
    def absent_ids(self) -> Tensor | None:
        """[A] ids that the output layer has a row for and the tokenizer no token, None without any.

        Their logits count as -inf: they are never sampled and have no share in any probability.
        """
        config: Any = self.model.config
        absent = self.template.absent_ids(config.get_text_config(decoder=True).vocab_size)
        return torch.tensor(absent, device=self.device) if absent else None

    @property
    def num_parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.model.parameters())

    @property
    def num_trained(self) -> int:
        """Parameters that train: all of them, or an adapter's."""
        return sum(p.numel() for p in self.model.parameters() if p.requires_grad)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Turns dropout off inside; restores every module's training flag afterwards."""
    was_training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in was_training:
            module.training = True
