"""Times of day, dates, weekdays and numbers of minutes or days: `moment`."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from typing import ClassVar

from groupwise.types import Prompt, Score
from groupwise.verifiers.answers import no_answer, verdict
from groupwise.verifiers.cleaning import cleaned
from groupwise.verifiers.finals import FinalAnswer

WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip

_TIME = re.compile(r"(\d{1,2}):(\d{2})(?:\s*([ap])\.?\s?m\.?|\s*(?:h|hours|o'clock))?", re.I)
_ISO = re.compile(r"(\d{4})-(\d{2})-(\d{2})")
_DAY_MONTH = re.compile(r"(\d{1,2})(?:st|nd|rd|th)?\s+(?:of\s+)?([a-z]+)\.?,?\s+(\d{4})", re.I)
_MONTH_DAY = re.compile(r"([a-z]+)\.?\s+(\d{1,2})(?:st|nd|rd|th)?,?\s+(\d{4})", re.I)
_COUNT = re.compile(r"([+-]?\d{1,9})(?:\.0+)?(?:\s*(min|minute|day)s?)?\.?", re.I)


class Moment(FinalAnswer):
    """The gold answer's moment, in any unambiguous writing of the same kind.

    A time (`15:05`, `3:05 PM`), a date (`2024-03-05`, `5 March 2024`, `March 5, 2024`), a weekday
    (`Tuesday`, `Tue`), or a whole number (`45`, `45 minutes`). A time without AM or PM is read on
    the 24-hour clock; `05/03/2024` is not read.
    """

    verifier_name: ClassVar[str] = "moment"

    def problem(self, prompt: Prompt) -> str | None:
        if _kind(str(prompt.answer or "")) is None:
            return f"the answer {prompt.answer!r:.60} is no time, date, weekday or whole number"
        return None

    def judge(self, given: str, prompt: Prompt) -> Score:
        gold = str(prompt.answer).strip()
        kind = _kind(gold)
        assert kind is not None  # `problem` has looked
        text = " ".join(cleaned(given).split()).strip(" .$")
        found = READERS[kind](text)
        if found is None:
            return no_answer(f"{text[:60]!r} is no {kind}")
        return verdict(found == READERS[kind](gold), text, gold)


def read_time(text: str) -> tuple[int, int] | None:
    """Hour and minute; None where the text is no time of day.

    >>> read_time("3:05 PM"), read_time("15:05"), read_time("25:00")
    ((15, 5), (15, 5), None)
    """
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    hour, minute, half = int(match.group(1)), int(match.group(2)), match.group(3)
    if half:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if half in "pP" else 0)
    return (hour, minute) if hour < 24 and minute < 60 else None


def read_date(text: str) -> datetime.date | None:
    """The date; None where the text is none, or is ambiguous."""
    if match := _ISO.fullmatch(text):
        year, month, day = (int(part) for part in match.groups())
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
    name = text.casefold()
    for place, weekday in enumerate(WEEKDAYS):
        full = weekday.casefold()
        if name == full or (3 <= len(name) <= 5 and full.startswith(name)):
            return place
    return None


def read_count(text: str) -> int | None:
    """A whole number, of minutes or days; None where the text is none."""
    match = _COUNT.fullmatch(text)
    return None if match is None else int(match.group(1))


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
