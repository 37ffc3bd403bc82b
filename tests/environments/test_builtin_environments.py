"""One table that every built-in environment inherits: seeds, splits, gold, refusals, levels."""

import json
import re
from dataclasses import dataclass, field
from functools import cache

import pytest

from groupwise.environments import BUILTIN, GeneratedSettings, load_environment
from groupwise.environments.identity import normalised_text
from groupwise.environments.registry import settings_class
from groupwise.errors import RecipeError
from groupwise.verifiers.audit import LabelledRow, audit


def columns(name, share=None):
    """A measure of difficulty that reads a column: its number, its length, or being in `share`."""

    def measure(prompt):
        value = prompt.columns[name]
        if share is not None:
            return float(value in share)
        return len(value) if isinstance(value, (list, str, dict)) else value

    return measure


def digits(prompt):
    return len(re.findall(r"\d", prompt.last_text))


@dataclass(frozen=True)
class Entry:
    """How an environment is made small, its levels from easy to hard, and what tells them apart."""

    harder: object
    levels: tuple = ("easy", "medium", "hard")
    arguments: dict = field(default_factory=lambda: {"num_train": 40, "num_heldout": 15})
    first_id: str = ""


ENTRIES = {
    "arithmetic": Entry(
        digits,
        ("table", "below_20", "below_100", "multi_step"),
        {"num_train": 40, "num_heldout": 10},
    ),
    "countdown": Entry(columns("numbers"), first_id="876464983f025622"),
    "target_token": Entry(lambda prompt: 0, (None,), {}),
    "code": Entry(columns("operations"), first_id="dc146123626a6745"),
    "sql": Entry(columns("clauses"), first_id="3bbf53fd09c9be12"),
    "instructions": Entry(columns("instruction_id_list"), first_id="fa8edf8c255a982d"),
}
# These read the user's rows, or are played; their own tests hold them.
APART = {
    "tic_tac_toe",
    "repository",
    "dataset",
    "mixture",
    "gsm8k",
    "math",
    "mmlu",
    "ifeval",
    "humaneval",
    "mbpp",
}
GENERATED = [name for name in ENTRIES if ENTRIES[name].first_id]
# These ask for the answer in a tag, in a box or on the last line.
PLACED = [name for name in GENERATED if issubclass(settings_class(name), GeneratedSettings)]


# The gold programs of these run in the sandbox when they are loaded.
RUNS = ("code",)


def some_slow(names):
    return [pytest.param(name, marks=pytest.mark.slow) if name in RUNS else name for name in names]


@cache
def made(name, seed=0, level=None, **more):
    level = level or ENTRIES[name].levels[0]
    arguments = {**ENTRIES[name].arguments, **more, **({"level": level} if level else {})}
    return load_environment(name, seed=seed, **arguments)


def ids(environment, split="all"):
    return [prompt.id for prompt in environment.prompts(split=split)]


def test_the_table_is_complete():
    assert set(BUILTIN) - APART == set(ENTRIES)
    assert all(entry.title for entry in BUILTIN.values())


@pytest.mark.parametrize("name", BUILTIN)
def test_every_argument_is_described(name):
    for argument, info in settings_class(name).model_fields.items():
        assert info.description, f"{name}.{argument} has no description"
    assert (settings_class(name).__doc__ or "").strip()


@pytest.mark.parametrize("name", some_slow(ENTRIES))
def test_the_seed_decides(name):
    first, again, other = made(name), made.__wrapped__(name), made(name, seed=1)
    assert first.prompts(split="all") == again.prompts(split="all")
    assert first.describe() == again.describe()
    assert ids(first, "train") != ids(other, "train")
    assert first.prompts(5) == first.prompts()[:5]
    assert len(first.prompts(5)) == 5


@pytest.mark.parametrize("name", some_slow(ENTRIES))
def test_ids_are_unique_and_splits_disjoint(name):
    for level in ENTRIES[name].levels:
        environment = made(name, level=level)
        assert len(set(ids(environment))) == len(ids(environment))
        train, heldout = (
            {normalised_text(prompt) for prompt in environment.prompts(split=split)}
            for split in ("train", "heldout")
        )
        assert train
        assert heldout
        assert not train & heldout


@pytest.mark.parametrize("name", some_slow(ENTRIES))
def test_gold_is_accepted_and_another_prompts_gold_is_not(name):
    for level in ENTRIES[name].levels:
        environment = made(name, level=level)
        prompts = environment.prompts(30)
        for prompt, other in zip(prompts, [*prompts[1:], prompts[0]]):
            gold = environment.verifier.gold_completion(prompt)
            if gold is None:
                assert not environment.verifier.needs_answer
                continue
            assert environment.verify(prompt, gold).outcome == "correct"
            assert environment.verify(prompt, f"Let me think.\n{gold}").outcome == "correct"
            if other.answer != prompt.answer:
                wrong = environment.verifier.gold_completion(other)
                assert environment.verify(prompt, wrong).value == 0


