"""Reward functions in TRL's form, as users write them."""

import asyncio


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
