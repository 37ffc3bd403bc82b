"""Verifiers of programs, queries and proofs."""
