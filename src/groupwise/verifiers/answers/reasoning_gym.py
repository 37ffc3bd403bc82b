"""The `reasoning_gym` verifier: reasoning-gym's own scorer, run in the sandbox.

At least nine of its scorers execute the answer, so `score_answer` never runs in this process: it
runs as a trusted function on untrusted data in the sandbox. Eight of the nine have verdicts of our
own instead (`reasoning_gym_own.py`), in this process and without executing anything; tasks that
cannot be judged are refused.

Without box and tag the answer is the last line, or as many last lines as the gold answer has.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

from pydantic import Field, model_validator

from groupwise.sandbox import Limits, Sandbox, TierChoice, TrustedCallFailed, shared_sandbox
from groupwise.types import Prompt, Score
from groupwise.verifiers.answers.extraction import after_reasoning
from groupwise.verifiers.answers.final_answer import last_line, stated_answer
from groupwise.verifiers.answers.reasoning_gym_own import OWN, REFUSED
from groupwise.verifiers.core.contract import Case, SettingsVerifier
from groupwise.verifiers.core.names import unknown_name
from groupwise.verifiers.core.scores import TAG, bad_answer, no_answer

PACKAGE = "reasoning_gym"
DISTRIBUTION = "reasoning-gym"
MISSING = (
    "reasoning_gym needs the package reasoning-gym, which is not installed: "
    'pip install "groupwise[reasoning-gym]"'
)
MAX_ANSWER = 20_000
"""Characters."""
FULL = 1.0 - 1e-6
"""The scorer's value from which an answer is right."""

SCORER = """
import json
from reasoning_gym.factory import create_dataset

def score(task, config, answer, entry):
    return scores(task, config, [[answer, entry]])[0]

def scores(task, config, pairs):
    dataset = create_dataset(task, **json.loads(config))
    return [float(dataset.score_answer(answer, entry)) for answer, entry in pairs]
"""
"""The trusted side, in the sandbox; `entry` is the data set's own, the answer is the policy's."""

GOLDS = 50
"""Gold answers that are judged in one process: they are the data's own and trusted."""


