"""One update in a process of its own, perhaps with too little address space for its micro-batch.

    python memory_limit.py FOLDER [SHARE]

Without SHARE it writes how much the update took beyond what was there before it; with it, only that
share may be allocated. Writes the weights after one step of plain SGD, and prints what happened.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from groupwise.algorithms import preset
from groupwise.batches import align, make_batch, split_rows
from groupwise.errors import GroupwiseError
from groupwise.learner import Learner, TrainingSettings
from groupwise.training.process import keep_freed_memory
from helpers import make_groups, make_policy


def address_space(name: str) -> int:
    """`VmSize` or `VmPeak` of this process, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


def all_that_is_left(size: int = 512 * 1024) -> Iterator[bytearray]:
    """Pieces of memory until there is none."""
    with suppress(MemoryError):
        while True:
            yield bytearray(size)


def main(folder: Path, share: float | None) -> dict[str, Any]:
    torch.set_num_threads(1)
    keep_freed_memory()  # as a run does: freed memory stays in this process
    policy = make_policy(hidden=384)
    algorithm = preset("grpo", kl_coef=0.0)
    settings = TrainingSettings(
        learning_rate=1.0, optimizer="sgd", max_grad_norm=None, micro_batch_tokens=100_000
    )
    learner = Learner(policy, algorithm, settings, temperature=1.0, divide=split_rows)
    groups = make_groups(num_groups=32, group_size=8, longest=50)
    rows = align(groups)
    update = [torch.arange(rows.num_rows)]
    small = [torch.arange(8)]  # everything that is loaded late is there
    learner._forward(policy, rows, small[0]).logprobs.sum().backward()
    policy.model.zero_grad(set_to_none=True)
    batch = make_batch(groups, rows, algorithm, max_tokens=50)
    before, hard = address_space("VmSize"), resource.getrlimit(resource.RLIMIT_AS)[1]
    taken: list[bytearray] = []
    if share is not None:
        needed = json.loads((folder / "needed.json").read_text())
        resource.setrlimit(resource.RLIMIT_AS, (before + int(share * needed), hard))
        taken = [] if share else list(all_that_is_left())
    try:
        metrics = learner.learn(batch, [update], step=0)
    except GroupwiseError as error:
        return {"error": str(error), "update": learner.update}
    finally:
        taken.clear()
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    if share is None:
        needed = address_space("VmPeak") - before
        (folder / "needed.json").write_text(json.dumps(needed))
    name = "whole" if share is None else "limited"
    state = {key: value.contiguous() for key, value in policy.model.state_dict().items()}
    save_file(state, folder / f"{name}.safetensors")
    return {
        "micro_batches": metrics["forward/micro_batches"],
        "updates": metrics["updates"],
        "grad_norm": metrics["grad_norm"],
        "notes": [message for _, message in learner.faults.take_notes()],
        "needed": json.loads((folder / "needed.json").read_text()),
    }


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), float(sys.argv[2]) if sys.argv[2:] else None)))
