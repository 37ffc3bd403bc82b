"""Format alone: `format` is 1 if the completion has the asked form with a readable answer inside.

A form without content earns nothing, nor does the form several times, so that the bonus cannot be
farmed. It does not say whether the answer is right; gate it on a verifier that does.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from groupwise.types import Prompt, Score
from groupwise.verifiers.answers.extraction import after_reasoning, boxes, last_box, repaired
from groupwise.verifiers.answers.numbers import parse_number
from groupwise.verifiers.answers.tokens import plain
from groupwise.verifiers.core.contract import Case, SettingsVerifier
from groupwise.verifiers.core.scores import TAG, BadAnswer, accepted_answers, no_answer


def is_empty(content: str) -> bool:
    r"""Whether there is nothing to read: white space, invisible signs, bare dressing, dots.

    >>> is_empty(r"\text{ }"), is_empty(" ... "), is_empty("[]"), is_empty(r"\{\}")
    (True, True, False, False)
    """
    content = content.strip()
    bare = r"\{" not in content and not content.strip("{} ")
    seen = (sign.isprintable() and not sign.isspace() for sign in plain(content))
    return bare or not any(seen)


class Format(SettingsVerifier):
    """The asked form, once, with a readable answer inside.

    `boxed`: exactly one box after the reasoning. `tagged`: exactly one pair of answer tags, nothing
    behind it. `think`: one closed reasoning section, then text. `think_answer`: one closed
    reasoning section, then one pair of answer tags, and nothing else.
    """

    verifier_name: ClassVar[str] = "format"

    kind: Literal["boxed", "tagged", "think", "think_answer"] = Field(
        default="boxed", description="Which form is asked for."
    )
    content: Literal["auto", "number", "text"] = Field(
        default="auto",
        description="What must be inside: number, text (anything), or auto: a number if the gold "
        "answer is one.",
    )
    tag: str = Field(default="answer", min_length=1, description="The answer's tag.")
    reasoning_tag: str = Field(default="think", min_length=1, description=TAG)

    def score_case(self, case: Case) -> Score:
        content, problem = self._content(repaired(case.whole))
        if content is None:
            return no_answer(problem)
        if is_empty(content):
            return no_answer(f"the {self.kind} form is empty")
        if self._needs_number(case.prompt) and parse_number(content) is None:
            return no_answer(f"no number can be read in {content.strip()[:60]!r}")
        return Score(1.0, "correct", f"{self.kind} form")

    def _needs_number(self, prompt: Prompt) -> bool:
        if self.content != "auto" or self.kind == "think":
            return self.content == "number"
        golds = _golds(prompt)
        return bool(golds) and all(parse_number(gold) is not None for gold in golds)

    def _content(self, text: str) -> tuple[str | None, str]:
        """What stands inside the form, or None and what is wrong with the form."""
        if self.kind in ("think", "think_answer"):
            return self._after_think(text)
        rest = after_reasoning(text, self.reasoning_tag)
        if rest is None:
            return None, f"<{self.reasoning_tag}> is never closed"
        if self.kind == "tagged":
            return self._tagged(rest, alone=False)
        found = boxes(rest)
        if len(found) != 1:
            return None, f"{len(found)} boxes, not one"
        return found[0], ""

    def _after_think(self, text: str) -> tuple[str | None, str]:
        opening, closing = f"<{self.reasoning_tag}>", f"</{self.reasoning_tag}>"
        text = text.strip().removeprefix(opening)
        if text.count(opening) or text.count(closing) != 1:
            return None, f"not one {opening}...{closing} at the start"
        reasoning, _, rest = text.partition(closing)
        if is_empty(reasoning):
            return None, f"nothing inside {opening}...{closing}"
        if self.kind == "think":
            return rest, ""
        if f"<{self.tag}>" in reasoning:
            return None, f"<{self.tag}> inside the reasoning"
        return self._tagged(rest, alone=True)

    def _tagged(self, text: str, alone: bool) -> tuple[str | None, str]:
        opening, closing = f"<{self.tag}>", f"</{self.tag}>"
        if text.count(opening) != 1 or text.count(closing) != 1:
            return None, f"not exactly one {opening}...{closing}"
        before, _, rest = text.partition(opening)
        content, closed, behind = rest.partition(closing)
        if not closed or behind.strip() or (alone and before.strip()):
            where = "around" if alone else "behind"
            return None, f"text {where} {opening}...{closing}"
        return content, ""

    def gold_completion(self, prompt: Prompt) -> str:
        answer = next(iter(_golds(prompt)), "answer")
        tagged = f"<{self.tag}>{answer}</{self.tag}>"
        thought = f"<{self.reasoning_tag}>thought</{self.reasoning_tag}>"
        return {
            "boxed": f"\\boxed{{{answer}}}",
            "tagged": tagged,
            "think": thought + answer,
            "think_answer": thought + tagged,
        }[self.kind]


def _golds(prompt: Prompt) -> tuple[str, ...]:
    """The accepted answers, out of their boxes; none if the prompt has none."""
    try:
        return tuple(last_box(each) or each for each in accepted_answers(prompt.answer))
    except BadAnswer:
        return ()
