"""The `instructions` environment: write on a subject, and follow a few rules that can be checked.

The rules are IFEval's, all 25 of them, combined by the seed; every task comes with a text that
follows its rules (the column `example`), so they can all be followed at once; a text without
content follows none of the sets. Tasks with the same rules and words are one family. What the text
says is not judged.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

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


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: its words, IFEval's id and arguments, and how a text is made to follow it.

    `order` is when `follow` is applied: words first, then form, then case, then what encloses all.
    """

    words: str
    id: str
    arguments: Mapping[str, Any]
    follow: Callable[[str], str]
    order: int = 0


Maker = Callable[[random.Random], Rule]


def _plus(more: str) -> Callable[[str], str]:
    return lambda text: f"{text} {more}"


def _same(text: str) -> str:
    return text


def _existence(draw: random.Random) -> Rule:
    keywords = draw.sample(WORDS, draw.randint(1, 3))
    return Rule(f"Use the words {listed(keywords)}." if keywords[1:] else
                f"Use the word {keywords[0]}.", "keywords:existence", {"keywords": keywords},
                _plus(f"There is {listed(keywords)}."))  # fmt: skip


def _frequency(draw: random.Random) -> Rule:
    keyword, times = draw.choice(WORDS), draw.randint(2, 4)
    arguments = {"keyword": keyword, "frequency": times, "relation": "at least"}
    return Rule(f"Use the word {keyword} at least {times} times.", "keywords:frequency", arguments,
                _plus(f"Here is {' and '.join([keyword] * times)}."))  # fmt: skip


def _forbidden(draw: random.Random) -> Rule:
    words = draw.sample(WORDS, draw.randint(1, 3))
    return Rule(f"Do not use any of these words: {', '.join(words)}.", "keywords:forbidden_words",
                {"forbidden_words": words}, _same)  # fmt: skip


def _letter(draw: random.Random) -> Rule:
    letter, times = draw.choice("bjkqvxz"), draw.randint(3, 8)
    arguments = {"letter": letter, "let_frequency": times, "let_relation": "at least"}
    return Rule(f"Let the letter {letter} appear at least {times} times.",
                "keywords:letter_frequency", arguments,
                _plus(f"One says {' '.join([letter] * times)}."))  # fmt: skip


def _language(draw: random.Random) -> Rule:
    code = draw.choice(sorted(_LANGUAGES))
    name, sentence = _LANGUAGES[code]
    return Rule(f"Write the whole text in {name}.", "language:response_language",
                {"language": code}, lambda text: text.replace(f"{_PLAIN}.", sentence))  # fmt: skip


def _sentences(draw: random.Random) -> Rule:
    number = draw.randint(3, 6)
    return Rule(f"Write at least {number} sentences.", "length_constraints:number_sentences",
                {"num_sentences": number, "relation": "at least"},
                _plus(" ".join([f"{_PLAIN}."] * (number - 1))))  # fmt: skip


def _few_words(draw: random.Random) -> Rule:
    number = draw.randint(40, 90)
    return Rule(f"Write fewer than {number} words.", "length_constraints:number_words",
                {"num_words": number, "relation": "less than"}, _same)  # fmt: skip


