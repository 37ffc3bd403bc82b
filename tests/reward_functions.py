"""Reward functions in TRL's form, as users write them."""

import asyncio
import os
import signal


def has_answer(completions, answer, **kwargs):
    contents = [each[0]["content"] if isinstance(each, list) else each for each in completions]
    return [1.0 if str(gold) in text else 0.0 for text, gold in zip(contents, answer)]


def needs_level(prompts, completions, level, **kwargs):
    return [float(each) for each in level]


async def slow(prompts, completions, **kwargs):
    await asyncio.sleep(0.01)
    return [float(len(each)) for each in completions]


def fails_on_bad(completions, **kwargs):
    return [1.0 / (0 if text == "bad" else 1) for text in completions]


NOT_CALLABLE = 3


def sometimes_stuck(completions, log_metric=None, log_extra=None, trainer_state=None, **kwargs):
    while "stuck" in completions:
        continue
    if "bad" in completions:
        raise ValueError("no such thing")
    if "dies" in completions:
        import os

        os._exit(3)
    print("noise on standard output")
    log_metric("step", trainer_state.global_step)
    log_extra("batch", [len(completions)] * len(completions))
    return [float(len(each)) for each in completions]


def sets_an_alarm(completions, **kwargs):
    """As math-verify does: it works in the main thread alone."""
    import signal

    previous = signal.signal(signal.SIGALRM, lambda *_: None)
    signal.alarm(1)
    signal.alarm(0)
    signal.signal(signal.SIGALRM, previous)
    return [1.0] * len(completions)


def ranks(completions, level, **kwargs):
    """Compares the completions of a batch, with their columns."""
    order = sorted(range(len(completions)), key=lambda row: completions[row])
    return [float(order.index(row)) + 10 * level[row] for row in range(len(completions))]


def make_job_runner(*arguments):
    """A worker's factory for the pool's own tests."""
    import time

    def run(job):
        kind, value = job
        if kind == "sleep":
            time.sleep(value)
        elif kind == "memory":
            return len(bytearray(value))
        elif kind == "child":
            import subprocess

            return subprocess.Popen(["sleep", "60"]).pid
        elif kind == "power":
            return str(9 ** (9**value))[:1]  # holds the interpreter's lock for long
        return [arguments, value]

    return run


def cannot_start():
    raise RuntimeError("no licence")


def hangs(completions, **kwargs):
    while True:
        continue


def one_short(completions, **kwargs):
    return [0.0] * max(1, len(completions) - 1)


class NoVerifier:
    def __call__(self, completions, **kwargs):
        return [0.0] * len(completions)


def catastrophic_pattern(completions, **kwargs):
    import re

    text = "a" * 60 + "b" if "stuck" in completions else "a"
    return [1.0 if re.fullmatch(r"(a+)+", text) else 0.0] * len(completions)


async def swallows_its_cancellation(completions, **kwargs):
    while "stuck" in completions:
        try:  # noqa: SIM105
            await asyncio.sleep(0.01)
        except BaseException:  # noqa: BLE001, S110 (what users write)
            pass
    return [1.0] * len(completions)


def killed_by_the_system(completions, **_):
    if "kill" in completions:
        os.kill(os.getpid(), signal.SIGKILL)
    return [float(len(text)) for text in completions]
