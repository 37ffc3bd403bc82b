"""Measurements of speed and memory, of this project and of what people use today.

`make bench` runs `run.py`, `make bench-growth` runs `growth.py`; `gpu.py` and `kernels.py` run by
themselves with `python -m benchmarks.<name>`, from the root of a checkout. `ppo_comparison.py` and
`sandbox.py` are scripts of their own. Nothing here is installed with the package.
"""
