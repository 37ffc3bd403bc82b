"""TRL-style reward functions unchanged. Faults 11, 12, 34, 35."""

import asyncio
import time

import pytest

from groupwise.errors import RecipeError, VerifierError
from groupwise.types import Prompt
from groupwise.verifiers import Case, RewardFunction, load_verifier, score_cases


def text_cases(*texts, **columns):
    return [
        Case(
            Prompt(f"p{row}", text=f"q{row}", answer=str(row),
                   columns={name: values[row] for name, values in columns.items()}),
            text,
            completion_ids=(row, 2),
        )
        for row, text in enumerate(texts)
    ]  # fmt: skip


def chat_case(text, answer="7", **fields):
    message = {"role": "user", "content": "3+4="}
    return Case(Prompt("p", (message,), answer), text, **fields)


def test_everything_arrives_by_keyword_and_aligned():
    seen = {}

    def reward(prompts, completions, completion_ids, level, answer, **kwargs):
        seen.update(kwargs, prompts=prompts, completions=completions, level=level, answer=answer,
                    completion_ids=completion_ids)  # fmt: skip
        return [0.5] * len(prompts)

    cases = text_cases("a", "b", level=[1, 2], extra=["x", "y"])
    scores = score_cases(RewardFunction(reward), cases)
    assert [score.value for score in scores] == [0.5, 0.5]
    assert seen["prompts"] == ["q0", "q1"]
    assert seen["completions"] == ["a", "b"]
    assert seen["completion_ids"] == [[0, 2], [1, 2]]
    assert seen["level"] == [1, 2]
    assert seen["extra"] == ["x", "y"]
    assert seen["answer"] == ["0", "1"]
    assert seen["trainer_state"].global_step == 0
    assert {"log_extra", "log_metric"} <= seen.keys()


def test_each_column_value_is_repeated_for_a_group():
    prompt = Prompt("p", text="q", columns={"level": 3})

    def reward(completions, level, **kwargs):
        assert level == [3, 3, 3]
        return [1.0] * len(completions)

    assert len(score_cases(RewardFunction(reward), [Case(prompt, text) for text in "abc"])) == 3


def test_chats_arrive_as_messages():
    def reward(prompts, completions, **kwargs):
        assert prompts == [[{"role": "user", "content": "3+4="}]]
        assert completions == [[{"role": "assistant", "content": "7"}]]
        return [1.0]

    assert score_cases(RewardFunction(reward), [chat_case("7")])[0].value == 1.0


def test_several_turns_arrive_whole():
    turns = (
        {"role": "assistant", "content": "call"},
        {"role": "tool", "content": "7"},
        {"role": "assistant", "content": "7"},
    )

    def reward(completions, **kwargs):
        assert completions == [[dict(turn) for turn in turns]]
        return [1.0]

    assert score_cases(RewardFunction(reward), [chat_case("7", turns=turns)])[0].value == 1.0


def test_a_function_without_kwargs_gets_only_what_it_asks_for():
    def reward(completions):
        return [float(len(text)) for text in completions]

    scores = score_cases(RewardFunction(reward), text_cases("a", "bcd", level=[1, 2]))
    assert [score.value for score in scores] == [1.0, 3.0]


def test_answer_column_wins_over_the_mapped_answer():
    def reward(completions, answer):
        return [1.0 if each == "column" else 0.0 for each in answer]

    cases = text_cases("a", answer=["column"])
    assert score_cases(RewardFunction(reward), cases)[0].value == 1.0


def test_none_is_not_applicable():
    def reward(completions, **kwargs):
        return [None if text == "b" else 1.0 for text in completions]

    scores = score_cases(RewardFunction(reward), text_cases("a", "b"))
    assert [score.value for score in scores] == [1.0, None]
    assert scores[1].outcome == "not_applicable"


def test_a_wrong_length_names_the_function():
    def short(completions, **kwargs):
        return [1.0]

    with pytest.raises(VerifierError, match="'short': expected 3 scores, one a completion; got 1"):
        score_cases(RewardFunction(short), text_cases("a", "b", "c"))


def test_a_forgotten_return_is_named():
    def silent(completions, **kwargs):
        pass

    with pytest.raises(VerifierError, match=r"'silent': expected a list .* got NoneType"):
        score_cases(RewardFunction(silent), text_cases("a"))


def test_an_exception_names_function_row_and_error():
    def fails(completions, **kwargs):
        return [{"a": 1.0, "b": 1.0}[text] for text in completions]

    with pytest.raises(
        VerifierError, match=r"'fails' raised on row 2 of 4 \(prompt 'p2'.*KeyError"
    ):
        score_cases(RewardFunction(fails), text_cases(*"abcb"))
    scores = score_cases(RewardFunction(fails), text_cases(*"abcb"), on_error="skip")
    assert [score.value for score in scores] == [1.0, 1.0, None, 1.0]


