"""Programs on other packages, trained as they are: reward rises, and the record holds what was
sampled. `AGENT_PYTHON` is an interpreter that has the packages (`make test-agents`).
"""

from __future__ import annotations

import os
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import groupwise as gw
from groupwise.serving.desk import Desk

ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "recipes" / "agent.toml"


def trained(program: str, output: Path, **training: Any) -> Any:
    """A short run of the recipe with another agent."""
    table = tomllib.loads(RECIPE.read_text("utf-8"))
    del table["environment"]["function"]
    python = os.environ.get("AGENT_PYTHON", "{python}")
    table["environment"]["command"] = [python, str(ROOT / "examples" / program)]
    table["environment"] |= {"gather_seconds": 300.0, "at_once": 8}
    table["evaluation"] |= {"max_prompts": 4, "samples": 1}
    table["training"] |= {"steps": 7, "prompts_per_step": 4, **training}
    table.pop("small")
    return gw.train(table, output=output)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("program", ["agent_with_openai.py", "agent_with_pydantic_ai.py"])
def test_it_is_trained_as_it_is(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampled: dict[tuple[int, ...], set[tuple[int, ...]]] = {}
    sample = Desk.sample

    def noted(self: Desk, tickets: Any, sampler: Any) -> None:
        class Noting:
            def sample(self, requests: Any) -> Any:
                made = sampler.sample(requests)
                for request, completion in zip(requests, made, strict=True):
                    sampled.setdefault(request.prompt_ids, set()).add(completion.token_ids)
                return made

        sample(self, tickets, Noting())  # type: ignore[arg-type]

    monkeypatch.setattr(Desk, "sample", noted)
    run = trained(program, tmp_path / "run")
    steps = run.metrics().to_pandas()
    first, last = steps["reward"][:2].mean(), steps["reward"][-2:].mean()
    print(f"{program}: reward {first:.3f} -> {last:.3f}")
    assert last > first + 0.2
    # Every turn went on from the one before: no history was encoded again.
    assert (steps["plays/branches"] == 0).all()
    rows = run.rollouts().to_pylist()
    turns = 0
    for row in rows:
        ids, start = (*row["prompt_ids"], *row["completion_ids"]), len(row["prompt_ids"])
        ends = [0, *row["turn_ends"]]
        for before, end in pairwise(ends):
            begin = next(n for n in range(before, end) if row["mask"][n])
            assert ids[start + begin : start + end] in sampled[ids[: start + begin]]
            turns += 1
    assert turns > len(rows)
