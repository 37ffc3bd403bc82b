"""Write the labelled sets of the verifiers that read a final answer of another kind than a number.

    python experiments/audit_final_sets.py src/groupwise/verifiers/audit/sets

Sequences, texts, Countdown; and lines of equations and wanted tokens.
Nothing of groupwise is imported: labels by construction, marks as in `audit_sets.py`.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path

from audit_sets import Row, row, write

WORDS = ("river", "stone", "cloud", "paper", "light", "green", "bread", "chair", "music", "night")


def endings(gold: object, good: str, wrong: str, **more: object) -> Iterator[Row]:
    """What holds for every final answer, whatever its kind."""
    yield row(gold, f"⟦{good}⟧", True, "stated", **more)
    yield row(gold, f"<think>{wrong}</think>\n⟦{good}⟧", True, "behind the reasoning", **more)
    yield row(gold, f"First I had ⟦{wrong}⟧.\n⟦{good}⟧", True, "corrected", **more)
    yield row(gold, f"⟦{wrong}⟧", False, "another one", **more)
    yield row(gold, f"⟦{good}⟧\n⟦{wrong}⟧", False, "taken back", **more)
    yield row(gold, f"<think>⟦{good}⟧</think>", False, "only in the reasoning", **more)
    yield row(gold, f"<think>⟦{good}⟧", False, "the reasoning never ends", **more)
    yield row(gold, "⟦⟧", False, "empty", **more)
    yield row(gold, "", False, "nothing", **more)


def text(noise: random.Random) -> Iterator[Row]:
    for word in noise.sample(WORDS, 5):
        other = noise.choice([each for each in WORDS if each != word])
        yield from endings(word, word, other)
        yield row(word, f'⟦"{word}"⟧', True, "quoted")
        yield row(word, f"⟦**{word}**.⟧", True, "bold, with a period")
        yield row(word, f"⟦{word[::-1]}⟧", False, "reversed")
        yield row(word, f"⟦{word} {other}⟧", False, "a word more")
        yield row(word, f"⟦{word} or {other}⟧", False, "two offered")
        yield row(word, f"⟦{word.upper()}⟧", False, "another case")


def sequence(noise: random.Random) -> Iterator[Row]:
    for _ in range(5):
        items = noise.sample(range(2, 60), 4)
        gold = ", ".join(map(str, items))
        swapped = ", ".join(map(str, [items[1], items[0], *items[2:]]))
        yield from endings(gold, gold, swapped)
        yield row(gold, f"⟦{' '.join(map(str, items))}⟧", True, "blanks between")
        yield row(gold, f"⟦[{gold}]⟧", True, "in brackets")
        yield row(gold, f"⟦{gold}, 7⟧", False, "an item more")
        yield row(gold, f"⟦{', '.join(map(str, items[:3]))}⟧", False, "an item missing")
        yield row(gold, f"⟦{', '.join(map(str, items[::-1]))}⟧", False, "reversed")
        yield row(gold, f"⟦{''.join(map(str, items))}⟧", False, "run together")


def countdown(noise: random.Random) -> Iterator[Row]:
    for _ in range(5):
        a, b, c = noise.sample(range(3, 25), 3)
        columns = {"numbers": [a, b, c], "target": a * b + c}
        gold = f"{a} * {b} + {c}"
        yield from endings(gold, gold, f"{a} + {b} + {c}", columns=columns)
        yield row(gold, f"⟦{c} + ({b} * {a})⟧", True, "another order", columns=columns)
        yield row(gold, f"⟦{gold} = {a * b + c}⟧", True, "with its value", columns=columns)
        yield row(gold, f"⟦{a * b + c}⟧", False, "the target itself", columns=columns)
        yield row(gold, f"⟦{a * b} + {c}⟧", False, "a number not offered", columns=columns)
        yield row(gold, f"⟦{gold} + {a} - {a}⟧", False, "a number used twice", columns=columns)
        yield row(gold, f"⟦{gold} = {a * b}⟧", False, "another value behind it", columns=columns)
        yield row(gold, "⟦__import__('os').getpid()⟧", False, "code", columns=columns)
        yield row(gold, f"⟦{a} ** {b}⟧", False, "another operation", columns=columns)
        yield row(gold, "⟦9 / (3 - 3)⟧", False, "a division by zero", columns=columns)


def target(noise: random.Random) -> Iterator[Row]:
    """Accepted where the text is nothing but the target."""
    arguments = {"target": "7"}
    for size in (1, 2, 5, 40):
        other = noise.choice("0123456")
        place = noise.randrange(size)
        sevens = "7" * size
        yield row(None, sevens, True, "the target alone", arguments=arguments)
        broken = sevens[:place] + other + sevens[place:]
        yield row(None, broken, False, "something else in it", arguments=arguments)
        yield row(None, other * size, False, "something else", arguments=arguments)
        yield row(None, f"{sevens} ", False, "a blank behind it", arguments=arguments)
    yield row(None, "", False, "nothing", arguments=arguments)


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for make in (text, sequence, countdown, target):
        write(folder, make.__name__, make(random.Random(f"22 {make.__name__}")))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
