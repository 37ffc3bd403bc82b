r"""The form in which a verifier reads an answer, found by trying: bare, boxed, tagged, ...

Labelled rows, mutations and probes state answers; a `Form` writes one as a completion that ends in
the way this verifier expects.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from groupwise.types import Prompt
from groupwise.verifiers.answers.extraction import last_box
from groupwise.verifiers.core.composition import Composite
from groupwise.verifiers.core.contract import Verifier
from groupwise.verifiers.core.scores import BadAnswer, answer_members

TEMPLATES: dict[str, str] = {
    "bare": "{}",
    "sentence": "The answer is {}.",
    "boxed": "\\boxed{{{}}}",
    "tagged": "<answer>{}</answer>",
    "think_answer": "<think>First, read the task.</think>\n<answer>{}</answer>",
    "hashes": "So that is it.\n#### {}",
}
"""Usual ways of stating an answer, tried in this order after the verifier's own."""

_MARK = re.compile("⟦(.*?)⟧", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Form:
    """`write(prompt, answer)` is a completion that states `answer`, right or wrong."""

    name: str
    write: Callable[[Prompt, str], str]

    def fill(self, prompt: Prompt, text: str) -> str:
        """A labelled text with every ⟦answer⟧ written in this form."""
        return _MARK.sub(lambda match: self.write(prompt, match.group(1)), text)


def template_form(name: str) -> Form:
    """One of `TEMPLATES` by name."""
    template = TEMPLATES[name]
    return Form(name, lambda _prompt, answer: template.format(answer))


def candidate_forms(verifier: Verifier, prompt: Prompt) -> list[Form]:
    """The forms to try: that of the verifier's own gold completions, then the usual ones."""
    parts = parts_of(verifier)
    own = [_own_form(each) for each in parts if _gold_completion(each, prompt) is not None]
    return [*own, *map(template_form, TEMPLATES)]


def gold_of(prompt: Prompt, first: bool = False) -> str | None:
    """The gold answer as text out of its box, or None if the prompt has none.

    Of a list it is all members, or only the `first` if they are alternatives.
    """
    try:
        members = [texts[0] for texts in answer_members(prompt.answer)]
    except BadAnswer:
        return None
    return ", ".join(last_box(each) or each for each in (members[:1] if first else members))


def parts_of(verifier: Verifier) -> list[Verifier]:
    """The verifiers of a composition; a single one alone."""
    if isinstance(verifier, Composite):
        return [component.verifier for component in verifier.components]
    return [verifier]


def _own_form(verifier: Verifier) -> Form:
    def write(prompt: Prompt, answer: str) -> str:
        return _gold_completion(verifier, replace(prompt, answer=answer)) or answer

    return Form(f"{verifier.name}'s own", write)


def _gold_completion(verifier: Verifier, prompt: Prompt) -> str | None:
    try:
        return verifier.gold_completion(prompt)
    except BadAnswer:
        return None
