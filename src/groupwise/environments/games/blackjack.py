"""Blackjack: hit or stand against a dealer who draws to 17, from an endless deck.

easy: both of the dealer's cards are open. medium: one is. hard: one is, and the dealer draws at a
soft 17 too. A win is 1, equal points 0.5, a loss 0; the policy starts with 4 to 20 points.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from groupwise.environments.base import Environment
from groupwise.environments.games.base import Game, GameEnvironment, GameSettings, Step
from groupwise.environments.generated import Level
from groupwise.verifiers import VerifierSettings
from groupwise.verifiers.core.names import validated

RANKS = ("A", "2", "3", "4", "5", "6", "7", "8", "9", "10", "J", "Q", "K")


class BlackjackSettings(GameSettings):
    """The arguments of `blackjack`."""


class Blackjack(Game):
    """One hand."""

    rules: ClassVar[str] = (
        "We play blackjack. Come closer to 21 points than the dealer, without going over. An ace "
        "counts 11 or 1, J, Q and K count 10. The dealer draws until 17 points. Answer with hit "
        "(another card) or stand."
    )

    def __init__(self, level: Level, draw: random.Random) -> None:
        super().__init__(level, draw)
        self.own: list[str] = []
        self.dealer: list[str] = []

    def reset(self) -> str:
        while True:
            self.own = [self._card(), self._card()]
            self.dealer = [self._card(), self._card()]
            if points(self.own)[0] < 21:
                return self.shown()

    def moves(self) -> Sequence[str]:
        return ("hit", "stand")

    def step(self, move: str) -> Step:
        if move == "hit":
            self.own.append(self._card())
            total = points(self.own)[0]
            if total > 21:
                return Step(self.shown(), 0.0, f"lost with {total} points")
            if total < 21:
                return Step(self.shown())
        return self._dealt()

    def shown(self) -> str:
        """Both hands, as far as they are open."""
        open_cards = self.dealer if self.level == "easy" else self.dealer[:1]
        return (
            f"Your cards: {' '.join(self.own)} ({points(self.own)[0]} points). "
            f"The dealer shows: {' '.join(open_cards)}."
        )

    def _dealt(self) -> Step:
        """The dealer's turn, and who is closer."""
        while self._dealer_draws():
            self.dealer.append(self._card())
        own, dealer = points(self.own)[0], points(self.dealer)[0]
        won = dealer > 21 or own > dealer
        reward = 1.0 if won else 0.5 if own == dealer else 0.0
        word = "won" if won else "equal" if own == dealer else "lost"
        return Step(self.shown(), reward, f"{word} with {own} to {dealer} points")

    def _dealer_draws(self) -> bool:
        total, soft = points(self.dealer)
        return total < 17 or (total == 17 and soft and self.level == "hard")

    def _card(self) -> str:
        return self.draw.choice(RANKS)


def points(cards: Sequence[str]) -> tuple[int, bool]:
    """The best total, and whether an ace counts 11 in it.

    >>> points(["A", "6"]), points(["A", "6", "K"])
    ((17, True), (17, False))
    """
    total = sum(1 if card == "A" else min(RANKS.index(card) + 1, 10) for card in cards)
    soft = "A" in cards and total + 10 <= 21
    return (total + 10, True) if soft else (total, False)


def make_blackjack(
    arguments: Mapping[str, Any],
    seed: int,
    verifiers: Sequence[Mapping[str, Any] | VerifierSettings] = (),
) -> Environment:
    """The `blackjack` environment."""
    settings = validated(BlackjackSettings, arguments, "environment 'blackjack'")
    return GameEnvironment("blackjack", Blackjack, settings, seed, verifiers)
