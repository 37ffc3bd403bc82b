"""A tokenizer with its chat template and special ids: messages to ids, ids to text.

Sampled ids are never re-encoded: text goes to ids for prompts only. Left out: finding these parts
in a model folder (folder.py), the jinja2 environment (chat.py), stop strings (stops.py).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from groupwise.errors import RecipeError
from groupwise.templates.chat import render_chat
from groupwise.templates.folder import TemplateParts, read_folder
from groupwise.templates.stops import StopStrings
from groupwise.types import Message, Prompt

_STAND_IN = "groupwiseStandIn"
"""A word that stands for a text in a chat, to find where a template puts that text."""
_OPEN_THINK = re.compile(r"<(?!/)[^<>\s]*(?:think|thought|reason)[^<>\s/]*>\s*\Z", re.IGNORECASE)


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
        """
        self.tokenizer = tokenizer
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self.chat_template = chat_template
        self.special_tokens = dict(special_tokens or {})
        self.now = now or datetime.now()
        self.vocab_size: int = tokenizer.get_vocab_size(with_added_tokens=True)
        self.bos_id = self._special_id("bos_token")
        self.eos_id = self._special_id("eos_token")
        self._turn_end = self._turn_end_id()
        known = (*stop_ids, self.eos_id, self._turn_end)
        self.stop_ids: frozenset[int] = frozenset(i for i in known if i is not None)
        pad = pad_id if pad_id is not None else self._special_id("pad_token")
        self.pad_id: int = pad if pad is not None else min(self.stop_ids, default=0)
        self._prefix = self._ids_put_in_front(add_bos)
        self._one_bos = self.bos_id is not None and (
            self.bos_id in self._prefix or self._chat_writes_bos()
        )
        self._dropped = self.stop_ids | {
            i for i in (self.bos_id, self.eos_id, pad) if i is not None
        }

    @classmethod
    def from_folder(cls, path: str | Path, *, now: datetime | None = None) -> Template:
        """The template of a model folder. Raises RecipeError where it holds no tokenizer."""
        return cls.from_parts(read_folder(Path(path)), now=now)

    @classmethod
    def from_parts(cls, parts: TemplateParts, *, now: datetime | None = None) -> Template:
        return cls(
            parts.tokenizer,
            parts.chat_template,
            special_tokens=parts.special_tokens,
            stop_ids=parts.stop_ids,
            pad_id=parts.pad_id,
            add_bos=parts.add_bos,
            now=now,
        )

    # Text to ids: prompts only.

    def render(
        self, messages: Sequence[Message], *, add_generation_prompt: bool = True, **variables: Any
    ) -> str:
        """A chat as the text the model reads. Raises RecipeError without a chat template."""
        if self.chat_template is None:
            raise RecipeError(
                "chat template: the model has none, and the prompts are chats; give prompts as "
                "text, or a model folder with a chat_template.jinja"
            )
        return render_chat(
            self.chat_template,
            messages,
            now=self.now,
            special_tokens=self.special_tokens,
            add_generation_prompt=add_generation_prompt,
            **variables,
        )

    def encode(self, text: str) -> tuple[int, ...]:
        """The ids of a text, special tokens in it recognised, nothing put in front or behind."""
        return tuple(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def encode_prompt(self, prompt: Prompt, **variables: Any) -> tuple[int, ...]:
        """The ids of a prompt: a chat with its generation prompt, or raw text as it is.

        Exactly one BOS is at the front wherever the tokenizer adds one or the chat template writes
        one; never two. `variables` reach the chat template. Raises RecipeError where the prompt
        has no tokens or holds a lone surrogate.
        """
        text = self.render(prompt.messages, **variables) if prompt.text is None else prompt.text
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise RecipeError(
                f"prompt {prompt.id!r}: holds {text[error.start]!r}, half of a surrogate pair, "
                "which is no character; write the whole character or take it out"
            ) from error
        ids = self.encode(text)
        if prompt.text is not None and ids[: len(self._prefix)] != self._prefix:
            ids = self._prefix + ids
        ids = self._with_one_bos(ids)
        if not ids:
            raise RecipeError(f"prompt {prompt.id!r}: has no tokens; give one that is not empty")
        return ids

    def _with_one_bos(self, ids: tuple[int, ...]) -> tuple[int, ...]:
        if not self._one_bos:
            return ids
        start = 0
        while start < len(ids) and ids[start] == self.bos_id:
            start += 1
        if start == 0 and self.bos_id in ids[: len(self._prefix)]:
            return ids  # the tokenizer's own prefix holds it further in
        assert self.bos_id is not None
        return (self.bos_id, *ids[start:])

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
        if not messages:
            raise ValueError("a continuation needs at least one message")
        apart = {
            f"{_STAND_IN}{number}x": str(message["content"])
            for number, message in enumerate(messages)
            if self._holds_markers(message.get("content"))
        }
        shown: list[Message] = [
            {**message, "content": name} if (name := f"{_STAND_IN}{number}x") in apart else message
            for number, message in enumerate(messages)
        ]
        # What a template writes behind an answer does not depend on what was said before it.
        chat = [{"role": "user", "content": "x"}, {"role": "assistant", "content": _STAND_IN}]
        text = self.render(
            [*chat, *shown], add_generation_prompt=add_generation_prompt, **variables
        )
        behind = text.partition(_STAND_IN)[2]
        self._check_told(shown, behind)
        if completion_ids and completion_ids[-1] in self.stop_ids:
            closing = self.encode(behind.lstrip())
            if closing and closing[0] in (completion_ids[-1], self._turn_end):
                behind = behind.lstrip().removeprefix(self.decode(closing[:1]))
        return self._encode_pieces(behind, apart)

    def rewrites(self, role: str = "user", **variables: Any) -> str | None:
        """What the chat template does to a completion once a message of `role` follows it.

        None where every id before that message stays as it was sampled; else one sentence part:
        templates of thinking models drop earlier thinking, others move the list of tools. Found by
        trying, with and without a `<think>` section. Raises RecipeError where the template does
        not take such a message.
        """
        first: Message = {"role": "user", "content": "x"}
        last: Message = {
            "role": role,
            "content": "ending",
            "name": "f",
            "tool_call_id": "call00000",
        }
        prompt = self.render([first], **variables)
        opened = _OPEN_THINK.search(prompt)
        thinking = f"{_STAND_IN}\n</think>\n\n{_STAND_IN}"
        for completion in (thinking,) if opened else (_STAND_IN, f"<think>\n{thinking}"):
            answer: Message = {"role": "assistant", "content": completion}
            text = self.render([first, answer, last], **variables)
            self._check_told([last], text)
            if text.startswith(prompt + completion):
                continue
            if text.count(_STAND_IN) == completion.count(_STAND_IN):
                return "writes an earlier completion, or what stands before it, differently"
            return "drops the thinking of an earlier completion"
        return None

    def _check_told(self, messages: Sequence[Message], text: str) -> None:
        """RecipeError where a message is not in the text: some templates pass over roles."""
        for message in messages:
            content = message.get("content")
            if not isinstance(content, str):
                continue
            if content.strip() not in text and json.dumps(content)[1:-1] not in text:
                raise RecipeError(
                    f"messages: the chat template leaves out a message of the role "
                    f"{message.get('role')!r}; use a model whose template writes it"
                )

    def _holds_markers(self, content: Any) -> bool:
        return isinstance(content, str) and any(marker in content for marker in self._markers)

    @cached_property
    def _markers(self) -> tuple[str, ...]:
        """The texts of all special tokens."""
        added = self.tokenizer.get_added_tokens_decoder().values()
        return tuple(token.content for token in added if token.special)

    def _encode_pieces(self, text: str, apart: Mapping[str, str]) -> tuple[int, ...]:
        """The ids of a text in which each key of `apart` stands for a text without markers.

        A tool may return a text that looks like an end marker; it must not end a turn.
        """
        for name, content in apart.items():
            before, found, after = text.partition(name)
            if found:
                self.tokenizer.encode_special_tokens = True
                try:
                    plain = self.encode(content)
                finally:
                    self.tokenizer.encode_special_tokens = False
                rest = {key: value for key, value in apart.items() if key != name}
                return self._encode_pieces(before, {}) + plain + self._encode_pieces(after, rest)
        return self.encode(text)

    # Ids to text: completions.

    def decode(self, ids: Sequence[int]) -> str:
        """The text of any ids, every special token kept."""
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=False))

    def decode_completion(self, ids: Sequence[int]) -> str:
        """The text of a completion: pad, BOS, EOS and stop ids dropped, every other tag kept."""
        return self.decode([i for i in ids if i not in self._dropped])

    def stop_strings(self, strings: Sequence[str]) -> StopStrings:
        """A matcher of `strings` over this template's decoding."""
        return StopStrings(strings, self.decode_completion)

    @cached_property
    def prefill(self) -> str:
        """What the generation prompt opens for the model, `<think>` and the like; else empty.

        A format verifier has to put it back in front of the completion.
        """
        if self.chat_template is None:
            return ""
        try:
            text = self.render([{"role": "user", "content": "x"}])
        except RecipeError:
            return ""
        found = _OPEN_THINK.search(text)
        return found.group(0) if found else ""

    @cached_property
    def hash(self) -> str:
        """sha256 of tokenizer, chat template and special ids: what decides ids and text."""
        content = json.dumps(
            {
                "tokenizer": json.loads(self.tokenizer.to_str()),
                "chat_template": self.chat_template,
                "special_tokens": self.special_tokens,
                "stop_ids": sorted(self.stop_ids),
                "pad_id": self.pad_id,
            },
            sort_keys=True,
            ensure_ascii=True,
        )
        return hashlib.sha256(content.encode()).hexdigest()

    # What the tokenizer and the chat template do by themselves, found by trying them.

    def _special_id(self, name: str) -> int | None:
        text = self.special_tokens.get(name)
        found: int | None = None if text is None else self.tokenizer.token_to_id(text)
        return found

    def _ids_put_in_front(self, add_bos: bool | None) -> tuple[int, ...]:
        """The ids before every text: what the post-processor puts there, and the settings' BOS."""
        bare = self.tokenizer.encode("a", add_special_tokens=False).ids
        full = self.tokenizer.encode("a", add_special_tokens=True).ids
        prefix: tuple[int, ...] = ()
        for start in range(len(full) - len(bare) + 1):
            if bare and full[start : start + len(bare)] == bare:
                prefix = tuple(full[:start])
                break
        if add_bos is False:
            return tuple(i for i in prefix if i != self.bos_id)
        if add_bos and self.bos_id is not None and self.bos_id not in prefix:
            return (self.bos_id, *prefix)
        return prefix

    def _chat_writes_bos(self) -> bool:
        """True where the chat template writes `bos_token`.

        Tried with another text for it: a template like ChatML's begins with a marker that may be
        the same token as BOS, and that is not a BOS.
        """
        if self.chat_template is None or "bos_token" not in self.chat_template:
            return False
        marker = "\N{INVISIBLE SEPARATOR}bos\N{INVISIBLE SEPARATOR}"
        try:
            text = render_chat(
                self.chat_template,
                [{"role": "user", "content": "x"}],
                now=self.now,
                special_tokens={**self.special_tokens, "bos_token": marker},
                add_generation_prompt=True,
            )
        except RecipeError:
            return False
        return text.startswith(marker)

    def _turn_end_id(self) -> int | None:
        """The special token that the chat template writes right after an assistant's message."""
        if self.chat_template is None:
            return None
        content = "groupwise"
        chat = [{"role": "user", "content": "x"}, {"role": "assistant", "content": content}]
        try:
            text = self.render(chat, add_generation_prompt=False)
        except RecipeError:
            return None
        at = text.rfind(content)
        if at < 0:
            return None
        rest = self.encode(text[at + len(content) :].lstrip())
        added = self.tokenizer.get_added_tokens_decoder()
        if rest and rest[0] in added and added[rest[0]].special:
            return rest[0]
        return None
