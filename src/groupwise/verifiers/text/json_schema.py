"""JSON that fits a schema: `json_schema`.

Strict JSON only: no NaN, no duplicate keys, bounded depth. Validation is `jsonschema-rs` with
linear-time patterns, `format` asserted whatever the schema's draft, and no fetching of references.
"""

from __future__ import annotations

import json
import math
import re
from functools import lru_cache
from typing import Any, ClassVar

from pydantic import Field, field_validator

from groupwise.texts import from_json
from groupwise.types import Prompt, Score
from groupwise.verifiers.core.contract import Case
from groupwise.verifiers.core.scores import BadAnswer, no_answer
from groupwise.verifiers.text.checks import TextVerifier

MAX_DEPTH = 64
_FENCE = re.compile(r"```[ \t]*+(?:json|JSON)?[ \t]*+\r?\n(.*?)```", re.DOTALL)
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")
# A text in quotes, the last one closed or not, or a bracket outside of texts.
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)


class JsonSchema(TextVerifier):
    """The text (or its one fenced block) is JSON that fits the schema.

    With `match_answer` it must also equal the gold answer (JSON, or a text of it), order of keys
    aside.
    """

    verifier_name: ClassVar[str] = "json_schema"

    # `schema` itself is taken by pydantic's base class.
    json_schema: dict[str, Any] = Field(
        default_factory=dict[str, Any], description="The schema; from the column if it is empty."
    )
    schema_column: str = Field(
        default="schema", description="The column with the schema, as an object or JSON text."
    )
    match_answer: bool = Field(default=False, description="Whether it must equal the gold answer.")

    @field_validator("json_schema")
    @classmethod
    def _valid(cls, schema: dict[str, Any]) -> dict[str, Any]:
        _validator(json.dumps(schema, sort_keys=True))
        return schema

    @property
    def needs_answer(self) -> bool:
        return self.match_answer

    @property
    def required_columns(self) -> frozenset[str]:
        return frozenset() if self.json_schema else frozenset({self.schema_column})

    def judge(self, text: str, case: Case) -> Score:
        try:
            value = strict_json(_body(text))
        except ValueError as error:
            return no_answer(str(error))
        violation = next(iter(self._read_schema(case.prompt).iter_errors(value)), None)
        if violation is not None:
            where = "/".join(str(part) for part in violation.instance_path) or "the whole"
            return Score(0.0, "incorrect", f"{where}: {violation.message}"[:300])
        if self.match_answer:
            gold = json.dumps({"const": _gold(case.prompt.answer)}, sort_keys=True)
            if not _validator(gold).is_valid(value):
                return Score(0.0, "incorrect", "fits the schema, is not the gold answer")
        return Score(1.0, "correct", "fits the schema")

    def _read_schema(self, prompt: Prompt) -> Any:
        schema = self.json_schema or Case(prompt, "").column(self.schema_column)
        try:
            schema = strict_json(schema) if isinstance(schema, str) else schema
            return _validator(json.dumps(schema, sort_keys=True))
        except (ValueError, TypeError) as error:
            raise BadAnswer(f"schema: {error}") from error

    def gold_completion(self, prompt: Prompt) -> str | None:
        return json.dumps(_gold(prompt.answer)) if self.match_answer else None

    def check_row(self, prompt: Prompt) -> None:
        self._read_schema(prompt)
        if self.match_answer:
            _gold(prompt.answer)


def _gold(answer: Any) -> Any:
    """The gold answer as JSON, of a text what it states; `BadAnswer` if it is not JSON."""
    if answer is None:
        raise BadAnswer("gold answer: missing; JSON's null is the text 'null'")
    try:
        return strict_json(answer if isinstance(answer, str) else json.dumps(answer))
    except (ValueError, TypeError) as error:
        raise BadAnswer(f"gold answer: {error}") from error


def strict_json(text: str) -> Any:
    """The value of a JSON text.

    Raises ValueError for NaN, an infinity, a repeated key, depth above `MAX_DEPTH`, and half of a
    surrogate pair, which UTF-8 cannot encode.

    >>> strict_json('{"a": [1]}')
    {'a': [1]}
    """
    depth = deepest = 0
    for token in _TOKEN.findall(text):
        depth += (token in "[{") - (token in "]}")
        deepest = max(deepest, depth)
    if deepest > MAX_DEPTH:
        raise ValueError(f"nested {deepest} deep, above {MAX_DEPTH}")
    try:
        value = from_json(
            text, object_pairs_hook=_object, parse_constant=_constant, parse_float=_number
        )
        if _SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{error.object[error.start]!r} is half of a surrogate pair") from error
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from error
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key is there twice")
    return value


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _number(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text[:40]} is beyond any float")
    return value


def _body(text: str) -> str:
    blocks = _FENCE.findall(text)
    if len(blocks) > 1:
        raise ValueError(f"{len(blocks)} fenced blocks, not one")
    return str(blocks[0]) if blocks else text.strip()


@lru_cache(maxsize=1024)
def _validator(schema: str) -> Any:
    """A compiled schema; `ValueError` if it is not one."""
    import jsonschema_rs

    value = from_json(schema)
    if not isinstance(value, (dict, bool)):
        raise ValueError(f"a schema is an object, got {type(value).__name__}")
    try:
        return jsonschema_rs.validator_for(
            value,
            offline=True,
            validate_formats=True,
            pattern_options=jsonschema_rs.RegexOptions(),
        )
    except jsonschema_rs.ValidationError as error:
        raise ValueError(f"not a JSON schema: {error.message}") from error
