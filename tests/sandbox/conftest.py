"""Sandboxes for the tests: one per tier, started once. Tier B must work on Linux x86-64."""

import sys

import pytest

from groupwise.sandbox import Sandbox, SandboxUnavailable


@pytest.fixture(scope="session")
def tier_a():
    try:
        sandbox = Sandbox(tier="A", size=2)
    except SandboxUnavailable as error:
        pytest.skip(f"no tier A on this machine: {error}")
    yield sandbox
    sandbox.close()


@pytest.fixture(scope="session")
def tier_b():
    if sys.platform != "linux":
        pytest.skip("the sandbox is for Linux")
    sandbox = Sandbox(tier="B", size=2)
    yield sandbox
    sandbox.close()


@pytest.fixture(params=["A", "B"])
def sandbox(request):
    return request.getfixturevalue(f"tier_{request.param.lower()}")
