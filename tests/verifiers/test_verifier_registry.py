"""Verifiers by name, and one conformance table that every built-in inherits."""

import subprocess
import sys
from dataclasses import replace

import pytest

from groupwise.errors import RecipeError
from groupwise.types import Prompt
from groupwise.verifiers import BUILTIN, Case, load_verifier, score_cases, verifier_class, verify


def test_unknown_names_suggest_the_nearest():
    with pytest.raises(RecipeError, match="unknown verifier 'nubmer'; did you mean 'number'"):
        load_verifier("nubmer")
    with pytest.raises(
        RecipeError, match=r"argument of verifier 'number'.*did you mean 'tolerance'"
    ):
        verify("number", completion="7", answer="7", tolerence=0.1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tolerance": -1}, "tolerance = -1"),
        ({"tolerance": "wide"}, "tolerance = 'wide'"),
        ({"percent": "divide"}, r"'percent' was removed; use a list of accepted answers"),
    ],
)
def test_bad_arguments_name_field_value_and_meaning(arguments, message):
    with pytest.raises(RecipeError) as error:
        load_verifier("number", **arguments)
    assert message in str(error.value)


@pytest.mark.parametrize("name", BUILTIN)
def test_every_field_is_described(name):
    for field, info in verifier_class(name).model_fields.items():
        assert info.description, f"{name}.{field} has no description"
    assert (verifier_class(name).__doc__ or "").strip()


