"""Verifiers that ask a language model behind an endpoint."""
