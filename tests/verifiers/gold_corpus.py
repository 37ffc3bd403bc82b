r"""Gold answers of many shapes, made by a table: each with rewritings that mean the same.

`corpus()` is the whole, `written()` a second table, by another hand; `one_character_mutants` are
changes that mostly mean something else. Run as a program it prints the figures of `math` on both:

    python tests/verifiers/gold_corpus.py
"""

from __future__ import annotations

import random
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path


@dataclass(frozen=True)
class Gold:
    kind: str
    gold: str
    same: tuple[str, ...]
    wrong: tuple[str, ...] = ()


def written() -> list[Gold]:
    """Gold answers as people write them, from `golds/written.txt`."""
    rows: list[Gold] = []
    kind = ""
    for line in (Path(__file__).parent / "golds/written.txt").read_text("utf-8").splitlines():
        if re.fullmatch(r"\[[a-z ]+\]", line):
            kind = line[1:-1]
        elif line.strip() and not line.startswith("# "):
            good, *wrong = (each.strip() for each in line.split(" !! "))
            gold, *same = (each.strip() for each in good.split(" ;; "))
            rows.append(Gold(kind, gold, tuple(same), tuple(wrong)))
    return rows


def corpus() -> list[Gold]:
    """At least 500, the same every time."""
    source = random.Random(11)
    rows = [Gold(make.__name__, *row) for make in MAKERS for row in make(source)]
    return list({row.gold: row for row in rows}.values())


def integers(r: random.Random) -> Iterator[tuple[str, tuple[str, ...]]]:
    for _ in range(30):
        n = r.choice((-1, 1)) * r.randint(2, 10 ** r.randint(1, 7))
        yield str(n), (f"{n:,}", f"{n}.0", rf"\frac{{{2 * n}}}{{2}}", f"x={n}", f" {n} ")
    for _ in range(12):
        n = r.randint(1000, 999_999)
        yield f"{n:,}", (str(n), f"{n:,}".replace(",", "{,}"), f"{n:,}".replace(",", r"\,"))
    for base, power in ((2, 10), (3, 7), (10, 6), (7, 4), (2, 40), (5, 13)):
        yield f"{base}^{{{power}}}", (str(base**power), f"{base}**{power}", f"{base}^{power}")
    for n in (5, 6, 7, 8):
        yield f"{n}!", (str(__import__("math").factorial(n)),)


def fractions(r: random.Random) -> Iterator[tuple[str, tuple[str, ...]]]:
    for _ in range(45):
        top, bottom = r.randint(1, 99), r.choice((2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 16, 25))
        value = Fraction(top, bottom)
        if value.denominator == 1:
            continue
        a, b = value.numerator, value.denominator
        mixed = (rf"{a // b}\frac{{{a % b}}}{{{b}}}", f"{a // b} {a % b}/{b}") if a > b else ()
        yield rf"\frac{{{a}}}{{{b}}}", (
            f"{a}/{b}", rf"\dfrac{{{a}}}{{{b}}}", rf"\frac{{{3 * a}}}{{{3 * b}}}", *mixed,
            rf"-\frac{{-{a}}}{{{b}}}",
        )  # fmt: skip
    for _ in range(15):
        n = r.randint(1, 9999)
        yield f"{n / 100}", (rf"\frac{{{n}}}{{100}}", f"{n / 100}0")
    for a in (1, 2, 4, 5, 7):
        yield rf"0.\overline{{{a}}}", (rf"\frac{{{a}}}{{9}}", f"{a}/9")


def roots(r: random.Random) -> Iterator[tuple[str, tuple[str, ...]]]:
    for _ in range(30):
        a, b, c = r.randint(2, 9), r.choice((2, 3, 5, 6, 7, 10)), r.randint(2, 9)
        yield rf"{a}\sqrt{{{b}}}", (rf"\sqrt{{{a * a * b}}}", f"{a}*sqrt({b})", rf"{a}\sqrt {b}")
        yield rf"\frac{{{a}+\sqrt{{{b}}}}}{{{c}}}", (
            rf"\frac{{\sqrt{{{b}}}+{a}}}{{{c}}}", f"({a}+sqrt({b}))/{c}",
            rf"\frac{{{a}}}{{{c}}}+\frac{{\sqrt{{{b}}}}}{{{c}}}",
        )  # fmt: skip
    for a in range(2, 9):
        yield rf"\sqrt[3]{{{a}}}", (f"{a}^{{1/3}}", f"{a}^{{\\frac13}}")
        yield (
            rf"\frac{{1}}{{\sqrt{{{a}}}+\sqrt{{{a + 1}}}}}",
            (
                rf"\sqrt{{{a + 1}}}-\sqrt{{{a}}}",
                rf"\frac{{1}}{{\sqrt{{{a + 1}}}+\sqrt{{{a}}}}}",
            ),
        )


