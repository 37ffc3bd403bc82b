"""Pairs of a chosen and a rejected answer: from files in TRL's shapes, and from scored rollouts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import permutations
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from groupwise.environments.readers import Row
from groupwise.errors import GroupwiseError
from groupwise.randomness import generator
from groupwise.records import open_run
from groupwise.records.files import read_json_lines
from groupwise.records.rows import NOT_RECORDED
from groupwise.stages.chats import TokenExample, chat_examples, raw_example, row_tools
from groupwise.stages.sources import RowData, absent
from groupwise.stages.stage import DROPPED, ROWS, Rows
from groupwise.templates import Template
from groupwise.texts import from_json
from groupwise.types import Message, Prompt
from groupwise.verifiers import Verifier, check_label, check_verdicts

UNUSED = ("not finished", "failed", "not learnable")
"""Reasons of dropped rows that are no verdict on an answer."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two answers to one prompt; to a raw text each is one message with the text behind it."""

    prompt: Prompt
    chosen: tuple[Message, ...]
    rejected: tuple[Message, ...]
    margin: float = 0.0
    target: float = 1.0


class Pairing(BaseModel):
    """How the completions of one prompt become pairs."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    by: Literal["correct", "reward", "verifier", "judge", "coin"] = Field(
        "correct",
        description="A right answer against a wrong one; a higher reward against a lower one, the "
        "widest gap first; the same by one verifier's value; what a judge prefers when it compares "
        "the two; or right and wrong in the order of a keyed coin (a control).",
    )
    verifier: str | None = Field(
        None, description='With by = "verifier": the label of the verifier that ranks.'
    )
    judge: dict[str, Any] | None = Field(
        None,
        description='With by = "judge": `name` (judge, the default, or local_judge) and its '
        "arguments. It compares two completions of a prompt at a time, in both orders.",
    )
    least_gap: float = Field(
        0.0,
        ge=0,
        description='With by = "reward", "verifier" or "judge" (whose two values add up to 1): the '
        "values differ by more than this.",
    )
    differ_in: str | None = Field(
        None,
        description="Only pairs in which this verifier's values differ, a label that tells one "
        "approach from another.",
    )
    per_prompt: int | None = Field(None, ge=1, description="The most pairs of one prompt.")
    first: Literal["any", "differ_in_length", "differ_in_words", "alike"] = Field(
        "any",
        description="Which pairs of a prompt come first: in a keyed order (by reward: the widest "
        "gap), those that differ most in length or in their words (the approach), or the most "
        "alike.",
    )
    length_ratio: float | None = Field(
        None,
        ge=1,
        description="Leave out pairs whose longer answer has more than so many times the "
        "characters of the other, so that length tells them apart less.",
    )

    @model_validator(mode="after")
    def _ranked(self) -> Pairing:
        if (self.by == "verifier") != (self.verifier is not None):
            raise ValueError(
                'pairing.by = "verifier" and pairing.verifier, the label that ranks, go together; '
                "give both or neither"
            )
        if (self.by == "judge") != (self.judge is not None):
            raise ValueError(
                'pairing.by = "judge" and pairing.judge, its table, go together; give both or '
                "neither"
            )
        return self

    def check(self, verifier: Verifier, named: str) -> None:
        """Refuse what the verifier of the stage whose completions are paired does not give.

        Raises RecipeError.
        """
        for field in ("verifier", "differ_in"):
            label: str | None = getattr(self, field)
            if label is not None:
                check_label(verifier, label, f"{named}: pairing.{field}")
        if self.by in ("correct", "coin"):
            check_verdicts(verifier, f"{named}: pairing.by = {self.by!r}")

    def check_labels(self, rows: Sequence[Mapping[str, Any]], named: str) -> None:
        """Raises GroupwiseError for a label of which no row has a value."""
        known = {label for row in rows for label in row.get("parts") or ()}
        for label in (self.verifier, self.differ_in):
            if label is not None and label not in known:
                raise GroupwiseError(
                    f"{named}: no completion has a value of the verifier {label!r}, only of "
                    f"{', '.join(sorted(known)) or 'none'}; pairing names one of these"
                )

    def pairs(
        self,
        rows: Sequence[Mapping[str, Any]],
        prompt: str,
        seed: int,
        gaps: Mapping[tuple[str, str], float] | None = None,
    ) -> list[dict[str, Any]]:
        """Pairs of one prompt's rows, each with `outcome` or `reward`; as rows of chosen and
        rejected. A text that was sampled again counts once, an empty one not at all. `gaps`: by how
        much the first of two texts is better, by a judge."""
        draw = generator(seed, "order", "pairs", prompt)
        made = []
        for one, other in permutations(distinct(rows), 2):
            if gaps is None:
                gap = self._gap(one, other)
            else:
                gap = gaps.get((answer_text(one), answer_text(other)), 0.0)
                gap = gap if gap > self.least_gap else None
            if gap is not None and self.may_pair(one, other):
                made.append((self._rank(one, other, gap), draw.random(), one, other))
        made.sort(key=lambda each: each[:2])
        flip = self.by == "coin"
        return [
            _row(*((other, one) if flip and draw.random() < 0.5 else (one, other)))
            for _, _, one, other in made[: self.per_prompt]
        ]

    def _gap(self, one: Mapping[str, Any], other: Mapping[str, Any]) -> float | None:
        """By how much the first is better; None where it is not."""
        if self.by in ("reward", "verifier"):
            values = [_value(row, self.verifier) for row in (one, other)]
            if values[0] is None or values[1] is None:
                return None
            gap = values[0] - values[1]
            return gap if gap > self.least_gap else None
        right = one["outcome"] == "correct", other["outcome"] == "correct"
        return 1.0 if right == (True, False) else None

    def may_pair(self, one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
        """Whether two completions differ in the verifier that tells approaches apart, and not too
        much in length."""
        if self.differ_in is not None:
            values = [_value(row, self.differ_in) for row in (one, other)]
            if None in values or values[0] == values[1]:
                return False
        sizes = sorted(len(answer_text(each)) for each in (one, other))
        return self.length_ratio is None or sizes[1] <= self.length_ratio * sizes[0]

    def _rank(self, one: Mapping[str, Any], other: Mapping[str, Any], gap: float) -> float:
        """The smallest comes first."""
        if self.first == "any":
            return -gap
        if self.first == "differ_in_length":
            return -float(abs(len(answer_text(one)) - len(answer_text(other))))
        alike = SequenceMatcher(
            None, answer_text(one).split(), answer_text(other).split(), autojunk=False
        )
        return alike.ratio() if self.first == "differ_in_words" else -alike.ratio()


def distinct(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The rows of one prompt whose text is new and not blank."""
    texts: dict[str, Mapping[str, Any]] = {}
    for row in rows:
        if answer_text(row).strip():
            texts.setdefault(answer_text(row), row)
    return list(texts.values())


