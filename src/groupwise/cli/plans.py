"""The plan of a recipe, from what is known before any weight loads."""

from __future__ import annotations

from groupwise.planning import Plan, PlanInputs, plan
from groupwise.session import Prepared


def plan_of(prepared: Prepared) -> Plan:
    """Prompts, completions, tokens, parameters and bytes of a prepared recipe."""
    recipe = prepared.recipe
    return plan(PlanInputs())
