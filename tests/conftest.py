"""What every test runs under: shape types checked, one thread, no network, float32 by default."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from hypothesis import settings
from jaxtyping import install_import_hook

install_import_hook(
    [
        "groupwise.algorithms",
        "groupwise.policies",
        "groupwise.samplers",
        "groupwise.batches",
        "groupwise.learner",
    ],
    "beartype.beartype",
)
# On a busy machine one example may wait.
settings.register_profile("untimed", settings.default, deadline=None)
settings.load_profile("untimed")
