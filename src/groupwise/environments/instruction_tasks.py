"""The `instructions` environment: write on a subject and follow rules that can be checked.

The rules are IFEval's, all 25 of them, combined by the seed. Every task has a text that follows its
rules (the column `example`), so they can all be followed at once; texts without content follow no
task's rules. Tasks with the same rules and words are one family. What the text says is not judged.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar, Literal, NamedTuple

from pydantic import Field, model_validator

from groupwise.environments.generated import DrawnSettings, Level, Task, check_range, listed
from groupwise.environments.vocabulary import WORDS
from groupwise.verifiers import VerifierSettings
from groupwise.verifiers.text.instruction_checks import CHECKS

EMPTY = ("I do not know.", "<answer></answer>", "Yes")
"""Texts without content: no task may be solved by one."""
_PLAIN = "We think about this for a while and then we write down what we see"
_LANGUAGES = {
    "de": ("German", "Wir denken eine Weile darüber nach und schreiben dann auf, was wir sehen."),
    "fr": ("French", "Nous y pensons un moment et ensuite nous écrivons ce que nous voyons."),
    "es": ("Spanish", "Pensamos un rato en esto y luego escribimos lo que vemos en la calle."),
}


class Rule(NamedTuple):
    """A kind of rule: IFEval's id, the values it is drawn with, and functions of those values `v`.

    `words` and `arguments` say the rule in the prompt and as IFEval does; `follow` makes a text
    follow it. `order` is when: words first, then form, then case, then what encloses all.
    """

    id: str
    drawn: Mapping[str, Callable[[random.Random], Any]]
    words: Callable[[Any], str]
    arguments: Callable[[Any], Mapping[str, Any]]
    follow: Callable[[str, Any], str]
    order: int = 0

    def values(self, draw: random.Random) -> Any:
        """Values for the rule, drawn in their order."""
        return SimpleNamespace(**{name: draws(draw) for name, draws in self.drawn.items()})


def _int(low: int, high: int) -> Callable[[random.Random], int]:
    return lambda draw: draw.randint(low, high)


def _one(values: Sequence[str]) -> Callable[[random.Random], str]:
    return lambda draw: draw.choice(values)


def _some(draw: random.Random) -> list[str]:
    return draw.sample(WORDS, draw.randint(1, 3))


def _two(draw: random.Random) -> list[str]:
    return draw.sample(WORDS, 2)


def _plain(count: int) -> list[str]:
    return [f"{_PLAIN}."] * count


def _place(draw: random.Random) -> tuple[int, int]:
    """How many paragraphs, and which of them."""
    number = draw.randint(2, 4)
    return number, draw.randint(1, number)


def _with_first_word(text: str, v: Any) -> str:
    number, which = v.at
    parts = [text, *_plain(number - 1)]
    parts[which - 1] = f"{v.word.title()} comes first. {parts[which - 1]}"
    return "\n\n".join(parts)


def _in_sections(text: str, v: Any) -> str:
    more = (f"{v.name} {n + 1}\n{_PLAIN}." for n in range(1, v.number))
    return "\n".join([f"{v.name} 1\n{text}", *more])


RULES: tuple[Rule, ...] = (
    Rule("keywords:existence", {"keywords": _some},
         lambda v: f"Use the word{'s' * (len(v.keywords) > 1)} {listed(v.keywords)}.",
         lambda v: {"keywords": v.keywords},
         lambda text, v: f"{text} There is {listed(v.keywords)}."),
    Rule("keywords:frequency", {"keyword": _one(WORDS), "times": _int(2, 4)},
         lambda v: f"Use the word {v.keyword} at least {v.times} times.",
         lambda v: {"keyword": v.keyword, "frequency": v.times, "relation": "at least"},
         lambda text, v: f"{text} Here is {' and '.join([v.keyword] * v.times)}."),
    Rule("keywords:forbidden_words", {"words": _some},
         lambda v: f"Do not use any of these words: {', '.join(v.words)}.",
         lambda v: {"forbidden_words": v.words}, lambda text, v: text),
    Rule("keywords:letter_frequency", {"letter": _one("bjkqvxz"), "times": _int(3, 8)},
         lambda v: f"Let the letter {v.letter} appear at least {v.times} times.",
         lambda v: {"letter": v.letter, "let_frequency": v.times, "let_relation": "at least"},
         lambda text, v: f"{text} One says {' '.join([v.letter] * v.times)}."),
    Rule("language:response_language", {"code": _one(sorted(_LANGUAGES))},
         lambda v: f"Write the whole text in {_LANGUAGES[v.code][0]}.",
         lambda v: {"language": v.code},
         lambda text, v: text.replace(f"{_PLAIN}.", _LANGUAGES[v.code][1])),
    Rule("length_constraints:number_sentences", {"number": _int(3, 6)},
         lambda v: f"Write at least {v.number} sentences.",
         lambda v: {"num_sentences": v.number, "relation": "at least"},
         lambda text, v: " ".join([text, *_plain(v.number - 1)])),
    Rule("length_constraints:number_words", {"number": _int(40, 90)},
         lambda v: f"Write fewer than {v.number} words.",
         lambda v: {"num_words": v.number, "relation": "less than"}, lambda text, v: text),
    Rule("length_constraints:number_words", {"tens": _int(3, 8)},
         lambda v: f"Write at least {10 * v.tens} words.",
         lambda v: {"num_words": 10 * v.tens, "relation": "at least"},
         lambda text, v: " ".join([text, *_plain(10 * v.tens // 14 + 1)])),
    Rule("length_constraints:number_paragraphs", {"number": _int(2, 4)},
         lambda v: f"Write {v.number} paragraphs, separated by a line with three asterisks: ***",
         lambda v: {"num_paragraphs": v.number},
         lambda text, v: "\n***\n".join([text, *_plain(v.number - 1)]), 1),
    Rule("length_constraints:nth_paragraph_first_word", {"at": _place, "word": _one(WORDS)},
         lambda v: f"Write {v.at[0]} paragraphs, separated by empty lines; paragraph {v.at[1]} "
         f"begins with the word {v.word}.",
         lambda v: {"num_paragraphs": v.at[0], "nth_paragraph": v.at[1], "first_word": v.word},
         _with_first_word, 1),
    Rule("detectable_content:number_placeholders", {"number": _int(1, 4)},
         lambda v: f"Include at least {v.number} placeholders in square brackets, as [address].",
         lambda v: {"num_placeholders": v.number},
         lambda text, v: f"{text} It is {' '.join(f'[name {n}]' for n in range(v.number))}."),
    Rule("detectable_content:postscript", {"marker": _one(["P.S.", "P.P.S"])},
         lambda v: f"Add a postscript at the end that starts with {v.marker}",
         lambda v: {"postscript_marker": v.marker},
         lambda text, v: f"{text}\n\n{v.marker} {_PLAIN}.", 2),
    Rule("detectable_format:number_bullet_lists", {"number": _int(2, 5)},
         lambda v: f"Include exactly {v.number} bullet points, as: * This is a point.",
         lambda v: {"num_bullets": v.number},
         lambda text, v: "\n".join([text, *(f"* point {n + 1}" for n in range(v.number))]), 1),
    Rule("detectable_format:constrained_response", {"chosen": _one(["yes", "no", "maybe"])},
         lambda v: "Include exactly one of these sentences: My answer is yes. My answer is no. My "
         "answer is maybe.",
         lambda v: {}, lambda text, v: f"{text} My answer is {v.chosen}."),
    Rule("detectable_format:number_highlighted_sections", {"number": _int(1, 4)},
         lambda v: f"Highlight at least {v.number} parts with asterisks, as *this*.",
         lambda v: {"num_highlights": v.number},
         lambda text, v: f"{text} {' '.join(f'*part {n + 1}*' for n in range(v.number))}."),
    Rule("detectable_format:multiple_sections",
         {"name": _one(["Section", "Part"]), "number": _int(2, 4)},
         lambda v: f"Write {v.number} sections and mark the beginning of each by {v.name} and its "
         f"number, as {v.name} 1.",
         lambda v: {"section_spliter": v.name, "num_sections": v.number}, _in_sections, 1),
    Rule("detectable_format:json_format", {}, lambda v: "Give all of it as JSON.", lambda v: {},
         lambda text, v: json.dumps({"text": text}), 5),
    Rule("detectable_format:title", {},
         lambda v: "Give it a title in double angular brackets, as <<a title>>.",
         lambda v: {}, lambda text, v: f"<<What we see>>\n{text}", 2),
    Rule("combination:two_responses", {},
         lambda v: "Give two different texts, separated by six asterisks: ******",
         lambda v: {}, lambda text, v: f"{text}\n******\nSomething else is here.", 3),
    Rule("combination:repeat_prompt", {"words": _two},
         lambda v: f"Begin with these words, letter by letter: {_beginning(v)}",
         lambda v: {"prompt_to_repeat": _beginning(v)},
         lambda text, v: f"{_beginning(v)}. {text}", 3),
    Rule("startend:end_checker", {"words": _two},
         lambda v: f"End with exactly these words and nothing behind them: {_end(v)}",
         lambda v: {"end_phrase": _end(v)}, lambda text, v: f"{text} {_end(v)}", 3),
    Rule("startend:quotation", {}, lambda v: "Put all of it between double quotation marks.",
         lambda v: {}, lambda text, v: f'"{text}"', 5),
    Rule("change_case:capital_word_frequency", {"number": _int(2, 5)},
         lambda v: f"Write at least {v.number} words in capital letters only.",
         lambda v: {"capital_frequency": v.number, "capital_relation": "at least"},
         lambda text, v: f"{text} This is {' '.join(['LOUD'] * v.number)}."),
    Rule("change_case:english_capital", {},
         lambda v: "Write in English and in capital letters only.",
         lambda v: {}, lambda text, v: text.upper(), 4),
    Rule("change_case:english_lowercase", {},
         lambda v: "Write in English and without any capital letter.",
         lambda v: {}, lambda text, v: text.lower(), 4),
    Rule("punctuation:no_comma", {}, lambda v: "Do not use any comma.", lambda v: {},
         lambda text, v: text.replace(",", ""), 4),
)  # fmt: skip


def _beginning(v: Any) -> str:
    return " ".join(["Let us begin with the", *v.words])


def _end(v: Any) -> str:
    return " ".join(["and that is the", *v.words])


class InstructionsSettings(DrawnSettings):
    """The arguments of `instructions`; what is not set comes from the level."""

    environment_name: ClassVar = "instructions"
    levels: ClassVar = {
        "easy": {"num_rules": (1, 2)},
        "medium": {"num_rules": (3, 3)},
        "hard": {"num_rules": (4, 6)},
    }

    num_rules: tuple[int, int] | None = Field(
        default=None, description="Fewest and most rules of a prompt, as [2, 4]."
    )
    count: Literal["share", "all"] = Field(
        default="all", description="all: 1 only where every rule is followed. share: the fraction."
    )

    @model_validator(mode="after")
    def _fits(self) -> InstructionsSettings:
        check_range("num_rules", self.num_rules, 1, 8)
        return self

    def reply(self, task: Task) -> str:
        return str(task.columns["example"])

    def own_verifiers(self) -> list[VerifierSettings]:
        return [VerifierSettings(name="instructions", arguments={"count": self.count})]

    def draw(self, random: random.Random, level: Level, seed: int) -> Task | None:
        fewest, most = self.bound("num_rules", level)
        chosen = random.sample(RULES, random.randint(fewest, most))
        rules = [(rule, rule.values(random)) for rule in chosen]
        ids = [rule.id for rule in chosen]
        arguments = [dict(rule.arguments(values)) for rule, values in rules]
        checks = [partial(CHECKS[id_], **given) for id_, given in zip(ids, arguments, strict=True)]
        subject = random.choice(WORDS)
        words = (rule.words(values) for rule, values in rules)
        question = "\n".join([f"Write about this: {subject}.", *words])
        text = f"{_PLAIN}."
        for rule, values in sorted(rules, key=lambda each: each[0].order):
            text = rule.follow(text, values)
        if len(set(ids)) < len(ids) or not all(check(text) for check in checks):
            return None
        if any(all(check(other) for check in checks) for other in (question, *EMPTY)):
            return None
        family = json.dumps([subject, sorted(zip(ids, map(str, arguments)))])
        columns = {"instruction_id_list": ids, "kwargs": arguments, "example": text}
        return Task(question, None, family, columns)
