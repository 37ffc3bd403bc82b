"""The frozen types that travel between rooms, and nothing else.

A type here is data with an invariant. No torch is imported, so verifiers, records and the sandbox
can use these types without it (`Batch`, which holds tensors, is only annotated with it).

The way of the data:
`Prompt -> Rollout (turns, ids, logprobs, version) -> Score -> Group -> Batch -> loss -> step`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, Literal, get_args

if TYPE_CHECKING:
    from torch import Tensor

Message = Mapping[str, Any]
FinishReason = Literal["stop", "length", "deadline", "error", "paused"]
TurnLimit = Literal["turns", "tokens", "length", "seconds"]
FINISH_REASONS: tuple[str, ...] = ("stop", "length", "deadline", "error", "paused")

Outcome = Literal[
    "correct", "incorrect", "partial", "no_verdict", "no_answer", "timeout", "out_of_memory",
    "crash", "limit", "bad_answer", "verifier_timeout", "infrastructure_error", "not_applicable",
]  # fmt: skip
UNSCORED_OUTCOMES: frozenset[str] = frozenset(
    {"bad_answer", "verifier_timeout", "infrastructure_error", "not_applicable"}
)
SCORED_OUTCOMES: frozenset[str] = frozenset(get_args(Outcome)) - UNSCORED_OUTCOMES


@dataclass(frozen=True, slots=True)
class Prompt:
    """One task: what the policy reads and what its verifier needs.

    Exactly one of `messages` (a chat, rendered with the policy's template) and `text` (raw, encoded
    as it is) is set. `columns` are the data set's other columns; every one reaches the verifiers.
    `tools` are JSON schemas that the chat template writes into this prompt.

    >>> Prompt(id="sum-3-4", messages=({"role": "user", "content": "3+4="},), answer="7").answer
    '7'
    """

    id: str
    messages: tuple[Message, ...] = ()
    answer: Any = None
    text: str | None = None
    columns: Mapping[str, Any] = field(default_factory=dict[str, Any])
    tools: tuple[Mapping[str, Any], ...] = ()

    def __post_init__(self) -> None:
        if bool(self.messages) == (self.text is not None):
            raise ValueError(
                f"prompt {self.id!r}: give messages or text, one of the two, and not empty"
            )

    @property
    def last_text(self) -> str:
        """The text of a raw prompt, or the content of the chat's last message."""
        if self.text is not None:
            return self.text
        return str(self.messages[-1].get("content", ""))


@dataclass(frozen=True, slots=True)
class Completion:
    """What one request to a sampler gave.

    `token_ids` [T] are the sampled ids, the stop id included; `text` is their decoding without
    pad and end markers, a stop string included. `sampler_logprobs` [T] are natural logs of the
    distribution sampled from (after temperature). `version` is the policy version that sampled; the
    oldest where there were several, and `versions` [T] then has that of every token.
    `entropies` [T] (nats), `top_ids` and `top_logprobs` [T, K] are there when they were asked for.
    `supports` [T] are there where the request truncated the distribution: the ids that were kept at
    each position, ascending, so that the same distribution can be scored again. `experts`, asked
    for, are int16 ids [layers, K] of every token run for this completion: of prompt and completion
    but the last, or of those since an earlier turn.

    >>> Completion((11, 2), "7", (-0.1, -0.2), "stop", version=3).num_tokens
    2
    """

    token_ids: tuple[int, ...]
    text: str
    sampler_logprobs: tuple[float, ...]
    finish_reason: FinishReason
    version: int = 0
    entropies: tuple[float, ...] | None = None
    top_ids: tuple[tuple[int, ...], ...] | None = None
    top_logprobs: tuple[tuple[float, ...], ...] | None = None
    supports: tuple[tuple[int, ...], ...] | None = None
    versions: tuple[int, ...] | None = None
    experts: tuple[bytes, ...] | None = None

    def __post_init__(self) -> None:
        if len(self.token_ids) != len(self.sampler_logprobs):
            raise ValueError(
                f"a completion has {len(self.token_ids)} token ids and "
                f"{len(self.sampler_logprobs)} sampler_logprobs; they must be one to one"
            )
        if self.finish_reason not in FINISH_REASONS:
            raise ValueError(f"finish_reason {self.finish_reason!r} is not one of {FINISH_REASONS}")

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def token_versions(self) -> tuple[int, ...]:
        return self.versions or (self.version,) * self.num_tokens


