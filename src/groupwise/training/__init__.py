"""A run from a recipe: `start.train` prepares it, `train.Loop` makes its steps."""
