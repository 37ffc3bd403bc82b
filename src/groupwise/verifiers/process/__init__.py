"""Verifiers of steps, and of what an environment itself decided."""
