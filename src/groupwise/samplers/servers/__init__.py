"""Sampling with servers over HTTP that take the learner's weights, checked by a probe."""
