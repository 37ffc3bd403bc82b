"""What the stages that learn from pairs of a chosen and a rejected answer share."""

from __future__ import annotations

from collections.abc import Callable

from pydantic import Field

from groupwise.environments.readers import Row
from groupwise.stages.data_stage import DataStage
from groupwise.stages.pairs import Pair, PairData, TokenPair, no_contradiction
from groupwise.templates import Template


class PairStage(DataStage):
    """A stage that fits pairs of a chosen and a rejected answer."""

    data: tuple[PairData, ...] = Field(
        min_length=1, description="The sources of pairs, mixed; one table or a list of them."
    )

    def pair(self, pair: Pair, template: Template) -> TokenPair:
        """A pair as ids. Raises ValueError saying what is wrong with it."""
        raise NotImplementedError

    def maker(self, source: PairData, template: Template) -> Callable[[Row], list[TokenPair]]:
        check = no_contradiction()

        def make(row: Row) -> list[TokenPair]:
            pair = self.pair(source.pair(row), template)
            check(pair, row.where)
            return [pair]

        return make

    def key(self, example: TokenPair) -> bytes:
        return repr(example.prompt_ids).encode()
