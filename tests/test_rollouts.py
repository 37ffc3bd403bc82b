"""From text verdicts to tokens: step rewards leave collection as positions of ids."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from groupwise.environments import Environment, load_environment
from groupwise.errors import VerifierError
from groupwise.policies import Policy, load_policy
from groupwise.records import rollout_rows
from groupwise.rollouts import collect
from groupwise.rollouts.scoring import Scoring
from groupwise.samplers import SamplingSettings, ScriptedSampler
from groupwise.types import Prompt, Score, StepReward
from groupwise.verifiers import Case, Verifier


@pytest.fixture(scope="module")
def tiny() -> Policy:
    return load_policy("tiny", device="cpu")


def test_step_ends_are_tokens(tiny: Policy) -> None:
    verifiers = [{"name": "step_verifier:Sums"}]
    environment = load_environment(
        "arithmetic", level="multi_step", num_train=4, num_heldout=1, verifiers=verifiers
    )
    prompt = environment.prompts(1)[0]
    replies = [f"1+2=3\n{prompt.answer}={prompt.answer}", "words alone", "2+2=5\n"]
    groups = collect(
        environment,
        ScriptedSampler(tiny.template, replies),
        tiny.template,
        [(prompt, 0)],
        group_size=3,
        sampling=SamplingSettings(max_tokens=64, group_size=3),
        seed=0,
    )
    right, none, wrong = groups[0].rollouts
    assert (right.reward, none.reward, wrong.reward) == (1.0, 0.0, 0.0)
    assert right.step_ends == (5, len(right.completion_ids) - 1)  # the stop id ends the last step
    assert (none.step_ends, none.score.outcome) == ((), "no_answer")
    assert wrong.step_ends == (6,)
    rows = rollout_rows(0, groups)
    assert [row["step_rewards"] for row in rows] == [[1.0, 1.0], [], [0.0]]
    assert rows[0]["step_ends"] == [5, len(right.completion_ids) - 1]


class Beyond(Verifier):
    """Its step ends where there is no text."""

    name = "beyond"  # type: ignore[assignment]

    def score(self, cases: Sequence[Case]) -> list[Score]:
        return [Score(1.0, "correct", "x", steps=(StepReward(1.0, 99),)) for _ in cases]


def test_a_step_outside_the_text_stops_the_run(tiny: Policy) -> None:
    prompt = Prompt("p", text="3+4=")
    environment = Environment("own", Beyond(), {"train": [prompt]})
    with pytest.raises(VerifierError, match=r"'own': a step ends after 99 of the 1 characters"):
        collect(
            environment,
            ScriptedSampler(tiny.template, ["7"]),
            tiny.template,
            [(prompt, 0)],
            group_size=1,
            sampling=SamplingSettings(max_tokens=8),
            seed=0,
        )


def test_a_verifier_of_whole_batches_is_not_asked_about_none() -> None:
    def score(cases: Sequence[Case]) -> list[Score]:
        raise AssertionError("it was asked")

    assert Scoring(score, 0, singly=False).results() == []


def test_every_prompt_can_have_its_own_group_size(tiny: Policy) -> None:
    environment = load_environment("arithmetic", level="table")
    first, second = environment.prompts(2)
    groups = collect(
        environment,
        ScriptedSampler(tiny.template, ["7"] * 8),
        tiny.template,
        [(first, 0), (second, 3)],
        group_size=[1, 4],
        sampling=SamplingSettings(max_tokens=4),
        seed=0,
        greedy=True,
    )
    assert [len(group.rollouts) for group in groups] == [1, 4]
    assert [group.prompt for group in groups] == [first, second]
    assert [rollout.group_index for rollout in groups[1].rollouts] == [0, 1, 2, 3]
    assert {rollout.visit for rollout in groups[1].rollouts} == {3}
    assert all(group.greedy is not None for group in groups)
    assert [group.greedy.prompt for group in groups if group.greedy] == [first, second]
