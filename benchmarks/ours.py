"""This project, as `groupwise train` runs it: the loop's own verbs on a session from a recipe.

Left out: the record on disk and evaluations, which the peers do not write either.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from benchmarks.contenders import Answer, Command, serve_simply
from benchmarks.workload import Workload, messages, questions
from groupwise.policies.packing import packed_tokens
from groupwise.randomness import stream_key
from groupwise.recipe import load_recipe
from groupwise.records import RunWriter
from groupwise.training.callbacks import Clock
from groupwise.training.preparing import prepare
from groupwise.training.session import Session, open_session
from groupwise.training.train import Loop
from groupwise.types import Prompt, Request


class Groupwise:
    """A session: policy, sampler and learner on the same weights."""

    def __init__(
        self,
        workload: Workload,
        dtype: str,
        checkpointing: bool = False,
        sampler: str = "auto",
        quantise: str = "none",
    ) -> None:
        self.workload = workload
        self.folder = tempfile.TemporaryDirectory(prefix="groupwise-bench-")
        self.session = open_workload(
            workload, Path(self.folder.name), dtype, checkpointing, sampler, quantise
        )
        self.stop_ids = self.session.template.stop_ids
        self.prompts = [
            self.session.template.encode_prompt(Prompt(str(number), messages=tuple(messages(text))))
            for number, text in enumerate(questions(workload.model, workload.rollout_prompts))
        ]
        self.loop = Loop(self.session, self._writer())
        self.optimizer_seconds = 0.0
        self._time_optimizer()
        self.detail: dict[str, Any] = {
            "threads": torch.get_num_threads(),
            "sampler": type(self.session.sampler).__name__,
            "prompt_tokens": [len(ids) for ids in self.prompts],
        }

    def _writer(self) -> RunWriter:
        return RunWriter.create(Path(self.folder.name) / "run", self.session.recipe.to_toml(), {})

    def _time_optimizer(self) -> None:
        began = [0.0]

        def before(*_: Any) -> None:
            began[0] = time.perf_counter()

        def after(*_: Any) -> None:
            self.optimizer_seconds += time.perf_counter() - began[0]

        self.session.learner.optimizer.register_step_pre_hook(before)
        self.session.learner.optimizer.register_step_post_hook(after)

    def serve(self, commands: Iterator[Command], answer: Answer) -> None:
        serve_simply(self.work, commands, answer)
        self.session.close()
        self.folder.cleanup()

    def work(self, command: Command) -> dict[str, Any]:
        """One repeat."""
        natural = command.phase == "natural"
        for template in (self.session.template, self.session.policy.template):
            template.stop_ids = self.stop_ids if natural else frozenset()
        return self.step(command) if command.phase == "step" else self.rollout(command)

    def rollout(self, command: Command) -> dict[str, Any]:
        """Every row of every prompt, on the weights as they are."""
        requests = [
            Request(
                prompt_ids=ids,
                key=stream_key(self.workload.seed, "probe", str(place), command.number, index, 0),
                max_tokens=command.tokens,
            )
            for place, ids in enumerate(self.prompts)
            for index in range(self.workload.group_size)
        ]
        start = time.perf_counter()
        completions = self.session.sampler.sample(requests)
        seconds = time.perf_counter() - start
        tokens = sum(each.num_tokens for each in completions)
        return {"seconds": seconds, "tokens": tokens, "rows": len(completions)}

    def step(self, command: Command) -> dict[str, Any]:
        """Collect, make a batch, learn, load: a whole step."""
        self._limit(command.tokens)
        number = self.session.policy.version
        self.optimizer_seconds = 0.0
        self.loop.clock = clock = Clock()
        with clock("step"):
            collected = self.loop.collect(number)
            batch = self.loop.make_batch(collected, number)
            metrics = self.loop.learn(batch, number)
            self.loop.load(number + 1)
        if metrics["updates"] != 1:
            raise RuntimeError(f"the step made {metrics['updates']} updates, not 1")
        spent = clock.seconds
        rows = [rollout for group in collected.groups for rollout in group.rollouts]
        return {
            "seconds": spent["step"],
            "rollout_seconds": spent["rollout"],
            "train_seconds": spent["logprobs"] + spent["learn"] - self.optimizer_seconds,
            "optimizer_seconds": self.optimizer_seconds + spent["load"],
            "tokens": sum(rollout.num_tokens for rollout in rows),
            "rows": len(rows),
            "unique_tokens": packed_tokens(
                [rollout.prompt_ids for rollout in rows],
                [rollout.completion_ids for rollout in rows],
            ),
        }

    def _limit(self, max_tokens: int) -> None:
        """Completions of at most so many tokens from now on: a warm-up's are short."""
        recipe = self.session.recipe
        sampling = recipe.sampling.model_copy(update={"max_tokens": max_tokens})
        recipe = recipe.model_copy(update={"sampling": sampling})
        self.session.recipe = self.loop.recipe = self.session.collector.recipe = recipe


def open_workload(
    workload: Workload,
    folder: Path,
    dtype: str,
    checkpointing: bool,
    sampler: str,
    quantise: str = "none",
) -> Session:
    """The session of a recipe on the workload's prompts, rewarded by its reward function."""
    lines = [
        json.dumps({"prompt": messages(text)})
        for text in questions(workload.model, workload.step_prompts)
    ]
    data = folder / "prompts.jsonl"
    data.write_text("\n".join(lines) + "\n", encoding="utf-8")
    recipe = {
        "seed": workload.seed,
        "model": {
            "name": workload.model,
            "dtype": dtype,
            "gradient_checkpointing": checkpointing,
        },
        "environment": {
            "name": "dataset",
            "path": str(data),
            "verifiers": [{"name": "benchmarks.workload:spread_reward"}],
        },
        "algorithm": {"preset": "grpo", "kl_coef": 0.0},
        "sampling": {
            "sampler": sampler,
            "quantise": quantise,
            "group_size": workload.group_size,
            "max_tokens": workload.step_tokens,
        },
        "training": {
            "prompts_per_step": workload.step_prompts,
            "steps": 1000,
            "learning_rate": 1e-6,
        },
        "evaluation": {"every": 0, "samples": 1},
        "checkpoints": {"every": 0},
    }
    return open_session(prepare(load_recipe(recipe)))


def start(
    workload: Workload, dtype: str, checkpointing: bool = False, quantise: str = "none"
) -> Groupwise:
    return Groupwise(workload, dtype, checkpointing, quantise=quantise)
