r"""Where a completion states its answer: the one place that decides it (docs/answers.md).

Only what follows the reasoning section is read. Then the first of these that is there: the last
box; the last answer tag; what the verifier says (`last_number`, `last_formula`, `last_line`). A box
or tag that is there and empty, or never closed, is no answer: nothing else is read in its place.

A formula in prose is a piece in dollars (by pandoc's rule: no blank inside the marks, no digit
behind them, so that prices are none) or a run of what is not an English word. A run ends at a word,
a line or a sentence; members joined by commas, `and` or `or` are one, and so is a number with the
known unit behind it.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from groupwise.verifiers.answers.extraction import last_box, last_tagged, repaired
from groupwise.verifiers.answers.reading import read
from groupwise.verifiers.answers.tokens import UnreadableError, is_name
from groupwise.verifiers.answers.units import SCALES, canonical

MAX_ANSWER = 2000
"""Characters; a longer answer is `limit`."""
MAX_CHARACTERS = 4000
"""Formulas are looked for in so many last characters."""

_FENCED = re.compile(r"```\w*[ \t]*\r?\n(.*?)```", re.DOTALL)
_BORDER = re.compile(r"```\w*|[|:+=_ -]*[-_=]{2}[|:+=_ -]*")
_LEAD = re.compile(r"\banswers?\b[ \t*]{0,9}(?:is|are|:|=)[ \t*]{0,9}:?\s{0,99}", re.IGNORECASE)
_SENTENCE_END = re.compile(r"\n|[.!?](?=\s|\Z)")
_MAX_WORDS = 60
"""Characters of an answer in words behind `answer is`."""


def last_line(text: str, num_lines: int = 1) -> str | None:
    """The last lines that hold something; of one line, what follows `answer is`.

    `num_lines` above 1: of a text with one fenced block, that block's.

    >>> last_line("So 1 + 2.\\nThe answer is 3."), last_line("a\\n1 2\\n3 4", 2), last_line(" ")
    ('3.', '1 2\\n3 4', None)
    """
    fenced = _FENCED.findall(text) if num_lines > 1 else []
    if len(fenced) == 1:
        text = fenced[0]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    lines = [line for line in lines if not _BORDER.fullmatch(line)][-num_lines:]
    if num_lines == 1 and lines:
        line = lines[0][-MAX_ANSWER:]
        leads = list(_LEAD.finditer(line))
        lines = [line[leads[-1].end() :] if leads else line]
    return "\n".join(lines).strip() or None


def last_formula(text: str) -> str | None:
    """The first formula, or the words, behind the last `answer is`; without one, the last formula.

    >>> last_formula("The answer is $x+1$, not 3."), last_formula("The largest $n$ is 34.")
    ('x+1', '34')
    >>> last_formula("The answer is Tuesday."), last_formula("no idea")
    ('Tuesday', None)
    """
    leads = list(_LEAD.finditer(text))
    if leads:
        rest = text[leads[-1].end() :]
        end = _SENTENCE_END.search(rest)
        sentence = rest if end is None else rest[: end.end()]
        runs = formula_runs(sentence)
        if runs:
            return _result(runs[0])
        if sentence.strip() and len(sentence) <= _MAX_WORDS:
            return sentence.strip().rstrip(".!?") or None
    runs = formula_runs(text)
    return _result(runs[-1]) if runs else None


def _result(run: str) -> str:
    """The formula; of a calculation in numbers or with units in it, its result.

    >>> _result("$5 + $15 = $20"), _result("3 cm + 4 cm = 7 cm"), _result("y = 2x")
    ('$20', '7 cm', 'y = 2x')
    """
    run = run.rstrip("!")
    calculation, _, result = run.rpartition("=")
    if not calculation:
        return run
    try:
        read(run)
    except UnreadableError:
        return result.strip()
    return run if re.search("[A-Za-z]", calculation) else result.strip()


def stated_answer(
    text: str, tag: str = "answer", unmarked: Callable[[str], str | None] = last_line
) -> str | None:
    r"""The answer of a text without its reasoning, as it is written; None where there is none.

    >>> stated_answer(r"\boxed{7} <answer>8</answer>"), stated_answer("<answer>8</answer> or 9")
    ('7', '8')
    >>> stated_answer("So\n9"), stated_answer("9 <answer></answer>")
    ('9', None)
    """
    if r"\boxed" in text or r"\fbox" in text:
        return last_box(text)
    if f"<{tag}>" in text:
        return last_tagged(text, tag)
    return unmarked(text)


_CHUNK = re.compile(
    r"(?P<line>\n)"
    r"|(?P<formula>\$\$?(?![\s$])[^$\n]{1,2000}?(?<![\s\\])\$\$?(?!\d)"
    r"|\\\([^\n]{1,2000}?\\\)|\\\[.{1,2000}?\\\])(?P<end>[.!?,;:]*)"
    r"|(?P<bare>(?:\{[^{}\n]*\}|[^\s$\\]|\\(?![(\[]).?|\$(?=\S)|\$)+)",
    re.DOTALL,
)
_TAG = re.compile(r"</?[A-Za-z]\w{0,10}>")
_ORDINAL = re.compile(r"(?<=\d)(?:st|nd|rd|th)\b|(?<=\d)-(?=[A-Za-z]{2})")
_LABEL = re.compile(r"(?<=[A-Za-z]{2}):(?=\S)")
_INITIALS = re.compile(r"[A-Za-z](?:\.[A-Za-z])+\.?")
_BULLET = re.compile(r"^[ \t]*(?:[-*+•>]|#+)[ \t]+", re.MULTILINE)
_LETTERS = re.compile(r"[^\W\d_]+")
_STRIP = ".,;:!?\"'*_`#“”‘’"
_JOINERS = ("and", "or")
_NOT_UNITS = ("in", "a", "second", "point", "way", "time")
_ARTICLES = ("a", "A", "I")
_OPENERS = ("-", "–", "*", ">", ":")
_MATHS = re.compile(r"[\d\\=^<>√π∞±×÷·⋅∙%$€£¥]")
_OPERATORS = re.compile(r"[-+*/=<>×÷·⋅∙−–≈≤≥≠:]+")


def formula_runs(text: str) -> list[str]:
    """The formulas of a text in their order, each as it is written, marks around it removed.

    >>> formula_runs("Each costs $18, so she pays $36."), formula_runs("The largest $n$ is 34.")
    (['$18', '$36'], ['n', '34'])
    >>> formula_runs("They are 19, 46, and 82"), formula_runs("It is 10 centimeters long")
    (['19, 46, and 82'], ['10 centimeters'])
    """
    text = _ORDINAL.sub(" ", _TAG.sub(" ", repaired(text)[-MAX_CHARACTERS:]))
    text = _LABEL.sub(": ", text)
    runs: list[str] = []
    run: list[str] = []
    for match in _CHUNK.finditer(_BULLET.sub("", text)):
        chunk = match["bare"] or match.group()
        if match["line"]:
            ends, part = True, None
        elif match["formula"]:
            part = match["formula"].strip("$")
            part = part[2:-2] if part[:2] in (r"\(", r"\[") else part
            if match["end"][:1] in (",", ";"):
                part += ","
            ends = match["end"][:1] in tuple(".!?:")
        else:
            part, ends = _part(chunk, run)
        if part is not None:
            run.append(part)
        if part is None or ends:
            _close(run, runs)
            run = []
    _close(run, runs)
    return runs


def _part(chunk: str, run: list[str]) -> tuple[str | None, bool]:
    """What a word adds to a run, None if it ends it; and whether a sentence ends with it."""
    bare_end = chunk.rstrip("\"'*_`”’")
    ends = bare_end.rstrip(")").endswith((".", "?", "!", ":"))
    comma = "," if bare_end.endswith((",", ";")) else ""
    core = chunk.strip(_STRIP)
    if chunk.startswith(".") and core[:1].isdigit() and not chunk.startswith(".."):
        core = f".{core}"
    if core.count("(") < core.count(")") and not any("(" in each for each in run):
        core = core.rstrip(")")
    bare = core.strip("()[]")
    if run and bare.casefold() in _JOINERS:
        return core, False
    if _is_math(core) or (run and _is_unit(bare, run[-1])):
        return f"{core}{comma}", ends
    return (chunk if not core and _OPERATORS.fullmatch(chunk) else None), ends


def _is_unit(word: str, before: str) -> bool:
    """Whether a word is a known unit behind a value."""
    if not re.search(r"[^\W_]\Z|[)}]\Z", before) or not word.replace("/", "").isalpha():
        return False
    if before.casefold() in _JOINERS or canonical(before) is not None or word in _NOT_UNITS:
        return False
    return word.casefold() in SCALES or (len(word) > 1 and canonical(word) is not None)


def _is_math(core: str) -> bool:
    if core in _ARTICLES or _INITIALS.fullmatch(core):
        return False
    words = _LETTERS.findall(core)
    named = bool(words) and all(len(word) == 1 or is_name(word) for word in words)
    return named or bool(_MATHS.search(core) or _OPERATORS.fullmatch(core))


def _close(run: list[str], runs: list[str]) -> None:
    """Keep a run without the joiners, dashes and marks at its ends."""
    parts = list(run)
    while parts and (parts[-1].casefold() in _JOINERS or _OPERATORS.fullmatch(parts[-1])):
        parts.pop()
    while parts and (parts[0].casefold() in _JOINERS or parts[0] in _OPENERS):
        parts.pop(0)
    text = re.sub(r"^(?:(?:=|≈|\\approx)\s*)+", "", " ".join(parts)).strip(", ")
    if text:
        runs.append(text)
