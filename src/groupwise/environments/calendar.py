"""Calendar and clock arithmetic: times, durations, weekdays and dates.

Times are on the 24-hour clock; dates are the Gregorian calendar's, years 1950 to 2050.
"""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from groupwise.environments.base import Environment
from groupwise.environments.generated import GeneratedSettings, Level, Task, bound, generated
from groupwise.verifiers import VerifierSettings
from groupwise.verifiers.answers.dates import MONTHS, WEEKDAYS
from groupwise.verifiers.core.names import validated

Kind = Literal["clock", "minutes", "weekday", "date", "days", "weekday_of"]

LEVELS: dict[str, dict[str, Any]] = {
    "easy": {"kinds": ("clock", "weekday"), "max_minutes": 240, "minute_step": 5, "max_days": 30},
    "medium": {
        "kinds": ("clock", "minutes", "weekday", "date"), "max_minutes": 720, "minute_step": 1,
        "max_days": 100,
    },
    "hard": {
        "kinds": ("clock", "date", "days", "weekday_of"), "max_minutes": 6000, "minute_step": 1,
        "max_days": 800,
    },
}  # fmt: skip
_DAY = 24 * 60
_TIME_FORM = "Answer with a time on the 24-hour clock, as 09:05."
_DATE_FORM = "Answer with a date, as 2001-12-31."


class CalendarSettings(GeneratedSettings):
    """The arguments of `calendar`; what is not set comes from the level."""

    kinds: tuple[Kind, ...] | None = Field(
        default=None,
        min_length=1,
        description="Which of clock (a time and a duration), minutes (between two times), weekday "
        "(some days on), date (some days on), days (between two dates), weekday_of (a date).",
    )
    max_minutes: int | None = Field(
        default=None, ge=60, le=100_000, description="Longest duration of clock, in minutes."
    )
    minute_step: Literal[1, 5, 10, 15] | None = Field(
        default=None, description="Times and durations are multiples of so many minutes."
    )
    max_days: int | None = Field(
        default=None, ge=2, le=10_000, description="Most days from one date to another."
    )


def make_calendar(
    arguments: Mapping[str, Any],
    seed: int,
    verifiers: Sequence[Mapping[str, Any] | VerifierSettings] = (),
) -> Environment:
    """The `calendar` environment."""
    settings = validated(CalendarSettings, arguments, "environment 'calendar'")

    def draw(random: random.Random, level: Level) -> Task | None:
        kind: Kind = random.choice(bound(settings, LEVELS, "kinds", level))
        step = bound(settings, LEVELS, "minute_step", level)
        longest = bound(settings, LEVELS, "max_minutes", level)
        days = bound(settings, LEVELS, "max_days", level)
        made = _MAKERS[kind](random, longest // step, step, days)
        return None if made is None else Task(*made, {"kind": kind})

    own = VerifierSettings(name="moment")
    return generated("calendar", settings, draw, seed, verifiers or [own])


Made = tuple[str, str, str]
"""Question, answer, family."""


def _clock(random: random.Random, num_steps: int, step: int, _: int) -> Made | None:
    start = step * random.randrange(_DAY // step)
    length = step * random.randint(1, num_steps)
    if length % _DAY == 0:
        return None
    if random.random() < 0.5:
        question = f"It is {clock(start)}. What time will it be in {duration(length)}?"
        end = start + length
    else:
        question = f"It is {clock(start)}. What time was it {duration(length)} ago?"
        end = start - length
    family = f"clock {sorted((start, end % _DAY))} {length}"
    return f"{question}\n{_TIME_FORM}", clock(end), family


def _minutes(random: random.Random, num_steps: int, step: int, _: int) -> Made | None:
    start, end = sorted(step * random.randrange(_DAY // step) for _ in range(2))
    if not 0 < end - start <= num_steps * step:
        return None
    question = f"How many minutes pass from {clock(start)} to {clock(end)} on the same day?"
    return question, str(end - start), f"minutes {start} {end}"


def _weekday(random: random.Random, _steps: int, _step: int, max_days: int) -> Made | None:
    today, days = random.randrange(7), random.randint(2, max_days)
    if days % 7 == 0:
        return None
    sign = random.choice((1, -1))
    when = f"will it be in {days} days" if sign > 0 else f"was it {days} days ago"
    question = f"Today is {WEEKDAYS[today]}. What day of the week {when}?"
    answer = (today + sign * days) % 7
    return question, WEEKDAYS[answer], f"weekday {sorted((today, answer))} {days}"


def _date(random: random.Random, _steps: int, _step: int, max_days: int) -> Made | None:
    start, days = _some_date(random), random.randint(2, max_days)
    end = start + datetime.timedelta(days=days)
    family = f"dates {start} {end}"
    if random.random() < 0.5:
        return f"Which date is {days} days after {long(start)}?\n{_DATE_FORM}", str(end), family
    return f"Which date is {days} days before {long(end)}?\n{_DATE_FORM}", str(start), family


def _days(random: random.Random, _steps: int, _step: int, max_days: int) -> Made | None:
    start, days = _some_date(random), random.randint(2, max_days)
    end = start + datetime.timedelta(days=days)
    question = f"How many days is it from {long(start)} to {long(end)}?"
    return question, str(days), f"dates {start} {end}"


def _weekday_of(random: random.Random, _steps: int, _step: int, _days: int) -> Made | None:
    date = _some_date(random)
    question = f"On which day of the week does {long(date)} fall?"
    return question, WEEKDAYS[date.weekday()], f"weekday_of {date}"


def _some_date(random: random.Random) -> datetime.date:
    first, last = datetime.date(1950, 1, 1), datetime.date(2050, 12, 31)
    return first + datetime.timedelta(days=random.randint(0, (last - first).days))


def clock(minutes: int) -> str:
    """Minutes from midnight as a time, whole days left out.

    >>> clock(65), clock(-10)
    ('01:05', '23:50')
    """
    hour, minute = divmod(minutes % _DAY, 60)
    return f"{hour:02}:{minute:02}"


def duration(minutes: int) -> str:
    """Minutes in words.

    >>> duration(65), duration(120), duration(1)
    ('1 hour and 5 minutes', '2 hours', '1 minute')
    """
    parts = [
        f"{count} {noun}{'' if count == 1 else 's'}"
        for count, noun in zip(divmod(minutes, 60), ("hour", "minute"))
        if count
    ]
    return " and ".join(parts)


def long(date: datetime.date) -> str:
    """A date in words.

    >>> long(datetime.date(2024, 2, 29))
    '29 February 2024'
    """
    return f"{date.day} {MONTHS[date.month - 1]} {date.year}"


_MAKERS: dict[str, Callable[[random.Random, int, int, int], Made | None]] = {
    "clock": _clock,
    "minutes": _minutes,
    "weekday": _weekday,
    "date": _date,
    "days": _days,
    "weekday_of": _weekday_of,
}
