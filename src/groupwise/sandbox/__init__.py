"""Runs code that a model wrote, and keeps what it must not know or touch out of its reach.

`run_code` and `Sandbox` are what others use. The untrusted side is `guest/`; expected values and
every comparison stay in this process. What each tier protects against, and what it does not:
docs/security.md. Linux only; other systems are refused with the reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from groupwise.lazy import lazy_names
from groupwise.sandbox.results import (
    BROKEN_TESTS,
    Call,
    CodeOutcome,
    CodeResult,
    Job,
    Kind,
    Limits,
    Program,
    SandboxUnavailable,
    TrustedCallFailed,
    make_tests,
)
from groupwise.sandbox.tiers import Tier, TierChoice

if TYPE_CHECKING:
    from groupwise.sandbox.pool import Sandbox, run_code, shared_sandbox

__all__ = [
    "BROKEN_TESTS",
    "Call",
    "CodeOutcome",
    "CodeResult",
    "Job",
    "Kind",
    "Limits",
    "Program",
    "Sandbox",
    "SandboxUnavailable",
    "Tier",
    "TierChoice",
    "TrustedCallFailed",
    "make_tests",
    "run_code",
    "shared_sandbox",
]


# The pool needs Unix: it loads when it is asked for, so that importing works everywhere.
__getattr__, _ = lazy_names(__name__, __file__)
