"""What a verifier's errors are, before anyone trains on it.

`audit` runs it all; `run.py` says in which order. A labelled set, mutations of gold answers and
texts that try to earn without solving (probes) make the figures.
"""

from groupwise.verifiers.audit.families import arguments_of_set, kind_of
from groupwise.verifiers.audit.probes import PROBES, Probe, ProbeTask
from groupwise.verifiers.audit.report import AuditReport, ProbeFinding, Rate, SetRates
from groupwise.verifiers.audit.rows import SETS, LabelledRow, read_rows, shipped_rows
from groupwise.verifiers.audit.run import audit

__all__ = [
    "PROBES",
    "SETS",
    "AuditReport",
    "LabelledRow",
    "Probe",
    "ProbeFinding",
    "ProbeTask",
    "Rate",
    "SetRates",
    "arguments_of_set",
    "audit",
    "kind_of",
    "read_rows",
    "shipped_rows",
]
