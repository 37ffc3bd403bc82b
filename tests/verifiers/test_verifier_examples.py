"""The worked examples in this room's docstrings hold."""

import doctest
import importlib
import pkgutil

import pytest

import groupwise.verifiers

MODULES = [each.name for each in pkgutil.iter_modules(groupwise.verifiers.__path__)]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    module = importlib.import_module(f"groupwise.verifiers.{name}")
    assert doctest.testmod(module).failed == 0
