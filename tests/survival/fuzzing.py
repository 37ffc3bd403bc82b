# ruff: noqa: E501 (a table)
"""What the fuzz tests share: strategies, mutations of bytes and of nested values, one runner."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from groupwise.errors import LINE, LINES, GroupwiseError


def run(check: Callable[[Any], None], cases: st.SearchStrategy[Any], number: int) -> None:
    """`check` of so many cases, each within 20 s, the same ones every time."""
    settings(
        max_examples=number,
        deadline=timedelta(seconds=20),
        derandomize=True,
        report_multiple_bugs=False,
        database=None,
        suppress_health_check=list(HealthCheck),
    )(given(cases)(check))()


def refused_or_done(action: Callable[[], Any]) -> Any:
    """What `action` returns, None where it raises the documented error with a short message."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return action()
        except GroupwiseError as error:
            said = str(error)
    lines = said.split("\n")
    assert said.strip(), "an empty message"
    assert len(lines) <= LINES + 1, f"a message of {len(lines)} lines"
    assert max(map(len, lines)) <= LINE, f"a line of {max(map(len, lines))} characters"
    return None


TEXTS = st.one_of(
    st.text(max_size=12),
    st.sampled_from(["", " ", "\0", "\ud800", "\u202e", "none", "nan", "x" * 5000, "9" * 5000]),
)
NUMBERS = st.one_of(
    st.integers(-3, 3),
    st.integers(),
    st.floats(),
    st.sampled_from([2**31, 2**63, -(2**63) - 1, 10**30, math.nan, math.inf, 1e-320, 0.5]),
)
SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS)
NESTED = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=8,
)
"""Any value that JSON or TOML can hold, and some that they cannot."""


@st.composite
def damaged(draw: Any, content: bytes) -> bytes:
    """The bytes cut, with bits turned, with a piece left out, doubled or replaced."""
    found = bytearray(content)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, max(len(found) - 1, 0)))
        size = draw(st.sampled_from([1, 2, 7, 64, 1000]))
        match draw(st.sampled_from(["cut", "bit", "drop", "double", "other", "text"])):
            case "cut":
                del found[at:]
            case "bit" if found:
                found[at] ^= 1 << draw(st.integers(0, 7))
            case "drop":
                del found[at : at + size]
            case "double":
                found[at:at] = found[at : at + size]
            case "other":
                found[at : at + size] = draw(st.binary(max_size=16))
            case "text":
                wrong = ["null", "{", "]", '"', "1e999", "-1", "NaN", "[" * 5000, "9" * 5000, "é"]
                found[at : at + draw(st.integers(0, 8))] = draw(st.sampled_from(wrong)).encode()
    return bytes(found)


@st.composite
def changed(draw: Any, value: Any) -> Any:
    """A copy of a nested value in which one place holds another value, or is gone."""
    found = json.loads(json.dumps(value))
    node = {"": found}
    key: Any = ""
    while isinstance(node[key], dict | list) and node[key] and draw(st.integers(0, 5)):
        node = node[key]
        key = (
            draw(st.sampled_from(sorted(node)))
            if isinstance(node, dict)
            else draw(st.integers(0, len(node) - 1))
        )
    if draw(st.integers(0, 5)) == 0 and key != "":
        del node[key]
        return found
    other = draw(NESTED)
    if key == "":
        return other
    node[key] = other
    return found


FRAGMENTS = (
    "7", "-3.5", "1/2", "1e400", "\\boxed{", "}", "{", "\\frac", "\\frac12", "\\sqrt[3]{8}", "^{", "_",
    "$", "$$", "\\(", "\\)", "\\text{", "\\begin{pmatrix}", "&", "\\\\", "\\end{pmatrix}", "<think>",
    "</think>", "<answer>", "</answer>", "<tool_call>", "</tool_call>", "[TOOL_CALLS]",
    "<|python_tag|>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>", "```python\n",
    "```sql\n", "```json\n", "```", '{"name": "add", "arguments": ', '{"a": 1}', "null", "[", "]", '"',
    "def f(n): return n + 2", "select ", "from t", "union all ", "the answer is ", "A", "(B)", "=",
    "+", "*", "!", "%", "\n", "\r\n", " ", "\t", ",", ";", ":", "\0", "\ud800", "\u202e", "\u200b",
    "\x1b[2J", "é", "答案", "١٢", "∞", "π", "±", "°", "9" * 5000, "(" * 500, "{" * 500, "[" * 5000,
    "\\", "'", "#", "--", "/*", "\\u0000", "\\ud800", "<", ">", "|", "nan", "inf", "True", "i", "x",
)  # fmt: skip
COMPLETIONS = st.one_of(
    st.text(max_size=40),
    st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=4), max_size=14).map("".join),
    st.tuples(st.sampled_from(FRAGMENTS), st.integers(1, 300)).map(
        lambda p: (p[0] * p[1])[:60_000]
    ),
)
"""What a policy may write: words of every format that is read, put together at random."""
