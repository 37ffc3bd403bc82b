"""Verifiers by name, and one conformance table that every built-in inherits."""

import subprocess
import sys

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
        ({"percent": "half"}, "percent = 'half'"),
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
        "import sys, groupwise.verifiers.registry as r, groupwise.environments;"
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
