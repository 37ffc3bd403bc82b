"""The kernels alone: one decode step's linear layers with the same rows, and nothing else.

    .venv/bin/python -m benchmarks.kernels [--model smollm2-135m] [--rows 32 64 128]

Every layer's query-key-value, output, gate-up and down products (fused as a fast sampler would) and
the vocabulary product, in their order, on weights of their own, packed for oneDNN where that is
faster. No attention, norm, draw or cache: an upper bound for a sampler on these kernels, and the
measure of what it adds to them.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.contenders import Answer, Command, serve_simply
from benchmarks.workload import FULL, Workload
from groupwise.policies import describe_model

Product = Callable[[Tensor], Tensor]


def shapes(config: Any) -> list[tuple[int, int]]:
    """(in, out) of every product of one decode step, in order."""
    width, inner = config.hidden_size, config.intermediate_size
    heads = config.num_attention_heads
    size = getattr(config, "head_dim", None) or width // heads
    values = getattr(config, "num_key_value_heads", None) or heads
    layer = [
        (width, (heads + 2 * values) * size),
        (heads * size, width),
        (width, 2 * inner),
        (inner, width),
    ]
    return layer * config.num_hidden_layers + [(width, config.vocab_size)]


def plain(weight: Tensor) -> Product:
    """PyTorch's own linear."""
    return lambda rows: functional.linear(rows, weight)


def packed(weight: Tensor, rows: int) -> Product:
    """oneDNN's linear on a weight in its own layout. Raises RuntimeError where there is none."""
    if not torch.backends.mkldnn.is_available():
        raise RuntimeError("this PyTorch has no oneDNN")
    operations = torch.ops.mkldnn
    made = operations._reorder_linear_weight(weight, rows)
    return lambda x: operations._linear_pointwise(x, made, None, "none", [], "")


class Kernels:
    """All products of one decode step for a number of rows."""

    def __init__(self, config: Any, rows: int, dtype: torch.dtype) -> None:
        generator = torch.Generator().manual_seed(0)
        weights = [
            torch.randn(out, width, generator=generator).mul_(width**-0.5).to(dtype)
            for width, out in shapes(config)
        ]
        inputs = {
            weight.shape[1]: torch.randn(rows, weight.shape[1], generator=generator).to(dtype)
            for weight in weights
        }
        self.rows = rows
        self.inputs = [inputs[weight.shape[1]] for weight in weights]
        self.choices = {"linear": [plain(weight) for weight in weights]}
        try:
            self.choices["packed"] = [packed(weight, rows) for weight in weights]
        except (RuntimeError, AttributeError) as error:
            self.why_not_packed: str | None = str(error).splitlines()[0]
        else:
            self.why_not_packed = None
        with torch.inference_mode():
            timed = {name: self._best_of(name) for name in self.choices}
        self.chosen = min(timed, key=lambda name: timed[name])

    def keep_chosen(self) -> None:
        """Give back the weights of the slower choice."""
        self.choices = {self.chosen: self.choices[self.chosen]}

    def _best_of(self, name: str, times: int = 5) -> float:
        return min(self.run(1, name) for _ in range(times))

    def run(self, steps: int, name: str | None = None) -> float:
        """Seconds of so many decode steps."""
        products = self.choices[name or self.chosen]
        with torch.inference_mode():
            start = time.perf_counter()
            for _ in range(steps):
                for product, rows in zip(products, self.inputs, strict=True):
                    product(rows)
            return time.perf_counter() - start


class Peer:
    """The workload's rows as a contender of the benchmark."""

    def __init__(self, workload: Workload, dtype: str) -> None:
        config = describe_model(workload.model).config
        self.kernels = Kernels(config, workload.rollout_rows, getattr(torch, dtype))
        self.kernels.keep_chosen()
        self.detail: dict[str, Any] = {
            "threads": torch.get_num_threads(),
            "kernels": self.kernels.chosen,
        }

    def serve(self, commands: Iterator[Command], answer: Answer) -> None:
        serve_simply(self.rollout, commands, answer)

    def rollout(self, command: Command) -> dict[str, Any]:
        seconds = self.kernels.run(command.tokens)
        rows = self.kernels.rows
        return {"seconds": seconds, "tokens": rows * command.tokens, "rows": rows}


def start(workload: Workload, dtype: str) -> Peer:
    return Peer(workload, dtype)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=FULL.model)
    parser.add_argument("--rows", type=int, nargs="+", default=[32, 64, 128])
    parser.add_argument("--dtypes", nargs="+", default=["bfloat16", "float32"])
    parser.add_argument("--steps", type=int, default=10)
    chosen = parser.parse_args()
    config = describe_model(chosen.model).config
    for dtype in chosen.dtypes:
        for rows in chosen.rows:
            kernels = Kernels(config, rows, getattr(torch, dtype))
            seconds = {
                name: min(kernels.run(chosen.steps, name) for _ in range(3)) / chosen.steps
                for name in kernels.choices
            }
            print(
                json.dumps(
                    {
                        "dtype": dtype,
                        "rows": rows,
                        "milliseconds_per_step": {
                            name: round(1e3 * value, 2) for name, value in seconds.items()
                        },
                        "tokens_per_second": round(rows / min(seconds.values()), 1),
                        "not_packed_because": kernels.why_not_packed,
                    }
                )
            )


if __name__ == "__main__":
    main()