def constants(r: random.Random) -> Iterator[tuple[str, tuple[str, ...]]]:
    for _ in range(20):
        a, b = r.randint(2, 30), r.randint(2, 12)
        yield rf"{a}\pi", (f"{a}*pi", f"{a}π", rf"\pi\cdot {a}")
        if a % b:
            yield rf"\frac{{{a}\pi}}{{{b}}}", (f"{a}pi/{b}", rf"\frac{{{a}}}{{{b}}}\pi")
        yield rf"e^{{{a}}}", (f"e^{a}" if a < 10 else f"e**{a}", rf"\mathrm{{e}}^{{{a}}}")
        yield rf"\ln {a}", (f"ln({a})", rf"\ln({a})", rf"\frac12\ln {a * a}")
        yield f"{a}+{b}i", (f"{b}i+{a}", f"{a}+{b}*i")
    yield r"\infty", (r"+\infty", "infinity", "∞")
    yield r"-\infty", ("-infinity", "-∞")


def expressions(r: random.Random) -> Iterator[tuple[str, tuple[str, ...]]]:
    for _ in range(18):
        a, b, x = r.randint(2, 9), r.randint(2, 9), r.choice("xyntk")
        yield f"{a}{x}+{b}", (f"{b}+{a}{x}", f"{a}*{x}+{b}", f"{x}+{b}+{a - 1}{x}")
        yield (
            f"({x}+{a})({x}-{b})",
            (
                f"{x}^2+{a - b}{x}-{a * b}" if a != b else f"{x}^2-{a * b}",
                f"({x}-{b})*({x}+{a})",
            ),
        )
        yield rf"\frac{{{x}+{a}}}{{{x}^2+{b}}}", (f"({x}+{a})/({x}^2+{b})",)
        yield rf"\sin {a}{x}", (f"sin({a}{x})", rf"\sin({a}{x})", f"sin({a}*{x})")
        yield rf"{a}^{{{x}}}-{b}", (f"{a}^{x}-{b}", f"{a}**{x}-{b}", f"-{b}+{a}^{x}")
    yield r"\frac{M}{m}", ("M/m",)
    yield r"\frac{N}{n+1}", ("N/(n+1)",)
    yield r"\binom{n}{2}", (r"\frac{n(n-1)}{2}", "n(n-1)/2")
    yield r"2\sin x\cos x", (r"\sin 2x", "sin(2x)")
    yield r"\cos^2 x-\sin^2 x", (r"\cos 2x", r"1-2\sin^2 x")


def intervals(r: random.Random) -> Iterator[tuple[str, tuple[str, ...]]]:
    for _ in range(20):
        a = r.randint(-20, 10)
        b = a + r.randint(1, 15)
        opening, closing = r.choice("(["), r.choice(")]")
        yield f"{opening}{a},{b}{closing}", (
            f"{opening}{a}, {b}{closing}", rf"\left{opening}{a},{b}\right{closing}",
            rf"x\in {opening}{a},{b}{closing}",
        )  # fmt: skip
        yield rf"(-\infty,{a}{closing}\cup({b},\infty)", (
            rf"({b},\infty)\cup(-\infty,{a}{closing}",
            rf"(-\infty, {a}{closing} \cup ({b}, \infty)",
        )  # fmt: skip
    for a in range(1, 9):
        yield f"x>{a}", (f"{a}<x", rf"({a},\infty)", rf"x \gt {a}")
        yield rf"x\le {a}", (f"x <= {a}", rf"(-\infty,{a}]", rf"x\leq {a}")
        yield rf"{a}\le x<{a + 3}", (rf"[{a},{a + 3})", rf"{a} \leq x < {a + 3}")
        yield rf"\{{x|x<{a}\}}", (rf"\{{x \mid x<{a}\}}", rf"(-\infty,{a})", rf"\{{x : x<{a}\}}")


