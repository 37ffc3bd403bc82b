"""Arithmetic problems in words: bare expressions, questions, and small stories.

Which wording a problem gets is a function of the seed and the problem.
"""

from __future__ import annotations

from groupwise.environments.problems import Problem
from groupwise.randomness import generator

PHRASINGS = ("bare", "question", "word", "mixed")

_QUESTIONS = (
    "What is {expression}?",
    "Calculate {expression}.",
    "How much is {expression}?",
    "Compute {expression}.",
    "Find the value of {expression}.",
)
_PEOPLE = (
    "Anna", "Ben", "Carla", "David", "Emma", "Farid", "Grace", "Hugo", "Ines", "Jack", "Kira",
    "Liam", "Maria", "Noah", "Olga", "Pedro", "Rosa", "Sam", "Tara", "Viktor",
)  # fmt: skip
_THINGS = (
    "apples", "books", "marbles", "coins", "pencils", "stickers", "shells", "cards", "stamps",
    "cookies", "buttons", "flowers", "stones", "beads", "photos", "oranges",
)  # fmt: skip
_STEPS: dict[str, tuple[str, ...]] = {
    "add": (
        "{name} finds {n} more.",
        "A friend gives {name} {n} more.",
        "{name} buys {n} more.",
        "Then {n} more are added.",
    ),
    "subtract": (
        "{name} gives {n} of them away.",
        "{name} loses {n} of them.",
        "{name} sells {n} of them.",
        "Then {n} of them are taken away.",
    ),
    "multiply": (
        "Then the number of {things} is multiplied by {n}.",
        "After a while {name} has {n} times as many.",
    ),
}
_ENDINGS = (
    "How many {things} does {name} have now?",
    "How many {things} does {name} have in the end?",
)
_BOXES = "{name} has {start} boxes with {n} {things} in each."


def phrase(problem: Problem, phrasing: str, seed: int) -> str:
    """The problem as a prompt's text, in one of `PHRASINGS`.

    >>> phrase(Problem(3, (("add", 4),)), "bare", seed=0)
    '3+4='
    """
    random = generator(seed, "data", "wording", problem.expression)
    if phrasing == "mixed":
        phrasing = random.choice(("bare", "question", "word"))
    if phrasing == "bare":
        return f"{problem.compact}="
    if phrasing == "question":
        return random.choice(_QUESTIONS).format(expression=problem.expression)
    name, things = random.choice(_PEOPLE), random.choice(_THINGS)
    sentences = [f"{name} has {problem.start} {things}."]
    steps = problem.steps
    if steps[0][0] == "multiply":
        sentences = [_BOXES.format(name=name, start=problem.start, n=steps[0][1], things=things)]
        steps = steps[1:]
    for operation, operand in steps:
        step = random.choice(_STEPS[operation])
        sentences.append(step.format(name=name, n=operand, things=things))
    ending = random.choice(_ENDINGS)
    return " ".join([*sentences, ending.format(name=name, things=things)])
