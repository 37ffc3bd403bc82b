"""A whole run: `train.py` is the loop, `session.py` builds what it holds, `output.py` its folder.

Left out: what a step is made of (rollouts.py, batches.py, learner.py) and how a run is watched.
"""
