"""Named findings about a run, from its record alone: what is wrong, what shows it, what to do."""

from groupwise.doctor.diagnosis import Diagnosis as Diagnosis
from groupwise.doctor.diagnosis import diagnose as diagnose
from groupwise.doctor.diagnosis import kinds as kinds
from groupwise.doctor.finding import Finding as Finding
from groupwise.doctor.finding import Sample as Sample
