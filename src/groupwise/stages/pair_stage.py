"""What the stages that learn from pairs of a chosen and a rejected answer share."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from pydantic import Field

from groupwise.environments.readers import Row
from groupwise.errors import RecipeError
from groupwise.stages.data_stage import DataStage
from groupwise.stages.feedback import Asked, Label, judge_of, judge_uses, labels
from groupwise.stages.pairs import (
    Gaps,
    Pair,
    PairData,
    Pairing,
    TokenPair,
    answer_text,
    distinct,
    no_contradiction,
)
from groupwise.stages.stage import CheckContext, StageContext
from groupwise.stages.stage_models import ModelUse
from groupwise.templates import Template
from groupwise.texts import shortened
from groupwise.training.process import Interruption
from groupwise.types import Prompt
from groupwise.verifiers.judge.judging import task_text
from groupwise.verifiers.judge.readouts import JudgeVerifier

Scored = Mapping[str, Any]
"""A completion with its scores, as a stage's row."""


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

    def model_uses(self) -> list[ModelUse]:
        judges = [source.pairing.judge for source in self.data]
        return [use for judge in judges if judge is not None for use in judge_uses(judge)]

    def check(self, context: CheckContext) -> Any:
        found = super().check(context)
        for source in self.data:
            named = f"data.stage = {source.stage!r}"
            if source.stage is not None and "pairs" in context.kinds[source.stage].makes:
                if source.pairing != Pairing():
                    raise RecipeError(f"{named} makes pairs already; leave pairing out")
            elif source.stage is not None and source.stage in context.verifiers:
                source.pairing.check(context.verifiers[source.stage], named)
            if source.pairing.judge is not None:
                judge_of(source.pairing.judge, "pairing.judge", context.origins)
        return found

    def rows(
        self, source: PairData, folder: Path | None, context: StageContext | None
    ) -> tuple[list[Row], str, str | None]:
        table = source.pairing.judge
        if table is None or context is None:
            return super().rows(source, folder, context)
        judge = judge_of(table, "pairing.judge", context.models)
        path = context.folder / f"labels_{self.data.index(source)}.jsonl"
        with Interruption() as interruption:
            found = source.rows(
                folder,
                self.seed,
                lambda prompts, pairing: judged_gaps(
                    prompts,
                    pairing,
                    judge,
                    lambda asked: labels(path, judge, asked, interruption),
                ),
            )
        judge.close()
        return found


def judged_gaps(
    prompts: Mapping[str, Sequence[Scored]],
    pairing: Pairing,
    judge: JudgeVerifier,
    ask: Callable[[Sequence[Asked]], Iterable[Label]],
) -> tuple[Gaps, str]:
    """By how much a judge finds one completion of a prompt better than another, in both orders, and
    what became of its comparisons in words."""
    asked, places = list[Asked](), list[tuple[str, str, str]]()
    for prompt, every in prompts.items():
        rows = distinct(every)
        for first, second in judge.rounds([answer_text(row) for row in rows]):
            one, other = rows[first], rows[second]
            if pairing.may_pair(one, other):
                asked.append(shown(prompt, one, other))
                places.append((prompt, answer_text(one), answer_text(other)))
    found = list(ask(asked))
    gaps: dict[str, dict[tuple[str, str], float]] = defaultdict(dict)
    for (prompt, text, against), label in zip(places, found, strict=True):
        if label.value is not None:
            gap = 2 * label.value - 1
            gaps[prompt] |= {(text, against): gap, (against, text): -gap}
    read = [label.first for label in found if label.value is not None]
    bias = f", position bias {fmean(read):+.2f}" if read else ""
    unread = len(found) - len(read)
    why = next((label.why for label in found if label.value is None), "")
    example = f" (the first: {shortened(why, 200)})" if why else ""
    return gaps, f"; the judge compared {len(found)} in both orders, {unread} unread{example}{bias}"


def shown(prompt: str, one: Scored, other: Scored) -> Asked:
    """Two completions of a prompt as a judge reads them: what they share, then what differs."""
    if "messages" not in one:
        return Asked(Prompt(prompt, text=one["prompt"]), (one["completion"], other["completion"]))
    chats, same = (one["messages"], other["messages"]), 1
    while same < min(map(len, chats)) - 1 and chats[0][same] == chats[1][same]:
        same += 1
    texts = (
        answer_text(row) if len(chat) == same + 1 else task_text(Prompt("", tuple(chat[same:])))
        for row, chat in zip((one, other), chats, strict=True)
    )
    return Asked(Prompt(prompt, tuple(chats[0][:same])), (next(texts), next(texts)))
