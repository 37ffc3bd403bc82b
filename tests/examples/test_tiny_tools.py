"""What tiny_tools is started on: calls in the format that is parsed, slips in a known share."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest

from groupwise.examples.tiny_models import TOOL_PIECES, ToolsRecipe, tools_row
from groupwise.policies import load_policy
from groupwise.policies.tiny import vocabulary
from groupwise.templates import parse_tool_calls, tool_style
from groupwise.types import Prompt

TOKENS = [*vocabulary(), *TOOL_PIECES]


def written(recipe: ToolsRecipe, draw: random.Random, calling: bool | None = None) -> str:
    return "".join(token for token, _ in tools_row(recipe, draw, calling=calling))


def test_a_row_is_what_the_template_and_the_parser_know() -> None:
    text = written(ToolsRecipe(slips=0.0), random.Random(0), calling=True)
    head, answer = text.split("<|assistant|>", 1)
    assert head == "<|bos|><|system|>calculator<|end|><|user|>60*64=<|end|>"
    call, rest = answer.split("<|end|>", 1)
    (parsed,) = parse_tool_calls(call, "hermes").calls
    assert (parsed.name, parsed.arguments) == ("calculator", {"expression": "60*64"})
    assert rest == "<|tool|>3840<|end|><|assistant|>3840<|end|>"


def test_slips_and_calls_have_their_shares() -> None:
    recipe, draw = ToolsRecipe(), random.Random(1)
    rows = [[token for token, _ in tools_row(recipe, draw)] for _ in range(4000)]
    offered = [row for row in rows if "<|system|>" in row]
    calls = [row for row in offered if "<tool_call>" in row]
    assert len(offered) / len(rows) == pytest.approx(0.7, abs=0.03)
    assert len(calls) / len(offered) == pytest.approx(0.08, abs=0.02)
    texts = [written(recipe, draw, calling=True) for _ in range(2000)]
    slipped = [text.split("=")[0].split("<|user|>")[1] not in text.split("=", 1)[1]
               for text in texts]  # fmt: skip
    assert Fraction(sum(slipped), len(slipped)) == pytest.approx(0.2, abs=0.03)


@pytest.mark.slow
def test_the_model_writes_calls_now_and_then() -> None:
    policy = load_policy("groupwise.examples.tiny_models:tiny_tools", device="cpu")
    template = policy.template
    assert tool_style(template) == "hermes"
    prompt = Prompt("p", messages=({"role": "user", "content": "12*34="},))
    schema = {"type": "function", "function": {"name": "calculator"}}
    ids = template.encode_prompt(prompt, tools=[schema])
    assert template.decode(ids) == (
        "<|bos|><|system|>calculator<|end|><|user|>12*34=<|end|><|assistant|>"
    )
    call = template.encode("".join(TOOL_PIECES))
    assert call == tuple(range(len(TOKENS) - 4, len(TOKENS)))
    assert policy.num_parameters == 105_536
