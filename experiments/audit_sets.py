r"""Write the labelled sets that `groupwise audit` measures verifiers on.

    python experiments/audit_sets.py src/groupwise/verifiers/audit/sets

Nothing of groupwise is imported: a label follows from how the row was made (the same value written
another way: accept; another value, or no clear answer: reject), before any verifier has seen it.
Marks ⟦...⟧ in `text` are final answers; the audit writes each in the form that the audited verifier
reads (bare, boxed, tagged). Left out: code submissions (`audit_code_set.py`).
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def row(answer: str, text: str, accept: bool, why: str, **more: Any) -> Row:
    return {"answer": answer, "text": text, "accept": accept, "why": why, **more}


# --- numbers ------------------------------------------------------------

WORDING = (
    "⟦{}⟧",
    "The answer is ⟦{}⟧.",
    "We add the two parts and get ⟦{}⟧.",
    "<think>Let me count: first 3, then 11.</think>\nSo it is ⟦{}⟧",
    "Step 1: read the question.\nStep 2: compute.\n\nFinal answer: ⟦{}⟧",
    "At first I had 17, which was wrong. It is ⟦{}⟧",
)


def grouped(value: int, separator: str = ",") -> str:
    return f"{value:,}".replace(",", separator)


def equal_integers(noise: random.Random) -> Iterator[Row]:
    """An integer written in another usual way is the same integer."""
    writings = (
        ("as it is", lambda n: str(n)),
        ("thousands separator", lambda n: grouped(n)),
        ("LaTeX thousands separator", lambda n: grouped(n, "{,}")),
        ("bold", lambda n: f"**{n}**"),
        ("in dollars", lambda n: f"${n}$"),
        ("a trailing period", lambda n: f"{n}."),
        ("a decimal point and zeros", lambda n: f"{n}.00"),
        ("a leading zero", lambda n: f"0{n}"),
        ("over one", lambda n: rf"\frac{{{n}}}{{1}}"),
        ("an unreduced fraction", lambda n: rf"\frac{{{3 * n}}}{{3}}"),
        ("scientific", lambda n: f"{n / 1000}e3" if n % 10 else f"{n // 10}e1"),
        ("named", lambda n: f"x = {n}"),
        ("white space around", lambda n: f"  {n} "),
    )
    for place, (why, write) in enumerate(writings):
        for _ in range(4):
            value = noise.choice([noise.randint(1001, 9999), noise.randint(10_000, 999_999)])
            wording = WORDING[0] if why == "named" else WORDING[(place + _) % len(WORDING)]
            yield row(str(value), wording.format(write(value)), True, why)


def other_integers(noise: random.Random) -> Iterator[Row]:
    """Another integer is another integer."""
    for place in range(8):
        value = noise.randint(100, 9999)
        digits = str(value)
        swapped = digits[1] + digits[0] + digits[2:]
        others = {
            "one more": value + 1,
            "one less": value - 1,
            "the other sign": -value,
            "ten times": 10 * value,
            "the last digit missing": value // 10,
            "one digit more in front": int("1" + digits),
        }
        if swapped != digits and swapped[0] != "0":
            others["two digits swapped"] = int(swapped)
        for why, other in others.items():
            wording = WORDING[(place + len(why)) % len(WORDING)]
            yield row(str(value), wording.format(other), False, why)


def equal_fractions(noise: random.Random) -> Iterator[Row]:
    for place in range(10):
        bottom = noise.choice([2, 4, 5, 8, 10, 16, 20, 25])
        top = noise.choice(
            [n for n in range(bottom + 1, 5 * bottom) if Fraction(n, bottom).denominator > 1]
        )
        value = Fraction(top, bottom)
        top, bottom = value.numerator, value.denominator
        whole, rest = divmod(top, bottom)
        writings = {
            "as a decimal": str(float(value)),
            "as a LaTeX fraction": rf"\frac{{{top}}}{{{bottom}}}",
            "as a display fraction": rf"\dfrac{{{top}}}{{{bottom}}}",
            "with a slash": f"{top}/{bottom}",
            "as a mixed number": rf"{whole}\frac{{{rest}}}{{{bottom}}}",
            "not reduced": rf"\frac{{{2 * top}}}{{{2 * bottom}}}",
        }
        gold = (f"{top}/{bottom}", rf"$\frac{{{top}}}{{{bottom}}}$", str(float(value)))[place % 3]
        for why, given in writings.items():
            if noise.random() < 0.6:
                yield row(gold, WORDING[place % 2].format(given), True, why)


def other_fractions(noise: random.Random) -> Iterator[Row]:
    for place in range(10):
        bottom = noise.choice([3, 7, 9, 11, 13])
        top = noise.choice([n for n in range(2, 40) if n % bottom])
        value = Fraction(top, bottom)
        others = {
            "upside down": rf"\frac{{{bottom}}}{{{top}}}",
            "another numerator": rf"\frac{{{top + 1}}}{{{bottom}}}",
            "negative": rf"-\frac{{{top}}}{{{bottom}}}",
            "rounded to two places": f"{float(value):.2f}",
            "rounded to six places": f"{float(value):.6f}",
            "the numerator alone": str(top),
        }
        for why, given in others.items():
            if noise.random() < 0.7 and Fraction(value) != 1:
                yield row(f"{top}/{bottom}", WORDING[place % 2].format(given), False, why)


def units_and_percent() -> Iterator[Row]:
    """Stated policy: a unit that is not written is not held against an answer, another unit is."""
    for value, unit, other in (
        (10, "cm", "m"),
        (3, "hours", "minutes"),
        (250, "g", "kg"),
        (7, "miles", "km"),
    ):
        yield row(f"{value} {unit}", f"⟦{value} {unit}⟧", True, "the same unit")
        yield row(f"{value} {unit}", f"⟦{value}⟧", True, "no unit written")
        yield row(str(value), rf"⟦{value}\text{{ {unit}}}⟧", True, "a unit that gold leaves out")
        yield row(f"{value} {unit}", f"⟦{value} {other}⟧", False, "another unit")
        yield row(
            f"{value} {unit}", f"⟦{value + 1} {unit}⟧", False, "the unit right, the number wrong"
        )
    for value in (28, 50, 75):
        yield row(rf"{value}\%", f"⟦{value} percent⟧", True, "percent as a word")
        yield row(rf"{value}\%", rf"⟦{value}\%⟧", True, "percent as a sign")
        yield row(
            f"{value / 100}", f"⟦{value}%⟧", False, "a share against percent (policy: ignore)"
        )
        yield row(f"{value}%", f"⟦{value + 2}%⟧", False, "another percentage")
    yield row("30", r"⟦30^\circ⟧", True, "degrees")
    yield row("12", "⟦$12⟧", True, "dollars")
    yield row("5000000", "⟦5 million⟧", True, "a number word")
    yield row("5000000", "⟦5⟧", False, "the number word missing")
    yield row("1200", r"⟦1.2\times10^{3}⟧", True, "scientific in LaTeX")
    yield row("1200", r"⟦1.2\times10^{2}⟧", False, "another power of ten")
    yield row("10^{100}", r"⟦10^{100}⟧", True, "a googol")
    yield row("10^{100}", r"⟦10^{99}⟧", False, "a tenth of a googol")


def pieces() -> Iterator[Row]:
    """A number inside something larger is not that something."""
    for gold, given, why in (
        ("4", r"4\sqrt{2}", "a factor of a root"),
        ("2", r"\sqrt{2}", "the number under a root"),
        ("12", "12:00", "an hour of a time"),
        ("1", "(0,1)", "a member of a pair"),
        ("2", "x^2", "an exponent"),
        ("3", r"\pm 3", "one of two signs"),
        ("5", r"\{3,5\}", "a member of a set"),
        ("7", "7x", "a coefficient"),
        ("2", r"2\pi", "a factor of pi"),
        ("8", "3+8i", "an imaginary part"),
        ("16", "2^{16}", "the exponent of a power"),
        ("9", r"\log_3 9", "a logarithm's argument"),
        ("100", "1/100", "a denominator"),
        ("25", "0.25", "digits behind the point"),
        ("41", "3.1.41", "a part of a version"),
    ):
        yield row(gold, f"⟦{given}⟧", False, why)


def places_and_hedges(noise: random.Random) -> Iterator[Row]:
    """One final answer, after the reasoning; hedging is no answer."""
    for _ in range(5):
        value = noise.randint(20, 900)
        wrong, other = value + noise.randint(1, 9), value - noise.randint(1, 9)
        gold = str(value)
        yield row(gold, f"<think>⟦{value}⟧</think>\nI cannot say.", False, "only in the reasoning")
        yield row(gold, f"<think>It must be ⟦{value}⟧", False, "the reasoning never ends")
        yield row(
            gold,
            f"<think>Maybe ⟦{wrong}⟧.</think>\n⟦{value}⟧",
            True,
            "corrected after the reasoning",
        )
        yield row(
            gold, f"<think>It is ⟦{value}⟧.</think>\n⟦{wrong}⟧", False, "spoilt after the reasoning"
        )
        yield row(
            gold, f"⟦{wrong}⟧ Wait, that is not right. ⟦{value}⟧", True, "the last one counts"
        )
        yield row(
            gold, f"⟦{value}⟧ Wait, that is not right. ⟦{wrong}⟧", False, "the last one counts"
        )
        yield row(gold, f"⟦{value} or {wrong}⟧", False, "two offered, right first")
        yield row(gold, f"⟦{wrong} or {value}⟧", False, "two offered, right last")
        yield row(gold, f"⟦{other}, {wrong}⟧", False, "two offered, none right")
        yield row(gold, f"⟦it is between {other} and {wrong}⟧", False, "a range around it")
        yield row(gold, "I do not know.", False, "no answer")
        yield row(gold, "", False, "nothing written")


# --- mathematics ------------------------------------------------------------


def algebra(noise: random.Random) -> Iterator[Row]:
    """Identities by construction: a product and its expansion, a root and its square, ..."""
    for _ in range(8):
        a, b = noise.randint(1, 9), noise.randint(1, 9)
        expanded = f"x^2+{a + b}x+{a * b}"
        yield row(f"(x+{a})(x+{b})", f"⟦{expanded}⟧", True, "expanded")
        yield row(expanded, f"⟦(x+{b})(x+{a})⟧", True, "factored")
        yield row(expanded, f"⟦x^2+{a + b}x+{a * b + 1}⟧", False, "another constant")
        yield row(f"(x+{a})(x+{b})", f"⟦(x-{a})(x+{b})⟧", False, "another sign")
    for _ in range(8):
        a, b = noise.randint(2, 9), noise.choice([2, 3, 5, 6, 7])
        yield row(rf"\sqrt{{{a * a * b}}}", rf"⟦{a}\sqrt{{{b}}}⟧", True, "a root simplified")
        yield row(
            rf"{a}\sqrt{{{b}}}", rf"⟦{a + 1}\sqrt{{{b}}}⟧", False, "another factor of the root"
        )
        yield row(rf"{a}\sqrt{{{b}}}", rf"⟦{(a * a * b) ** 0.5:.4f}⟧", False, "a root rounded")
        yield row(rf"\sqrt{{{a * a}}}", f"⟦{a}⟧", True, "the root of a square")
    for _ in range(6):
        a, b = noise.randint(1, 9), noise.randint(10, 19)
        yield row(f"({a},{b})", f"⟦({a}, {b})⟧", True, "a pair")
        yield row(f"({a},{b})", f"⟦({b},{a})⟧", False, "a pair turned round")
        yield row(f"({a},{b})", f"⟦[{a},{b}]⟧", False, "a closed interval for an open one")
        yield row(rf"\{{{a},{b},20\}}", rf"⟦\{{20,{b},{a}\}}⟧", True, "a set in another order")
        yield row(rf"\{{{a},{b},20\}}", rf"⟦\{{{a},{b}\}}⟧", False, "a set with a member missing")
    for _ in range(5):
        a, b = noise.randint(1, 9), noise.randint(1, 9)
        yield row(f"{a}+{b}i", f"⟦{b}i+{a}⟧", True, "a complex number turned round")
        yield row(f"{a}+{b}i", f"⟦{a}-{b}i⟧", False, "the conjugate")
        yield row(
            rf"\frac{{{a}\pi}}{{{b + 1}}}", rf"⟦\frac{{{a}}}{{{b + 1}}}\pi⟧", True, "pi moved out"
        )
        yield row(rf"{a}\pi", f"⟦{a}⟧", False, "pi missing")
        yield row(rf"{a}\pi", f"⟦{a * 3.14159265:.6f}⟧", False, "pi rounded")
        yield row(rf"\frac{{1}}{{{a + 1}}}x", rf"⟦\frac{{x}}{{{a + 1}}}⟧", True, "x over a number")
        yield row(f"2^{{{a + 9}}}", f"⟦{2 ** (a + 9)}⟧", True, "a power worked out")
        yield row(f"2^{{-{a + 30}}}", f"⟦2^{{-{a + 31}}}⟧", False, "tiny and half as large")


def words() -> Iterator[Row]:
    """Answers that are words: compared without case and dressing, never by their letters."""
    for gold, other in (
        ("Tuesday", "Thursday"),
        ("east", "seat"),
        ("no solution", "one solution"),
        ("Alice", "Bob"),
        ("even", "odd"),
    ):
        yield row(gold, rf"⟦\text{{{gold}}}⟧", True, "a word in LaTeX")
        yield row(rf"\text{{{gold}}}", f"⟦{gold.upper()}⟧", True, "a word in capitals")
        yield row(gold, f"⟦{other}⟧", False, "another word")


# --- choice ------------------------------------------------------------

OPTIONS = (
    ("mercury", "venus", "earth", "mars"),
    ("a prime number", "an even number", "a square", "a cube"),
    ("3", "5", "8", "13"),
    ("photosynthesis", "respiration", "fermentation", "digestion"),
)


def choices(noise: random.Random) -> Iterator[Row]:
    for place in range(8):
        options = list(OPTIONS[place % len(OPTIONS)])
        right = noise.randrange(4)
        wrong = (right + noise.randint(1, 3)) % 4
        letter, other = "ABCD"[right], "ABCD"[wrong]
        gold = letter if place % 2 else options[right]
        cases = (
            (f"The answer is ({letter}).", True, "the letter"),
            (rf"\boxed{{{letter}}}", True, "the letter boxed"),
            (f"<think>{other}?</think> <answer>{letter}</answer>", True, "the letter in tags"),
            (f"Answer: {letter}. {options[right]}", True, "letter and text agree"),
            (f"The answer is ({other}).", False, "another letter"),
            (rf"\boxed{{{other}}}", False, "another letter boxed"),
            (f"The answer is {letter} or {other}.", False, "two letters"),
            (f"Answer: {letter}. {options[wrong]}", False, "letter and text disagree"),
            ("The answer is A, B, C, D.", False, "every letter"),
            (f"<think>It is {letter}.</think>", False, "only in the reasoning"),
        )
        for text, accept, why in cases:
            yield row(gold, text, accept, why, columns={"choices": options})


# --- format ------------------------------------------------------------


def formats(noise: random.Random) -> Iterator[Row]:
    """The asked form, once, with a number inside; right or wrong does not count."""
    for _ in range(5):
        n = noise.randint(10, 99)
        for text, accept, why in (
            (rf"So \boxed{{{n}}}", True, "one box"),
            (rf"<think>hm</think>\boxed{{{n}}}.", True, "a box after the reasoning"),
            (rf"\boxed{{{n}}} and \boxed{{{n}}}", False, "two boxes"),
            (r"\boxed{}", False, "an empty box"),
            (rf"\boxed{{{n}", False, "an unclosed box"),
            (rf"<think>\boxed{{{n}}}</think> done", False, "only in the reasoning"),
            (r"\boxed{a number}", False, "no number inside"),
            (f"boxed {n}", False, "no box"),
        ):
            yield row(str(n), text, accept, why, arguments={"kind": "boxed"})
        for text, accept, why in (
            (f"<think>add</think><answer>{n}</answer>", True, "both sections"),
            (f"<think>add</think>\n<answer>{n}</answer>\n", True, "line ends between"),
            (f"add</think><answer>{n}</answer>", True, "the opening tag stood in the prompt"),
            (
                f"<think>a</think><think>b</think><answer>{n}</answer>",
                False,
                "two reasoning sections",
            ),
            (f"so: <think>a</think><answer>{n}</answer>", False, "text before"),
            (f"<think>a</think><answer>{n}</answer> bye", False, "text behind"),
            (f"<think>a<answer>{n}</answer></think>", False, "the answer inside the reasoning"),
            ("<think></think><answer></answer>", False, "form without content"),
            (f"<answer>{n}</answer>", False, "no reasoning section"),
            (f"<think>a</think><answer>{n}</answer><answer>{n}</answer>", False, "two answers"),
        ):
            yield row(str(n), text, accept, why, arguments={"kind": "think_answer"})


def write(folder: Path, name: str, rows: Iterable[Row]) -> None:
    """One line a row; a row that came up twice is written once."""
    contents = dict.fromkeys(json.dumps(each, ensure_ascii=False) for each in rows)
    lines = [
        json.dumps({"id": f"{name}-{place:03d}", **json.loads(content)}, ensure_ascii=False)
        for place, content in enumerate(contents)
    ]
    (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(name, len(lines))


def main(folder: Path) -> None:
    noise = random.Random(20)
    folder.mkdir(parents=True, exist_ok=True)
    numbers = [
        *equal_integers(noise), *other_integers(noise), *equal_fractions(noise),
        *other_fractions(noise), *units_and_percent(), *pieces(), *places_and_hedges(noise),
    ]  # fmt: skip
    write(folder, "numbers", numbers)
    write(folder, "math", [*algebra(noise), *words()])
    write(folder, "choice", choices(noise))
    write(folder, "format", formats(noise))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
