"""Learners, samplers and verifiers on many machines, placed by Ray. `ray` is imported here alone,
and only inside functions: without it the rest of groupwise works, and asking for it says so."""

from groupwise.cluster.launch import train as train
