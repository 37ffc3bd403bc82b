# ruff: noqa: RUF009 (the defaults are frozen dataclasses)
"""An algorithm: a frozen dataclass of parts, one a slot, and the few verbs that run them.

A new method is a new part or a new composition (`presets.py`); nothing here knows any method.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Unpack

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from groupwise.algorithms import advantage, legality, loss
from groupwise.algorithms.baselines import NoBaseline
from groupwise.algorithms.contracts import (
    Anchor,
    Filtered,
    LossOutput,
    LossTerms,
    Needs,
    UpdateInputs,
    UpdatePlan,
)
from groupwise.algorithms.corrections import NoCorrection
from groupwise.algorithms.extras import Extra
from groupwise.algorithms.filters import Filter, FilterInputs
from groupwise.algorithms.groups import make_groups, refuse_infinite
from groupwise.algorithms.kl import Kl
from groupwise.algorithms.parts import Part, as_part, merge_needs
from groupwise.algorithms.ratios import NoRatio
from groupwise.algorithms.scales import NoScale
from groupwise.algorithms.shapers import ShaperInputs
from groupwise.algorithms.signals import StepInputs
from groupwise.algorithms.spreads import Broadcast
from groupwise.algorithms.state import AlgorithmState
from groupwise.algorithms.surrogates import LogProb
from groupwise.algorithms.transforms import Identity
from groupwise.algorithms.weights import PerSequenceSum

SLOTS = (
    "transform", "baseline", "scale", "spread", "ratio", "surrogate", "weight", "correction",
)  # fmt: skip
LISTS = ("filters", "shapers", "extras")


@dataclass(frozen=True)
class Algorithm:
    """One choice a slot; prints, compares, pickles, and loads from TOML by name.

    A slot's value is a small frozen dataclass or a plain function with the same arguments. `preset`
    is the entry that it was made from, "" for a composition of its own. Raises RecipeError where
    the parts cannot work together.

    >>> from groupwise.algorithms import preset
    >>> preset("dr_grpo").advantages([[1.0, 0.0]]).tolist()
    [[0.5, -0.5]]
    """

    name: str
    transform: Part = Identity()
    baseline: Part = NoBaseline()
    scale: Part = NoScale()
    spread: Part = Broadcast()
    anchor: Anchor = "none"
    ratio: Part = NoRatio()
    surrogate: Part = LogProb()
    weight: Part = PerSequenceSum()
    kl: Kl = Kl()
    correction: Part = NoCorrection()
    filters: tuple[Filter, ...] = ()
    shapers: tuple[Part, ...] = ()
    extras: tuple[Extra, ...] = ()
    preset: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        for slot in SLOTS:
            object.__setattr__(self, slot, as_part(slot, getattr(self, slot)))
        for slot in LISTS:
            made = (as_part(slot, x, functions=slot == "shapers") for x in getattr(self, slot))
            object.__setattr__(self, slot, tuple(made))
        legality.refuse(self)

    @property
    def parts(self) -> tuple[Part, ...]:
        """Every part, slot by slot."""
        single = tuple(getattr(self, slot) for slot in SLOTS)
        return (*single, self.kl, *self.filters, *self.shapers, *self.extras)

    @property
    def needs(self) -> Needs:
        """What the loop has to provide."""
        return merge_needs(each.needs for each in self.parts).anchored_to(self.anchor)

    @property
    def warnings(self) -> list[str]:
        """Legal combinations that look like a mistake, with the reason."""
        return legality.warnings(self)

    def check(self, **recipe: Any) -> list[str]:
        """Refuse (RecipeError) what the recipe makes impossible; return the warnings.

        `recipe`: the keywords of `legality.check_context`.
        """
        legality.check_context(self, **recipe)
        return self.warnings

    def init_state(self) -> AlgorithmState:
        """A fresh memory for the stateful parts; empty for the others."""
        return AlgorithmState()

    def wants(self, prompt_id: str, state: AlgorithmState | None) -> bool:
        """False where a filter knows from the history that the prompt should not be sampled."""
        return all(each.wants(prompt_id, state) for each in self.filters)

    def saw(
        self, prompt_id: str, accuracies: Sequence[float], state: AlgorithmState | None
    ) -> None:
        """A group that was sampled and does not reach `filter_mask`: filters with a memory count
        it. `accuracies` are those of its scored completions."""
        if state is not None:
            for each in self.filters:
                each.saw(prompt_id, accuracies, state)

    def shape_rewards(
        self,
        rewards: Tensor,
        *,
        lengths: Tensor,
        truncated: Tensor,
        max_tokens: int,
        entropies: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Float[Tensor, " B"]:
        """Rewards [B] with every shaper's amount added; NaN stays NaN.

        A truncated row that the overlong mask keeps out of the statistics becomes NaN (not scored).
        """
        dtype = rewards.dtype if rewards.is_floating_point() else torch.get_default_dtype()
        out = rewards.to(dtype)
        inputs = ShaperInputs(lengths.to(dtype), truncated.bool(), max_tokens, entropies, mask)
        for shaper in self.shapers:
            out = out + shaper(inputs).to(dtype)
        for each in self.filters:
            unscored = each.unscored(inputs.truncated)
            out = out if unscored is None else torch.where(unscored, torch.nan, out)
        return out

    def advantages(
        self, rewards: Any, group_ids: Any = None, **inputs: Unpack[StepInputs]
    ) -> Tensor:
        """Advantages of a step: the rewards' shape, or [B, T] where they are per token.

        `rewards` [P, G], or [B] with `group_ids` [B] (any order, any sizes); NaN = not scored: its
        advantage is 0 and it is outside every statistic. `components` [..., R]; `step_rewards` and
        `step_ends` one list a row; `mask`, `entropies`, `old_logprobs`, `ref_logprobs`, `values`,
        `teacher_logprobs` (NaN in rows without a teacher) [B, T]; `greedy_rewards` and `prompt_ids`
        one a prompt (ascending group id) or one a row. `state` is updated in place; None = the
        first visit of every prompt. Raises ValueError naming the part whose input is missing, or
        the rewards where one is infinite.
        """
        given = torch.as_tensor(rewards)
        out, _ = advantage.run(self, given, group_ids, **inputs)
        return out.reshape(given.shape) if out.dim() == 1 else out

    def returns(self, rewards: Any, group_ids: Any = None, **inputs: Unpack[StepInputs]) -> Tensor:
        """The critic's targets [B, T], from advantages before whitening (comparator only).

        `inputs` as in `advantages`: mask and values, and the log-probabilities of a KL term.
        """
        _, returns = advantage.run(self, torch.as_tensor(rewards), group_ids, **inputs)
        if returns is None:
            raise ValueError(f"algorithm {self.name!r} has no critic, so no returns")
        return returns

    def filter_mask(
        self,
        mask: Tensor,
        *,
        rewards: Tensor,
        group_ids: Any,
        truncated: Tensor,
        unshaped: Tensor | None = None,
        accuracies: Tensor | None = None,
        prompt_ids: Sequence[str] | None = None,
        state: AlgorithmState | None = None,
    ) -> Filtered:
        """The mask [B, T] without the rows that do not train, and how many each filter took.

        `rewards` [B] after the shapers (NaN = not scored); `unshaped` [B] before them (default: the
        rewards); `accuracies` [B] of the verdicts (default: the unshaped rewards). A row can be
        counted by several filters.
        """
        out = mask.bool()
        groups = make_groups(torch.as_tensor(group_ids, device=out.device).long())
        flat = rewards.to(out.device)
        refuse_infinite("rewards", flat)
        before = flat if unshaped is None else unshaped.to(out.device)
        inputs = FilterInputs(
            rewards=flat,
            unshaped=before,
            accuracies=before if accuracies is None else accuracies.to(out.device),
            truncated=truncated.bool().to(out.device),
            groups=groups,
            prompt_ids=advantage.group_names(prompt_ids, groups),
            state=state,
        )
        scored = ~flat.isnan()
        counts = {"filter/unscored_rows": float((~scored).sum())}
        keep = scored
        for each in self.filters:
            stays = each.rows(inputs)
            if stays is not None:
                counts[f"filter/{each.name}"] = float((scored & ~stays).sum())
                keep = keep & stays
        return Filtered(out & keep.unsqueeze(1), counts)

    def plan_update(
        self,
        mask: Tensor,
        *,
        group_ids: Any = None,
        max_tokens: int | None = None,
        entropies: Tensor | None = None,
        logprobs: Tensor | None = None,
        advantages: Tensor | None = None,
        equal_prompts: bool = False,
    ) -> UpdatePlan:
        """Everything that one optimiser update decides from its whole mask [B, T].

        `logprobs` [B, T] are those at the start of the update, `advantages` [B] or [B, T]; a part
        that chooses tokens reads them. `equal_prompts`: every prompt has the same share of the
        loss, whatever its group's size (needs `group_ids`). With several ranks, give the gathered
        mask of all of them and take `plan.rows(own rows)`.
        """
        keep_mask = mask.bool()
        index = rows = None
        if group_ids is not None:
            index = make_groups(torch.as_tensor(group_ids, device=mask.device).long()).index
            trained = keep_mask.any(1).long()
            size = int(index.max()) + 1 if len(index) else 0
            per_group = torch.zeros(size, dtype=torch.long, device=mask.device)
            rows = per_group.index_add(0, index, trained)[index]
        if advantages is not None and advantages.dim() == 1:
            advantages = advantages.unsqueeze(1).expand(mask.shape)
        update = UpdateInputs(keep_mask, entropies, logprobs, advantages)
        keep: Bool[Tensor, "B T"] | None = None
        for each in self.filters:
            spoken = each.planned(update)
            if spoken is not None:
                keep = spoken if keep is None else keep & spoken
        weight = self.weight(keep_mask, index, max_tokens)
        if equal_prompts:
            if rows is None:
                raise ValueError("equal_prompts needs group_ids, which were not given")
            weight = self.weight.equal_prompts(weight, keep_mask, rows)
        return UpdatePlan(
            weight=weight,
            num_rows=int(keep_mask.any(1).sum()),
            num_tokens=int(keep_mask.sum()),
            keep=keep,
            marked=self.surrogate.mark(update),
            group_index=index,
            group_rows=rows,
        )

    def loss_terms(
        self,
        logprobs: Tensor,
        *,
        plan: UpdatePlan,
        mask: Tensor,
        advantages: Tensor,
        state: AlgorithmState | None = None,
        **others: Tensor | None,
    ) -> LossTerms:
        """A micro-batch's part of the loss: whole rows, in any order; losses and sums add up.

        `plan` = the update's plan with these rows (`plan.rows(index)`); `others` as in `loss`.
        """
        inputs = loss.clean_inputs(logprobs, mask, advantages, **others)
        return loss.compute(self, inputs, plan, state)

    def loss(
        self,
        logprobs: Tensor,
        *,
        mask: Tensor,
        advantages: Tensor,
        old_logprobs: Tensor | None = None,
        ref_logprobs: Tensor | None = None,
        sampler_logprobs: Tensor | None = None,
        entropies: Tensor | None = None,
        top_logprobs: Tensor | None = None,
        sampler_top_logprobs: Tensor | None = None,
        divergences: Tensor | None = None,
        group_ids: Any = None,
        max_tokens: int | None = None,
        state: AlgorithmState | None = None,
    ) -> LossOutput:
        """The loss of one whole optimiser update, and its metrics.

        [B, T] tensors; `advantages` [B] or [B, T]; top-K ones [B, T, K]; `divergences` from the
        teacher are live. `old_logprobs` None =
        on-policy (ratio exactly 1). The loss has the log-probabilities' dtype (float32 below that).
        Raises ValueError naming the part whose input is missing.
        """
        inputs = loss.clean_inputs(
            logprobs,
            mask,
            advantages,
            old_logprobs=old_logprobs,
            ref_logprobs=ref_logprobs,
            sampler_logprobs=sampler_logprobs,
            entropies=entropies,
            top_logprobs=top_logprobs,
            sampler_top_logprobs=sampler_top_logprobs,
            divergences=divergences,
        )
        plan = self.plan_update(
            mask,
            group_ids=group_ids,
            max_tokens=max_tokens,
            entropies=entropies,
            logprobs=inputs.old_logprobs,
            advantages=inputs.advantages,
        )
        terms = loss.compute(self, inputs, plan, state)
        metrics = terms.sums.finish()
        if plan.num_tokens:
            self.end_update(metrics, state)
        return LossOutput(terms.loss, metrics)

    def value_terms(self, values: Tensor, **inputs: Any) -> LossTerms:
        """The critic's loss for a micro-batch [B, T] (comparator only); adds to `loss_terms`.

        `inputs`: the keywords of `loss.value_terms`.
        """
        return loss.value_terms(self, values, **inputs)

    def end_update(self, metrics: Mapping[str, float], state: AlgorithmState | None) -> None:
        """One optimiser update is done: moves what moves per update (the adaptive coefficient).

        `metrics` are the finished sums of the whole update. A skipped update does not call it.
        """
        if state is None:
            return
        state.updates += 1
        for each in self.extras:
            each.end_update(metrics, state)

    def to_table(self) -> dict[str, Any]:
        """The table that `algorithm_from_table` reads back into an equal algorithm: every slot in
        full, None fields left out. Raises RecipeError where a part has no table: a function without
        a name, an infinite bound."""
        table: dict[str, Any] = {"preset": self.preset} if self.preset else {}
        if self.name != self.preset:
            table["name"] = self.name
        table |= {slot: getattr(self, slot).to_table() for slot in SLOTS}
        table |= {"anchor": self.anchor, "kl": self.kl.to_table()}
        return table | {slot: [each.to_table() for each in getattr(self, slot)] for slot in LISTS}