def collections(r: random.Random) -> Iterator[tuple[str, tuple[str, ...]]]:
    for _ in range(20):
        numbers = r.sample(range(-20, 40), r.randint(2, 4))
        turned = numbers[::-1]
        joined, other = (",".join(map(str, each)) for each in (numbers, turned))
        yield rf"\{{{joined}\}}", (rf"\{{{other}\}}", joined.replace(",", ", "))
        yield f"({joined})", (f"({joined.replace(',', ', ')})", rf"\left({joined}\right)")
        yield joined, (other, f"{', '.join(map(str, numbers[:-1]))} and {numbers[-1]}")
        yield rf"\langle {joined}\rangle", (rf"\left\langle {joined} \right\rangle",)
        yield f"x={numbers[0]}, y={numbers[1]}", (f"y={numbers[1]}, x={numbers[0]}",)
    for a in range(2, 8):
        yield rf"\pm {a}", (f"{a},-{a}", f"-{a}, {a}", rf"x=\pm {a}")
        yield rf"(\pi,{a})", (f"(pi, {a})", f"(π,{a})")
        yield rf"{a}\pm\sqrt{{3}}", (rf"{a}+\sqrt3, {a}-\sqrt3", f"{a}-sqrt(3), {a}+sqrt(3)")


def matrices(r: random.Random) -> Iterator[tuple[str, tuple[str, ...]]]:
    for _ in range(18):
        a, b, c, d = (r.randint(-9, 9) for _ in range(4))
        rows = rf"{a}&{b}\\{c}&{d}"
        yield (
            rf"\begin{{pmatrix}}{rows}\end{{pmatrix}}",
            (
                rf"\begin{{bmatrix}}{rows}\end{{bmatrix}}",
                rf"\begin{{pmatrix}} {a} & {b} \\ {c} & {d} \end{{pmatrix}}",
            ),
        )
        yield (
            rf"\begin{{pmatrix}}{a}\\{b}\\{c}\end{{pmatrix}}",
            (rf"\begin{{pmatrix}} {a} \\ {b} \\ {c} \end{{pmatrix}}",),
        )


def equations(r: random.Random) -> Iterator[tuple[str, tuple[str, ...]]]:
    for _ in range(16):
        a, b, c = r.randint(2, 9), r.randint(2, 9), r.randint(1, 30)
        yield f"y={a}x+{b}", (f"y = {b} + {a}x", f"{a}x+{b}=y", f"y-{a}x={b}")
        yield f"{a}x+{b}y={c}", (f"{b}y+{a}x={c}", f"{2 * a}x+{2 * b}y={2 * c}")
        yield f"x^2+y^2={c}", (f"y^2+x^2={c}", f"x^2+y^2-{c}=0")
        yield f"f(x)={a}x^2-{b}", (f"f(x) = -{b}+{a}x^2", f"{a}x^2-{b}")
        yield rf"x\equiv {b}\pmod{{{b + c}}}", (rf"x \equiv {b} \pmod {{{b + c}}}",)
    yield r"\log_2 8=3", (r"\log_2(8)=3", r"3=\log_2 8")
    yield "x^2+50=0", ("50+x^2=0", "x^2=-50")


def units(r: random.Random) -> Iterator[tuple[str, tuple[str, ...]]]:
    names = (("cm", "centimeters"), ("km", "kilometers"), ("kg", "kilograms"), ("m/s", "m/s"),
             ("hours", "hour"), ("minutes", "min"), ("mph", "miles per hour"))  # fmt: skip
    for _ in range(6):
        for unit, other in names:
            n = r.randint(2, 400)
            yield rf"{n}\text{{ {unit}}}", (rf"{n} \text{{ {other}}}", f"{n} {unit}", str(n))
        n = r.randint(2, 99)
        yield rf"{n}^\circ", (f"{n}°", f"{n} degrees", str(n))
        yield rf"{n}\%", (f"{n}%", f"{n} percent", f"{n} pct")
        yield rf"\${n}", (f"${n}", f"{n} dollars", str(n))
        yield rf"{n}\text{{ cm}}^2", (f"{n} square centimeters", f"{n} cm^2")
        yield rf"{n} \text{{ hours }} {n + 1} \text{{ minutes}}", (f"{n} hours {n + 1} minutes",)
        yield rf"{n} \mathrm{{mph}}, {n + 1} \mathrm{{mph}}", (rf"{n + 1}\text{{ mph}}, {n} mph",)


def words(r: random.Random) -> Iterator[tuple[str, tuple[str, ...]]]:
    for word in ("Tuesday", "east", "parabola", "odd", "yes", "no", "true", "isosceles", "blue",
                 "Paris", "hyperbola", "decreasing", "convergent"):  # fmt: skip
        yield (
            rf"\text{{{word}}}",
            (word, word.capitalize(), rf"\text{{{word.upper()}}}", f"{word}."),
        )
    for letter in "ABCDE":
        yield rf"\text{{({letter})}}", (letter, rf"\textbf{{({letter})}}", f"({letter})")
    for _ in range(12):
        a, b = r.randint(2, 9), r.randint(2, 9)
        yield rf"{a} \text{{ when }} x={b}", (rf"{a}\text{{ when }}x = {b}",)
        yield rf"\text{{The area is }} {a}", (rf"\text{{the area is }}{a}",)
    yield "the empty set", (r"\text{The empty set}",)
    yield r"\emptyset", (r"\varnothing", r"\{\}", "∅")


