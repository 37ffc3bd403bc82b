"""transformers' `generate` on a batch of all rows: what most code that samples calls today.

The whole distribution is sampled (no top-k). At fixed length the model has no stop id, which costs
`generate` nothing. Left out: `generate_batch`, which is slower on a CPU.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from benchmarks.contenders import Answer, Command, serve_simply
from benchmarks.exactness import left_padded
from benchmarks.workload import Workload, messages, questions
from groupwise.policies import describe_model
from groupwise.types import Prompt


class Generate:
    """The model in one precision."""

    def __init__(self, workload: Workload, dtype: str) -> None:
        self.workload = workload
        info = describe_model(workload.model)
        self.model = AutoModelForCausalLM.from_pretrained(
            info.source, dtype=getattr(torch, dtype)
        ).eval()
        self.stop_ids = sorted(info.template.stop_ids)
        self.pad_id = info.template.pad_id
        texts = questions(workload.model, workload.rollout_prompts)
        prompts = [
            info.template.encode_prompt(Prompt(str(number), messages=tuple(messages(text))))
            for number, text in enumerate(texts)
        ]
        self.ids, self.mask = left_padded(prompts, self.pad_id)
        self.detail: dict[str, Any] = {"threads": torch.get_num_threads()}

    def serve(self, commands: Iterator[Command], answer: Answer) -> None:
        serve_simply(self.rollout, commands, answer)

    def rollout(self, command: Command) -> dict[str, Any]:
        """Every row, once."""
        stop_ids = self.stop_ids if command.phase == "natural" else None
        self.model.generation_config.eos_token_id = stop_ids
        torch.manual_seed(command.number)
        start = time.perf_counter()
        with torch.inference_mode():
            output = self.model.generate(
                input_ids=self.ids,
                attention_mask=self.mask,
                do_sample=True,
                temperature=1.0,
                top_k=0,
                top_p=1.0,
                max_new_tokens=command.tokens,
                num_return_sequences=self.workload.group_size,
                pad_token_id=self.pad_id,
            )
        seconds = time.perf_counter() - start
        completions = output[:, self.ids.shape[1] :]
        return {"seconds": seconds, "tokens": sampled(completions, stop_ids), "rows": len(output)}


def sampled(completions: torch.Tensor, stop_ids: list[int] | None) -> int:
    """Tokens up to each row's first stop id, that id included.

    >>> sampled(torch.tensor([[5, 2, 2], [5, 6, 7]]), [2])
    5
    """
    if not stop_ids:
        return completions.numel()
    ended = torch.isin(completions, torch.tensor(stop_ids)).cumsum(1)
    behind = torch.nn.functional.pad(ended[:, :-1], (1, 0)) > 0
    return int((~behind).sum())


def start(workload: Workload, dtype: str) -> Generate:
    return Generate(workload, dtype)