LEAST_TEMPERATURE = 1e-4
"""Below it, logits divided by the temperature leave float32; sampling is greedy long before."""


@dataclass(frozen=True, slots=True)
class Request:
    """One completion asked of a sampler: ids in, a key for its noise, and its limits.

    `key` names the noise stream (`randomness.stream_key`): same key and logits, same tokens,
    whatever else is in the batch. `greedy` ignores noise and temperature. `deadline` is in seconds
    from the start of the call. `top_k` > 0 asks for that many log-probabilities a position,
    `experts` for the experts of every token.
    `keep_top_k`, `keep_top_p` and `keep_min_p` truncate the distribution before the draw. `room` is
    how many tokens may follow the prompt with all later turns, where that is known to be more.
    `begun` is the completion, of finish reason "paused", that this one continues and begins with
    (its tokens count in `max_tokens`). After `pause_after` > 0 new tokens it pauses.

    >>> Request(prompt_ids=(5, 6), key=17, max_tokens=4).temperature
    1.0
    """

    prompt_ids: tuple[int, ...]
    key: int
    max_tokens: int
    temperature: float = 1.0
    greedy: bool = False
    stop_strings: tuple[str, ...] = ()
    deadline: float | None = None
    entropies: bool = False
    top_k: int = 0
    experts: bool = False
    keep_top_k: int = 0
    keep_top_p: float = 1.0
    keep_min_p: float = 0.0
    room: int = 0
    begun: Completion | None = None
    pause_after: int = 0

    @property
    def truncates(self) -> bool:
        """True where tokens are left out of the distribution before the draw."""
        return self.keep_top_k > 0 or self.keep_top_p < 1.0 or self.keep_min_p > 0.0

    def __post_init__(self) -> None:
        if not self.prompt_ids:
            raise ValueError("a request needs at least one prompt id")
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens = {self.max_tokens}; give 1 or more")
        if not self.greedy and not self.temperature >= LEAST_TEMPERATURE:
            raise ValueError(
                f"temperature = {self.temperature}; sampling needs {LEAST_TEMPERATURE} or more "
                "(greedy = True for the most likely token)"
            )


@dataclass(frozen=True, slots=True)
class StepReward:
    """The value of one step of a completion, which ends before character `end` of its text.

    >>> text = "3+4=7\\n7+1=8"
    >>> [text[: step.end] for step in (StepReward(1.0, 6), StepReward(1.0, 11))]
    ['3+4=7\\n', '3+4=7\\n7+1=8']
    """

    value: float
    end: int

    def __post_init__(self) -> None:
        if not (-float("inf") < self.value < float("inf")):
            raise ValueError(f"a step's value must be finite, got {self.value!r}")
        if self.end < 1:
            raise ValueError(f"a step ends after at least one character, got end = {self.end}")


@dataclass(frozen=True, slots=True)
class Score:
    """A verifier's verdict: a value with its reason, or no value with the cause.

    `value` is None exactly when `outcome` is one of `UNSCORED_OUTCOMES` (excluded from the group's
    statistics and counted); everything the completion did wrong is a number. `no_verdict` is a
    value on a scale that nothing declares: a reward, and no accuracy. `steps` are the
    rewards of its steps in order (process supervision), None from a verifier that gives none.

    >>> Score(1.0, "correct", "7 equals 7").value
    1.0
    >>> Score(None, "verifier_timeout", "no verdict after 5 s").scored
    False
    """

    value: float | None
    outcome: Outcome
    reason: str = ""
    parts: Mapping[str, float | None] = field(default_factory=dict[str, float | None])
    steps: tuple[StepReward, ...] | None = None

    def __post_init__(self) -> None:
        if self.outcome not in SCORED_OUTCOMES | UNSCORED_OUTCOMES:
            raise ValueError(f"outcome {self.outcome!r} is not one of types.Outcome")
        if (self.value is None) != (self.outcome in UNSCORED_OUTCOMES):
            raise ValueError(f"value {self.value!r} does not fit outcome {self.outcome!r}")
        if self.value is not None and not (-float("inf") < self.value < float("inf")):
            raise ValueError(f"a score must be finite, got {self.value!r}")
        ends = [step.end for step in self.steps or ()]
        if any(second <= first for first, second in pairwise(ends)):
            raise ValueError(f"steps must end one after the other, got ends {ends}")

    @property
    def scored(self) -> bool:
        return self.value is not None

    @property
    def accuracy(self) -> float | None:
        """Whether the prompt was passed, whatever the reward adds: 1 where the verdict is correct,
        the value where it is partial, 0 where it is neither, None without a value or a verdict."""
        if self.value is None or self.outcome == "no_verdict":
            return None
        return self.value if self.outcome == "partial" else float(self.outcome == "correct")


