"""Boundaries of prompts and turns against the package `renderers`, an independent implementation.

Needs the extra `peers` (`pip install --constraint constraints.txt -e '.[peers]'`); offline, on the
small tokenizers of `families.py`. Where it refuses to extend a sampled completion because the
template would rewrite it, `Template.rewrites` says so too.
"""

from __future__ import annotations

import importlib
from typing import Any

import pytest
from families import FAMILIES, TOOL, template_of
from transformers import PreTrainedTokenizerFast

from groupwise.types import Message, Prompt

pytest.importorskip("renderers", reason="needs the extra peers")

RENDERERS = {"qwen3": "qwen3.Qwen3Renderer", "llama3_1": "llama_3.Llama3Renderer"}
SYSTEM: Message = {"role": "system", "content": "Be brief."}
USER: Message = {"role": "user", "content": "What is 17 times 23?"}
AGAIN: Message = {"role": "user", "content": "And 17 times 24?"}
RESULT: Message = {
    "role": "tool",
    "name": "multiply",
    "tool_call_id": "call00000",
    "content": "391",
}


def renderer_of(family: str) -> Any:
    module, name = RENDERERS[family].split(".")
    template = template_of(family)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=template.tokenizer, eos_token=FAMILIES[family].end
    )
    tokenizer.chat_template = template.chat_template
    return getattr(importlib.import_module(f"renderers.{module}"), name)(tokenizer)


@pytest.mark.parametrize("family", RENDERERS)
@pytest.mark.parametrize("messages", [(USER,), (SYSTEM, USER)])
@pytest.mark.parametrize("tools", [None, [TOOL]])
def test_prompts_are_the_same_ids(
    family: str, messages: tuple[Message, ...], tools: list[Any] | None
) -> None:
    ours = template_of(family).encode_prompt(Prompt("p", messages=messages), tools=tools)
    theirs = renderer_of(family).render_ids(list(messages), tools=tools, add_generation_prompt=True)
    assert list(ours) == list(theirs)


@pytest.mark.parametrize("family", RENDERERS)
@pytest.mark.parametrize("ended", [True, False])
@pytest.mark.parametrize("following", [AGAIN, RESULT], ids=["user", "tool"])
@pytest.mark.parametrize("answer", ["The result is 391.", "<think>\nhm\n</think>\n\n391"])
def test_a_turn_behind_a_completion_is_the_same_ids(
    family: str, ended: bool, following: Message, answer: str
) -> None:
    template = template_of(family)
    prompt = template.encode_prompt(Prompt("p", messages=(USER,)))
    stop = (template.tokenizer.token_to_id(FAMILIES[family].end),)
    completion = template.encode(answer) + (stop if ended else ())
    bridged = renderer_of(family).bridge_to_next_turn(
        previous_prompt_ids=list(prompt),
        previous_completion_ids=list(completion),
        new_messages=[following],
    )
    if bridged is None:
        assert template.rewrites(str(following["role"])) is not None
        return
    ours = [*prompt, *completion, *template.continuation(completion, [following])]
    assert ours == list(bridged.token_ids)
