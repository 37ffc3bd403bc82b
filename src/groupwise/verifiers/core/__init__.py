"""What a verifier is, how verifiers are found by name and composed."""
