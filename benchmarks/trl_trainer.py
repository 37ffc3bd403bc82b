"""TRL's GRPOTrainer, timed inside its own training loop.

Its best setting on a CPU: no activation checkpointing (its default recomputes, which is slower),
one optimiser update per generation, micro-batches of one group. The loop runs as TRL wrote it and
waits for the parent at the beginning of a step; a rollout alone is asked of the same trainer
there. Left out: logging, saving and evaluation, which are off.
"""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from benchmarks.contenders import Answer, Command
from benchmarks.workload import Workload, messages, questions, spread_reward
from groupwise.policies import describe_model

_STEPS = 1000
_NO_STOP = [-1]  # an id that no token has


class TimedTrainer(GRPOTrainer):  # type: ignore[misc]
    """GRPOTrainer with a clock around generation and around everything before the loss."""

    generate_seconds = 0.0
    before_loss_seconds = 0.0
    sampled = 0

    def _generate_single_turn(self, *arguments: Any, **named: Any) -> Any:
        start = time.perf_counter()
        made = super()._generate_single_turn(*arguments, **named)
        self.generate_seconds += time.perf_counter() - start
        self.sampled += sum(len(ids) for ids in made[0])
        return made

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        start = time.perf_counter()
        made = super()._generate_and_score_completions(inputs)
        self.before_loss_seconds += time.perf_counter() - start
        return made

    def forget(self) -> None:
        self.generate_seconds = self.before_loss_seconds = 0.0
        self.sampled = 0


class Waiting(TrainerCallback):  # type: ignore[misc]
    """Answers commands at the beginning of a step, and lets the step go where one asks for it."""

    def __init__(self, peer: Trl, commands: Iterator[Command], answer: Answer) -> None:
        self.peer, self.commands, self.answer = peer, commands, answer
        self.began = self.optimizer_began = self.optimizer_seconds = 0.0

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        for command in self.commands:
            self.peer.prepare(command)
            if command.phase == "step":
                self.peer.trainer.forget()
                self.began = time.perf_counter()
                return control
            self.answer(self.peer.rollout())
        raise Ended

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.optimizer_began = time.perf_counter()

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.optimizer_seconds = time.perf_counter() - self.optimizer_began

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        seconds = time.perf_counter() - self.began
        trainer = self.peer.trainer
        self.answer(
            {
                "seconds": seconds,
                "rollout_seconds": trainer.generate_seconds,
                "train_seconds": seconds - trainer.before_loss_seconds - self.optimizer_seconds,
                "optimizer_seconds": self.optimizer_seconds,
                "tokens": trainer.sampled,
                "rows": self.peer.workload.step_rows,
            }
        )


class Ended(Exception):  # noqa: N818
    """No more commands: leaves the training loop."""


class Trl:
    """A trainer on the workload's prompts."""

    def __init__(self, workload: Workload, dtype: str, autocast: bool) -> None:
        logging.getLogger("trl").setLevel(logging.ERROR)
        self.workload = workload
        self.folder = tempfile.TemporaryDirectory(prefix="groupwise-bench-trl-")
        info = describe_model(workload.model)
        self.tokenizer = AutoTokenizer.from_pretrained(info.source)
        rows = [{"prompt": messages(text)} for text in self._questions(workload.step_prompts)]
        self.trainer = TimedTrainer(
            model=info.source,
            reward_funcs=spread_reward,
            args=self._settings(dtype, autocast),
            train_dataset=Dataset.from_list(rows),
            processing_class=self.tokenizer,
        )
        self.stop_ids = list(self.trainer.eos_token_ids)
        self.prompts = self._prompts(info.template)
        self.detail: dict[str, Any] = {
            "threads": torch.get_num_threads(),
            "micro_batch_rows": workload.group_size,
            "activation_checkpointing": any(
                getattr(module, "gradient_checkpointing", False)
                for module in self.trainer.model.modules()
            ),
        }

    def _questions(self, count: int) -> list[str]:
        return questions(self.workload.model, count)

    def _prompts(self, template: Any) -> list[list[int]]:
        """The rollout's rows as ids. Raises where they are not this project's."""
        from groupwise.types import Prompt

        chats = [messages(text) for text in self._questions(self.workload.rollout_prompts)]
        ids, *_ = self.trainer._tokenize_prompts(chats)
        ours = [
            list(template.encode_prompt(Prompt(str(number), messages=tuple(chat))))
            for number, chat in enumerate(chats)
        ]
        if [list(each) for each in ids] != ours:
            raise RuntimeError("TRL encodes the prompts to other ids")
        return [each for each in ours for _ in range(self.workload.group_size)]

    def _settings(self, dtype: str, autocast: bool) -> GRPOConfig:
        return GRPOConfig(
            output_dir=self.folder.name,
            model_init_kwargs={"dtype": dtype},
            bf16=autocast,
            use_cpu=not torch.cuda.is_available(),
            per_device_train_batch_size=self.workload.group_size,
            gradient_accumulation_steps=self.workload.step_prompts,
            num_generations=self.workload.group_size,
            max_completion_length=self.workload.step_tokens,
            max_steps=_STEPS,
            learning_rate=1e-6,
            lr_scheduler_type="constant",
            gradient_checkpointing=False,
            shuffle_dataset=False,
            report_to="none",
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
            seed=self.workload.seed,
        )

    def serve(self, commands: Iterator[Command], answer: Answer) -> None:
        """Runs TRL's loop, which takes the commands itself."""
        self.trainer.add_callback(Waiting(self, commands, answer))
        try:
            self.trainer.train()
        except Ended:
            return

    def prepare(self, command: Command) -> None:
        """The command's length, and whether stop ids end a completion."""
        trainer = self.trainer
        stop_ids = self.stop_ids if command.phase == "natural" else None
        trainer.eos_token_ids = stop_ids or _NO_STOP
        trainer.generation_config.max_new_tokens = command.tokens
        trainer.generation_kwargs["max_new_tokens"] = command.tokens
        trainer.max_completion_length = command.tokens
        for config in (trainer.generation_config, trainer.model.generation_config):
            config.eos_token_id = stop_ids
        trainer.generation_kwargs["eos_token_id"] = stop_ids

    def rollout(self) -> dict[str, Any]:
        """Generation of every row as a step would ask for it."""
        self.trainer.forget()
        start = time.perf_counter()
        self.trainer._generate_single_turn(self.prompts, None, {}, self.workload.group_size)
        seconds = time.perf_counter() - start
        self.trainer.model_wrapped.train()
        return {"seconds": seconds, "tokens": self.trainer.sampled, "rows": len(self.prompts)}


def start(workload: Workload, dtype: str, autocast: bool) -> Trl:
    return Trl(workload, dtype, autocast)