def test_no_torch_and_a_light_import():
    code = (
        "import sys, groupwise.verifiers.core.registry as r, groupwise.environments;"
        "[r.verifier_class(n) for n in r.BUILTIN];"
        "heavy = {'torch', 'transformers', 'datasets', 'sympy', 'pandas', 'pyarrow'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    # A folder on the path stands in for the package, whose own __init__ is not under test here.
    stub = (
        "import types, sys, pathlib;"
        "root = next(pathlib.Path(p, 'groupwise') for p in sys.path"
        " if pathlib.Path(p, 'groupwise', 'types.py').is_file());"
        "package = types.ModuleType('groupwise'); package.__path__ = [str(root)];"
        "sys.modules['groupwise'] = package;"
    )
    run = subprocess.run(
        [sys.executable, "-c", stub + code],
        capture_output=True, text=True, check=True, env={"PYTHONPATH": ":".join(sys.path)},
    )  # fmt: skip
    assert run.stdout.strip() == "[]"


def test_score_by_name_takes_columns():
    assert verify("number", completion="7", answer="7", columns={"level": 1}).value == 1.0
    prompt = Prompt("p", ({"role": "user", "content": "3+4="},), "7")
    assert score_cases(load_verifier("exact"), [Case(prompt, "7")])[0].value == 1.0


# One entry a built-in: its arguments, and a prompt that fits it. A newcomer must be added here.
COLUMNS = {
    "choices": ["a cat", "the dog"],
    "language": "en",
    "schema": {"type": "object"},
    "instruction_id_list": ["punctuation:no_comma"],
    "kwargs": [{}],
    "tests": [{"input": "", "output": "7"}],
    "setup": "create table t (x integer)",
    "numbers": [3, 4],
    "target": 7,
    "puzzle": ["12..", "3412", "2143", "4321"],
}
NOBODY = {"url": "http://127.0.0.1:9", "model": "nobody", "tries": 1}
SETUPS = {
    "exact": ({}, "dog"),
    "number": ({}, "7"),
    "tagged": ({}, "7"),
    "boxed": ({}, "7"),
    "format": ({}, "7"),
    "math": ({}, "7"),
    "choice": ({}, "B"),
    "regex": ({"pattern": r"(?P<answer>\d+)"}, "7"),
    "json_schema": ({}, None),
    "language": ({}, None),
    "length": ({"max_tokens": 8, "slack": 4}, None),
    "repetition": ({}, None),
    "target": ({"target": "7"}, None),
    "instructions": ({}, None),
    "judge": (NOBODY, "7"),
    "rubric": ({"judge": NOBODY, "criteria": [{"name": "a", "text": "It is right."}]}, "7"),
    "code": ({"time_limit": 10, "memory_megabytes": 256}, "print(7)"),
    "sql": ({}, "select 7"),
    "text": ({}, "dog"),
    "countdown": ({}, "3 + 4"),
    "play": ({}, None),
    "reasoning_gym": ({"task": "gcd"}, "4"),
}
# Columns of verifiers whose rows are their own kind.
OWN_COLUMNS = {
    "reasoning_gym": {
        "entry": {
            "question": "What is the GCD of 8 and 12?",
            "answer": "4",
            "metadata": {"numbers": [8, 12], "result": 4},
        }
    },
}
TEXTS = ["", " ", "7", "dog", "<think>", "</think>", "<answer>7</answer>", r"\boxed{7}",
         "\x00\ud7ff", "a" * 5000, "7 " * 2000, "{}", "{" * 500, "\\" * 500, "(" * 500, "\n" * 500,
         "🙂 7", "７", "The answer is B.", "We add the two numbers and then divide."]  # fmt: skip


def setup(name):
    arguments, answer = SETUPS[name]
    columns = COLUMNS | OWN_COLUMNS.get(name, {})
    return load_verifier(name, **arguments), Prompt("p", text="q", answer=answer, columns=columns)


def test_the_conformance_table_is_complete():
    assert set(SETUPS) == set(BUILTIN)


@pytest.mark.parametrize("name", SETUPS)
def test_scores_are_finite_in_order_and_do_not_depend_on_the_batch(name):
    verifier, prompt = setup(name)
    # In reasoning-gym a process a text, so the hostile ones (test_hostile_texts.py) are few.
    hostile = ["", "7", "<answer>\ud800</answer>", "<answer>\0</answer>"]
    texts = hostile if name == "reasoning_gym" else TEXTS
    cases = [Case(prompt, text, completion_ids=tuple(range(len(text)))) for text in texts]
    batch = score_cases(verifier, cases)
    assert batch == [score_cases(verifier, [case])[0] for case in cases]
    assert batch == score_cases(verifier, cases[::-1])[::-1]
    for score in batch:
        assert score.value is None or -1 <= score.value <= 1
        assert score.reason
        assert len(score.reason) < 400


@pytest.mark.parametrize("name", SETUPS)
def test_its_own_gold_answer_is_accepted_and_its_signature_is_stable(name):
    verifier, prompt = setup(name)
    assert verifier.check_answer(prompt) is None
    assert verifier.signature() == setup(name)[0].signature()
    assert verifier.name == name
    assert verifier.required_columns <= set(prompt.columns)


@pytest.mark.parametrize("name", SETUPS)
def test_a_row_without_what_it_needs_is_not_scored(name):
    verifier, prompt = setup(name)
    if verifier.needs_answer:
        without = Prompt("p", text="q", columns=prompt.columns)
        (score,) = score_cases(verifier, [Case(without, "7")])
        assert (score.value, score.outcome) == (None, "bad_answer")


ODD = [None, float("nan"), True, 0, 7.0, -1e308, "", " ", [], ["7", "seven"], [None], [["7"]],
       {"a": 1}, {}, b"7", float("inf"), ["7", True]]  # fmt: skip


@pytest.mark.parametrize("name", sorted(SETUPS))
def test_whatever_a_column_holds_is_judged_or_refused(name):
    """No kind of gold answer or column raises; what cannot be used is not scored."""
    verifier, prompt = setup(name)
    prompts = [replace(prompt, answer=odd) for odd in ODD]
    for column in verifier.required_columns:
        columns = [{**prompt.columns, column: odd} for odd in ODD]
        prompts += [replace(prompt, columns=each) for each in columns]
    for each in prompts:
        (score,) = score_cases(verifier, [Case(each, "7", completion_ids=(7,))])
        assert score.outcome != "infrastructure_error" or name in ("judge", "rubric")
        assert verifier.check_answer(each) is None or score.outcome != "correct"


@pytest.mark.parametrize(
    ("name", "legal"),
    [
        ("./rewards.py:short_and_right", '"rewards:short_and_right"'),
        ("rewards.py:short_and_right", '"rewards:short_and_right"'),
        ("/home/me/rewards.py:short_and_right", '"rewards:short_and_right"'),
        ("rewards:", '"rewards:function"'),
        (":short_and_right", '"rewards:short_and_right"'),
    ],
)
def test_a_path_in_place_of_a_module_is_refused_with_the_module_s_name(name, legal):
    with pytest.raises(RecipeError) as error:
        load_verifier(name)
    assert str(error.value).startswith(f"verifier {name!r}: not `module:name` of Python")
    assert str(error.value).endswith(f"give {legal}")


def test_a_missing_argument_is_called_missing():
    with pytest.raises(RecipeError, match=r"^verifier 'regex': pattern is missing \("):
        load_verifier("regex")


def test_a_missing_name_lists_the_functions_and_classes_of_the_module():
    with pytest.raises(RecipeError) as caught:
        load_verifier("reward_functions:has_answr")
    message = str(caught.value)
    assert "did you mean 'has_answer'" in message
    legal = message.partition("Legal: ")[2].split(", ")
    assert {"has_answer", "slow", "NoVerifier"} <= set(legal)
    assert not {"asyncio", "NOT_CALLABLE"} & set(legal)


def test_a_class_that_is_no_verifier_is_refused():
    with pytest.raises(RecipeError, match="is a class, and not derived from"):
        load_verifier("reward_functions:NoVerifier")


def test_a_verifier_class_with_other_arguments_is_refused():
    with pytest.raises(RecipeError, match="missing a required argument: 'name'"):
        load_verifier("groupwise.verifiers.core.user:Isolated")
