"""Words behind a number: units that can be compared, words that scale it, and the rest."""

from __future__ import annotations

import re

SCALES: dict[str, int] = {
    "dozen": 12,
    "hundred": 100,
    "thousand": 1_000,
    "million": 1_000_000,
    "billion": 1_000_000_000,
    "trillion": 1_000_000_000_000,
    "quadrillion": 1_000_000_000_000_000,
}

_ALIASES = {
    "millimeters": "mm", "millimetres": "mm", "millimeter": "mm", "millimetre": "mm",
    "centimeters": "cm", "centimetres": "cm", "centimeter": "cm", "centimetre": "cm",
    "meters": "m", "metres": "m", "meter": "m", "metre": "m",
    "kilometers": "km", "kilometres": "km", "kilometer": "km", "kilometre": "km",
    "inches": "in", "inch": "in", "foot": "ft", "feet": "ft", "yards": "yd", "yard": "yd",
    "miles": "mi", "mile": "mi", "grams": "g", "gram": "g", "kilograms": "kg", "kilogram": "kg",
    "pounds": "lb", "pound": "lb", "lbs": "lb", "liters": "l", "litres": "l", "liter": "l",
    "litre": "l", "seconds": "s", "second": "s", "sec": "s", "secs": "s", "minutes": "min",
    "minute": "min", "mins": "min", "hours": "h", "hour": "h", "hrs": "h", "hr": "h",
    "days": "day", "weeks": "week", "months": "month", "years": "year",
    "deg": "degrees", "degree": "degrees", "dollars": "$", "dollar": "$", "usd": "$",
    "cents": "cent", "sq": "square",
}  # fmt: skip
_SINGLE = frozenset(
    {"m", "g", "s", "h", "l", "k", "c", "f", "n", "j", "w", "v", "a", "€", "£", "¥"}
)
_NOT_UNITS = frozenset({
    "pi", "e", "i", "sqrt", "sin", "cos", "tan", "log", "ln", "exp", "or", "and", "to", "plus",
    "minus", "times", "mod", "over", "divided", "not", "is", "x", "y", "z", "if", "but", "maybe",
    "possibly", "either", "infinity", "inf", "nan", "no", "none", "nothing", "never", "neither",
    "nor", "wrong", "false", "incorrect", "approx", "approximately", "probably", "perhaps",
    "unless", "versus", "vs", "instead", "than", "less", "except", "without", "base", "factorial",
    "repeating", "recurring", "doubled", "tripled", "halved", "half", "halves", "thirds", "fourths",
    "fifths", "sixths", "sevenths", "eighths", "ninths", "tenths", "hundredths", "thousandths",
    "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "score",
})  # fmt: skip


def is_unit(text: str) -> bool:
    """Whether the words behind a number name what is counted, and do not change its value.

    >>> is_unit("cm"), is_unit("red apples"), is_unit("pi"), is_unit("or so")
    (True, True, False, False)
    """
    words = re.findall(r"[^\s./]+", text)
    if not words or len(words) > 4 or words[0] in ("squared", "cubed"):
        return False
    return all(word not in _NOT_UNITS and (len(word) > 1 or word in _SINGLE) for word in words)


_MEASURES = frozenset(_ALIASES) | frozenset(_ALIASES.values())
_ALSO_WORDS = frozenset({"in", "second", "square", "cubic", "foot", "pound", "min", "a", "cent"})


def known_unit(word: str) -> str:
    """The word where it is a unit of measure and hardly ever another word, else nothing.

    >>> known_unit("cm"), known_unit("square cm"), known_unit("in"), known_unit("apples")
    ('cm', 'square cm', '', '')
    """
    power, _, unit = word.casefold().partition(" ")
    if unit:
        unit = known_unit(unit)
        return f"{power} {unit}" if unit else ""
    word = power
    return word if word in _MEASURES and word not in _ALSO_WORDS else ""


def same_unit(gold: str, given: str) -> bool:
    """Whether two units are compatible: equal up to spelling and plural, or one is not written.

    Percent against no unit is left to the percent policy.

    >>> same_unit("cm", "centimeters"), same_unit("cm", "m"), same_unit("apples", "")
    (True, False, True)
    """
    return not gold or not given or _plain(gold) == _plain(given)


def _plain(unit: str) -> tuple[str, ...]:
    words = [_ALIASES.get(word, word) for word in re.findall(r"[^\s./]+", unit.casefold())]
    if words[-1:] in (["squared"], ["cubed"]):
        words = ["square" if words[-1] == "squared" else "cubic", *words[:-1]]
    return tuple(word.removesuffix("s") if len(word) > 3 else word for word in words if word)