Gaps = Mapping[str, Mapping[tuple[str, str], float]]
"""Prompt id -> two texts -> by how much a judge finds the first better."""
Comparing = Callable[[Mapping[str, Sequence[Mapping[str, Any]]], Pairing], tuple[Gaps, str]]
"""From the rows of every prompt: the judge's gaps, and what became of its comparisons in words."""


class PairData(RowData):
    """One source of pairs: rows of `chosen` and `rejected`, with or without their `prompt`."""

    takes: ClassVar[frozenset[Rows]] = frozenset({"pairs", "scored", "rollouts"})
    columns: ClassVar[tuple[str, ...]] = ("prompt", "chosen", "rejected", "margin", "target")

    chosen: str = Field("chosen", description="The column with the better answer or chat.")
    rejected: str = Field("rejected", description="The column with the worse answer or chat.")
    margin: str = Field(
        "margin",
        description="The column with a pair's margin, which a reward model keeps between the two "
        "scores; rows without it have 0.",
    )
    target: str = Field(
        "target",
        description="The column with the probability that `chosen` is the better one (a soft "
        "label, as a feedback model gives it); rows without it have 1.",
    )
    pairing: Pairing = Field(
        default_factory=Pairing,
        description="How completions that a stage sampled become pairs; not for rows that are "
        "pairs already.",
    )

    @model_validator(mode="after")
    def _pairing_of_a_stage(self) -> PairData:
        if self.path is not None and self.pairing != Pairing():
            raise ValueError(
                "data.pairing makes pairs of what a stage sampled; a path has rows of "
                "chosen and rejected: remove it, or give stage"
            )
        return self

    def rows(
        self, folder: Path | None, seed: int, comparing: Comparing | None = None
    ) -> tuple[list[Row], str, str | None]:
        """The rows of pairs, their source in words, and a remark on what made no pair.

        `folder` is the stage's, None for a path; `comparing` is the judge of `pairing.judge`.
        Raises GroupwiseError where there is no pair.
        """
        if folder is not None and not (folder / ROWS).is_file():
            return self._paired(_recorded(folder)[: self.limit], seed, comparing)
        read, named, _ = super().rows(folder, seed)
        if folder is None or self.chosen in read[0].values:
            return read, named, None
        dropped = folder / DROPPED
        others = read_json_lines(dropped) if dropped.is_file() else ()
        return self._paired([*(row.values for row in read), *others], seed, comparing)

    def _paired(
        self, every: list[dict[str, Any]], seed: int, comparing: Comparing | None
    ) -> tuple[list[Row], str, str]:
        named = f"data.stage = {self.stage!r}"
        self.pairing.check_labels(every, named)
        prompts: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for row in every:
            if not str(row.get("reason", "")).startswith(UNUSED):
                prompts[row["prompt_id"]].append(row)
        gaps, said = None, ""
        if comparing is not None:
            gaps, said = comparing(prompts, self.pairing)
        made, without = list[Row](), 0
        for prompt, rows in prompts.items():
            own = None if gaps is None else gaps.get(prompt, {})
            pairs = self.pairing.pairs(rows, prompt, seed, own)
            without += not pairs
            made += [Row(f"prompt {prompt!r}", pair) for pair in pairs]
        if not made:
            raise GroupwiseError(
                f"{named}: none of its {len(prompts)} prompts has a better and a worse answer by "
                f"pairing.by = {self.pairing.by!r}; sample more for a prompt "
                f"(sampling.group_size), or pair by something else{said}"
            )
        return made, named, f"{without} of {len(prompts)} prompts make no pair{said}"

    def pair(self, row: Row) -> Pair:
        """A row's pair. Raises ValueError saying what is wrong with it."""
        values = row.values
        for name in (self.chosen, self.rejected):
            if not values.get(name):
                raise ValueError(absent(values, name))
        chosen, rejected = values[self.chosen], values[self.rejected]
        margin = values.get(self.margin) or 0.0
        if isinstance(margin, bool) or not isinstance(margin, int | float) or not abs(margin) < 1e9:
            raise ValueError(f"has the {self.margin} {margin!r:.40}; give a number below a billion")
        target = values.get(self.target)
        target = 1.0 if target is None else target
        if isinstance(target, bool) or not isinstance(target, int | float) or not 0 <= target <= 1:
            raise ValueError(f"has the {self.target} {target!r:.40}; give a number from 0 to 1")
        numbers = float(margin), float(target)
        prompt = values.get(self.prompt)
        if prompt in ("", [], ()):
            raise ValueError(absent(values, self.prompt))
        if prompt is None:
            prompt, chosen, rejected = self._implied(chosen, rejected)
        if chosen == rejected:
            raise ValueError("has a chosen answer that equals the rejected one")
        tools = row_tools(values)
        if isinstance(prompt, str) and isinstance(chosen, str) and not self.chat:
            sides = [({"role": "assistant", "content": each},) for each in (chosen, rejected)]
            return Pair(Prompt(row.where, text=prompt), sides[0], sides[1], *numbers)
        messages, first = self.turns(prompt, chosen, self.chosen)
        others, _ = self.turns(prompt, rejected, self.rejected)
        before = Prompt(row.where, tuple(messages[:first]), tools=tools)
        return Pair(before, tuple(messages[first:]), tuple(others[first:]), *numbers)

    def _implied(self, chosen: Any, rejected: Any) -> tuple[Any, Any, Any]:
        """The prompt is the common beginning of two chats or two raw texts."""
        if chosen == rejected:
            raise ValueError("has a chosen answer that equals the rejected one")
        texts = isinstance(chosen, str) and isinstance(rejected, str)
        if texts and self.chat:
            raise ValueError(
                f"has no {self.prompt!r}, and texts; give the column, chats of messages, or "
                "chat = false for raw texts with a common beginning"
            )
        if not texts and not all(isinstance(each, list | tuple) for each in (chosen, rejected)):
            raise ValueError("has a text and a chat as answers; give both in one form")
        same = 0
        while same < min(len(chosen), len(rejected)) and chosen[same] == rejected[same]:
            same += 1
        if texts:
            while same > 0 and chosen[same - 1] == " ":
                same -= 1
        if not same or same == min(len(chosen), len(rejected)):
            what = "has answers without a common beginning, which would be the prompt"
            raise ValueError(what if not same else "has an answer that is the beginning of another")
        return chosen[:same], chosen[same:], rejected[same:]


