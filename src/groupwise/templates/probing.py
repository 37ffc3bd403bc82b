"""Finds out by trial what a tokenizer and a chat template add to a text.

Model folders describe this in many ways, not always correctly; the result for a short text is
reliable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokenizers import Tokenizer

from groupwise.errors import RecipeError
from groupwise.templates.chat import render_chat

if TYPE_CHECKING:
    from groupwise.templates.template import Template


def ids_put_in_front(
    tokenizer: Tokenizer, bos_id: int | None, add_bos: bool | None
) -> tuple[int, ...]:
    """The ids before every text: what the post-processor puts there, and the settings' BOS."""
    bare = tokenizer.encode("a", add_special_tokens=False).ids
    full = tokenizer.encode("a", add_special_tokens=True).ids
    starts = range(len(full) - len(bare) + 1 if bare else 0)
    start = next((at for at in starts if full[at : at + len(bare)] == bare), 0)
    prefix = tuple(full[:start])
    if add_bos is False:
        return tuple(i for i in prefix if i != bos_id)
    if add_bos and bos_id is not None and bos_id not in prefix:
        return (bos_id, *prefix)
    return prefix


def chat_writes_bos(template: Template) -> bool:
    """True where the chat template writes `bos_token`.

    Tried with another text for it: a template like ChatML's begins with a marker that may be the
    same token as BOS, and that is not a BOS.
    """
    if template.chat_template is None or "bos_token" not in template.chat_template:
        return False
    marker = "\N{INVISIBLE SEPARATOR}bos\N{INVISIBLE SEPARATOR}"
    try:
        text = render_chat(
            template.chat_template,
            [{"role": "user", "content": "x"}],
            now=template.now,
            special_tokens={**template.special_tokens, "bos_token": marker},
            add_generation_prompt=True,
            **template.variables,
        )
    except RecipeError:
        return False
    return text.startswith(marker)


def turn_end_id(template: Template) -> int | None:
    """The special token that the chat template writes right after an assistant's message."""
    if template.chat_template is None:
        return None
    content = "groupwise"
    chat = [{"role": "user", "content": "x"}, {"role": "assistant", "content": content}]
    try:
        text = template.render(chat, add_generation_prompt=False)
    except RecipeError:
        return None
    _, found, behind = text.rpartition(content)
    ending = template.encode(behind.lstrip())[:1] if found else ()
    added = template.tokenizer.get_added_tokens_decoder()
    return next((each for each in ending if each in added and added[each].special), None)
