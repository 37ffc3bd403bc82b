"""Packages by option, and trusted functions whose answers come back as data."""

import re

import numpy
import pytest

from groupwise.errors import RecipeError
from groupwise.sandbox import Job, Limits, Sandbox, TrustedCallFailed
from groupwise.sandbox.packages import find_packages


@pytest.fixture(scope="module", params=["A", "B"])
def with_numpy(request):
    request.getfixturevalue(f"tier_{request.param.lower()}")
    with Sandbox(tier=request.param, size=1, packages=("numpy",)) as sandbox:
        yield sandbox


def outcome(sandbox, source, *tests):
    return sandbox.grade(Job(source, tests, entry="f")).outcome


def test_numpy_by_option(with_numpy, tier_b):
    source = "import numpy as np\ndef f(n): return np.linalg.inv(np.eye(n) * 2)"
    assert outcome(with_numpy, source, ((2,), [[0.5, 0.0], [0.0, 0.5]])) == "passed"
    scalar = "import numpy as np\ndef f(n): return {'sum': np.arange(n).sum()}"
    assert outcome(with_numpy, scalar, ((4,), {"sum": 6})) == "passed"
    assert outcome(with_numpy, scalar, ((4,), {"sum": numpy.int64(6)})) == "passed"
    assert outcome(tier_b, source, ((2,), 0)) == "failed"


def test_its_random_numbers_are_the_same_in_every_run(with_numpy):
    job = Job("import numpy as np\ndef f(): return np.random.rand(3)", [((), 0)], entry="f")
    assert len({with_numpy.grade(job).reason for _ in range(3)}) == 1


def test_other_installed_packages_stay_out_of_reach(with_numpy):
    source = "def f():\n import torch"
    result = with_numpy.grade(Job(source, [((), 1)], entry="f"))
    assert result.outcome == "failed"
    assert "ModuleNotFoundError" in result.reason or "PermissionError" in result.reason


def test_a_trusted_function_answers_as_data(with_numpy):
    source = (
        "import numpy as np\ndef score(text, answer): return float(text == answer), np.arange(2)"
    )
    assert with_numpy.evaluate(source, "score", ("a", "a")) == (1.0, [0, 1])


FAILING = {
    "raises": ("def f(x): raise ValueError('no')", "ValueError: no"),
    "stuck": ("def f(x):\n while True: pass", "timeout"),
    "memory": ("def f(x): return bytearray(8 << 30)", "out_of_memory"),
    "gone": ("import os\ndef f(x): os._exit(0)", "crash"),
    "no data": ("def f(x): return object()", "object"),
}


@pytest.mark.parametrize("name", FAILING)
def test_a_trusted_function_that_gives_no_value_says_why(tier_b, name):
    source, cause = FAILING[name]
    with pytest.raises(TrustedCallFailed, match=cause):
        tier_b.evaluate(source, "f", (1,), limits=Limits(time=0.5))


@pytest.mark.parametrize("name", ["no_such_package", "no_such.part", "numpy.no_such", "", "."])
def test_a_package_that_is_not_installed_is_refused(name):
    with pytest.raises(RecipeError, match=re.escape(f"sandbox package {name!r} is not installed")):
        Sandbox(packages=(name,))


def test_packages_are_a_list():
    with pytest.raises(
        RecipeError, match=r"packages = 'numpy': give a list of names, as \['numpy'\]"
    ):
        find_packages("numpy")


def test_requirements_come_with_a_package():
    found = find_packages(["jsonschema"] if _installed("jsonschema") else ["sympy"])
    names = {path.rsplit("/", 1)[-1] for path in found.paths}
    assert names >= (
        {"jsonschema", "attrs", "referencing"} if _installed("jsonschema") else {"sympy", "mpmath"}
    )


def _installed(name):
    import importlib.util

    return importlib.util.find_spec(name) is not None


@pytest.mark.slow
@pytest.mark.parametrize("tier", ["A", "B"])
def test_a_trusted_package_that_executes_what_it_scores(tier, request):
    """As scorers of other libraries do: sympy evaluates its argument. The sandbox holds it."""
    request.getfixturevalue(f"tier_{tier.lower()}")
    source = "import sympy\ndef score(text): return str(sympy.sympify(text))"
    with Sandbox(tier=tier, size=1, packages=("sympy",)) as sandbox:
        assert sandbox.evaluate(source, "score", ("2**10 + 1",)) == "1025"
        with pytest.raises(TrustedCallFailed, match=r"PermissionError|FileNotFoundError"):
            sandbox.evaluate(source, "score", ("open('/etc/passwd').read()",))
        with pytest.raises(TrustedCallFailed, match=r"timeout|out_of_memory"):
            sandbox.evaluate(source, "score", ("9**9**9**9",), limits=Limits(time=1.0))
