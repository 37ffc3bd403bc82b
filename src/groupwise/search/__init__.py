"""Test-time search: more computation for an answer in place of more training."""

from typing import TYPE_CHECKING

from groupwise.lazy import lazy_names

if TYPE_CHECKING:
    from groupwise.search.methods import above_mean as above_mean
    from groupwise.search.methods import best_of_n as best_of_n
    from groupwise.search.methods import best_of_n_accuracy as best_of_n_accuracy
    from groupwise.search.methods import best_of_n_kl as best_of_n_kl
    from groupwise.search.methods import combine_steps as combine_steps
    from groupwise.search.methods import vote as vote
    from groupwise.search.result import SearchPoint as SearchPoint
    from groupwise.search.result import SearchResult as SearchResult
    from groupwise.search.run import search as search
    from groupwise.search.settings import SearchSettings as SearchSettings
    from groupwise.search.verbalized import Verbalized as Verbalized
    from groupwise.search.verbalized import read_verbalized as read_verbalized

__getattr__, __all__ = lazy_names(__name__, __file__)
