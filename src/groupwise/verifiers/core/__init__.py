"""The contract of a verifier, verifiers by name, compositions; exported by `verifiers`."""
