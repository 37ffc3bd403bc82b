"""Proof of exact resume: a recipe is run unbroken, and killed again and again, and compared."""

from groupwise.proving.check import ResumeCheck as ResumeCheck
from groupwise.proving.check import verify_resume as verify_resume
