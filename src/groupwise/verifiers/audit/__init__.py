"""What a verifier's errors are, before anyone trains on it.

`audit` measures labelled sets, gold answers and texts that try to earn without solving: `probes` is
what it tries, `scoring` how it asks, `report` what it found.
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
from groupwise.verifiers.audit.scoring import asks_a_model, audit

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
