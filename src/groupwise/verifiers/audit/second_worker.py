"""math-verify as it comes, inside a worker process that can be killed; its own timers are off."""

from __future__ import annotations

import logging
from collections.abc import Callable


def make() -> Callable[[tuple[str, str]], str]:
    """The function that judges (gold, given): `equal`, `different`, `bad_answer`, `no_answer`."""
    logging.disable(logging.WARNING)
    from math_verify import LatexExtractionConfig, parse, verify

    config = (LatexExtractionConfig(),)

    def judge(job: tuple[str, str]) -> str:
        gold, given = (
            parse(f"\\boxed{{{text}}}", extraction_config=config, parsing_timeout=None)
            for text in job
        )
        if not gold:
            return "bad_answer"
        if not given or not job[1]:
            return "no_answer"
        return "equal" if verify(gold, given, timeout_seconds=None) else "different"

    judge(("x", "x"))
    return judge
