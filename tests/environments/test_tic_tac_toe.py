"""Games: seeded, disjoint, played to a verdict, illegal moves pointed out, rewards of turns."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from groupwise.environments import Environment, load_environment
from groupwise.environments.tic_tac_toe import Game, TicTacToe, free, read_move, winner
from groupwise.policies import load_policy
from groupwise.rollouts import collect
from groupwise.samplers import SamplingSettings, ScriptedSampler
from groupwise.types import Prompt, Score

FEW = {"num_train": 60, "num_heldout": 15}
Choose = Callable[[Game, random.Random], str]


def made(seed: int = 0, **arguments: Any) -> TicTacToe:
    environment = load_environment("tic_tac_toe", seed=seed, **{**FEW, **arguments})
    assert isinstance(environment, TicTacToe)
    return environment


def finished(environment: Environment, prompt: Prompt, choose: Choose, seed: int = 0) -> Score:
    play = environment.start(prompt)
    assert isinstance(play, Game)
    draw = random.Random(seed)
    for _ in range(100):
        if play.next(choose(play, draw)) is None:
            return play.result()
    raise AssertionError("no end")


def anything(play: Game, draw: random.Random) -> str:
    return f"I take {draw.choice(free(play.board)) + 1}."


def test_the_level_is_the_opponents_and_positions_are_apart() -> None:
    environment = made(level="mixed")
    skills = {"easy": 0.0, "medium": 0.5, "hard": 1.0}
    columns = [prompt.columns for prompt in environment.prompts()]
    assert {each["level"]: each["skill"] for each in columns} == skills
    heldout = environment.prompts(split="heldout")
    assert not {each["board"] for each in columns} & {each.columns["board"] for each in heldout}
    assert environment.prompts() == made(level="mixed").prompts()
    assert environment.prompts() != made(seed=1, level="mixed").prompts()
    shown = made(examples=1, num_train=2).prompts()[0].messages
    assert shown[1]["content"] in "123456789"


def test_the_same_moves_give_the_same_game() -> None:
    environment = made()
    outcomes: Counter[str] = Counter()
    for number, prompt in enumerate(environment.prompts()):
        first = finished(environment, prompt, anything, seed=number)
        assert first == finished(environment, prompt, anything, seed=number)
        assert first.outcome in ("correct", "incorrect", "partial")
        outcomes[first.outcome] += 1
    assert outcomes["correct"] > 5
    assert len(outcomes) > 1


def test_a_verdict_is_the_games_end() -> None:
    environment = made(level="hard")
    prompt = environment.prompts(1)[0]
    won, lost = (environment.start(prompt) for _ in range(2))
    assert isinstance(won, Game)
    assert isinstance(lost, Game)
    won.board = "XX.OO...."
    assert won.next("3") is None
    assert (won.rewards, won.ended) == ([1.0], "won")
    lost.board = "OO.XX...."
    assert lost.next("9") is None  # the best answer is the open row
    assert (lost.rewards, lost.ended) == ([0.0], "lost")
    drawn = environment.start(prompt)
    assert isinstance(drawn, Game)
    drawn.board = "XOXXOOOX."
    assert drawn.next("9") is None
    assert drawn.result() == Score(0.5, "partial", "a draw")
    assert environment.start(prompt).result() == Score(0, "limit", "not played to its end")
    assert (winner("XXX......"), winner("X.OXO.O.."), winner("." * 9)) == ("X", "O", None)


def test_the_best_opponent_never_loses() -> None:
    environment = made(level="hard")
    scores = [
        finished(environment, prompt, anything, seed)
        for seed in range(3)
        for prompt in environment.prompts()
    ]
    lost = made(level="easy")
    easy = [finished(lost, prompt, anything) for prompt in lost.prompts()]
    assert sum(score.value or 0 for score in easy) / 60 > sum(s.value or 0 for s in scores) / 180


def test_illegal_moves_are_pointed_out_and_then_lose() -> None:
    environment = made(max_illegal=1)
    play = environment.start(environment.prompts(1)[0])
    (message,) = play.next("42") or ()  # type: ignore[misc]
    assert message["content"].startswith("That is not a legal move. Legal moves: ")
    assert play.next("hm") is None
    result = play.result()
    assert result is not None
    assert (result.value, result.outcome, result.reason) == (
        0.0,
        "incorrect",
        "lost by illegal moves",
    )
    assert play.counts["illegal_moves"] == 2


def test_moves_are_read_behind_reasoning() -> None:
    assert read_move("<think>3</think> 5", ["3", "5"]) == "5"
    assert read_move("<think>3", ["3", "5"]) is None
    assert read_move("3? No: 5!", ["3", "5"]) == "5"


def winning_start(environment: TicTacToe) -> tuple[Prompt, str]:
    """A prompt and the move that wins it at once."""
    for prompt in environment.prompts():
        for cell in "123456789":
            play = environment.start(prompt)
            if play.next(cell) is None and (result := play.result()) and result.value == 1:
                return prompt, cell
    raise AssertionError("no game can be won at once")


def test_a_game_is_collected_with_rewards_of_its_turns() -> None:
    template = load_policy("tiny", device="cpu").template
    environment = made(turn_rewards=True)
    prompt, winning = winning_start(environment)
    (group,) = collect(
        environment,
        ScriptedSampler(template, ["what?", "hm", winning, "hm", "hm"]),
        template,
        [(prompt, 0)],
        group_size=2,
        sampling=SamplingSettings(max_tokens=32),
        seed=0,
    )
    environment.close()
    played, confused = group.rollouts
    assert played.score.steps is not None
    assert [step.value for step in played.score.steps] == [0.0, 1.0]
    assert (played.reward, played.score.outcome) == (1.0, "correct")
    assert played.step_ends is not None
    assert [played.mask[end] for end in played.step_ends] == [True, True]
    assert confused.score.reason == "play: lost by illegal moves"
    assert confused.extras.counts == {"illegal_moves": 3}
