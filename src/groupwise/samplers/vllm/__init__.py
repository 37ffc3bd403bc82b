"""Sampling with vLLM: servers over HTTP that take the learner's weights, checked by a probe."""
