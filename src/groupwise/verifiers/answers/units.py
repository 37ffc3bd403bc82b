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
_WORD = re.compile(r"[A-Za-z°$€£¥¢%_]+|\d|\^|/|[^\s]")


def canonical(text: str) -> str | None:
    """The unit's one spelling; None if a word of it is not a known unit.

    >>> canonical("square centimeters"), canonical("cm^2"), canonical("miles per hour")
    ('cm^2', 'cm^2', 'mi/h')
    >>> canonical("apples") is None
    True
    """
    text = re.sub(r"per\s*cent\b", "%", text).replace("degrees C", "°C").replace("degrees F", "°F")
    text = re.sub(r"\bmph\b", "mi/h", re.sub(r"\b(?:kph|kmh|kmph)\b", "km/h", text))
    parts: list[str] = []
    power = ""
    words = _WORD.findall(re.sub(r"\bper\b", "/", text).replace(r"\%", "%"))
    for place, word in enumerate(words):
        lowered = word.casefold().rstrip(".")
        if lowered in _POWERS and place + 1 < len(words) and lowered not in ("squared", "cubed"):
            power = _POWERS[lowered]
        elif lowered in _POWERS and parts:
            parts.append(f"^{_POWERS[lowered]}")
        elif word in ("/", "*", "·"):
            parts.append("/" if word == "/" else "*")
        elif word in "{}^.()":
            continue
        elif word.isdigit() and parts and place and words[place - 1] in "^{":
            parts.append(f"^{word}")
        else:
            if len(word) == 1 and word not in ONE_LETTER:
                return None
            plural = lowered.endswith("s") and len(lowered) > 3
            base = _TABLE.get(lowered) or _TABLE.get(lowered[:-1] if plural else "")
            if base is None or (parts and not parts[-1].endswith(("/", "*"))):
                return None
            parts.append(base + (f"^{power}" if power else ""))
            power = ""
    return "".join(parts) if parts and not power else None


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