class ReasoningGym(SettingsVerifier):
    """What reasoning-gym's scorer for the task gives; 1 alone counts unless `partial`.

    The prompt's column `entry` is the data set's entry (question, answer, metadata).
    """

    verifier_name: ClassVar[str] = "reasoning_gym"

    task: str = Field(min_length=1, description='A task of reasoning-gym, as "gcd".')
    config: dict[str, Any] = Field(
        default_factory=dict[str, Any],
        description="The configuration that the task's data set was made with.",
    )
    partial: bool = Field(
        default=False,
        description="Whether values below 1 count. Many scorers give some to any text: mind what "
        "an answer without content earns.",
    )
    threshold: float = Field(
        default=0.01,
        ge=0,
        lt=1,
        description="With `partial`: values up to this one are 0.",
    )
    time_limit: float = Field(
        default=10.0, gt=0, description="Seconds for one answer, twice; then it is `timeout`."
    )
    tier: TierChoice = Field(
        default="auto", description="The sandbox's tier, as the verifier `code` has it."
    )
    tag: str = Field(default="answer", min_length=1, description="The answer's tag.")
    reasoning_tag: str = Field(default="think", description=TAG)

    @model_validator(mode="after")
    def _usable(self) -> ReasoningGym:
        if self.task in REFUSED:
            raise ValueError(
                f"task {self.task!r} of reasoning-gym is refused: {REFUSED[self.task]}"
            )
        return self

    @property
    def required_columns(self) -> frozenset[str]:
        return frozenset({"entry"})

    @property
    def needs_answer(self) -> bool:
        return False  # the entry holds what it judges by

    def gold_completion(self, prompt: Prompt) -> str | None:
        if not str(prompt.answer or "").strip():
            return None
        return f"<{self.tag}>{prompt.answer}</{self.tag}>"

    def check_answers(self, prompts: Sequence[Prompt]) -> list[str | None]:
        """As the contract says; many gold answers a process, since they are trusted."""
        if self.task in OWN:
            return super().check_answers(prompts)
        reasons: list[str | None] = []
        for start in range(0, len(prompts), GOLDS):
            reasons += self._checked(prompts[start : start + GOLDS])
        return reasons

    def _checked(self, prompts: Sequence[Prompt]) -> list[str | None]:
        golds = [Case(prompt, self.gold_completion(prompt) or "") for prompt in prompts]
        given = [self._prepared(case) for case in golds]
        pairs = [
            [each, case.prompt.columns["entry"]]
            for each, case in zip(given, golds)
            if isinstance(each, str)
        ]
        limits = Limits(time=self.time_limit * GOLDS, total_time=self.time_limit * GOLDS)
        arguments = [self.task, json.dumps(self.config), pairs]
        try:
            sandbox = shared_sandbox(self.tier, (PACKAGE,))
            values = iter(
                sandbox.evaluate(SCORER, "scores", arguments, limits=limits, read_files=True)
            )
        except TrustedCallFailed as error:
            return [str(error)[:300]] * len(prompts)
        scores = [self._scored(next(values)) if isinstance(each, str) else each for each in given]
        return [None if score.outcome == "correct" else score.reason for score in scores]

    def score_case(self, case: Case) -> Score:
        score: Score = self.score([case])[0]
        return score

    def score(self, cases: Sequence[Case]) -> list[Any]:
        """As many at a time as the sandbox has zygotes; own verdicts in this process."""
        found = [self._prepared(case) for case in cases]
        rows = [row for row, each in enumerate(found) if not isinstance(each, Score)]
        scores: list[Any] = list(found)
        if self.task in OWN:
            for row in rows:
                scores[row] = self._own(found[row], cases[row].prompt)
        elif rows:
            sandbox = shared_sandbox(self.tier, (PACKAGE,))
            with ThreadPoolExecutor(min(sandbox.size, len(rows))) as pool:
                judged = pool.map(
                    lambda row: self._judged(sandbox, found[row], cases[row].prompt), rows
                )
                for row, score in zip(rows, judged):
                    scores[row] = score
        return scores

    def _prepared(self, case: Case) -> Any:
        """The answer as it is written, or why there is none."""
        entry = case.prompt.columns["entry"]
        if not isinstance(entry, dict) or not isinstance(entry.get("answer"), str):
            return bad_answer("the column `entry` is not an entry of reasoning-gym with an answer")
        text = after_reasoning(case.whole, self.reasoning_tag)
        if text is None:
            return no_answer(f"<{self.reasoning_tag}> is never closed")
        lines = len(entry["answer"].strip().splitlines())
        given = stated_answer(text, self.tag, lambda rest: _unmarked(rest, lines))
        if not given or not given.strip():
            return no_answer("no answer is given")
        if len(given) > MAX_ANSWER:
            return no_answer(f"an answer of {len(given)} characters")
        return given

    def _own(self, given: Any, prompt: Prompt) -> Score:
        entry = prompt.columns["entry"]
        verdict = OWN[self.task](str(given), entry["metadata"], entry["answer"])
        if verdict is None:
            return no_answer("the answer does not have the form that is asked for")
        return Score(float(verdict), "correct" if verdict else "incorrect", "by the task's rules")

    def _judged(self, sandbox: Sandbox, given: Any, prompt: Prompt) -> Score:
        """The scorer's verdict. A scorer that fails on the answer rejects it."""
        limits = Limits(time=self.time_limit, total_time=self.time_limit)
        arguments = [self.task, json.dumps(self.config), str(given), prompt.columns["entry"]]
        cause = outcome = ""
        for _ in range(2):
            try:
                value = sandbox.evaluate(SCORER, "score", arguments, limits=limits, read_files=True)
                return self._scored(value)
            except TrustedCallFailed as error:
                cause, outcome = str(error).removeprefix("score: ")[:300], error.outcome
                if outcome != "timeout":
                    break
        if outcome == "infrastructure_error":
            return Score(None, "infrastructure_error", cause)
        if outcome == "timeout":
            return Score(0.0, "timeout", f"no verdict after {self.time_limit:g} s, twice")
        if outcome == "out_of_memory":
            return Score(0.0, "out_of_memory", cause)
        return Score(0.0, "incorrect", f"the scorer rejects it: {cause}")

    def _scored(self, value: Any) -> Score:
        if not isinstance(value, float) or not math.isfinite(value):
            return Score(None, "infrastructure_error", f"the scorer gave {value!r:.80}")
        if value >= FULL:
            return Score(1.0, "correct", "accepted by the scorer")
        if self.partial and value > self.threshold:
            return Score(value, "partial", f"the scorer gave {value:.3g}")
        return Score(0.0, "incorrect", f"the scorer gave {value:.3g}")


def _unmarked(text: str, num_lines: int) -> str | None:
    """The last lines of a text; of one line, without the period behind it."""
    found = last_line(text, num_lines)
    return found.removesuffix(".") if found and num_lines == 1 else found


def check_task(name: str, tasks: Sequence[str]) -> None:
    """Why a task cannot be used, by name: unknown (with the nearest one), or refused."""
    from groupwise.errors import RecipeError

    if name not in tasks:
        raise unknown_name("reasoning-gym task", name, tasks)
    if name in REFUSED:
        usable = ", ".join(each for each in tasks if each not in REFUSED and each[0] == name[0])
        raise RecipeError(
            f"reasoning_gym:{name} is refused: {REFUSED[name]}; usable ones are {usable}, ..."
        )
