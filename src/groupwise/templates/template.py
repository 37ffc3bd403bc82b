"""A tokenizer with its chat template and special ids: messages to ids, ids to text.

Sampled ids are never re-encoded: text goes to ids for prompts only.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property, lru_cache
from itertools import dropwhile
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from groupwise.errors import RecipeError
from groupwise.suggestions import nearest
from groupwise.templates.chat import RESERVED, chat_variables, render_chat
from groupwise.templates.folder import (
    read_chat_template,
    read_ids,
    read_json,
    read_special_tokens,
    read_tokenizer,
)
from groupwise.templates.probing import chat_writes_bos, ids_put_in_front, turn_end_id
from groupwise.templates.stops import StopStrings
from groupwise.templates.tool_calls import ResponseParser
from groupwise.templates.turns import follow_up, opened_tag, rewriting
from groupwise.types import Message, Prompt


class Template:
    """Everything about a model that concerns text, ids and nothing else.

    `bos_id` and `pad_id` may be None; `stop_ids` are all ids that end a completion.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        chat_template: str | None,
        *,
        special_tokens: Mapping[str, str] | None = None,
        stop_ids: Sequence[int] = (),
        pad_id: int | None = None,
        add_bos: bool | None = None,
        now: datetime | None = None,
        variables: Mapping[str, Any] | None = None,
        response_template: Mapping[str, Any] | None = None,
        response_parser: ResponseParser | None = None,
    ) -> None:
        """Args:
        tokenizer: encodes and decodes; its post-processor says which ids it puts in front.
        chat_template: jinja text, or None where the model has no chat format.
        special_tokens: texts of `bos_token`, `eos_token`, `pad_token`, ... (chat variables too).
        stop_ids: ids known to end a completion, beside `eos_token` and the chat's end marker.
        pad_id: id for padding; default the pad token, else a stop id, else 0.
        add_bos: whether the model's settings say that BOS is put in front of a text; None where
            they do not say, and what the tokenizer does by itself decides.
        now: what a chat template gets for today; fixed here so that one object always renders
            one text. Default: the time of construction.
        variables: what the chat template gets in every chat, as `enable_thinking`.
        response_template: how the family writes a message, by the model's own description.
        response_parser: reads a completion by that description; needs transformers, so the loader
            of a model gives it.
        """
        self.tokenizer = tokenizer
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self.chat_template = chat_template
        self.special_tokens = dict(special_tokens or {})
        self.now = now or datetime.now()
        self.variables = dict(variables or {})
        self.response_template = response_template
        self.response_parser = response_parser
        self._add_bos = add_bos
        self.vocab_size: int = tokenizer.get_vocab_size(with_added_tokens=True)
        self.bos_id = self._special_id("bos_token")
        self.eos_id = self._special_id("eos_token")
        self.turn_end_id = turn_end_id(self)
        known = (*stop_ids, self.eos_id, self.turn_end_id)
        self.stop_ids: frozenset[int] = frozenset(i for i in known if i is not None)
        pad = pad_id if pad_id is not None else self._special_id("pad_token")
        self.pad_id: int = pad if pad is not None else min(self.stop_ids, default=0)
        self._prefix = ids_put_in_front(tokenizer, self.bos_id, add_bos)
        has_bos = self.bos_id is not None
        self._one_bos = has_bos and (self.bos_id in self._prefix or chat_writes_bos(self))
        self._dropped = {*self.stop_ids, self.bos_id, self.eos_id, pad} - {None}

    @classmethod
    def from_folder(cls, path: str | Path, *, now: datetime | None = None) -> Template:
        """The template of a model folder. Raises RecipeError where it holds no tokenizer."""
        folder = Path(path)
        tokenizer = read_tokenizer(folder)
        stop_ids, pad_id = read_ids(folder)
        settings = read_json(folder / "tokenizer_config.json")
        add_bos = settings.get("add_bos_token")
        return cls(
            tokenizer,
            read_chat_template(folder, settings),
            special_tokens=read_special_tokens(folder, settings),
            stop_ids=stop_ids,
            pad_id=pad_id,
            add_bos=add_bos if isinstance(add_bos, bool) else None,
            now=now,
            response_template=settings.get("response_template"),
        )

    def with_variables(self, variables: Mapping[str, Any], now: datetime | None = None) -> Template:
        """The same template that gets `variables` in every chat, and `now` for today.

        Raises RecipeError for a variable that the chat template does not read, with the nearest
        name: a misspelt `enable_thinking` would change nothing, in silence.
        """
        read = chat_variables(self.chat_template or "") - {*RESERVED, *self.special_tokens}
        for name in variables:
            if name not in read:
                near = nearest(name, read)
                known = f"it reads {', '.join(sorted(read)) or 'none'}"
                hint = f"did you mean {near!r}?" if near else known
                raise RecipeError(f"the chat template does not read {name!r}; {hint}")
        return Template(
            self.tokenizer,
            self.chat_template,
            special_tokens=self.special_tokens,
            stop_ids=tuple(self.stop_ids),
            pad_id=self.pad_id,
            add_bos=self._add_bos,
            now=now or self.now,
            variables={**self.variables, **variables},
            response_template=self.response_template,
            response_parser=self.response_parser,
        )

    @property
    def reads_clock(self) -> bool:
        """Whether the chat template writes today's date."""
        return "strftime_now" in (self.chat_template or "")

    # Text to ids: prompts only.

    def render(
        self, messages: Sequence[Message], *, add_generation_prompt: bool = True, **variables: Any
    ) -> str:
        """A chat as the text the model reads. Raises RecipeError without a chat template."""
        if self.chat_template is None:
            raise RecipeError(
                "chat template: the model has none, and the prompts are chats; give prompts as "
                "raw text (dataset: chat = false), or a model folder with a chat_template.jinja"
            )
        return render_chat(
            self.chat_template,
            messages,
            now=self.now,
            special_tokens=self.special_tokens,
            add_generation_prompt=add_generation_prompt,
            **{**self.variables, **variables},
        )

    def encode(self, text: str, *, markers: bool = True) -> tuple[int, ...]:
        """The ids of a text, nothing put in front or behind.

        Special tokens in it are recognised; with `markers` False they are plain text.
        """
        tokenizer = self.tokenizer if markers else self._without_markers
        return tuple(tokenizer.encode(text, add_special_tokens=False).ids)

    def encode_prompt(self, prompt: Prompt, **variables: Any) -> tuple[int, ...]:
        """The ids of a prompt: a chat with its generation prompt, or raw text as it is.

        Exactly one BOS is at the front wherever the tokenizer adds one or the chat template writes
        one; never two. `variables` reach the chat template, and so do the prompt's own tools
        unless `variables` has others. Raises RecipeError if the prompt has no tokens or holds a
        lone surrogate.
        """
        if prompt.tools:
            variables = {"tools": list(prompt.tools), **variables}
        text = self.render(prompt.messages, **variables) if prompt.text is None else prompt.text
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise RecipeError(
                f"prompt {prompt.id!r}: holds {text[error.start]!r}, half of a surrogate pair, "
                "which is not a character; write the whole character or remove it"
            ) from error
        ids = self.encode(text)
        if prompt.text is not None and ids[: len(self._prefix)] != self._prefix:
            ids = self._prefix + ids
        ids = self._with_one_bos(ids)
        if not ids:
            raise RecipeError(
                f"prompt {prompt.id!r}: is empty; give a text with at least one token"
            )
        return ids

    def _with_one_bos(self, ids: tuple[int, ...]) -> tuple[int, ...]:
        if not self._one_bos or self.bos_id is None:
            return ids
        if ids[:1] != (self.bos_id,) and self.bos_id in ids[: len(self._prefix)]:
            return ids  # the tokenizer's own prefix holds it further in
        return (self.bos_id, *dropwhile(lambda each: each == self.bos_id, ids))

    # A further turn: ids behind a sampled completion.

    def continuation(
        self,
        completion_ids: Sequence[int],
        messages: Sequence[Message],
        *,
        add_generation_prompt: bool = True,
        **variables: Any,
    ) -> tuple[int, ...]:
        """The ids that `messages` (tool results, a user's answer) add behind a sampled completion.

        The history grows by concatenation: context ids + completion ids + these. They close the
        assistant's turn, unless the policy did with a stop id of its own, hold the messages, and
        open the next turn. Nothing that was sampled is encoded again, so what the template would
        do to it (drop its thinking) does not happen: `rewrites` says whether it would.

        Args:
            completion_ids: what the policy sampled, the stop id included where there is one.
            messages: what follows, at least one message.
            variables: reach the chat template, `tools` among them.
        Raises:
            RecipeError: the template does not take such a chat.
        """
        return follow_up(
            self,
            completion_ids,
            messages,
            add_generation_prompt=add_generation_prompt,
            **variables,
        )

    def rewrites(self, role: str = "user", *, system: bool = False, **variables: Any) -> str | None:
        """What the chat template does to a completion once a message of `role` follows it.

        None where every id before that message stays as it was sampled; else what happens, in
        words: templates of thinking models drop earlier thinking, others move the system message
        (`system`: the chat has one) or the list of `tools`. Found by trying, with and without a
        `<think>` section. Raises RecipeError where the template takes no such message.
        """
        return rewriting(self, role, system, **variables)

    @cached_property
    def markers(self) -> tuple[str, ...]:
        added = self.tokenizer.get_added_tokens_decoder().values()
        return tuple(token.content for token in added if token.special)

    @cached_property
    def _without_markers(self) -> Tokenizer:
        """The tokenizer, special tokens not recognised; its own object, for threads share it."""
        found = Tokenizer.from_str(self.tokenizer.to_str())
        found.encode_special_tokens = True
        return found

    @lru_cache(maxsize=8)  # noqa: B019 - a template lives as long as its policy
    def absent_ids(self, rows: int) -> tuple[int, ...]:
        """The ids below `rows` that no token has: a padded vocabulary's, and gaps between tokens.

        >>> from tokenizers import Tokenizer, models
        >>> Template(Tokenizer(models.WordLevel({"a": 0, "b": 2}, "a")), None).absent_ids(5)
        (1, 3, 4)
        """
        known = set(self.tokenizer.get_vocab(with_added_tokens=True).values())
        rest = [each for each in range(rows) if each not in known]
        return tuple(each for each in rest if self.tokenizer.id_to_token(each) is None)

    # Ids to text: completions.

    def decode(self, ids: Sequence[int]) -> str:
        """The text of any ids, every special token kept."""
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=False))

    def decode_completion(self, ids: Sequence[int]) -> str:
        """The text of a completion: pad, BOS, EOS and stop ids dropped, every other tag kept."""
        return self.decode([i for i in ids if i not in self._dropped])

    def stop_strings(self, strings: Sequence[str]) -> StopStrings:
        return StopStrings(strings, self.decode_completion)

    @cached_property
    def prefill(self) -> str:
        """What the generation prompt opens for the model, `<think>` and the like; else empty.

        A format verifier has to put it back in front of the completion.
        """
        try:
            return opened_tag(self.render([{"role": "user", "content": "x"}]))
        except RecipeError:
            return ""

    def opened(self, prompt: Prompt) -> str:
        """The reasoning tag that the prompt's end opens for the completion; empty where none."""
        return self.prefill if prompt.text is None else opened_tag(prompt.text)

    @cached_property
    def hash(self) -> str:
        """sha256 of what decides ids and text: tokenizer, chat template and variables, special ids.

        The date is part of it where the chat template writes it.
        """
        content = json.dumps(
            {
                "tokenizer": json.loads(self.tokenizer.to_str()),
                "chat_template": self.chat_template,
                "special_tokens": self.special_tokens,
                "stop_ids": sorted(self.stop_ids),
                "pad_id": self.pad_id,
                "variables": self.variables,
                "today": self.now.date().isoformat() if self.reads_clock else None,
            },
            sort_keys=True,
            ensure_ascii=True,
        )
        return hashlib.sha256(content.encode()).hexdigest()

    def _special_id(self, name: str) -> int | None:
        text = self.special_tokens.get(name)
        found: int | None = None if text is None else self.tokenizer.token_to_id(text)
        return found


def differing_tokenizers(one: Template, other: Template) -> str | None:
    """How two models' tokenizers differ, in words; None where every id is the same token.

    Compared are the tokens and their ids, not the chat templates.
    """
    a, b = (each.tokenizer.get_vocab(with_added_tokens=True) for each in (one, other))
    if a == b:
        return None
    if len(a) != len(b):
        return f"{len(a)} tokens and {len(b)} tokens"
    token = min(text for text in a.keys() | b.keys() if a.get(text) != b.get(text))
    return f"token {token!r} has the id {a.get(token)} in one and {b.get(token)} in the other"