@dataclass(frozen=True, slots=True)
class Turn:
    """One exchange: the ids that entered the context, then what the policy said.

    The first turn's `context_ids` are the whole prompt; a later turn's are the text of the
    environment or a tool (and template ids) since the last completion. They are attended to and
    never trained on.
    """

    context_ids: tuple[int, ...]
    completion: Completion


@dataclass(frozen=True, slots=True)
class Extras:
    """What a rollout has besides its turns; all defaults for a plain single turn.

    `messages` follow the prompt, the policy's own included; None for a plain single turn.
    `continued` numbers the turns that continue the message of the turn before. `opened` is the tag
    at the prompt's end that belongs to what was written. `counts` become metrics. `limit` names the
    limit that ended the rollout, `failure` what its environment raised. `result` is the
    environment's own verdict. `output` is what an agent answered: verifiers read it in place of the
    policy's words.

    >>> Extras(messages=({"role": "assistant", "content": "7"},), counts={"guesses": 1}).limit
    """

    messages: tuple[Message, ...] | None = None
    continued: tuple[int, ...] = ()
    opened: str = ""
    counts: Mapping[str, float] = field(default_factory=dict[str, float])
    limit: TurnLimit | None = None
    failure: str | None = None
    result: Score | None = None
    output: str | None = None


@dataclass(frozen=True, slots=True)
class Rollout:
    """One prompt played to its end, scored.

    `step_ends` are the positions in `completion_ids` of the tokens that end the score's steps.
    `branches` are the other histories of an agent that went back on its own (`sequences`).

    >>> c = Completion((11, 2), "7", (-0.1, -0.2), "stop")
    >>> r = Rollout(Prompt("p", text="3+4="), (Turn((5, 6), c),), Score(1.0, "correct"), 0, 0, 0)
    >>> r.prompt_ids, r.completion_ids, r.mask
    ((5, 6), (11, 2), (True, True))
    """

    prompt: Prompt
    turns: tuple[Turn, ...]
    score: Score
    group_index: int
    visit: int
    step: int
    extras: Extras = Extras()
    step_ends: tuple[int, ...] | None = None
    branches: tuple[tuple[Turn, ...], ...] = ()
    branch: int = 0

    @property
    def sequences(self) -> tuple[Rollout, ...]:
        """The rollout, then each of its branches as one, numbered from 1 by `branch`.

        A branch trains and shares the score, but is outside every statistic. Tokens that it has in
        common with an earlier sequence are in its prompt, so that none trains twice.
        """
        return self, *(
            replace(self, turns=turns, branches=(), branch=number)
            for number, turns in enumerate(self.branches, start=1)
        )

    @property
    def prompt_ids(self) -> tuple[int, ...]:
        return self.turns[0].context_ids

    @property
    def completion_ids(self) -> tuple[int, ...]:
        """Every id after the prompt, later context included, in order."""
        pieces = ((*turn.context_ids, *turn.completion.token_ids) for turn in self.turns)
        return tuple(chain.from_iterable(pieces))[len(self.prompt_ids) :]

    @property
    def mask(self) -> tuple[bool, ...]:
        """True where the policy chose the token, one entry per `completion_ids`."""
        return tuple(token is not None for token in self.per_token("token_ids", fill=None))

    def per_token(self, name: str, fill: Any = 0.0) -> tuple[Any, ...]:
        """A per-token field of the completions (`sampler_logprobs`, ...), `fill` under context."""
        pieces = ((fill,) * len(t.context_ids) + getattr(t.completion, name) for t in self.turns)
        return tuple(chain.from_iterable(pieces))[len(self.prompt_ids) :]

    @property
    def sampler_logprobs(self) -> tuple[float, ...]:
        return self.per_token("sampler_logprobs")

    @property
    def experts(self) -> tuple[bytes, ...] | None:
        """`Completion.experts` of every id but the last, as of the pass that ran it first; empty
        where that is not known. None where no completion has any."""
        if all(turn.completion.experts is None for turn in self.turns):
            return None
        found, length = tuple[bytes, ...](), -1
        for turn in self.turns:
            length += len(turn.context_ids) + turn.completion.num_tokens
            ran = (*(b"",) * length, *(turn.completion.experts or ()))
            found += ran[len(ran) - length + len(found) :]
        return found

    @property
    def text(self) -> str:
        """What the policy wrote, turns joined by a newline; no tool or environment text.

        A turn without context continues the one before, with nothing between.
        """
        first, *rest = self.turns
        parts = [("\n" if turn.context_ids else "") + turn.completion.text for turn in rest]
        return first.completion.text + "".join(parts)

    @property
    def finish_reason(self) -> FinishReason:
        return self.turns[-1].completion.finish_reason

    @property
    def truncated(self) -> bool:
        """True where the completion did not end by itself."""
        return self.finish_reason != "stop"

    @property
    def num_tokens(self) -> int:
        """Tokens that the policy chose."""
        return sum(turn.completion.num_tokens for turn in self.turns)

    @property
    def version(self) -> int:
        """The oldest policy version in the rollout."""
        return min(turn.completion.version for turn in self.turns)

    @property
    def reward(self) -> float | None:
        return self.score.value


