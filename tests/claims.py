"""What the tests verify of each preset, collected from the tests themselves.

A test that proves something of presets by name carries `@claim(what, presets)`. The package holds
the collection as `algorithms/verified.json`; a test fails where it is not current.

    python tests/claims.py        # write it again (with src and tests on the path)
"""

from __future__ import annotations

import ast
import importlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "src" / "groupwise" / "algorithms" / "verified.json"
MODULES = (
    "algorithms.test_golden",
    "conformance.test_reference",
    "algorithms.test_parts",
    "conformance.test_invariances",
)
F = TypeVar("F", bound=Callable[..., Any])


def claim(what: str | Mapping[str, str], presets: Iterable[str] = ()) -> Callable[[F], F]:
    """Marks a test as the proof of one claim about presets, or of one claim for each of them."""
    found = what if isinstance(what, Mapping) else dict.fromkeys(presets, what)

    def mark(test: F) -> F:
        test.claims = {**getattr(test, "claims", {}), **found}  # type: ignore[attr-defined]
        return test

    return mark


def collected() -> dict[str, list[str]]:
    """claim -> the presets that it is tested of."""
    from groupwise.algorithms import PRESETS

    claims: dict[str, list[str]] = {}
    tests = [t for m in MODULES for t in vars(importlib.import_module(m)).values()]
    found = [getattr(test, "claims", {}) for test in tests if callable(test)]
    for each in (*found, trl_claims(), training_claims()):
        for preset, what in each.items():
            if preset in PRESETS:
                claims.setdefault(what, []).append(preset)
    return {what: sorted(set(presets)) for what, presets in claims.items()}


def trl_claims() -> dict[str, str]:
    """From the comparison's tables, read as text: importing that module imports TRL."""
    tree = ast.parse((ROOT / "tests" / "conformance" / "test_trl.py").read_text(encoding="utf-8"))
    tables = {
        node.target.id: node.value
        for node in tree.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    cases = ast.literal_eval(tables["CASES"]).values()
    plain = {name for name, overrides, _ in cases if overrides in ({}, {"kl_coef": 0})}
    how = {name: f" with {as_toml(overrides)[1:-1]}" for name, overrides, _ in cases}
    how |= dict.fromkeys(plain | {"rloo_clipped"}, "")
    version = re.search(r"^trl==(.+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert version is not None
    told = f"TRL {version[1]}'s own loss function, random tensors, 1e-6"
    claims = {name: f"{told}: loss and gradient{what}" for name, what in how.items()}
    return claims | {"gspo_length_weighted": f"{told}: loss, up to the factor of the mean length"}


def training_claims() -> dict[str, str]:
    """From the table of the experiment that trains every preset."""
    page = (ROOT / "docs" / "every_preset.md").read_text(encoding="utf-8")
    what = (
        "training: 30 steps of the tiny policy, reward of the last 5 above that of the first 5 in "
        "3 seeds of 3"
    )
    return dict.fromkeys(re.findall(r"^\| \[`(\w+)`\]", page, re.MULTILINE), what)


def as_toml(value: Any) -> str:
    from groupwise.algorithms.parts import number

    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{k} = {as_toml(v)}" for k, v in value.items()) + "}"
    return number(value) if isinstance(value, float) else str(value)


if __name__ == "__main__":
    from claims import collected as found

    TARGET.write_text(json.dumps(found(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
