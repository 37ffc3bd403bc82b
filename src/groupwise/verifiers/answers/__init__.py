"""Verifiers that find one answer in a completion and compare it with the gold answer."""
