"""Computes logits, in float32 or, while decoding, in bfloat16 with nearly the same accuracy.

bfloat16 products are added up in float32 but rounded to 8 bits at the end: a logit near 20 is off
by up to 0.06. `near` takes the best logit of the row's last token away before that rounding, by
columns of ones in the matrix and the negated logit, in three parts, in the states; what is rounded
is then small where the probability is. A row's logits depend on its own tokens alone.
Shapes: n rows, D hidden, V vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from groupwise.policies.adapters import effective_bias, effective_weight
from groupwise.policies.heads import Head
from groupwise.samplers.local.weights import EXPECTED_ROWS, Int8Weight, can_pack

# Columns added to the matrix: three hold a shift to 24 bits, the others keep the width even.
_EXTRA = 32
_PARTS = 3


class SamplingHead:
    """The output layer of a policy, kept in step with it by `refresh`.

    With `pack` matrices are laid out for oneDNN; with `half` (a bfloat16 policy whose logits are
    not changed after the layer) `near` is in bfloat16, with `quantise` in int8. `absent` [A] are
    ids that no token has: their logits are -inf.
    """

    def __init__(
        self,
        head: Head,
        *,
        pack: bool,
        half: bool,
        quantise: bool = False,
        absent: Tensor | None = None,
    ) -> None:
        self.layer: nn.Module = head.linear
        self.rule = head.rule
        self.absent = absent
        self.dtype = torch.promote_types(head.dtype, torch.float32)
        weight = effective_weight(self.layer)
        unchanged = head.rule.scale == 1.0 and head.rule.softcap is None
        self.quantise = quantise
        self.largest: Tensor | None = None
        possible = pack and unchanged and not quantise
        self.half = half and possible and can_pack(torch.bfloat16, weight.device)
        self.packs = pack and not self.half and can_pack(self.dtype, weight.device)
        if not quantise:
            self.refresh()

    @torch.no_grad()
    def refresh(self) -> None:
        """Take the layer's present weights."""
        self.weight = effective_weight(self.layer).to(self.dtype)
        bias = effective_bias(self.layer)
        self.bias = None if bias is None else bias.to(self.dtype)
        if self.quantise:
            self.int8 = Int8Weight(self.weight, self.largest)
        if self.half:
            vocabulary, width = self.weight.shape
            wide = torch.zeros(vocabulary, width + _EXTRA, dtype=torch.bfloat16)
            wide[:, :width] = self.weight
            wide[:, width : width + _PARTS] = 1.0
            self.packed = torch.ops.mkldnn._reorder_linear_weight(wide, EXPECTED_ROWS)
            self.half_bias = None if bias is None else bias.to(torch.bfloat16)
        elif self.packs:
            self.packed = torch.ops.mkldnn._reorder_linear_weight(
                self.weight.contiguous(), EXPECTED_ROWS
            )

    def exact(self, states: Tensor) -> Tensor:
        """[n, D] to logits [n, V], float32 or better."""
        states = states.to(self.dtype)
        if self.packs:
            raw = torch.ops.mkldnn._linear_pointwise(states, self.packed, self.bias, "none", [], "")
        else:
            raw = functional.linear(states, self.weight, self.bias)
        return self._masked(self.rule.apply_(raw))

    def near(self, states: Tensor, best: Tensor) -> Tensor:
        """The same up to a constant a row, for rows whose last best logit was `best` [n]."""
        if self.quantise:
            raw = self.int8(states.float())
            return self._masked(self.rule.apply_(raw if self.bias is None else raw + self.bias))
        if not self.half:
            return self.exact(states)
        n, width = states.shape
        wide = torch.zeros((n, width + _EXTRA), dtype=torch.bfloat16, device=states.device)
        wide[:, :width] = states
        rest = -best.to(torch.float32)
        for part in range(_PARTS):
            wide[:, width + part] = rest
            rest = rest - wide[:, width + part].float()
        raw = torch.ops.mkldnn._linear_pointwise(wide, self.packed, self.half_bias, "none", [], "")
        return self._masked(raw.float())

    def _masked(self, logits: Tensor) -> Tensor:
        return logits if self.absent is None else logits.index_fill_(1, self.absent, -torch.inf)
