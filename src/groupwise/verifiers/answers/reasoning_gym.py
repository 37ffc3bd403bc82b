"""The `reasoning_gym` verifier: reasoning-gym's own scorer, run in the sandbox.

`score_answer` never runs in this process: it runs as a trusted function on untrusted data in the
sandbox. Scorers that execute the answer could be made to forge their verdict even there, so their
tasks are refused, and so are those without a usable verdict.

Without box and tag the answer is the last line, or as many last lines as the gold answer has.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

from pydantic import Field, model_validator

from groupwise.errors import RecipeError
from groupwise.sandbox import Limits, TierChoice, TrustedCallFailed, shared_sandbox
from groupwise.types import Prompt, Score
from groupwise.verifiers.answers.extraction import after_reasoning
from groupwise.verifiers.answers.final_answer import last_line, stated_answer
from groupwise.verifiers.core.contract import BatchVerifier, Case
from groupwise.verifiers.core.names import unknown_name
from groupwise.verifiers.core.scores import TAG, BadAnswer, no_answer

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

def scores(task, config, pairs):
    dataset = create_dataset(task, **json.loads(config))
    return [float(dataset.score_answer(answer, entry)) for answer, entry in pairs]
"""
"""The trusted side, in the sandbox; `entry` is the data set's own, the answer is the policy's."""

_NO_ANSWER = "its entries have no answer, so no verdict can be checked against one"
_EXECUTES = "its scorer executes the answer, which could forge the verdict"
_PUZZLE = f"{_EXECUTES}; use the environment `countdown`"
REFUSED: dict[str, str] = {
    **dict.fromkeys(("boxnet", "graph_color", "propositional_logic", "rubiks_cube", "rush_hour"),
                    _NO_ANSWER),
    **dict.fromkeys(("countdown", "puzzle24"), _PUZZLE),
    **dict.fromkeys(("binary_matrix", "n_queens", "spiral_matrix", "string_insertion"),
                    f"{_EXECUTES}; use your own rows with the verifier `text` or "
                    "`module:function`"),
    **dict.fromkeys(("polynomial_multiplication", "simple_integration", "intermediate_integration"),
                    f"{_EXECUTES}; use your own rows with the verifier `math`"),
    "coin_flip": "its scorer accepts any long run of zeros",
    "composite": "it is a mixture of other tasks and has none of its own; mix environments instead",
    "game_of_life_halting": "its scorer gives full marks to any text",
}  # fmt: skip
"""Tasks that cannot be trained on, with the reason and what to use."""

Pair = tuple[str, Any]
"""An answer, and its entry."""
GOLDS = 50
"""Gold answers that are judged in one process: they are the data's own and trusted."""


class ReasoningGym(BatchVerifier):
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

        def run(jobs: Sequence[Pair]) -> list[Score]:
            starts = range(0, len(jobs), GOLDS)
            return [score for at in starts for score in self._asked(jobs[at : at + GOLDS])]

        golds = [Case(prompt, self.gold_completion(prompt) or "") for prompt in prompts]
        scores = self.judged(golds, run)
        return [None if each.outcome == "correct" else each.reason for each in scores]

    def prepare(self, case: Case) -> Pair | Score:
        """The answer as it is written, and the entry."""
        entry = case.prompt.columns["entry"]
        if not isinstance(entry, dict) or not isinstance(entry.get("answer"), str):
            raise BadAnswer("the column `entry` is not an entry of reasoning-gym with an answer")
        text = after_reasoning(case.whole, self.reasoning_tag)
        if text is None:
            return no_answer(f"<{self.reasoning_tag}> is never closed")
        lines = len(entry["answer"].strip().splitlines())
        given = stated_answer(text, self.tag, lambda rest: _unmarked(rest, lines))
        if not given or not given.strip():
            return no_answer("no answer is given")
        if len(given) > MAX_ANSWER:
            return no_answer(f"an answer of {len(given)} characters")
        return given, entry

    def run(self, jobs: Sequence[Pair]) -> list[Score]:
        """As many at a time as the sandbox has zygotes."""
        size = shared_sandbox(self.tier, (PACKAGE,)).size
        with ThreadPoolExecutor(min(size, len(jobs))) as pool:
            return [scores[0] for scores in pool.map(self._asked, [[job] for job in jobs])]

    def _asked(self, pairs: Sequence[Pair]) -> list[Score]:
        """The scorer's verdicts, of one process. A scorer that fails on an answer rejects it."""
        time = self.time_limit * len(pairs)
        arguments = [self.task, json.dumps(self.config), pairs]
        sandbox = shared_sandbox(self.tier, (PACKAGE,))
        limits = Limits(time=time, total_time=time)
        for _ in range(2):
            try:
                values = sandbox.evaluate(
                    SCORER, "scores", arguments, limits=limits, read_files=True
                )
                return list(map(self._scored, values))
            except TrustedCallFailed as error:
                outcome, cause = error.outcome, str(error).removeprefix("scores: ")[:300]
                if outcome != "timeout":
                    break
        failed = {
            "infrastructure_error": Score(None, "infrastructure_error", cause),
            "timeout": Score(0.0, "timeout", f"no verdict after {time:g} s, twice"),
            "out_of_memory": Score(0.0, "out_of_memory", cause),
        }
        rejected = Score(0.0, "incorrect", f"the scorer rejects it: {cause}")
        return [failed.get(outcome, rejected)] * len(pairs)

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
    if name not in tasks:
        raise unknown_name("reasoning-gym task", name, tasks)
    if name in REFUSED:
        usable = ", ".join(each for each in tasks if each not in REFUSED and each[0] == name[0])
        raise RecipeError(
            f"reasoning_gym:{name} is refused: {REFUSED[name]}; usable ones are {usable}, ..."
        )
