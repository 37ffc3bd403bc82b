r"""Units of measure: which words are one, and when two written units are the same.

A unit is accepted because it is in the table, never because a word is missing from a list.
"""

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
"""Words that multiply the number before them."""

_SPELLINGS = """
mm millimeter millimetre|cm centimeter centimetre|dm decimeter decimetre|m meter metre
km kilometer kilometre|in inch inches|ft foot feet|yd yard|mi mile|mg milligram
g gram|kg kilogram kilo|lb lbs pound|oz ounce|t ton tonne|l liter litre|ml milliliter millilitre
gal gallon|qt quart|pt pint|cup|s sec second|ms millisecond|min minute|h hr hour|day|week|month
year yr|degree deg|rad radian|degree_c °c celsius|degree_f °f fahrenheit|k kelvin|n newton|j joule
kj kilojoule|w watt|kw kilowatt|v volt|a amp ampere|c coulomb|f farad|pa pascal|kpa kilopascal
ev electronvolt|nm nanometer nanometre|ohm
hz hertz|rpm|mol mole|unit|% percent pct|$ dollar usd buck|cent ¢|€ euro eur|£ gbp
¥ yen|acre|hectare|point|percentage_point|bit|byte|kb kilobyte|mb megabyte|gb gigabyte
people person|time|way|item|piece
"""
_TABLE = {
    word: group.split()[0]
    for group in re.split(r"[|\n]", _SPELLINGS.strip())
    for word in group.split()
}
ONE_LETTER = frozenset("mgshlLtKNJWVACF$%€£¥¢")
"""Units of one letter, whose case matters."""
_POWERS = {"square": "2", "sq": "2", "squared": "2", "cubic": "3", "cu": "3", "cubed": "3"}
_FACTOR = re.compile(
    r"\s*(?:(square|sq|cubic|cu)\s+)?([A-Za-z°$€£¥¢%_]+)\s*(?:\^\s*(\d)|(squared|cubed))?\s*",
    re.IGNORECASE,
)


def canonical(text: str) -> str | None:
    """The unit's one spelling; None if a word of it is not a known unit.

    >>> canonical("square centimeters"), canonical("cm^2"), canonical("miles per hour")
    ('cm^2', 'cm^2', 'mi/h')
    >>> canonical("apples") is None
    True
    """
    text = text.replace("degrees C", "°C").replace("degrees F", "°F")
    text = re.sub(r"\bmph\b", "mi/h", re.sub(r"\b(?:kph|kmh|kmph)\b", "km/h", text))
    text = re.sub(r"[{}().\\]", "", re.sub(r"\bper\b", "/", text))
    parts = re.split(r"([/*])", text.replace("·", "*"))
    for place in range(0, len(parts), 2):
        match = _FACTOR.fullmatch(parts[place])
        if match is None or (len(match[2]) == 1 and match[2] not in ONE_LETTER):
            return None
        word = match[2].casefold()
        plural = word.endswith("s") and len(word) > 3
        base = _TABLE.get(word) or _TABLE.get(word[:-1] if plural else "")
        if base is None:
            return None
        power = _POWERS.get((match[1] or match[4] or "").casefold(), match[3])
        parts[place] = f"{base}^{power}" if power else base
    return "".join(parts)


def same_unit(gold: str, given: str) -> bool:
    """Whether two written units are one unit, up to spelling and plural.

    >>> same_unit("cm", "centimeters"), same_unit("cm", "m"), same_unit("apples", "apple")
    (True, False, True)
    """
    first, second = canonical(gold), canonical(given)
    if first is None and second is None:
        return singular(gold) == singular(given)
    return first == second


def singular(text: str) -> str:
    """Words without case, plural s or repeated blanks."""
    words = text.casefold().split()
    return " ".join(word.removesuffix("s") if len(word) > 3 else word for word in words)
