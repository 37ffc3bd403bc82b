"""A verifier that says the same about everything is named. Fault 18, its second half."""

from __future__ import annotations

from groupwise.training.watches import ConstantWatch
from groupwise.types import Completion, Group, Prompt, Rollout, Score, Turn

PROMPT = Prompt("p", text="?")
TURN = Turn((1,), Completion((2,), "x", (-0.1,), "stop"))


def step(*parts: dict[str, float | None]) -> list[Group]:
    scores = [Score(1.0, "correct", parts=each) for each in parts]
    rollouts = tuple(Rollout(PROMPT, (TURN,), s, i, 0, 0) for i, s in enumerate(scores))
    return [Group(PROMPT, rollouts)]


def test_it_warns_once_after_enough_steps_and_again_after_a_change() -> None:
    watch = ConstantWatch(steps=3)
    dead = step({"format": 0.0, "number": 1.0}, {"format": 0.0, "number": 0.0})
    warned = [watch.see(dead) for _ in range(5)]
    assert [len(each) for each in warned] == [0, 0, 1, 0, 0]
    assert "'format' gave 0 to every completion of the last 3 steps" in warned[2][0]
    assert watch.see(step({"format": 0.0}, {"format": 1.0})) == []
    assert [len(watch.see(dead)) for _ in range(3)] == [0, 0, 1]


def test_another_constant_value_starts_anew_and_none_is_no_value() -> None:
    watch = ConstantWatch(steps=2)
    assert watch.see(step({"a": 0.0})) == []
    assert watch.see(step({"a": 1.0})) == []
    assert watch.see(step({"a": None})) == []
    assert len(watch.see(step({"a": 1.0}, {"a": None}))) == 1
