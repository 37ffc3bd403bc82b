r"""The formulas of a text in prose: pieces in dollars, and runs of what is not an English word.

A run ends at a word, a line or a sentence. Members joined by commas, `and` or `or` are one run, and
so is a number with the known unit behind it. Dollars enclose a formula by pandoc's rule (no blank
inside the marks, no digit behind them), so that prices do not.
"""

from __future__ import annotations

import re

from groupwise.verifiers.answers.extraction import repaired
from groupwise.verifiers.answers.tokens import is_name
from groupwise.verifiers.answers.units import SCALES, canonical

MAX_CHARACTERS = 4000
"""Formulas are looked for in so many last characters."""

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
_MATHS = re.compile(r"[\d\\=^<>√π∞±×÷·%$€£¥]")
_OPERATORS = re.compile(r"[-+*/=<>×÷·−–≈≤≥≠:]+")


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
    ends = chunk.rstrip("\"'*_`)”’").endswith((".", "?", "!", ":"))
    core = chunk.strip(_STRIP)
    if chunk.startswith(".") and core[:1].isdigit() and not chunk.startswith(".."):
        core = f".{core}"
    if core.count("(") < core.count(")") and not any("(" in each for each in run):
        core = core.rstrip(")")
    comma = "," if chunk.rstrip("\"'*_`”’").endswith((",", ";")) else ""
    bare = core.strip("()[]")
    if run and bare.casefold() in _JOINERS:
        return core, False
    if run and bare and _is_unit(bare, run[-1]):
        return f"{core}{comma}", ends
    if not core or not _is_math(core):
        return (chunk, ends) if core == "" and _OPERATORS.fullmatch(chunk) else (None, ends)
    return f"{core}{comma}", ends


def _is_unit(word: str, before: str) -> bool:
    if not before[-1:].isalnum() and before[-1:] not in (")", "}"):
        return False
    if (
        before.casefold() in _JOINERS
        or canonical(before) is not None
        or word in _NOT_UNITS
        or not word.replace("/", "").isalpha()
    ):
        return False
    return word.casefold() in SCALES or (len(word) > 1 and canonical(word) is not None)


def _is_math(core: str) -> bool:
    if core in _ARTICLES or _INITIALS.fullmatch(core):
        return False
    if _MATHS.search(core) or _OPERATORS.fullmatch(core):
        return True
    words = _LETTERS.findall(core)
    return bool(words) and all(len(word) == 1 or is_name(word) for word in words)


def _close(run: list[str], runs: list[str]) -> None:
    """Keep a run without the joiners, dashes and marks at its ends."""
    parts = list(run)
    while parts and (parts[-1].casefold() in _JOINERS or _OPERATORS.fullmatch(parts[-1])):
        parts.pop()
    while parts and (parts[0].casefold() in _JOINERS or parts[0] in ("-", "–", "*", ">", ":")):
        parts.pop(0)
    while parts and parts[0] in ("=", "≈", r"\approx"):
        parts.pop(0)
    text = re.sub(r"^(?:=|≈|\\approx)\s*", "", " ".join(parts)).strip(", ")
    if text:
        runs.append(text)
