"""What tests of samplers on servers share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from groupwise.policies import Policy
from model_families import family_policy
from sampler_requests import unending


@pytest.fixture
def policy() -> Policy:
    return unending(family_policy("llama"))


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack
