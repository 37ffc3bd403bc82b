"""Splits a causal language model into decoder, head, and what the model does to its logits.

Families differ in what they do after the head (a scale, a soft cap). Which of the config's numbers
apply is found once a model, by comparing with its own logits on a few tokens.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from groupwise.errors import GroupwiseError, NonFiniteError
from groupwise.policies.policy import evaluating


@dataclass(frozen=True)
class LogitRule:
    """`logits = cap(scale * raw)`, `cap(x) = softcap * tanh(x / softcap)` where there is one."""

    scale: float = 1.0
    softcap: float | None = None

    def apply_(self, raw: Tensor) -> Tensor:
        """The model's logits from the head's output, in place."""
        if self.scale != 1.0:
            raw.mul_(self.scale)
        if self.softcap is not None:
            raw.div_(self.softcap).tanh_().mul_(self.softcap)
        return raw

    def backward_(self, grad: Tensor, logits: Tensor) -> Tensor:
        """The gradient at the head's output from that at `logits`, in place."""
        if self.softcap is not None:
            grad.mul_(1.0 - (logits / self.softcap).square_())
        if self.scale != 1.0:
            grad.mul_(self.scale)
        return grad


@dataclass(frozen=True)
class Head:
    """A model taken apart: ids -> `decoder` -> hidden states -> `linear` -> `rule` -> logits."""

    decoder: nn.Module
    linear: nn.Module
    rule: LogitRule

    @property
    def dtype(self) -> torch.dtype:
        """The head's own precision, which its product is taken in."""
        return next(self.linear.parameters()).dtype

    def hidden_states(self, input_ids: Tensor) -> Tensor:
        """[B, S] int64 right-padded ids to [B, S, D].

        No attention mask is needed: padding stands behind every real token, and a causal model
        does not look ahead. Positions count from 0 in every row.
        """
        return self.decoder(input_ids=input_ids, use_cache=False).last_hidden_state  # type: ignore[no-any-return]


_HEADS: weakref.WeakKeyDictionary[nn.Module, Head] = weakref.WeakKeyDictionary()


def causal_lm(model: nn.Module) -> Any:
    """The causal language model inside an adapter's wrapper, or the model itself."""
    inner = getattr(model, "get_base_model", None)
    return inner() if callable(inner) else model


def text_config(model: nn.Module) -> Any:
    """The configuration of the text decoder."""
    return causal_lm(model).config.get_text_config(decoder=True)


def head_of(model: nn.Module) -> Head:
    """The model's `Head`, checked once against its own logits.

    Raises GroupwiseError where no rule explains the model's logits.
    """
    known = _HEADS.get(model)
    lm = causal_lm(model)
    if known is None or known.linear is not lm.get_output_embeddings():
        known = _find_head(model)
        _HEADS[model] = known
    return known


def _find_head(model: nn.Module) -> Head:
    lm = causal_lm(model)
    decoder, linear = lm.get_decoder(), lm.get_output_embeddings()
    if linear is None or decoder is lm:
        raise GroupwiseError(
            f"{type(lm).__name__} does not expose a decoder and an output layer; "
            "load a causal language model"
        )
    device = next(lm.parameters()).device
    vocabulary = int(text_config(model).vocab_size)
    ids = (torch.arange(1, 5, device=device) * 7919 % vocabulary).unsqueeze(0)
    with torch.no_grad(), evaluating(lm):
        expected = lm(input_ids=ids, use_cache=False).logits.float()
        raw = linear(decoder(input_ids=ids, use_cache=False).last_hidden_state).float()
    if not bool(torch.isfinite(expected).all()):
        raise NonFiniteError(
            f"the logits of {type(lm).__name__} are not finite: its weights are damaged"
        )
    size = float(expected.abs().max())
    for rule in _candidates(text_config(model)):
        error = float((rule.apply_(raw.clone()) - expected).abs().max())
        if error <= 1e-3 * size + 1e-6:
            return Head(decoder, linear, rule)
    raise GroupwiseError(
        f"{type(lm).__name__} changes its logits after the output layer in an unsupported way "
        "(only a scale or a soft cap named in its config is supported)"
    )


def _candidates(config: Any) -> list[LogitRule]:
    """Rules that the config's fields suggest, most specific first; families disagree on the use."""
    scales: list[float] = []
    for name in ("logits_scaling", "logit_scale", "lm_head_multiplier", "output_multiplier"):
        value = getattr(config, name, None)
        if isinstance(value, int | float) and value:
            scales.extend((1.0 / value, float(value)))
    caps: list[float | None] = []
    for name in ("final_logit_softcapping", "logits_soft_cap"):
        value = getattr(config, name, None)
        if isinstance(value, int | float) and value:
            caps.append(float(value))
    return [LogitRule(scale, cap) for cap in [*caps, None] for scale in [*scales, 1.0]]
