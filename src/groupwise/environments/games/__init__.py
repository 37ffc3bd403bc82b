"""Games of several turns: tic-tac-toe, blackjack and a grid world, in the reset/step shape."""

from groupwise.environments.games.base import Game, GameEnvironment, GamePlay, GameSettings, Step

__all__ = ["Game", "GameEnvironment", "GamePlay", "GameSettings", "Step"]
