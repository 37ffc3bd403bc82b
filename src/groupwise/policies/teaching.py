"""A teacher's log-probabilities of a student's completions, and the divergence of the two policies.

Whole distributions are compared a chunk of positions at a time from both policies' hidden states,
and a chunk is computed again in the backward pass: no [B, T, V] exists. Nothing has a gradient
through the teacher.
Shapes: B rows, T tokens of the longest completion, N completion tokens, D hidden, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from groupwise.policies.attention import PASSES
from groupwise.policies.chunked import CHUNK_BYTES, NOT_KEPT
from groupwise.policies.heads import Head, head_of
from groupwise.policies.logprobs import completion_states, sequence_logprobs
from groupwise.policies.policy import Policy
from groupwise.types import Rows

Divergence = Callable[[Tensor, Tensor], Tensor]
"""Student's and teacher's log-probabilities [n, V] to [n], live in the student's."""


@dataclass(frozen=True)
class Side:
    """One of the two distributions: hidden states, their head, its temperature, its policy's
    `absent_ids` (ids without a token)."""

    hidden: Float[Tensor, "N D"]
    head: Head
    temperature: float
    absent: Tensor | None = None

    def logprobs(self, part: Tensor, vocabulary: int) -> Float[Tensor, "n V"]:
        """log softmax(logits / temperature) of some hidden states, float32 or better."""
        raw = self.head.linear(part.to(self.head.dtype))[:, :vocabulary]
        raw = raw if raw.dtype == torch.float64 else raw.float()
        logits = self.head.rule.apply_(raw * 1.0) / self.temperature
        if self.absent is not None:
            logits = logits.index_fill(1, self.absent[self.absent < vocabulary], NOT_KEPT)
        return logits.log_softmax(-1)

    @property
    def rows(self) -> int:
        """Rows of the output layer."""
        return next(self.head.linear.parameters()).shape[0]


def token_divergences(
    student: Side, teacher: Side, divergence: Divergence, *, chunk_tokens: int | None = None
) -> Float[Tensor, " N"]:
    """The divergence at each of N positions, live in the student's hidden states and head.

    Output layers may be padded to different sizes: ids that only one of them has are no token's.
    `chunk_tokens` is memory only; default by vocabulary.
    """
    vocabulary = min(student.rows, teacher.rows)
    chunk = chunk_tokens or max(16, CHUNK_BYTES // (4 * vocabulary))

    def of_chunk(hidden: Tensor, others: Tensor) -> Tensor:
        with torch.no_grad():
            given = teacher.logprobs(others, vocabulary)
        return divergence(student.logprobs(hidden, vocabulary), given)

    pairs = zip(torch.split(student.hidden, chunk), torch.split(teacher.hidden, chunk), strict=True)
    parts = [checkpoint(of_chunk, *pair, use_reentrant=False) for pair in pairs]
    return torch.cat(parts) if parts else student.hidden.new_zeros(0).float()


@dataclass(frozen=True)
class Teaching:
    """Who teaches each row of a step, and what it reads before the row's completion.

    `policies[which[row]]` teaches a row, nobody where that is None; `prompt_ids` [B] are what the
    teacher reads, which may hold more than the student's prompt. `temperature` divides its logits.
    """

    policies: Sequence[Policy]
    which: Sequence[int | None]
    prompt_ids: Sequence[tuple[int, ...]]
    temperature: float = 1.0

    @property
    def taught(self) -> Tensor:
        """[B] bool: rows with a teacher."""
        return torch.tensor([each is not None for each in self.which], dtype=torch.bool)

    def logprobs(self, rows: Rows, index: Tensor) -> Float[Tensor, "b T"]:
        """Log-probabilities of some rows' completions, NaN in rows without a teacher."""
        chosen = index.tolist()
        width = max((len(rows.completion_ids[row]) for row in chosen), default=0)
        table = torch.full((len(chosen), width), torch.nan)
        for policy, places in self._shares(chosen):
            mine = [chosen[place] for place in places]
            prompts, completions = self._ids(rows, mine)
            with torch.no_grad():
                found = sequence_logprobs(
                    policy, prompts, completions, temperature=self.temperature
                ).logprobs
            table[torch.tensor(places), : found.shape[1]] = found.float().cpu()
        return table

    def divergence(
        self, rows: Rows, index: Tensor, divergence: Divergence, student: Policy, temperature: float
    ) -> Callable[[Tensor, Head], Tensor]:
        """A function of the student's hidden states [N, D] of these rows, and its head, to the
        divergence [N] at every completion token; 0 in rows without a teacher."""
        chosen = index.tolist()
        lengths = torch.tensor([len(rows.completion_ids[row]) for row in chosen])
        row_of = torch.repeat_interleave(torch.arange(len(chosen)), lengths)

        def compare(hidden: Tensor, head: Head) -> Tensor:
            out = hidden.new_zeros(hidden.shape[0], dtype=torch.float32)
            for policy, places in self._shares(chosen):
                prompts, completions = self._ids(rows, [chosen[place] for place in places])
                at = torch.isin(row_of, torch.tensor(places)).nonzero()[:, 0].to(hidden.device)
                with PASSES:
                    own = head_of(policy.model)
                with torch.no_grad():
                    states = completion_states(policy, policy.model, own, prompts, completions)
                found = token_divergences(
                    Side(hidden.index_select(0, at), head, temperature, student.absent_ids),
                    Side(states, own, self.temperature, policy.absent_ids),
                    divergence,
                )
                out = out.to(found.dtype).index_copy(0, at, found)
            return out

        return compare

    def _shares(self, chosen: Sequence[int]) -> list[tuple[Policy, list[int]]]:
        """Each teacher with the places in `chosen` of the rows that it teaches."""
        shares = [
            (policy, [place for place, row in enumerate(chosen) if self.which[row] == number])
            for number, policy in enumerate(self.policies)
        ]
        return [(policy, places) for policy, places in shares if places]

    def _ids(
        self, rows: Rows, chosen: Sequence[int]
    ) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
        ids = [rows.completion_ids[row] for row in chosen]
        return [self.prompt_ids[row] for row in chosen], ids
