"""Small groups of rollouts for the tests of records and evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from groupwise.types import Completion, Group, Outcome, Prompt, Rollout, Score, Turn
from groupwise.verifiers import as_score


def prompt(name: str) -> Prompt:
    return Prompt(id=name, messages=({"role": "user", "content": f"{name}?"},), answer="7")


def rollout(
    name: str,
    reward: float | None,
    *,
    index: int = 0,
    tokens: int = 2,
    truncated: bool = False,
    parts: Mapping[str, float | None] | None = None,
    outcome: Outcome | None = None,
    text: str = "7",
    step: int = 0,
    version: int = 0,
    visit: int = 0,
) -> Rollout:
    completion = Completion(
        token_ids=tuple(range(10, 10 + tokens)),
        text=text,
        sampler_logprobs=tuple(-0.5 - 0.25 * i for i in range(tokens)),
        finish_reason="length" if truncated else "stop",
        version=version,
    )
    if outcome is None:
        outcome = as_score("", 0, reward).outcome
    score = Score(reward, outcome, "because", parts or {})
    return Rollout(prompt(name), (Turn((5, 6), completion),), score, index, visit, step)


def group(
    name: str,
    rewards: Sequence[float | None],
    *,
    tokens: Sequence[int] | None = None,
    truncated: Sequence[int] = (),
    parts: Sequence[Mapping[str, float | None]] | None = None,
    texts: Sequence[str] | None = None,
    greedy: Rollout | None = None,
    step: int = 0,
    version: int = 0,
) -> Group:
    rollouts = tuple(
        rollout(
            name,
            reward,
            index=i,
            tokens=2 if tokens is None else tokens[i],
            truncated=i in truncated,
            parts=None if parts is None else parts[i],
            text="7" if texts is None else texts[i],
            step=step,
            version=version,
        )
        for i, reward in enumerate(rewards)
    )
    return Group(prompt(name), rollouts, greedy)
