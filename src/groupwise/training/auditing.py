"""The audit before training: the verifiers on this data, once for each pair of both.

Cached by the hash of verifier, data and auditing code in the user's cache. A finding is a warning,
never a refusal: a person decides.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import groupwise.verifiers
from groupwise.environments import Environment
from groupwise.policies.cache import cache_folder
from groupwise.records.files import write_text
from groupwise.templates import Template
from groupwise.texts import from_json
from groupwise.verifiers import Composite, RewardFunction, Verifier
from groupwise.verifiers.audit import LabelledRow, asks_a_model, audit
from groupwise.verifiers.core.user import Isolated

BUDGET = 10.0
"""Seconds after which nothing further is asked of the verifier."""
LIMIT = 30.0
"""Seconds for one verdict; then it counts as a timeout, and the budget is spent."""
SHOWN = 3
"""Warnings that are printed; the record has them all."""
NUM_PROMPTS = 64
NUM_PROBED = 8
NUM_PROBED_REMOTE = 2
"""Prompts that probes run on where each verdict waits for a model."""


Notice = Callable[[str], None]


def audit_before(
    environment: Environment, template: Template, notice: Notice = lambda _message: None
) -> dict[str, Any]:
    """The audit of an environment's verifier on its prompts, JSON-able, from the cache if there.

    `strict` in it is the audit of the strict verifiers, None without any. Times are left out, so
    that equal runs have equal records. `notice` is called with a message before the first verdict.
    """
    strict = environment.strict
    return {
        **_audited("the verifier", environment.verifier, environment, template, notice),
        "strict": None
        if strict is None
        else _audited("the strict verifiers", strict, environment, template, notice),
    }


def _audited(
    what: str, verifier: Verifier, environment: Environment, template: Template, notice: Notice
) -> dict[str, Any]:
    prompts = environment.prompts(split="all")
    key = _key(verifier, environment.describe()["data_hash"])
    path = cache_folder() / "audits" / f"{key}.json"
    if path.is_file():
        found: dict[str, Any] = from_json(path.read_text(encoding="utf-8"))
        return {**found, "hash": key}
    notice(
        f"auditing {what} ({verifier.name}) before the first step: about {BUDGET:g} s, once for "
        "this verifier and data; environment.audit = false skips it"
    )
    chosen = prompts[:: max(1, len(prompts) // NUM_PROMPTS)][:NUM_PROMPTS]
    report = audit(
        verifier,
        [LabelledRow(prompt.id, prompt, "", accept=None) for prompt in chosen],
        sets=(),
        num_probed=NUM_PROBED_REMOTE if asks_a_model(verifier) else NUM_PROBED,
        budget=BUDGET,
        limit=LIMIT,
        encode=template.encode,
        weights=False,  # the run warns of them by itself, audited or not
    )
    found = report.to_dict()
    with suppress(OSError):  # a cache that cannot be written costs the next run a few seconds
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, json.dumps(found))
    return {**found, "hash": key}


def audit_warnings(audited: Mapping[str, Any] | None) -> list[str]:
    """The audit's first warnings for a person, and how many more; none where there was no audit."""
    if audited is None:
        return []
    found = [f"audit of the verifier: {warning}" for warning in audited["warnings"]]
    strict = audited.get("strict") or {"warnings": []}
    found += [f"audit of the strict verifiers: {warning}" for warning in strict["warnings"]]
    if len(found) <= SHOWN:
        return found
    more = f"audit: and {len(found) - SHOWN} more: groupwise audit RECIPE.toml"
    return [*found[:SHOWN], more]


def _key(verifier: Verifier, data_hash: str) -> str:
    digest = hashlib.sha256()
    room = Path(os.path.dirname(groupwise.verifiers.__file__))
    room_code = [path.read_text(encoding="utf-8") for path in sorted(room.rglob("*.py"))]
    for part in (verifier.signature(), data_hash, *_own_code(verifier), *room_code):
        digest.update(part.encode())
        digest.update(b"\0")
    return digest.hexdigest()[:24]


def _own_code(verifier: Verifier) -> Iterable[str]:
    """The source files that a user's verifier classes and reward functions are defined in.

    Whole files, because a verdict may depend on a helper in the same file.
    """
    if isinstance(verifier, Composite):
        for component in verifier.components:
            yield from _own_code(component.verifier)
    elif isinstance(verifier, Isolated):
        yield from _own_code(verifier.verifier)
    else:
        defined: Any = type(verifier)
        if isinstance(verifier, RewardFunction):
            defined = inspect.unwrap(verifier.function)
        try:
            yield Path(inspect.getfile(defined)).read_text(encoding="utf-8")
        except (OSError, TypeError):  # made at a prompt, or a callable object: its signature counts
            yield getattr(defined, "__qualname__", type(defined).__qualname__)
