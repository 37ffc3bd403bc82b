"""IFEval's 25 kinds and the JSON-Schema suite's types, on rows of our own.

A disagreement with IFEval is a convention with its reason beside the row, and in
docs/verifiers_audit.md.
"""

from pathlib import Path

import instruction_rows
import pytest

from groupwise.verifiers import verify
from groupwise.verifiers.text.instruction_checks import CHECKS

pytestmark = pytest.mark.peers

PAGE = Path(__file__).parents[2] / "docs" / "verifiers_audit.md"
CONVENTIONS = {reason for *_, reason in instruction_rows.ROWS if reason}


@pytest.mark.parametrize(("name", "arguments", "text", "theirs", "reason"), instruction_rows.ROWS)
def test_an_instruction(name, arguments, text, theirs, reason):
    assert CHECKS[name](text, **arguments) == (theirs if not reason else not theirs)


def test_every_kind_has_a_row_for_both_verdicts_and_every_convention_is_documented():
    found = {(name, theirs) for name, _, _, theirs, reason in instruction_rows.ROWS if not reason}
    assert {(name, verdict) for name in CHECKS for verdict in (True, False)} == found
    page = " ".join(PAGE.read_text(encoding="utf-8").split())
    assert [reason for reason in sorted(CONVENTIONS) if reason not in page] == []


VALUES = {
    "integer": ["1", "1.0", "-7", "10000000000000000000000"],
    "number": ["1.1", "-2.5e0"],
    "string": ['""', '"1"', '"text"'],
    "object": ["{}", '{"a": 1}'],
    "array": ["[]", "[null]"],
    "boolean": ["true", "false"],
    "null": ["null"],
}
DRAFTS = [None, "http://json-schema.org/draft-04/schema#", "http://json-schema.org/draft-07/schema#",
          "https://json-schema.org/draft/2020-12/schema"]  # fmt: skip


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("kind", VALUES)
def test_a_type_of_json_schema(kind, draft):
    """Whole floats are integers from draft 6 on; 0, "" and false are not null."""
    for other, texts in VALUES.items():
        for text in texts:
            wanted = other == kind or (kind == "number" and other == "integer")
            if draft and "draft-04" in draft and (kind, text) == ("integer", "1.0"):
                wanted = False
            schema = {"type": kind} | ({"$schema": draft} if draft else {})
            assert verify("json_schema", completion=text, json_schema=schema).value == wanted, text


@pytest.mark.parametrize(
    ("kinds", "right", "wrong"),
    [
        (["integer", "string"], ["1", '"a"'], ["1.5", "{}", "[]", "true", "null"]),
        (["array", "object"], ["[1]", '{"a": 1}'], ["1", '"a"', "null"]),
        (["array", "object", "null"], ["[1]", "{}", "null"], ["0", '""', "false"]),
        (["string"], ['"a"'], ["1"]),
    ],
)
def test_several_types(kinds, right, wrong):
    def value(text):
        return verify("json_schema", completion=text, json_schema={"type": kinds}).value

    assert [value(text) for text in right] == [1.0] * len(right)
    assert [value(text) for text in wrong] == [0.0] * len(wrong)
