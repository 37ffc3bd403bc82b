"""Words for generated tasks: common ones, people, and pronounceable ones without meaning."""

from __future__ import annotations

import random

_COMMON = """
apple arrow autumn badge baker banana basket beach bench berry blanket border bottle branch
bread breeze bridge brother bucket button cabin camera candle canyon carpet castle cedar cherry
circle cloud coast coffee copper corner cotton cousin cradle crayon cricket crystal curtain
dancer desert diamond dinner dragon drawer eagle earth engine evening fabric farmer feather
fence field finger flame flower forest fountain garden ginger glacier glove grape guitar hammer
harbor harvest helmet honey horizon hunter island jacket jungle kettle kitchen ladder lantern
leather lemon letter library lizard market marble meadow melody mirror monkey morning mountain
museum napkin needle night ocean olive orange orchard oyster paddle painter palace paper parrot
pebble pencil pepper piano pillow pirate planet pocket potato prairie puzzle rabbit rainbow
ribbon river rocket saddle sailor salmon school season shadow shell shower silver singer sister
spider spring square stable station storm stream street summer sunset table teacher temple
thunder ticket tiger timber tower tractor travel trumpet tunnel turtle valley velvet village
violin wagon walnut water weaver whistle willow window winter wizard yellow zebra
"""
WORDS: tuple[str, ...] = tuple(_COMMON.split())

PEOPLE: tuple[str, ...] = (
    "Anna", "Ben", "Carla", "David", "Emma", "Farid", "Grace", "Hugo", "Ines", "Jack", "Kira",
    "Liam", "Maria", "Noah", "Olga", "Pedro", "Rosa", "Sam", "Tara", "Viktor",
)  # fmt: skip

_CONSONANTS = "bcdfghklmnprstvz"
_VOWELS = "aeiou"


def made_up_word(draw: random.Random, length: int) -> str:
    """Consonants and vowels in turn: a word of that many letters that is in few vocabularies."""
    first = draw.randint(0, 1)
    return "".join(
        draw.choice(_VOWELS if (place + first) % 2 else _CONSONANTS) for place in range(length)
    )
