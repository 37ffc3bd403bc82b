"""Games of several turns, in the reset/step shape: tic-tac-toe and a grid world."""

from groupwise.environments.games.base import Game, GameEnvironment, GameEpisode, GameSettings, Step

__all__ = ["Game", "GameEnvironment", "GameEpisode", "GameSettings", "Step"]
