"""Reward functions that read a data set's columns."""


def wants_level(completions, level, **kwargs):
    return [float(each) for each in level]


def wants_source(completions, source, **kwargs):
    return [1.0] * len(completions)
