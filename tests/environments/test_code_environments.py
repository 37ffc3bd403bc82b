"""Functions and packages that are asked for: right by construction, judged in the sandbox."""

import json
import sys

import pytest

from groupwise.environments import load_environment
from groupwise.environments.functions import KINDS, OPERATIONS, PROBES, Chain, draw_chain
from groupwise.environments.registry import settings_class
from groupwise.errors import RecipeError
from groupwise.randomness import generator


def test_every_operation_gives_what_it_says():
    kinds = {list: "lists", str: "strings", int: "numbers"}
    for takes in KINDS:
        for number, operation in enumerate(OPERATIONS[takes]):
            made = operation.with_number(generator(0, "data", takes, number))
            chain = Chain(takes, (made,))
            values = [chain(value) for value in PROBES[takes]]
            assert {kinds[type(value)] for value in values} == {operation.gives}, operation


def test_chains_are_no_shorter_than_they_look():
    chains = [draw_chain(generator(0, "data", n), "lists", 2) for n in range(300)]
    assert None in chains
    for chain in filter(None, chains):
        first, second = chain.operations
        shorter = [Chain("lists", (first,))]
        if first.gives == "lists":
            shorter.append(Chain("lists", (second,)))
        for each in shorter:
            assert [each(v) for v in PROBES["lists"]] != [chain(v) for v in PROBES["lists"]]


def test_the_same_function_is_on_one_side():
    environment = load_environment("code", level="medium", num_train=60, num_heldout=20)
    sides = []
    for split in ("train", "heldout"):
        found = set()
        for prompt in environment.prompts(split=split):
            namespace = {}
            exec(prompt.answer, namespace)  # the environment's own program
            kind = prompt.last_text.split("solve(x: ")[1].split(")")[0]
            probes = PROBES[{"list[int]": "lists", "str": "strings", "int": "numbers"}[kind]]
            found.add((kind, repr([namespace["solve"](value) for value in probes])))
        sides.append(found)
    assert not sides[0] & sides[1]
    assert len(sides[1]) == 20


def test_cases_shown_rewarded_and_hidden_are_apart():
    environment = load_environment("code", num_train=20, num_heldout=0, num_shown=2)
    for prompt in environment.prompts():
        tests = [repr(case[0]) for case in prompt.columns["tests"]]
        hidden = [repr(case[0]) for case in prompt.columns["hidden_tests"]]
        assert len({*tests, *hidden}) == 12
        assert prompt.last_text.count("solve(") == 3
        for case in [*prompt.columns["tests"], *prompt.columns["hidden_tests"]]:
            assert f"solve({case[0][0]!r})" not in prompt.last_text


def test_a_table_of_the_known_cases_fails_the_hidden_ones():
    environment = load_environment("code", num_train=3, num_heldout=0)
    for prompt in environment.prompts():
        table = {repr(arguments[0]): value for arguments, value in prompt.columns["tests"]}
        cheat = f"```python\ndef solve(x):\n    return {table!r}.get(repr(x))\n```"
        assert environment.verify(prompt, cheat).value == 1
        (strict,) = environment.strict.score([_case(prompt, cheat)])
        assert strict.value == 0
        gold = environment.verifier.gold_completion(prompt)
        (strict,) = environment.strict.score([_case(prompt, gold)])
        assert strict.value == 1


def _case(prompt, text):
    from groupwise.verifiers import Case

    return Case(prompt, text)


def test_credit_by_fraction():
    environment = load_environment("code", num_train=5, num_heldout=0, credit="fraction")
    prompt = environment.prompts()[0]
    known = prompt.columns["tests"][0]
    partly = f"def solve(x):\n    return {known[1]!r} if x == {known[0][0]!r} else None"
    score = environment.verify(prompt, f"```python\n{partly}\n```")
    assert (score.value, score.outcome) == (pytest.approx(1 / 6), "partial")


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("code", {"num_train": 300, "kinds": ["numbers"]}, "distinct ones were found"),
        ("code", {"kinds": ["dicts"]}, "kinds.0 = 'dicts'"),
        ("code", {"instructions": "boxed"}, "instructions"),
    ],
)
def test_arguments_that_do_not_do(name, arguments, message, monkeypatch):
    monkeypatch.setattr(sys.modules["groupwise.environments.generated"], "MAX_IDLE", 50)
    with pytest.raises(RecipeError, match=message):
        load_environment(name, **arguments)


def test_settings_have_levels_for_what_they_leave_open():
    assert settings_class("code").model_fields["num_operations"].default is None


def test_brief_words_are_the_functions_alone():
    environment = load_environment(
        "code", wording="brief", kinds=["numbers"], num_train=30, num_heldout=5
    )
    for prompt in environment.prompts():
        assert prompt.last_text.startswith("solve(x): ")
        assert "\n" not in prompt.last_text
        assert environment.verify(prompt, prompt.answer).value == 1
    full = load_environment("code", kinds=["numbers"], num_train=30, num_heldout=5)
    assert [p.answer for p in full.prompts()] == [p.answer for p in environment.prompts()]


def test_rows_in_the_shape_of_apps(tmp_path):
    """`input_output` as JSON text, with a function's name or as a program's standard input."""
    rows = [
        {
            "question": "Double a number.",
            "input_output": json.dumps(
                {"fn_name": "double", "inputs": [[2], [5]], "outputs": [[4], [10]]}
            ),
            "solution": "def double(n):\n    return 2 * n",
        },
        {
            "question": "Read two numbers and print their sum.",
            "input_output": json.dumps({"inputs": ["1 2\n", "7 8\n"], "outputs": ["3\n", "15\n"]}),
            "solution": "print(sum(map(int, input().split())))",
        },
    ]
    path = tmp_path / "apps.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    arguments = {"path": str(path), "prompt": "question", "answer": "solution", "chat": True}
    environment = load_environment("dataset", verifiers=[{"name": "code"}], **arguments)
    function, program = environment.prompts()
    assert environment.verify(function, "```python\ndef double(n): return n + n\n```").value == 1
    assert environment.verify(function, "```python\ndef double(n): return n * n\n```").value == 0
    assert (
        environment.verify(program, "```python\na, b = input().split()\nprint(3)\n```").value == 0
    )
    rows[0]["solution"] = "def double(n):\n    return n"
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    with pytest.raises(RecipeError, match=r"line 1|rejected"):
        load_environment("dataset", verifiers=[{"name": "code"}], **arguments)
