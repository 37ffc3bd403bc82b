"""Reward functions written for TRL, unchanged, as verifiers.

`def f(prompts, completions, completion_ids, <columns>, trainer_state=None, log_extra=None,
log_metric=None, **kwargs) -> list[float | None]`, called by keyword, plain or `async`. Prompts and
completions are strings, or chats if the prompt is one. A function gets only the arguments it names.
"""

from __future__ import annotations

import copy
import hashlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

from groupwise.errors import VerifierError
from groupwise.types import Prompt
from groupwise.verifiers.core.contract import Case, Verifier, VerifierLogs

PROVIDED = frozenset({"prompts", "completions", "completion_ids", "trainer_state", "log_extra",
                      "log_metric", "answer", "environments"})  # fmt: skip


class RewardFunction(Verifier):
    """One reward function over a whole batch, in TRL's form.

    `arguments` are fixed keyword arguments from the recipe. Every column of the batch's prompts is
    passed as a list aligned with the completions; `answer` is the gold answer if no column has
    that name; a column that only some prompts have is None for the others.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        reference: str = "",
        arguments: Mapping[str, Any] | None = None,
    ) -> None:
        """`reference` is its `module:function`, for the record."""
        self.function = function
        self.reference = reference or f"{function.__module__}:{_name_of(function)}"
        self._arguments = dict(arguments or {})
        self._parameters = inspect.signature(function).parameters
        self._state = SimpleNamespace(global_step=0)
        self._logs = VerifierLogs()

    @property
    def name(self) -> str:
        return _name_of(self.function)

    @property
    def arguments(self) -> Mapping[str, Any]:
        source = _source(self.function)
        return {
            "function": self.reference,
            "source_hash": hashlib.sha256(source.encode()).hexdigest()[:16],
            **self._arguments,
        }

    @property
    def waits(self) -> bool:
        """An `async` function waits for something; it runs in its own event loop."""
        return inspect.iscoroutinefunction(self.function)

    @property
    def required_columns(self) -> frozenset[str]:
        """Its parameters without a default that are neither provided nor set in the recipe."""
        return frozenset(
            name
            for name, parameter in self._parameters.items()
            if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
            and parameter.default is parameter.empty
            and name not in PROVIDED
            and name not in self._arguments
        )

    def score(self, cases: Sequence[Case]) -> Any:
        for row, case in enumerate(cases):
            for column in sorted(self.required_columns - case.prompt.columns.keys()):
                available = sorted({*case.prompt.columns, "answer"})
                raise VerifierError(
                    f"verifier {self.name!r} needs a column {column!r}, which row {row} (prompt "
                    f"{case.prompt.id!r}) does not have; it has {', '.join(available)}"
                )
        return self.function(**self._accepted(self._keywords(cases)))

    def _keywords(self, cases: Sequence[Case]) -> dict[str, Any]:
        columns = {name: None for case in cases for name in case.prompt.columns}
        keywords: dict[str, Any] = {"answer": [_own(case.prompt.answer) for case in cases]}
        keywords |= {
            name: [_own(case.prompt.columns.get(name)) for case in cases] for name in columns
        }
        return keywords | {
            **self._arguments,
            "prompts": [_prompt(case.prompt) for case in cases],
            "completions": [_completion(case) for case in cases],
            "completion_ids": [list(case.completion_ids) for case in cases],
            "trainer_state": self._state,
            "log_extra": partial(self._log_extra, cases),
            "log_metric": self._log_metric,
        }

    def _accepted(self, keywords: Mapping[str, Any]) -> dict[str, Any]:
        if any(each.kind is each.VAR_KEYWORD for each in self._parameters.values()):
            return dict(keywords)
        return {name: value for name, value in keywords.items() if name in self._parameters}

    def begin_step(self, step: int) -> None:
        self._state = SimpleNamespace(global_step=step)

    def _log_extra(self, cases: Sequence[Case], column: str, values: Sequence[Any]) -> None:
        given = list(values)
        if len(given) != len(cases):
            raise VerifierError(
                f"verifier {self.name!r} logged {len(given)} values in column {column!r} for "
                f"{len(cases)} completions; pass log_extra one value per completion"
            )
        keys = [(case.prompt.id, case.text) for case in cases]
        self._logs.columns.setdefault(column, {}).update(zip(keys, given))

    def _log_metric(self, name: str, value: float) -> None:
        self._logs.metrics[name] = float(value)

    def take_logs(self) -> VerifierLogs:
        logs, self._logs = self._logs, VerifierLogs()
        return logs


def _own(value: Any) -> Any:
    """A copy of what the function could change: it belongs to the whole run's data."""
    return copy.deepcopy(value) if isinstance(value, (list, dict, set)) else value


def _prompt(prompt: Prompt) -> Any:
    return prompt.text if prompt.text is not None else [dict(each) for each in prompt.messages]


def _completion(case: Case) -> Any:
    if case.prompt.text is not None:
        return case.text
    if case.turns is not None:
        return [dict(message) for message in case.turns]
    return [{"role": "assistant", "content": case.text}]


def _name_of(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)


def _source(function: Callable[..., Any]) -> str:
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        return repr(function)
