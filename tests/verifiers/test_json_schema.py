"""JSON by schema, strictly: no NaN, no duplicate keys, no endless patterns."""

import time

import pytest

from groupwise.errors import RecipeError
from groupwise.types import Prompt
from groupwise.verifiers import load_verifier, verify
from groupwise.verifiers.text.json_schema import strict_json

SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "string", "pattern": "^(x+)+$"}},
    "required": ["a"],
    "additionalProperties": False,
}


def judged(text, schema=SCHEMA, **fields):
    return verify("json_schema", completion=text, json_schema=schema, **fields)


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ('{"a": 1}', "correct"),
        ('  {"a": 1, "b": "xx"}\n', "correct"),
        ('```json\n{"a": 1}\n```', "correct"),
        ('Here it is:\n```\n{"a": 1}\n```\nDone.', "correct"),
        ('<think>{}</think>{"a": 1}', "correct"),
        ('{"a": "1"}', "incorrect"),
        ("{}", "incorrect"),
        ('{"a": 1, "c": 2}', "incorrect"),
        ("[1]", "incorrect"),
        ('{"a": 1} and more', "no_answer"),
        ('{"a": NaN}', "no_answer"),
        ('{"a": Infinity}', "no_answer"),
        ('{"a": 1, "a": 2}', "no_answer"),
        ('```\n{"a": 1}\n```\n```\n{"a": 2}\n```', "no_answer"),
        ("[" * 100_000, "no_answer"),
        ("[" * 100 + "]" * 100, "no_answer"),
        ("{'a': 1}", "no_answer"),
        ("", "no_answer"),
        ('{"a": ' + "9" * 5000 + "}", "no_answer"),
    ],
)
def test_outcomes(text, outcome):
    assert judged(text).outcome == outcome


def test_the_reason_names_the_place():
    assert judged('{"a": "1"}').reason.startswith("a: ")


def test_patterns_take_linear_time():
    start = time.monotonic()
    assert judged('{"a": 1, "b": "' + "x" * 5000 + '!"}').outcome == "incorrect"
    assert time.monotonic() - start < 1


def test_a_schema_from_the_column():
    for schema in (SCHEMA, '{"type": "array"}'):
        score = verify("json_schema", completion='{"a": 1}', columns={"schema": schema})
        assert score.value == float(schema is SCHEMA)
    assert load_verifier("json_schema").required_columns == {"schema"}
    prompts = [Prompt("p", text="q", columns={"schema": each}) for each in (SCHEMA, "{", [])]
    reasons = load_verifier("json_schema").check_answers(prompts)
    assert [reason is None for reason in reasons] == [True, False, False]


def test_the_gold_answer_can_be_compared():
    assert judged('{"a": 1}', answer={"a": 1}, match_answer=True).value == 1.0
    assert judged('{"a": 2}', answer='{"a": 1}', match_answer=True).outcome == "incorrect"
    assert judged('{"a": 2}', answer="{", match_answer=True).outcome == "bad_answer"
    verifier = load_verifier("json_schema", json_schema=SCHEMA, match_answer=True)
    assert verifier.check_answer(Prompt("p", text="q", answer={"a": 1})) is None
    assert verifier.check_answer(Prompt("p", text="q", answer={"b": 1})) is not None


def test_a_bad_schema_is_refused():
    with pytest.raises(RecipeError, match="not a JSON schema"):
        load_verifier("json_schema", json_schema={"type": "objekt"})


def test_strict_json_keeps_values():
    assert strict_json('[1, 2.5, "[{", null, true]') == [1, 2.5, "[{", None, True]


@pytest.mark.parametrize("text", ["1e999", '{"a": [-1e400]}', "Infinity", "NaN"])
def test_numbers_beyond_floats_are_no_json_here(text):
    with pytest.raises(ValueError, match=r"beyond any float|is not JSON"):
        strict_json(text)


@pytest.mark.parametrize(
    ("text", "answer", "right"),
    [
        ("true", 1, False),
        ("1", True, False),
        ("0", False, False),
        ("1.0", 1, True),
        ('{"a": true}', {"a": 1}, False),
        ("[0]", "[false]", False),
        ("[1.0, 2]", [1, 2], True),
        ('{"b": 2, "a": [1]}', {"a": [1], "b": 2}, True),
        ("[1, 2]", [1], False),
        ('{"a": 1}', {"b": 1}, False),
        ("[]", {}, False),
        ("null", "null", True),
    ],
)
def test_a_truth_value_is_no_number_in_the_gold_answer(text, answer, right):
    columns = {"schema": {}}
    score = verify(
        "json_schema", completion=text, answer=answer, columns=columns, match_answer=True
    )
    assert score.value == float(right)


@pytest.mark.parametrize(
    ("text", "schema", "right"),
    [
        ("true", {"enum": [1]}, False),
        ("1", {"enum": [True]}, False),
        ("1.0", {"enum": [1]}, True),
        ("true", {"const": 1}, False),
        ("1", {"const": 1.0}, True),
        ("[1, true]", {"uniqueItems": True}, True),
        ("[1, 1.0]", {"uniqueItems": True}, False),
        ('[{"a": 0}, {"a": false}]', {"uniqueItems": True}, True),
    ],
)
def test_a_truth_value_is_no_number_in_a_schema(text, schema, right):
    assert judged(text, schema=schema).value == float(right)


def test_a_fence_of_windows_lines_is_read():
    assert judged('```json\r\n{"a": 1}\r\n```\r\n').outcome == "correct"


@pytest.mark.parametrize("draft", [None, "http://json-schema.org/draft-07/schema#",
                                   "https://json-schema.org/draft/2020-12/schema"])  # fmt: skip
@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("date", "2024-02-29", "2023-02-29"),
        ("date-time", "2024-01-01T00:00:00Z", "yesterday"),
        ("time", "12:00:00Z", "25:00:00Z"),
        ("email", "a@example.org", "nobody"),
        ("ipv4", "1.2.3.4", "1.2.3.400"),
        ("ipv6", "::1", "12345::"),
        ("uri", "http://a.example/b", "::"),
        ("regex", "a+", "("),
        ("json-pointer", "/a", "a"),
    ],
)
def test_formats_are_asserted_in_every_draft(draft, name, good, bad):
    schema = {"type": "string", "format": name} | ({"$schema": draft} if draft else {})
    assert judged(f'"{good}"', schema=schema).value == 1.0
    assert judged(f'"{bad}"', schema=schema).outcome == "incorrect"


def test_an_unknown_format_asserts_nothing():
    assert judged('"x"', schema={"type": "string", "format": "colour"}).value == 1.0


def test_many_blanks_behind_a_fence_take_linear_time():
    start = time.monotonic()
    assert judged("```" + " " * 200_000).outcome == "no_answer"
    assert time.monotonic() - start < 1


@pytest.mark.parametrize("answer", [None, float("nan"), "{", b"1"])
def test_a_gold_answer_that_is_not_json_is_refused(answer):
    assert judged("1", schema={"type": "integer"}, answer=answer, match_answer=True).outcome == (
        "bad_answer"
    )