@dataclass(frozen=True, slots=True)
class TokenPair:
    """A pair as ids. `reference` is the summed log-probability of each under the reference;
    `target` the probability that the chosen answer is the better one."""

    chosen: TokenExample
    rejected: TokenExample
    margin: float = 0.0
    reference: tuple[float, float] = (0.0, 0.0)
    target: float = 1.0

    @property
    def prompt_ids(self) -> tuple[int, ...]:
        return self.chosen.prompt_ids

    @property
    def tokens(self) -> int:
        """Positions that its longer answer takes, behind the prompt."""
        return max(side.tokens for side in self.sides)

    @property
    def sides(self) -> tuple[TokenExample, TokenExample]:
        return self.chosen, self.rejected


def token_pair(pair: Pair, template: Template) -> TokenPair:
    """The ids that the policy would read and sample. Raises ValueError for a bad pair."""
    sides = []
    for answer in (pair.chosen, pair.rejected):
        if pair.prompt.text is not None:
            made = [raw_example(template, pair.prompt.text, str(answer[0]["content"]))]
        else:
            before = pair.prompt.messages
            tools = {"tools": pair.prompt.tools}
            made = chat_examples(template, [*before, *answer], "every", tools, len(before))
        if len(made) > 1:
            raise ValueError(
                "has turns that the chat template writes differently later; give pairs that "
                "differ in their last message alone"
            )
        sides.append(made[0])
    if sides[0].prompt_ids != sides[1].prompt_ids:
        raise ValueError("has answers to two different prompts")
    return TokenPair(sides[0], sides[1], pair.margin, target=pair.target)


