"""The OpenAI-compatible server in front of a sampler: for agents in training, and for `serve`."""