@dataclass(frozen=True, slots=True)
class Group:
    """All rollouts of one visit of one prompt: the baseline's population.

    `greedy` is the greedy rollout, where an algorithm asked for one; it is not trained on.
    """

    prompt: Prompt
    rollouts: tuple[Rollout, ...]
    greedy: Rollout | None = None

    @property
    def rewards(self) -> tuple[float | None, ...]:
        return tuple(rollout.reward for rollout in self.rollouts)

    @property
    def sequences(self) -> tuple[Rollout, ...]:
        """The rollouts with their branches: what is laid out as rows."""
        return tuple(each for rollout in self.rollouts for each in rollout.sequences)


@dataclass(frozen=True, slots=True)
class Rows:
    """Groups laid out as rows for scoring: ragged ids, and what the sampler reported, aligned.

    B rows, T = the longest completion. `prompt_ids` and `completion_ids` stay ragged lists of ids;
    `mask` [B, T] bool is True where the policy chose the token; `sampler_logprobs` [B, T] float32
    is 0 under False. `group_ids` [B] int64 numbers the groups; rows of a group are adjacent.
    `supports` are there where sampling was truncated: for every completion id the ids that were
    kept, None where all were (under context, say). `experts` are `Rollout.experts`; rows of one
    prompt have the same ones for it.
    """

    prompt_ids: Sequence[tuple[int, ...]]
    completion_ids: Sequence[tuple[int, ...]]
    mask: Tensor
    group_ids: Tensor
    sampler_logprobs: Tensor
    entropies: Tensor | None = None
    top_ids: Tensor | None = None
    sampler_top_logprobs: Tensor | None = None
    supports: Sequence[Sequence[tuple[int, ...] | None]] | None = None
    experts: Sequence[tuple[bytes, ...]] | None = None

    @property
    def num_rows(self) -> int:
        return len(self.completion_ids)


@dataclass(frozen=True, slots=True)
class Batch:
    """What one step learns from: rows, their advantages, and the fixed log-probabilities.

    `mask` [B, T] is the rows' mask after the filters. `advantages` [B] or [B, T] float32.
    `old_logprobs`, `ref_logprobs` [B, T] are there where the algorithm needs them, `values` and
    `returns` [B, T] where it has a critic.
    `rewards` [B] are after the shapers (NaN = not scored). `equal_prompts`: groups differ in size,
    and every prompt is to count the same.
    """

    rows: Rows
    mask: Tensor
    rewards: Tensor
    advantages: Tensor
    max_tokens: int
    old_logprobs: Tensor | None = None
    ref_logprobs: Tensor | None = None
    values: Tensor | None = None
    returns: Tensor | None = None
    metrics: Mapping[str, float] = field(default_factory=dict[str, float])
    equal_prompts: bool = False
