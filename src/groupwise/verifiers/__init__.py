"""Text to score: what a completion is worth, by rules that can be read.

Sub-rooms, each importing only from those before it: `core` (the contract, names, compositions),
`answers` (compared with the gold answer), `text` (form, language, instructions), `process` (steps),
`code` (programs, queries, proofs), `judge` (a model behind an endpoint), `audit` (a verifier's
errors). No torch: model-backed verifiers are in `scorers/`.
"""

from groupwise.imports import import_object
from groupwise.verifiers.core.composition import Combine, Component, Composite, check_label
from groupwise.verifiers.core.contract import (
    AnswerVerifier,
    Case,
    OnError,
    SettingsVerifier,
    Verifier,
    VerifierLogs,
    check_verdicts,
    score_cases,
)
from groupwise.verifiers.core.registry import (
    BUILTIN,
    VerifierSettings,
    VerifierTables,
    compose,
    load_verifier,
    verifier_class,
    verifier_from_table,
    verify,
)
from groupwise.verifiers.core.scores import BadAnswer, accepted_answers, as_score
from groupwise.verifiers.core.user import RewardFunction

__all__ = [
    "BUILTIN",
    "AnswerVerifier",
    "BadAnswer",
    "Case",
    "Combine",
    "Component",
    "Composite",
    "OnError",
    "RewardFunction",
    "SettingsVerifier",
    "Verifier",
    "VerifierLogs",
    "VerifierSettings",
    "VerifierTables",
    "accepted_answers",
    "as_score",
    "check_label",
    "check_verdicts",
    "compose",
    "import_object",
    "load_verifier",
    "score_cases",
    "verifier_class",
    "verifier_from_table",
    "verify",
]
