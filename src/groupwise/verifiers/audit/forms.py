r"""The form in which a verifier reads an answer, found by trying: bare, boxed, tagged, ...

Labelled rows, mutations and probes state answers; a `Form` writes one as a completion that ends in
the way this verifier expects. Left out: what a right answer is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from groupwise.types import Prompt
from groupwise.verifiers.answers.comparison import gold_text
from groupwise.verifiers.core.composition import Composite
from groupwise.verifiers.core.contract import Verifier
from groupwise.verifiers.core.scores import BadAnswer

TEMPLATES: dict[str, str] = {
    "bare": "{}",
    "sentence": "The answer is {}.",
    "boxed": "\\boxed{{{}}}",
    "tagged": "<answer>{}</answer>",
    "think_answer": "<think>First, read the task.</think>\n<answer>{}</answer>",
    "hashes": "So that is it.\n#### {}",
}
"""Usual ways of giving an answer, tried in this order after the verifier's own."""

_MARK = re.compile("⟦(.*?)⟧", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Form:
    """`write(prompt, answer)` gives a completion that states `answer`, right or wrong."""

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
    forms = [template_form(name) for name in TEMPLATES]
    own = [each for each in parts_of(verifier) if _has_gold_completion(each, prompt)]
    return [*(_own_form(each) for each in own), *forms]


def best_form(forms: Sequence[Form], values: Sequence[float]) -> Form:
    """The form whose right answers earn most; the first of equals."""
    return forms[max(range(len(forms)), key=lambda place: (values[place], -place))]


def gold_of(prompt: Prompt) -> str | None:
    """The gold answer as text; None where the prompt has none."""
    answer = prompt.answer
    if isinstance(answer, (list, tuple)):
        return ", ".join(str(each) for each in answer) or None
    return gold_text(answer)


def parts_of(verifier: Verifier) -> list[Verifier]:
    """The verifiers of a composition; a single one alone."""
    if isinstance(verifier, Composite):
        return [component.verifier for component in verifier.components]
    return [verifier]


def _own_form(verifier: Verifier) -> Form:
    def write(prompt: Prompt, answer: str) -> str:
        try:
            return verifier.gold_completion(replace(prompt, answer=answer)) or answer
        except BadAnswer:  # an empty answer, written on purpose
            return answer

    return Form(f"{verifier.name}'s own", write)


def _has_gold_completion(verifier: Verifier, prompt: Prompt) -> bool:
    try:
        return verifier.gold_completion(prompt) is not None
    except BadAnswer:
        return False
