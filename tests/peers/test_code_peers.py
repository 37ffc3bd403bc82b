"""Programs and queries as the public suites have them: right ones pass, mutated ones do not.

Rows of our own writing in the shapes of HumanEval, MBPP and Spider. Every program is judged in four
layouts; each of its mutants (one operator, constant or comparison changed) that behaves otherwise
on its cases must fail.
"""

import ast
import copy

import pytest
from code_rows import HONEST
from sql_rows import DATABASE, QUERIES

from groupwise.types import Prompt
from groupwise.verifiers import Case, load_verifier, score_cases

pytestmark = pytest.mark.peers


def layouts(cases):
    """The columns of a row in the plain layout, MBPP's, HumanEval's and APPS's."""
    asserts = [
        f"assert f({', '.join(map(repr, arguments))}) == {expected!r}"
        for arguments, expected in cases
    ]
    check = "\n    ".join(each.replace("f(", "candidate(", 1) for each in asserts)
    return [
        {"entry": "f", "tests": [(list(arguments), expected) for arguments, expected in cases]},
        {"test_list": asserts},
        {"entry_point": "f", "test": f"def check(candidate):\n    {check}\n"},
        {
            "input_output": {
                "fn_name": "f",
                "inputs": [list(arguments) for arguments, _ in cases],
                "outputs": [[expected] for _, expected in cases],
            }
        },
    ]


def mutants(source):
    """Every program with one operator, constant or comparison changed."""
    swaps = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Mod: ast.Mult,
             ast.FloorDiv: ast.Mult, ast.Lt: ast.GtE, ast.LtE: ast.Gt, ast.Gt: ast.LtE,
             ast.GtE: ast.Lt, ast.Eq: ast.NotEq, ast.In: ast.NotIn, ast.NotIn: ast.In,
             ast.And: ast.Or, ast.Or: ast.And}  # fmt: skip
    tree = ast.parse(source)
    for place, node in enumerate(ast.walk(tree)):
        changed = copy.deepcopy(tree)
        other = next(each for number, each in enumerate(ast.walk(changed)) if number == place)
        if isinstance(node, (ast.BinOp, ast.BoolOp)) and type(node.op) in swaps:
            other.op = swaps[type(node.op)]()
        elif isinstance(node, ast.Compare) and type(node.ops[0]) in swaps:
            other.ops[0] = swaps[type(node.ops[0])]()
        elif isinstance(node, ast.Constant) and type(node.value) is int:
            other.value = node.value + 1
        else:
            continue
        yield ast.unparse(changed)


def scored(rows, **options):
    verifier = load_verifier("code", time_limit=1.0, **options)
    cases = [
        Case(Prompt(str(number), text="q", columns=columns), f"```python\n{source}\n```")
        for number, (columns, source) in enumerate(rows)
    ]
    return score_cases(verifier, cases)


def test_right_programs_pass_in_every_layout():
    rows = [(columns, source) for source, cases in HONEST for columns in layouts(cases)]
    for (columns, source), score in zip(rows, scored(rows)):
        assert score.value == 1.0, (source, columns, score.reason)


def test_mutants_that_behave_otherwise_fail():
    rows = []
    for number, (source, cases) in enumerate(HONEST):
        wrong = [each for each in mutants(source) if not behaves(each, cases)][:5]
        rows += [(layouts(cases)[number % 4], each) for each in wrong]
    assert len(rows) > 100
    for (columns, source), score in zip(rows, scored(rows)):
        assert score.value == 0.0, (source, columns)


def behaves(source, cases):
    """Whether a changed program of ours still answers its cases; it is run here.

    One that could run on is left out, as if it behaved.
    """
    if "while" in source or "range" in source or source.count("f(") > 1:
        return True
    space = {}
    exec(f"from typing import *\nfrom math import comb\n{source}", space)
    function = space.get("f") or space["Solution"]().f
    try:
        return all(function(*copy.deepcopy(list(given))) == wanted for given, wanted in cases)
    except Exception:  # noqa: BLE001 (a changed program may raise anything)
        return False


def test_queries_as_spider_has_them():
    verifier = load_verifier("sql")
    cases = [
        Case(Prompt(str(n), text="q", answer=gold, columns={"setup": DATABASE}), query)
        for n, (gold, query, _) in enumerate(QUERIES)
    ]
    for (gold, query, right), score in zip(QUERIES, score_cases(verifier, cases)):
        assert (score.value == 1.0) == right, (gold, query, score.reason)