MAKERS = (integers, fractions, roots, constants, expressions, intervals, collections, matrices,
          equations, units, words)  # fmt: skip


def one_character_mutants(gold: str, source: random.Random, number: int = 4) -> list[str]:
    r"""One character replaced by one of its kind, left out, or written twice.

    Left out are those that mean the same (a blank, a `\` before a name, a brace around one digit)
    or that a box cannot hold (braces that do not match).
    """
    digits, letters, signs, brackets = "0123456789", "abcdemnstxyABMNX", "+-=<>,", "()[]{}"
    found: set[str] = set()
    for _ in range(60):
        place = source.randrange(len(gold))
        character = gold[place]
        kind = next((k for k in (digits, letters, signs, brackets) if character in k), "")
        if character.isspace():
            continue
        new = source.choice([source.choice(kind or digits), source.choice(kind or letters), "",
                             character * 2])  # fmt: skip
        mutant = gold[:place] + new + gold[place + 1 :]
        lost = character == "\\" and new == ""
        matched = mutant.count("{") == mutant.count("}")
        if mutant.strip() != gold.strip() and matched and not lost:
            found.add(mutant)
        if len(found) == number:
            break
    return sorted(found)


def figures(rows: list[Gold]) -> dict[str, object]:
    """Shares and times of `math` on these golds, their rewritings and one-character mutants."""
    import groupwise as gw

    source, seconds = random.Random(5), []
    refused, rejected, accepted = [], [], []
    same = mutants = 0
    for row in rows:
        start = time.perf_counter()
        own = gw.verify("math", completion=rf"\boxed{{{row.gold}}}", answer=row.gold)
        seconds.append(time.perf_counter() - start)
        if own.outcome != "correct":
            refused.append((row.kind, row.gold, own.reason))
            continue
        for given, wanted in [(each, True) for each in row.same] + [
            (each, False) for each in (*row.wrong, *one_character_mutants(row.gold, source))
        ]:
            start = time.perf_counter()
            score = gw.verify("math", completion=rf"\boxed{{{given}}}", answer=row.gold)
            seconds.append(time.perf_counter() - start)
            same, mutants = same + wanted, mutants + (not wanted)
            if wanted and score.value != 1.0:
                rejected.append((row.kind, row.gold, given, score.reason))
            if not wanted and score.value == 1.0:
                accepted.append((row.kind, row.gold, given))
    seconds.sort()
    return {
        "golds": len(rows), "refused": refused, "same": same, "rejected": rejected,
        "mutants": mutants, "accepted": accepted, "p99": seconds[int(0.99 * len(seconds))],
        "worst": seconds[-1], "median": seconds[len(seconds) // 2],
    }  # fmt: skip


def defended(pairs: list[tuple[str, str, str]]) -> list[bool]:
    """Whether math-verify alone, in this process, takes each mutant for its gold answer too."""
    from math_verify import LatexExtractionConfig, parse, verify

    def parsed(text: str) -> list[object]:
        return parse(f"\\boxed{{{text}}}", extraction_config=(LatexExtractionConfig(),),
                     parsing_timeout=None)  # fmt: skip

    return [verify(parsed(g), parsed(a), timeout_seconds=None) for _, g, a in pairs]


if __name__ == "__main__":
    found = figures([*corpus(), *written()])
    accepted = found["accepted"]
    agreed = defended(accepted)
    for name in ("refused", "rejected"):
        print(name, *found[name], sep="\n  ")
    print("accepted mutants (True: math-verify accepts it too)")
    for row, both in zip(accepted, agreed):
        print(" ", both, row)
    alone = agreed.count(False)
    print(
        f"{found['golds']} golds, {len(found['refused'])} refused; {found['same']} rewritings, "
        f"{len(found['rejected'])} rejected; {found['mutants']} mutants, {len(accepted)} accepted, "
        f"{alone} of them by this verifier alone; seconds: median {found['median']:.4f}, "
        f"p99 {found['p99']:.3f}, worst {found['worst']:.2f}"
    )
    sys.exit(alone > 0.003 * found["mutants"])
