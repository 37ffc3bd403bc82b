"""Names that load with their first use."""

import pytest

import groupwise.evaluation
import groupwise.policies
import groupwise.samplers
import groupwise.sandbox
import groupwise.scorers

ROOMS = [
    groupwise,
    groupwise.evaluation,
    groupwise.policies,
    groupwise.samplers,
    groupwise.sandbox,
    groupwise.scorers,
]


def test_the_stable_surface_is_listed():
    assert {"train", "sample", "score", "verify", "run_code", "preset"} < set(groupwise.__all__)
    assert dir(groupwise) == sorted([*groupwise.__all__, "__version__"])


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.__name__)
def test_every_public_name_is_there_and_no_other(room):
    for name in room.__all__:
        assert getattr(room, name) is not None
    with pytest.raises(
        AttributeError, match=f"module '{room.__name__}' has no attribute 'nothing'"
    ):
        room.nothing  # noqa: B018
