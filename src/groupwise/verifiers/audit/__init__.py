"""What a verifier's errors are, before anyone trains on it.

`audit` measures labelled sets, changed gold answers and texts that try to earn without solving.
"""

from groupwise.verifiers.audit.report import AuditReport, ProbeFinding, Rate, SetRates
from groupwise.verifiers.audit.rows import (
    SETS,
    LabelledRow,
    arguments_of_set,
    read_rows,
    sets_of,
    shipped_rows,
)
from groupwise.verifiers.audit.run import audit
from groupwise.verifiers.audit.scoring import asks_a_model

__all__ = [
    "SETS",
    "AuditReport",
    "LabelledRow",
    "ProbeFinding",
    "Rate",
    "SetRates",
    "arguments_of_set",
    "asks_a_model",
    "audit",
    "read_rows",
    "sets_of",
    "shipped_rows",
]
