"""A whole run: `train.py` is the loop, `start.py` starts and resumes it, `session.py` builds what
it holds, `output.py` chooses its folder.

Left out: what a step is made of (rollouts.py, batches.py, learner.py) and how a run is watched.
"""