def test_async_functions_with_and_without_a_running_loop():
    async def reward(completions, **kwargs):
        async def one(index):
            await asyncio.sleep((len(completions) - index) * 0.02)
            return float(index)

        return list(await asyncio.gather(*(one(index) for index in range(len(completions)))))

    def check():
        start = time.monotonic()
        scores = score_cases(RewardFunction(reward), text_cases(*"abcdefgh"))
        assert [score.value for score in scores] == [float(index) for index in range(8)]
        assert time.monotonic() - start < 0.6

    check()

    async def notebook():
        check()

    asyncio.run(notebook())


def test_async_exceptions_follow_the_same_rule():
    async def fails(completions, **kwargs):
        await asyncio.sleep(0)
        return [1.0 / (text != "bad") for text in completions]

    with pytest.raises(VerifierError, match=r"row 1 of 2 .*ZeroDivisionError"):
        score_cases(RewardFunction(fails), text_cases("a", "bad"))


def test_logs_are_kept_and_taken_once():
    def reward(completions, log_extra=None, log_metric=None, trainer_state=None, **kwargs):
        log_extra("length", [len(text) for text in completions])
        log_metric("step", trainer_state.global_step)
        return [1.0] * len(completions)

    verifier = RewardFunction(reward)
    verifier.begin_step(5)
    score_cases(verifier, text_cases("a", "bc"))
    logs = verifier.take_logs()
    assert logs.columns == {"length": {("p0", "a"): 1, ("p1", "bc"): 2}}
    assert logs.metrics == {"step": 5.0}
    assert verifier.take_logs().columns == {}


def test_required_columns_are_known_before_any_call():
    verifier = load_verifier("reward_functions:needs_level")
    assert verifier.required_columns == {"level"}
    with pytest.raises(
        VerifierError, match=r"needs a column 'level', which row 0 .* it has answer"
    ):
        score_cases(verifier, text_cases("a"))
    scores = score_cases(verifier, text_cases("a", "b", level=["1", "0"]))
    assert [score.value for score in scores] == [1.0, 0.0]


def test_fixed_arguments_come_from_the_recipe():
    def reward(completions, bonus, **kwargs):
        return [bonus] * len(completions)

    verifier = RewardFunction(reward, arguments={"bonus": 0.25})
    assert verifier.required_columns == frozenset()
    assert score_cases(verifier, text_cases("a"))[0].value == 0.25
    assert verifier.signature() != RewardFunction(reward, arguments={"bonus": 1.0}).signature()


def test_a_function_of_a_module_by_name():
    verifier = load_verifier("reward_functions:has_answer")
    assert verifier.name == "has_answer"
    assert verifier.arguments["function"] == "reward_functions:has_answer"
    scores = score_cases(verifier, [chat_case("it is 7"), chat_case("it is 8")])
    assert [score.value for score in scores] == [1.0, 0.0]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("reward_functions:has_answr", "did you mean 'has_answer'"),
        ("no_such_module_here:f", "no module 'no_such_module_here'"),
        ("reward_functions:NOT_CALLABLE", "is a int"),
    ],
)
def test_names_that_lead_nowhere(name, message):
    with pytest.raises(RecipeError) as error:
        load_verifier(name)
    assert message in str(error.value)


def test_a_function_cannot_change_the_data_of_the_run():
    columns = {"tests": [[1, 2]], "table": {"a": [1]}}
    case = Case(Prompt("p", text="q", answer=["7"], columns=columns), "7")

    def changes(completions, answer, tests, table, **kwargs):
        for mine in (answer, tests):
            mine[0].append("more")
        table[0]["a"].clear()
        completions.clear()
        return [1.0]

    assert score_cases(RewardFunction(changes), [case])[0].value == 1.0
    assert columns == {"tests": [[1, 2]], "table": {"a": [1]}}
    assert case.prompt.answer == ["7"]


class Unusual(BaseException):
    """As a test library's failure, or a cancelled task: no Exception."""


@pytest.mark.parametrize("error", [asyncio.CancelledError, SystemExit, Unusual, GeneratorExit])
@pytest.mark.parametrize("is_async", [False, True])
def test_whatever_a_function_raises_names_it_and_its_row(error, is_async):
    def fails(completions, **kwargs):
        if "bad" in completions:
            raise error("mine")
        return [1.0] * len(completions)

    async def fails_later(completions, **kwargs):
        await asyncio.sleep(0)
        return fails(completions)

    function = fails_later if is_async else fails
    with pytest.raises(VerifierError, match=rf"row 1 of 2 .*'bad'\): {error.__name__}"):
        score_cases(RewardFunction(function), text_cases("good", "bad"))
    scores = score_cases(RewardFunction(function), text_cases("good", "bad"), on_error="skip")
    assert [score.value for score in scores] == [1.0, None]


def test_a_logged_column_of_another_length_is_named():
    def logs(completions, log_extra=None, **kwargs):
        log_extra("seen", [1])
        return [1.0] * len(completions)

    with pytest.raises(VerifierError, match=r"'logs' logged 1 values in column 'seen' for 2"):
        score_cases(RewardFunction(logs), text_cases("a", "b"))