def no_contradiction() -> Callable[[TokenPair, str], None]:
    """A check of pairs one after the other: raises ValueError for two equal answers, and for the
    reverse of an earlier pair, where both are sure."""
    seen: dict[tuple[tuple[int, ...], ...], str] = {}

    def check(pair: TokenPair, where: str) -> None:
        chosen, rejected = (side.completion_ids for side in pair.sides)
        if chosen == rejected:
            raise ValueError(
                "has a chosen answer that equals the rejected one as tokens; their texts differ in "
                "what the tokenizer does not tell apart"
            )
        if pair.target < 1:
            return
        if earlier := seen.get((pair.prompt_ids, rejected, chosen)):
            raise ValueError(
                f"reverses another pair; {earlier} prefers the other answer: keep one of the two"
            )
        seen[pair.prompt_ids, chosen, rejected] = where

    return check


def _recorded(folder: Path) -> list[dict[str, Any]]:
    """The finished rollouts that a run sampled for training, as rows with their scores."""
    scored = ("kind", "prompt_id", "outcome", "reward", "rewards", "finish_reason")
    table = open_run(folder).rollouts(columns=[*scored, "prompt", "text", "messages"])
    found = list[dict[str, Any]]()
    for row in table.to_pylist():
        if row["kind"] in ("greedy", "replayed", "waiting") or row["finish_reason"] not in (
            "stop",
            NOT_RECORDED,
        ):
            continue
        scores = {name: row[name] for name in ("prompt_id", "outcome", "reward")}
        scores["parts"] = {name: each for name, each in row["rewards"].items() if each is not None}
        chat = _chat(row["prompt"])
        if chat is None:
            found.append({**scores, "prompt": row["prompt"], "completion": row["text"]})
            continue
        later = [{"role": "assistant", "content": row["text"]}]
        later = from_json(row["messages"]) if row["messages"] else later
        found.append({**scores, "messages": [*chat, *later]})
    return found


def _chat(prompt: str) -> list[Any] | None:
    """A recorded prompt's messages; None of a raw text."""
    try:
        found = from_json(prompt)
    except ValueError:
        return None
    return found if isinstance(found, list) and all(isinstance(e, dict) for e in found) else None


def _value(row: Mapping[str, Any], label: str | None) -> float | None:
    """A row's value of one verifier, or its reward."""
    found = row.get("reward") if label is None else (row.get("parts") or {}).get(label)
    return None if found is None else float(found)


def answer_text(row: Mapping[str, Any]) -> str:
    """What a row of a stage answers: its last message or its completion."""
    if "messages" in row:
        return str(row["messages"][-1].get("content") or "")
    return str(row["completion"])


def _row(better: Mapping[str, Any], worse: Mapping[str, Any]) -> dict[str, Any]:
    """Two rows of a stage as one row of a pair."""
    if "messages" in better:
        tools = {"tools": better["tools"]} if better.get("tools") else {}
        return {"chosen": better["messages"], "rejected": worse["messages"], **tools}
    texts = {"chosen": better["completion"], "rejected": worse["completion"]}
    return {"prompt": better["prompt"], **texts}
