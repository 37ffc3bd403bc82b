"""An environment as a user writes one, with turns of its own."""

from groupwise.environments import Environment, Episode, prompt_id
from groupwise.types import Prompt
from groupwise.verifiers import compose, load_verifier


class Twice(Environment):
    """The policy is asked twice; its last word counts."""

    def __init__(self, seed=0, size=3, verifiers=()):
        prompts = [
            Prompt(prompt_id(text=f"{n}+{seed}="), text=f"{n}+{seed}=", answer=n + seed)
            for n in range(size)
        ]
        verifier = compose(verifiers or [{"name": "number"}])
        super().__init__("twice", verifier, {"train": prompts})

    def start(self, prompt):
        return AskAgain(prompt)


class AskAgain(Episode):
    def __init__(self, prompt):
        super().__init__(prompt)
        self.asked = False

    def next(self, completion):
        if self.asked:
            return None
        self.asked = True
        return [{"role": "user", "content": "Sure?"}]


def single(seed=0):
    """One whose verifier is not a composition."""
    return Environment("single", load_verifier("number"), {"train": Twice().prompts()})


def not_an_environment(seed=0):
    return 3


LIST = [1]
