"""Chat templates of real models, as they were published, each with a small tokenizer of its marks.

The texts are in `fixtures/`, whose README says where each is from. The tokenizer is a byte-level
BPE that knows the family's markers as special tokens: boundaries between markers and text are
those of the real one, the pieces of text between them are not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from tokenizers import processors

from groupwise.templates import Template
from toy_tokenizers import byte_bpe

TOOL = {
    "type": "function",
    "function": {
        "name": "multiply",
        "description": "Multiplies two numbers.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
        },
    },
}
FIXTURES = Path(__file__).parent / "fixtures"


@dataclass(frozen=True)
class Family:
    """A template's file, its sha256, and what is known of the model's tokenizer.

    `adds_bos`: its post-processor puts BOS in front. `after_user` and `after_tool`: what the
    template does to an earlier completion once such a message follows (None: nothing; "refused":
    it takes no such message).
    """

    file: str
    sha256: str
    markers: tuple[str, ...]
    end: str
    eos: str
    bos: str | None = None
    adds_bos: bool = False
    after_user: str | None = None
    after_tool: str | None = None
    tools: bool = False
    variables: Mapping[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return (FIXTURES / self.file).read_bytes().decode()


DROPS = "drops the thinking of an earlier completion"
MOVES = "writes an earlier completion, or what stands before it, differently"
IM = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")
HERMES = (*IM, "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
LLAMA = (
    "<|begin_of_text|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<|python_tag|>",
)
MISTRAL = (
    "<s>",
    "</s>",
    "[INST]",
    "[/INST]",
    "[AVAILABLE_TOOLS]",
    "[/AVAILABLE_TOOLS]",
    "[TOOL_CALLS]",
    "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]",
)
DEEPSEEK = (
    "<｜begin▁of▁sentence｜>",
    "<｜end▁of▁sentence｜>",
    "<｜User｜>",
    "<｜Assistant｜>",
    "<｜tool▁outputs▁begin｜>",
    "<｜tool▁outputs▁end｜>",
    "<｜tool▁output▁begin｜>",
    "<｜tool▁output▁end｜>",
)

FAMILIES: dict[str, Family] = {
    "smollm2": Family(
        "smollm2.jinja",
        "872be49dbb638044ad01b60388f48d469ff2980e5f0dccdc22ec907db54d0788",
        IM,
        end="<|im_end|>",
        eos="<|im_end|>",
        bos="<|im_start|>",
    ),
    "llama3": Family(
        "llama3.jinja",
        "ba03a121d097859c7b5b9cd03af99aafe95275210d2876f642ad9929a150f122",
        LLAMA,
        end="<|eot_id|>",
        eos="<|end_of_text|>",
        bos="<|begin_of_text|>",
        adds_bos=True,
    ),
    "llama3_1": Family(
        "llama3_1.jinja",
        "e10ca381b1ccc5cf9db52e371f3b6651576caee0a630b452e2816b2d404d4b65",
        LLAMA,
        end="<|eot_id|>",
        eos="<|eot_id|>",
        bos="<|begin_of_text|>",
        adds_bos=True,
        tools=True,
    ),
    "llama3_2": Family(
        "llama3_2.jinja",
        "5816fce10444e03c2e9ee1ef8a4a1ea61ae7e69e438613f3b17b69d0426223a4",
        LLAMA,
        end="<|eot_id|>",
        eos="<|eot_id|>",
        bos="<|begin_of_text|>",
        adds_bos=True,
        tools=True,
    ),
    "hermes_3": Family(
        "hermes_3.jinja",
        "7ce09d55d3690e06c70b5c07228cc7e8c99c43a23cdc027762be4011efcdea6c",
        (*HERMES, "<|begin_of_text|>", "<tools>", "</tools>"),
        end="<|im_end|>",
        eos="<|im_end|>",
        bos="<|begin_of_text|>",
        adds_bos=True,
        tools=True,
        variables={"tools": [TOOL]},  # the template that is for tools takes no chat without any
    ),
    "mistral_nemo": Family(
        "mistral_nemo.jinja",
        "e4676cb56dffea7782fd3e2b577cfaf1e123537e6ef49b3ec7caa6c095c62272",
        MISTRAL,
        end="</s>",
        eos="</s>",
        bos="<s>",
        adds_bos=True,
        tools=True,
    ),
    "qwen2_5": Family(
        "qwen2_5.jinja",
        "cd8e9439f0570856fd70470bf8889ebd8b5d1107207f67a5efb46e342330527f",
        HERMES,
        end="<|im_end|>",
        eos="<|im_end|>",
        tools=True,
    ),
    "qwen3": Family(
        "qwen3.jinja",
        "a55ee1b1660128b7098723e0abcd92caa0788061051c62d51cbe87d9cf1974d8",
        (*HERMES, "<think>", "</think>"),
        end="<|im_end|>",
        eos="<|im_end|>",
        after_user=DROPS,
        tools=True,
    ),
    "gemma": Family(
        "gemma.jinja",
        "ecd6ae513fe103f0eb62e8ab5bfa8d0fe45c1074fa398b089c93a7e70c15cfd6",
        ("<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"),
        end="<end_of_turn>",
        eos="<eos>",
        bos="<bos>",
        adds_bos=True,
        after_tool="refused",
    ),
    "phi3_5": Family(
        "phi3_5.jinja",
        "78d976a442bcde2f0be15aafbb8e3050e1104f86732266f68403251b89982a90",
        ("<s>", "<|endoftext|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"),
        end="<|end|>",
        eos="<|endoftext|>",
        bos="<s>",
        after_tool="refused",
    ),
    "deepseek_r1_distill": Family(
        "deepseek_r1_distill.jinja",
        "56a1447ad31926fdc21fb07e56e5642bd9c850c4f52d8c8af7bbe5f079a84f5f",
        (*DEEPSEEK, "<think>", "</think>"),
        end="<｜end▁of▁sentence｜>",
        eos="<｜end▁of▁sentence｜>",
        bos="<｜begin▁of▁sentence｜>",
        adds_bos=True,
        after_user=DROPS,
        after_tool=DROPS,
    ),
}


@lru_cache(maxsize=64)
def template_of(name: str, adds_bos: bool | None = None) -> Template:
    """The family's template over its small tokenizer; `adds_bos` overrides the family's own."""
    family = FAMILIES[name]
    tokenizer = byte_bpe(["What is 17 times 23? The result is 391."], 30, family.markers)
    adds = family.adds_bos if adds_bos is None else adds_bos
    if adds and family.bos is not None:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{family.bos} $A",
            special_tokens=[(family.bos, tokenizer.token_to_id(family.bos))],
        )
    tokens = {"eos_token": family.eos, **({"bos_token": family.bos} if family.bos else {})}
    return Template(
        tokenizer,
        family.text,
        special_tokens=tokens,
        now=datetime(2025, 3, 4, 5, 6),
        variables=family.variables,
    )
