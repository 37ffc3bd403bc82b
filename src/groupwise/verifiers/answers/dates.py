"""Times of day, dates, weekdays and durations: `moment`."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from groupwise.types import Prompt, Score
from groupwise.verifiers.answers.answers import no_answer, verdict
from groupwise.verifiers.answers.cleaning import cleaned
from groupwise.verifiers.answers.final_answer import FinalAnswer

WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip

_HALF = r"([ap])\.?\s?m\.?"
_TIME = re.compile(
    rf"(\d{{1,2}})(?::|(?<=\d)h(?=\d))(\d{{2}})(?::00)?(?:\s*{_HALF}|\s*(?:h|hours|o'clock))?", re.I
)
_HOUR = re.compile(rf"(\d{{1,2}})()\s*(?:o'clock\s*)?{_HALF}", re.I)
_NAMED_TIMES = {"noon": (12, 0), "midnight": (0, 0)}
_ISO = re.compile(r"(\d{4})([-/])(\d{1,2})\2(\d{1,2})")
_DAY_MONTH = re.compile(r"(\d{1,2})(?:st|nd|rd|th)?\s+(?:of\s+)?([a-z]+)\.?,?\s+(\d{4})", re.I)
_MONTH_DAY = re.compile(r"([a-z]+)\.?\s+(\d{1,2})(?:st|nd|rd|th)?,?\s+(\d{4})", re.I)
_COUNT = re.compile(r"([+-]?\d{1,9}(?:\.\d{1,9})?)\s*([a-z]*)\.?", re.I)
_UNITS = {
    "": ("", 1),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), ("time", 1)),
    **dict.fromkeys(("min", "mins", "minute", "minutes"), ("time", 60)),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), ("time", 3600)),
    **dict.fromkeys(("d", "day", "days"), ("time", 86_400)),
    **dict.fromkeys(("week", "weeks"), ("time", 7 * 86_400)),
    **dict.fromkeys(("month", "months"), ("months", 1)),
    **dict.fromkeys(("year", "years"), ("months", 12)),
}
"""What a unit of duration measures, and how many of the smallest one it is."""


class Moment(FinalAnswer):
    """The gold answer's moment, in any unambiguous writing of the same kind.

    A time (`15:05`, `3:05 PM`, `3 PM`, `noon`), a date (`2024-03-05`, `5 March 2024`, `Tuesday,
    March 5, 2024`), a weekday (`Tuesday`, `Tue`), or a number of something (`45`, `45 minutes`). A
    time without AM or PM is read on the 24-hour clock; `05/03/2024` is not read. Units that are
    written count: 3 hours are 180 minutes and not 3 minutes; where the gold answer has none, a
    unit must be one that the prompt names, if it names any.
    """

    verifier_name: ClassVar[str] = "moment"

    def problem(self, prompt: Prompt) -> str | None:
        if _kind(str(prompt.answer or "")) is None:
            return f"the answer {prompt.answer!r:.60} is no time, date, weekday or number"
        return None

    def judge(self, given: str, prompt: Prompt) -> Score:
        gold = str(prompt.answer).strip()
        kind = _kind(gold)
        assert kind is not None  # `problem` has looked
        text = " ".join(cleaned(given).split()).strip(" .$")
        found = READERS[kind](text)
        if found is None:
            return no_answer(f"{text[:60]!r} is no {kind}")
        wanted = READERS[kind](gold)
        if isinstance(found, Count) and isinstance(wanted, Count):
            right = same_count(wanted, found) and (
                bool(wanted.measure) or _is_asked(found.unit, prompt.last_text)
            )
            return verdict(right, text, gold)
        return verdict(found == wanted, text, gold)


def read_time(text: str) -> tuple[int, int] | None:
    """Hour and minute; None where the text is no time of day.

    >>> read_time("3:05 PM"), read_time("15:05"), read_time("3 pm"), read_time("25:00")
    ((15, 5), (15, 5), (15, 0), None)
    """
    match = _TIME.fullmatch(text) or _HOUR.fullmatch(text)
    if match is None:
        return _NAMED_TIMES.get(text.casefold().removeprefix("12 "))
    hour, minute, half = int(match.group(1)), int(match.group(2) or 0), match.group(3)
    if half:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if half in "pP" else 0)
    return (hour, minute) if hour < 24 and minute < 60 else None


def read_date(text: str) -> datetime.date | None:
    """The date; None where the text is none, is ambiguous, or names another weekday.

    >>> read_date("Tuesday, March 5, 2024") == read_date("2024/3/5")
    True
    >>> read_date("Monday, 2024-03-05") is None
    True
    """
    first, _, rest = text.partition(" ")
    weekday = read_weekday(first.rstrip(",."))
    if weekday is not None:
        found = read_date(rest.strip())
        return found if found is not None and found.weekday() == weekday else None
    if match := _ISO.fullmatch(text):
        year, month, day = (int(part) for part in match.group(1, 3, 4))
    elif match := _DAY_MONTH.fullmatch(text):
        day, month, year = int(match.group(1)), _month(match.group(2)), int(match.group(3))
    elif match := _MONTH_DAY.fullmatch(text):
        month, day, year = _month(match.group(1)), int(match.group(2)), int(match.group(3))
    else:
        return None
    try:
        return datetime.date(year, month, day)
    except ValueError:  # no such day
        return None


def read_weekday(text: str) -> int | None:
    """0 for Monday to 6; None where the text names no weekday."""
    name = text.casefold().removeprefix("on ")
    for place, weekday in enumerate(WEEKDAYS):
        full = weekday.casefold()
        if name == full or (3 <= len(name) <= 5 and full.startswith(name)):
            return place
    return None


@dataclass(frozen=True, slots=True)
class Count:
    """A number and unit as written, what the unit measures (empty: none), and how much in that."""

    number: Fraction
    unit: str
    measure: str
    amount: Fraction


def read_count(text: str) -> Count | None:
    """A number, alone or of a unit of duration; None where the text is none.

    >>> read_count("3 hours").amount == read_count("180 min").amount, read_count("3 apples")
    (True, None)
    """
    match = _COUNT.fullmatch(text)
    unit = None if match is None else _UNITS.get(match.group(2).casefold())
    if match is None or unit is None:
        return None
    number = Fraction(match.group(1))
    return Count(number, match.group(2).casefold(), unit[0], number * unit[1])


def same_count(gold: Count, given: Count) -> bool:
    """Equal amounts of one measure, or equal numbers where one of them has no unit."""
    if gold.measure and given.measure:
        return gold.measure == given.measure and gold.amount == given.amount
    return gold.number == given.number


def _is_asked(unit: str, asked: str) -> bool:
    """Whether a prompt that names units of duration in words names this one."""
    named = {word for word in re.findall(r"[a-z]{3,}", asked.casefold()) if word in _UNITS}
    return not unit or not named or _UNITS[unit] in {_UNITS[word] for word in named}


READERS: dict[str, Callable[[str], object | None]] = {
    "time": read_time,
    "date": read_date,
    "weekday": read_weekday,
    "number": read_count,
}


def _kind(gold: str) -> str | None:
    return next((kind for kind, read in READERS.items() if read(gold.strip()) is not None), None)


def _month(name: str) -> int:
    """1 to 12, or 0 where there is no such month."""
    for place, month in enumerate(MONTHS, start=1):
        if len(name) >= 3 and month.casefold().startswith(name.casefold()):
            return place
    return 0