def _many_words(draw: random.Random) -> Rule:
    number = 10 * draw.randint(3, 8)
    return Rule(f"Write at least {number} words.", "length_constraints:number_words",
                {"num_words": number, "relation": "at least"},
                _plus(" ".join([f"{_PLAIN}."] * (number // 14 + 1))))  # fmt: skip


def _paragraphs(draw: random.Random) -> Rule:
    number = draw.randint(2, 4)
    return Rule(f"Write {number} paragraphs, separated by a line with three asterisks: ***",
                "length_constraints:number_paragraphs", {"num_paragraphs": number},
                lambda text: "\n***\n".join([text, *[f"{_PLAIN}."] * (number - 1)]), 1)  # fmt: skip


def _first_word(draw: random.Random) -> Rule:
    number = draw.randint(2, 4)
    which, word = draw.randint(1, number), draw.choice(WORDS)
    arguments = {"num_paragraphs": number, "nth_paragraph": which, "first_word": word}

    def follow(text: str) -> str:
        parts = [text, *[f"{_PLAIN}."] * (number - 1)]
        parts[which - 1] = f"{word.title()} comes first. {parts[which - 1]}"
        return "\n\n".join(parts)

    return Rule(f"Write {number} paragraphs, separated by empty lines; paragraph {which} begins "
                f"with the word {word}.", "length_constraints:nth_paragraph_first_word", arguments,
                follow, 1)  # fmt: skip


def _placeholders(draw: random.Random) -> Rule:
    number = draw.randint(1, 4)
    return Rule(f"Include at least {number} placeholders in square brackets, as [address].",
                "detectable_content:number_placeholders", {"num_placeholders": number},
                _plus(f"It is {' '.join(f'[name {n}]' for n in range(number))}."))  # fmt: skip


def _postscript(draw: random.Random) -> Rule:
    marker = draw.choice(["P.S.", "P.P.S"])
    return Rule(f"Add a postscript at the end that starts with {marker}",
                "detectable_content:postscript", {"postscript_marker": marker},
                lambda text: f"{text}\n\n{marker} {_PLAIN}.", 2)  # fmt: skip


def _bullets(draw: random.Random) -> Rule:
    number = draw.randint(2, 5)
    points = "\n".join(f"* point {n + 1}" for n in range(number))
    return Rule(f"Include exactly {number} bullet points, as: * This is a point.",
                "detectable_format:number_bullet_lists", {"num_bullets": number},
                lambda text: f"{text}\n{points}", 1)  # fmt: skip


def _yes_or_no(draw: random.Random) -> Rule:
    chosen = draw.choice(["yes", "no", "maybe"])
    return Rule("Include exactly one of these sentences: My answer is yes. My answer is no. My "
                "answer is maybe.", "detectable_format:constrained_response", {},
                _plus(f"My answer is {chosen}."))  # fmt: skip


def _highlights(draw: random.Random) -> Rule:
    number = draw.randint(1, 4)
    return Rule(f"Highlight at least {number} parts with asterisks, as *this*.",
                "detectable_format:number_highlighted_sections", {"num_highlights": number},
                _plus(" ".join(f"*part {n + 1}*" for n in range(number)) + "."))  # fmt: skip


def _sections(draw: random.Random) -> Rule:
    name, number = draw.choice(["Section", "Part"]), draw.randint(2, 4)
    more = "\n".join(f"{name} {n + 1}\n{_PLAIN}." for n in range(1, number))
    return Rule(f"Write {number} sections and mark the beginning of each by {name} and its number, "
                f"as {name} 1.", "detectable_format:multiple_sections",
                {"section_spliter": name, "num_sections": number},
                lambda text: f"{name} 1\n{text}\n{more}", 1)  # fmt: skip


def _json(draw: random.Random) -> Rule:
    return Rule("Give all of it as JSON.", "detectable_format:json_format", {},
                lambda text: json.dumps({"text": text}), 5)  # fmt: skip


def _title(draw: random.Random) -> Rule:
    return Rule("Give it a title in double angular brackets, as <<a title>>.",
                "detectable_format:title", {},
                lambda text: f"<<What we see>>\n{text}", 2)  # fmt: skip


def _two_responses(draw: random.Random) -> Rule:
    return Rule("Give two different texts, separated by six asterisks: ******",
                "combination:two_responses", {},
                lambda text: f"{text}\n******\nSomething else is here.", 3)  # fmt: skip


def _repeat(draw: random.Random) -> Rule:
    words = " ".join(["Let us begin with the", *draw.sample(WORDS, 2)])
    return Rule(f"Begin with these words, letter by letter: {words}", "combination:repeat_prompt",
                {"prompt_to_repeat": words}, lambda text: f"{words}. {text}", 3)  # fmt: skip


def _end(draw: random.Random) -> Rule:
    phrase = " ".join(["and that is the", *draw.sample(WORDS, 2)])
    return Rule(f"End with exactly these words and nothing behind them: {phrase}",
                "startend:end_checker", {"end_phrase": phrase},
                lambda text: f"{text} {phrase}", 3)  # fmt: skip


def _quotation(draw: random.Random) -> Rule:
    return Rule("Put all of it between double quotation marks.", "startend:quotation", {},
                lambda text: f'"{text}"', 5)  # fmt: skip


def _capital_words(draw: random.Random) -> Rule:
    number = draw.randint(2, 5)
    return Rule(f"Write at least {number} words in capital letters only.",
                "change_case:capital_word_frequency",
                {"capital_frequency": number, "capital_relation": "at least"},
                _plus(f"This is {' '.join(['LOUD'] * number)}."))  # fmt: skip


def _capital(draw: random.Random) -> Rule:
    return Rule("Write in English and in capital letters only.", "change_case:english_capital", {},
                str.upper, 4)  # fmt: skip


def _lowercase(draw: random.Random) -> Rule:
    return Rule("Write in English and without any capital letter.",
                "change_case:english_lowercase", {}, str.lower, 4)  # fmt: skip


def _no_comma(draw: random.Random) -> Rule:
    return Rule("Do not use any comma.", "punctuation:no_comma", {},
                lambda text: text.replace(",", ""), 4)  # fmt: skip


MAKERS: tuple[Maker, ...] = (
    _existence, _frequency, _forbidden, _letter, _language, _sentences, _few_words, _many_words,
    _paragraphs, _first_word, _placeholders, _postscript, _bullets, _yes_or_no, _highlights,
    _sections, _json, _title, _two_responses, _repeat, _end, _quotation, _capital_words, _capital,
    _lowercase, _no_comma,
)  # fmt: skip


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
        makers = random.sample(MAKERS, random.randint(fewest, most))
        rules = [maker(random) for maker in makers]
        ids = [rule.id for rule in rules]
        subject = random.choice(WORDS)
        question = "\n".join([f"Write about this: {subject}.", *(rule.words for rule in rules)])
        text = f"{_PLAIN}."
        for rule in sorted(rules, key=lambda rule: rule.order):
            text = rule.follow(text)
        if len(set(ids)) < len(ids) or not _followed(rules, text):
            return None
        if any(_followed(rules, other) for other in (question, *EMPTY)):
            return None
        arguments = [dict(rule.arguments) for rule in rules]
        family = json.dumps([subject, sorted(zip(ids, map(str, arguments)))])
        columns = {"instruction_id_list": ids, "kwargs": arguments, "example": text}
        return Task(question, None, family, columns)


def _followed(rules: Sequence[Rule], text: str) -> bool:
    """Whether a text follows every rule."""
    return all(CHECKS[rule.id](text, **rule.arguments) for rule in rules)
