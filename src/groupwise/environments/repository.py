"""The `repository` environment: repair a few files until hidden tests pass, with their output back.

A turn gives changed files, each whole; the `code` verifier runs the task's tests in the sandbox,
and the first failing one's message is the answer. The reward is 1 where `tests` and `hidden_tests`
pass at the end: the first are known by their messages alone, the second never show.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from groupwise.environments.base import Environment
from groupwise.environments.checks import first_of
from groupwise.environments.episode import Episode
from groupwise.environments.generated import ask, chat_prompt
from groupwise.environments.identity import with_unique_ids
from groupwise.environments.repository_files import (
    Files,
    block,
    check_path,
    patched,
    program,
    read_tests,
)
from groupwise.environments.repository_tasks import Task, made_up, read_tasks
from groupwise.errors import RecipeError
from groupwise.types import Message, Prompt, Score
from groupwise.verifiers import Case, VerifierSettings, VerifierTables, compose, score_cases
from groupwise.verifiers.code.code import Code
from groupwise.verifiers.core.names import Arguments, validated

ASKS = (
    "Repair the repository so that its tests pass. Give each file that you change whole, in a "
    "block that begins with ```python PATH."
)
FAILED = "The tests fail."


class RepositorySettings(Arguments):
    """The arguments of `repository`."""

    path: str | None = Field(
        default=None,
        description="A file of tasks, one JSON object a line: `files` and `gold` (texts by path), "
        "`tests` and optionally `hidden_tests` (lists of test sources), `issue` (words), `split` "
        "(train or heldout). Unset: small repositories are made up.",
    )
    num_train: int = Field(default=200, ge=1, description="Training repositories, made up.")
    num_heldout: int = Field(default=50, ge=0, description="Held-out repositories, made up.")
    num_files: int = Field(default=4, ge=2, le=8, description="Files of a made-up repository.")
    instructions_text: str = Field(
        default=ASKS, description="Words before the files; may be empty."
    )
    feedback: Literal["message", "verdict"] = Field(
        default="message",
        description="What answers a turn: the first failing test's message, or only that the "
        "tests fail.",
    )
    code: dict[str, Any] = Field(
        default={},
        description="Arguments of the `code` verifier that runs the tests, as time_limit, packages "
        "or tier.",
    )


class Repository(Environment):
    """Repositories with something to repair. The columns of a prompt are its task's fields."""

    def __init__(
        self, settings: RepositorySettings, seed: int, verifiers: VerifierTables = ()
    ) -> None:
        """Raises RecipeError for a task that cannot be read, or that its gold does not repair."""
        self.settings = settings
        self._judged: dict[bytes, Score] = {}
        self.code = validated(Code, settings.code, "environment 'repository', code")
        tasks = read_tasks(settings.path) if settings.path else self._made_up(seed)
        self._check(tasks)
        prompts, duplicates = with_unique_ids([self._prompt(task) for task in tasks.values()])
        splits = {
            split: [prompt for prompt in prompts if prompt.columns["split"] == split]
            for split in ("train", "heldout")
        }
        facts = {"arguments": settings.model_dump(mode="json"), "duplicates": duplicates}
        own = VerifierSettings(name="play")
        super().__init__("repository", compose(verifiers or [own]), splits, facts)

    def start(self, prompt: Prompt) -> Episode:
        return Repair(prompt, self.run, self.settings.feedback)

    def run(self, files: Files, tests: Sequence[str], modules: Iterable[str]) -> Score:
        """The `code` verifier's score of the files: 1, or 0 and the first failing test.

        `modules` are the paths that tests may import. Files that were judged already, as the same
        patch of another rollout, are not run again.
        """
        key = hashlib.sha256(json.dumps([dict(files), list(tests)]).encode()).digest()
        if key not in self._judged:
            (score,) = score_cases(self.code, [case(files, tests, modules)])
            if score.value is None or score.outcome == "timeout":  # another time it may be judged
                return score
            self._judged[key] = score
        return self._judged[key]

    def _made_up(self, seed: int) -> dict[str, Task]:
        given = self.settings
        return made_up(given.num_train, given.num_heldout, given.num_files, seed)

    def _prompt(self, task: Task) -> Prompt:
        blocks = [block(path, text) for path, text in task.files.items()]
        words = [each for each in (self.settings.instructions_text, task.issue) if each]
        question = ask("\n".join([*words, *blocks]), None)
        gold = "\n".join(block(path, text) for path, text in task.gold.items())
        return chat_prompt(question, gold, columns=task.model_dump())

    def _check(self, tasks: Mapping[str, Task]) -> None:
        """Raises RecipeError naming the tasks that are not well-formed, or not repaired by gold."""
        bad: list[str] = []
        cases: dict[str, tuple[Case, Case]] = {}
        for place, task in tasks.items():
            every = [*task.tests, *task.hidden_tests]
            try:
                for path in (*task.files, *task.gold):
                    check_path(path)
                repaired = {**task.files, **task.gold}
                cases[place] = (
                    case(repaired, every, repaired),
                    case(task.files, every, repaired),
                )
            except ValueError as error:
                bad.append(f"{place}: {error}")
        every_case = [each for pair in cases.values() for each in pair]
        scores = iter(score_cases(self.code, every_case))
        for place, repaired_score, given in zip(cases, scores, scores):
            if repaired_score.value != 1:
                bad.append(f"{place}: its gold files fail its tests: {repaired_score.reason}")
            elif given.value == 1:
                bad.append(f"{place}: its files pass its tests already; nothing is to be repaired")
        if bad:
            raise RecipeError(f"environment 'repository', bad tasks: {first_of(bad)}")


def case(files: Files, tests: Sequence[str], modules: Iterable[str]) -> Case:
    """The repository's program and the tests, as the `code` verifier reads them.

    Raises ValueError as `read_tests`.
    """
    imports, sources = read_tests(tests, modules)
    prompt = Prompt("repository", text="-", columns={"tests": sources, "kind": "asserts"})
    return Case(prompt, program(files, imports))


class Repair(Episode):
    """One repository under repair; `run` is `Repository.run`."""

    def __init__(self, prompt: Prompt, run: Callable[..., Score], feedback: str) -> None:
        super().__init__(prompt)
        self.run, self.feedback = run, feedback
        self.files: Files = prompt.columns["files"]
        # A module that a completion adds is not one that tests import: it could be `math`.
        self.modules = {**self.files, **prompt.columns["gold"]}
        self.last = Score(0.0, "no_answer", "no file was given")

    def next(self, completion: str) -> Sequence[Message] | None:
        try:
            self.files = patched(self.files, completion)
        except ValueError as error:
            self.counts["unusable_patches"] += 1
            return [{"role": "user", "content": str(error)}]
        self.last = self.run(self.files, self.prompt.columns["tests"], self.modules)
        if self.last.value != 0:
            return None
        reply = self.last.reason if self.feedback == "message" else FAILED
        return [{"role": "user", "content": reply}]

    def result(self) -> Score:
        hidden = self.prompt.columns["hidden_tests"]
        if self.last.value != 1 or not hidden:
            return self.last
        return self.run(self.files, hidden, self.modules)