@pytest.mark.parametrize("instructions", ["tagged", "boxed", "line"])
@pytest.mark.parametrize("name", some_slow(ENTRIES))
def test_nothing_is_earned_without_an_answer(name, instructions):
    more = {"instructions": instructions} if name in PLACED else {}
    for level in ENTRIES[name].levels:
        environment = made(name, level=level, **more)
        for prompt in environment.prompts(20):
            for text in ("", "  \n\t", prompt.last_text, "I do not know.", "<answer></answer>"):
                score = environment.verify(prompt, text)
                assert score.value == 0, (prompt.last_text, text, score)


@pytest.mark.parametrize("name", some_slow(ENTRIES))
def test_levels_get_harder(name):
    means = []
    for level in ENTRIES[name].levels:
        prompts = made(name, level=level).prompts()
        means.append(sum(map(ENTRIES[name].harder, prompts)) / len(prompts))
    assert means == sorted(set(means)), means


@pytest.mark.parametrize("name", ENTRIES)
def test_describe_goes_into_json(name):
    described = json.loads(json.dumps(made(name).describe()))
    assert described["name"] == name
    assert described["splits"]["train"] == len(made(name))
    assert described["arguments"].get("level") == ENTRIES[name].levels[0]


@pytest.mark.parametrize("name", GENERATED)
def test_the_first_id_never_changes(name):
    """A changed id makes old records and new ones disagree on what was asked."""
    assert made(name).prompts()[0].id == ENTRIES[name].first_id


@pytest.mark.parametrize("name", some_slow(GENERATED))
def test_counts_never_move_a_prompt_to_the_other_side(name):
    few, many = made(name), made(name, num_train=150, num_heldout=60)
    assert set(ids(few, "train")) <= set(ids(many, "train"))
    assert set(ids(few, "heldout")) <= set(ids(many, "heldout"))
    assert not set(ids(few, "train")) & set(ids(many, "heldout"))


@pytest.mark.parametrize("name", some_slow(GENERATED))
def test_mixed_levels_and_solved_examples(name):
    more = {"instructions": "boxed"} if name in PLACED else {}
    environment = made(name, level="mixed", examples=2, system="Be brief.", **more)
    counts = [
        sum(prompt.columns["level"] == level for prompt in environment.prompts())
        for level in ("easy", "medium", "hard")
    ]
    assert sorted(counts) == [13, 13, 14]
    for prompt in environment.prompts(10):
        roles = [message["role"] for message in prompt.messages]
        assert roles == ["system", "user", "assistant", "user", "assistant", "user"]
        assert ("\\boxed{" in prompt.messages[2]["content"]) == (name in PLACED)
        assert prompt.messages[2]["content"] != prompt.messages[4]["content"]
        shown = [message["content"] for message in prompt.messages[:-1]]
        assert prompt.last_text not in shown


@pytest.mark.parametrize("name", some_slow(GENERATED))
def test_the_audit_finds_no_hole(name):
    environment = made(name, level="mixed")
    rows = [LabelledRow(each.id, each, "", accept=None) for each in environment.prompts()]
    report = audit(environment.verifier, rows, num_probed=4)
    assert report.passed, report.warnings


@pytest.mark.parametrize("name", GENERATED)
def test_other_words_and_other_verifiers(name):
    spoken = made(name, instructions_text="Say it.")
    assert spoken.prompts()[0].last_text.endswith("\nSay it.")
    silent = made(name, instructions_text="")
    assert "<answer>" not in silent.prompts()[0].last_text
    other = load_environment(name, verifiers=[{"name": "length", "arguments": {"max_tokens": 9,
        "slack": 1}}], num_train=3, num_heldout=1)  # fmt: skip
    assert other.verifier.name == "length"


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("countdown", {"levl": "easy"}, "did you mean 'level'"),
        ("countdown", {"level": "harder"}, "level = 'harder'"),
        ("countdown", {"num_numbers": [9, 9]}, "2 <= fewest <= most <= 8"),
        ("countdown", {"operations": "+^"}, "give some of"),
        ("countdown", {"num_numbers": [3, 2]}, "fewest <= most"),
        ("code", {"kinds": ["reversed"]}, "kinds.0 = 'reversed'"),
        ("sql", {"num_train": 0}, "num_train = 0"),
        (
            "countdown",
            {"max_number": 3, "num_numbers": [2, 2]},
            "ask for 1000 and 200 tasks, but only",
        ),
    ],
)
def test_arguments_that_do_not_do(name, arguments, message):
    with pytest.raises(RecipeError) as error:
        load_environment(name, **arguments)
    assert message in str(error.value)
