"""The worked examples in this room's docstrings hold."""

import doctest
import importlib

import pytest

MODULES = ["comparison", "results", "pool", "guest.values", "guest.sources"]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name, tier_b):
    found = doctest.testmod(importlib.import_module(f"groupwise.sandbox.{name}"))
    assert found.failed == 0
    assert found.attempted > 0
