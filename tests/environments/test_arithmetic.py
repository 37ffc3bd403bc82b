"""Arithmetic: the table of sums, levels, disjoint splits, wording, rewards."""

import re

import pytest

from groupwise.environments import load_environment
from groupwise.environments.arithmetic import LEVELS, ArithmeticSettings
from groupwise.environments.problems import Problem, Space
from groupwise.errors import RecipeError


def load(seed=0, **arguments):
    return load_environment("arithmetic", seed=seed, **arguments)


def test_the_table_is_all_ordered_sums_of_at_most_nine():
    table = load()
    assert table.splits == ("train", "heldout")
    assert len(table) == 44
    assert len(table.prompts(split="heldout")) == 11
    pairs = {f"{a}+{b}=" for a in range(10) for b in range(10) if a + b <= 9}
    prompts = table.prompts(split="all")
    assert len(prompts) == len(pairs) == 55
    assert {prompt.last_text for prompt in prompts} == pairs
    for prompt in prompts:
        assert prompt.messages == ({"role": "user", "content": prompt.last_text},)
        a, b = map(int, prompt.last_text[:-1].split("+"))
        assert prompt.answer == str(a + b)
        assert table.verify(prompt, prompt.answer).value == 1.0
        assert table.verify(prompt, str(a + b + 1)).value == 0.0
        assert table.verify(prompt, "").outcome == "no_answer"


def test_the_split_and_ids_depend_on_the_seed_alone():
    again, other = load(seed=0), load(seed=1)
    assert [p.id for p in load().prompts(split="all")] == [p.id for p in again.prompts(split="all")]
    assert {p.id for p in load().prompts()} != {p.id for p in other.prompts()}
    assert {p.id for p in load().prompts(split="all")} == {p.id for p in other.prompts(split="all")}
    assert [p.answer for p in load().prompts(3)] == [p.answer for p in again.prompts(3)]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("seed", [0, 1])
def test_every_level_has_disjoint_splits_and_right_answers(level, seed):
    environment = load(seed, level=level, num_heldout=10, num_train=40)
    train, heldout = environment.prompts(), environment.prompts(split="heldout")
    assert len(heldout) == 10
    assert train
    assert not {p.last_text for p in train} & {p.last_text for p in heldout}
    assert not {p.columns["expression"] for p in train} & {p.columns["expression"] for p in heldout}
    assert len({p.id for p in [*train, *heldout]}) == len(train) + 10
    for prompt in [*train, *heldout]:
        assert str(eval(prompt.columns["expression"])) == prompt.answer
        assert 0 <= int(prompt.answer) <= LEVELS[level]["max_value"]
        assert environment.verify(prompt, f"It is {prompt.answer}.").outcome == "correct"


def test_commuted_problems_are_held_out_together():
    environment = load(level="below_20", num_heldout=60)

    def families(split):
        return {tuple(sorted(p.columns["operands"])) for p in environment.prompts(split=split)}

    held = families("heldout")
    assert len(families("train") & held) <= 1  # the family that num_heldout cuts
    assert not families("train") & held
    table = load()  # its sums are held out one by one
    commuted = {tuple(reversed(p.columns["operands"])) for p in table.prompts(split="heldout")}
    assert commuted & {tuple(p.columns["operands"]) for p in table.prompts()}


def test_counts():
    assert len(load(level="below_20")) == 210 - 40
    assert ArithmeticSettings(level="below_100").of_level("num_train") == 2000
    assert len(load(level="below_100", num_train=50, num_heldout=7).prompts(split="all")) == 57
    assert len(load(num_heldout=0)) == 55


@pytest.mark.parametrize(
    ("phrasing", "pattern"),
    [
        ("bare", r"\d+[+-]\d+="),
        ("question", r"(What is|Calculate|How much is|Compute|Find the value of) \d+ [+-] \d+[?.]"),
    ],
)
def test_phrasings(phrasing, pattern):
    environment = load(level="below_100", phrasing=phrasing, num_train=60, num_heldout=5)
    for prompt in environment.prompts():
        assert re.fullmatch(pattern, prompt.last_text), prompt.last_text


@pytest.mark.parametrize(
    "arguments", [{"level": "word"}, {"phrasing": "word"}, {"phrasing": "mixed"}]
)
def test_stories_are_refused_by_name(arguments):
    with pytest.raises(RecipeError, match=r"was removed; .* reasoning_gym:gsm_symbolic"):
        load(**arguments)


def test_expressions_of_several_steps():
    assert Problem(3, (("add", 4), ("multiply", 2))).compact == "(3+4)*2"
    assert Problem(3, (("multiply", 4), ("subtract", 2))).expression == "3 * 4 - 2"
    assert Problem(3, (("add", 4), ("multiply", 2))).values == [3, 7, 14]
    steps = {p.columns["num_operations"] for p in load(level="multi_step", num_train=40).prompts()}
    assert steps == {2, 3}


def test_negative_results_are_opt_in():
    few = {"level": "below_100", "operations": ["subtract"], "num_train": 100, "num_heldout": 0}
    assert min(int(p.answer) for p in load(**few).prompts()) >= 0
    assert min(int(p.answer) for p in load(**few, negative=True).prompts()) < 0


def test_enumeration_counts_everything_once():
    space = Space(("add", "subtract", "multiply"), 0, 4, 0, 16)
    problems = list(space.all())
    assert len(problems) == len(set(problems)) == 25 + 15 + 25


@pytest.mark.parametrize(
    ("kind", "wrapped"), [("boxed", r"\boxed{%s}"), ("tagged", "<answer>%s</answer>")]
)
def test_a_format_adds_a_gated_bonus_and_a_strict_part(kind, wrapped):
    environment = load(level="below_20", instructions=kind)
    prompt = environment.prompts(1)[0]
    assert "final number" in prompt.last_text
    right = environment.verify(prompt, wrapped % prompt.answer)
    assert (right.value, right.parts) == (1.2, {"number": 1.0, "format": 1.0, "strict": 1.0})
    loose = environment.verify(prompt, f"It is {prompt.answer}")
    assert (loose.value, loose.parts) == (1.0, {"number": 1.0, "format": 0.0, "strict": 0.0})
    wrong = environment.verify(prompt, wrapped % "999")
    assert (wrong.value, wrong.outcome) == (0.0, "incorrect")


def test_system_message_examples_and_own_words():
    environment = load(level="below_20", instructions="boxed", instructions_text="Box it.",
                       system="Be short.", examples=2)  # fmt: skip
    for prompt in environment.prompts(20):
        roles = [message["role"] for message in prompt.messages]
        assert roles == ["system", "user", "assistant", "user", "assistant", "user"]
        assert prompt.messages[0]["content"] == "Be short."
        assert prompt.messages[1]["content"] != prompt.last_text
        assert prompt.messages[3]["content"] != prompt.last_text
        assert prompt.last_text.endswith("\nBox it.")
        assert re.fullmatch(r".* = (\d+)\n\\boxed\{\1\}", prompt.messages[2]["content"])
    held = {p.last_text for p in environment.prompts(split="heldout")}
    shown = {m["content"] for p in environment.prompts(split="all") for m in p.messages[1:-1]}
    assert not held & shown


def test_own_verifiers_replace_the_built_in_ones():
    environment = load(verifiers=[{"name": "exact"}])
    prompt = environment.prompts(1)[0]
    assert environment.verify(prompt, prompt.answer).value == 1.0
    assert environment.verify(prompt, f"It is {prompt.answer}").value == 0.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"levle": "table"}, "did you mean 'level'"),
        ({"level": "hard"}, "level = 'hard'"),
        ({"num_heldout": 55}, "num_heldout = 55"),
        ({"num_train": 1000}, "num_train = 1000"),
        ({"num_train": 0}, "num_train = 0"),
        ({"operations": ["divide"]}, "divide"),
        ({"operations": []}, "operations"),
        ({"min_operand": 10}, "max_operand = 19"),
        ({"num_operations": [3, 1]}, "num_operations = [3, 1]"),
        ({"level": "multi_step", "num_train": 10**6, "max_operand": 3}, "num_train"),
        ({"examples": 32, "num_train": 20}, "examples = 32"),
        ({"verifiers": [{"name": "reward_functions_env:wants_level"}]}, "no module"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(RecipeError) as error:
        load(**arguments)
    assert message in str(error.value)


def test_describe():
    facts = load(level="below_20").describe()
    assert facts["name"] == "arithmetic"
    assert facts["splits"] == {"train": 170, "heldout": 40}
    assert (facts["duplicates"], facts["overlap"]) == (0, 0)
    assert facts["arguments"]["level"] == "below_20"
    assert facts["data_hash"] == load(level="below_20").describe()["data_hash"]
    assert facts["data_hash"] != load(1, level="below_20").describe()["data_hash"]
    assert facts["verifier"] == load().describe()["verifier"]
