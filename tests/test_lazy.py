"""Names that load with their first use."""

import doctest

import pytest

import groupwise.evaluation
import groupwise.lazy
import groupwise.sandbox
import groupwise.scorers


def test_examples():
    assert doctest.testmod(groupwise.lazy).failed == 0


@pytest.mark.parametrize("room", [groupwise.evaluation, groupwise.sandbox, groupwise.scorers])
def test_every_public_name_is_there_and_no_other(room):
    for name in room.__all__:
        assert getattr(room, name) is not None
    with pytest.raises(
        AttributeError, match=f"module '{room.__name__}' has no attribute 'nothing'"
    ):
        room.nothing  # noqa: B018
