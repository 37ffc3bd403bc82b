"""One client's requests as token ids: a history that goes on keeps the ids that were sampled.

Every answer is kept with the history that it ends. A request whose history begins with one of them
is that answer's ids and the ids of what follows; only what is new is encoded. A request that begins
with none of them is encoded whole, as the first one is, and starts a branch.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections import Counter, deque
from dataclasses import dataclass
from typing import Any

from groupwise.environments.wrappers import with_tools
from groupwise.errors import RecipeError
from groupwise.serving.protocol import ApiError, Asked, Choice, History
from groupwise.templates import Template, parse_tool_calls, tool_style
from groupwise.types import Completion, Prompt, Request, Turn


@dataclass(eq=False, slots=True)
class Node:
    """A history that an answer ends, its ids, and the turns of its branch; `depth` counts the
    answers in it, `is_end` is False once a later answer is behind it."""

    history: History
    ids: tuple[int, ...]
    turns: list[Turn]
    depth: int
    is_end: bool = True


@dataclass(frozen=True, eq=False, slots=True)
class Draw:
    """One choice of a request, as the sampler is asked for it."""

    asked: Asked
    parent: Node | None
    request: Request

    @property
    def depth(self) -> int:
        """Answers before this one in its history."""
        return 0 if self.parent is None else self.parent.depth


class Conversation(ABC):
    """The requests of one client.

    `branches` are its sequences of turns, `main` is the one that grew last. `counts` has
    `rewrites`, the requests whose history does not go on from the end of a branch, and
    `malformed_calls`, the completions with a tool call that cannot be read. With `keep` the last
    so many answers are known and nothing else is kept.
    """

    def __init__(self, template: Template, *, keep: int | None = None) -> None:
        self.template = template
        self.keeps_all = keep is None
        self.nodes: deque[Node] = deque(maxlen=keep)
        self.branches: list[list[Turn]] = []
        self.main: list[Turn] = []
        self.counts: Counter[str] = Counter()
        self._drawn: Counter[tuple[int, ...]] = Counter()
        self._stops = {(each,) for each in template.stop_ids}

    @abstractmethod
    def request(self, asked: Asked, ids: tuple[int, ...], depth: int, name: str) -> Request:
        """The sampler's request. `name` tells this draw from the conversation's others by what it
        follows, not by when it came. Raises ApiError where no token is left for it."""

    def check_rewrite(self, asked: Asked) -> None:  # noqa: B027 (nothing is refused by default)
        """Raises ApiError to refuse a request that does not go on from the end of a branch."""

    def draws(self, asked: Asked) -> list[Draw]:
        """A request's choices. Raises ApiError, for what the chat template or the tokenizer refuse
        too."""
        parent, more = self._longest(asked.history)
        if self._drawn and (parent is None or not parent.is_end):
            self.check_rewrite(asked)
            self.counts["rewrites"] += 1
        try:
            ids = self._encoded(asked.history) if parent is None else self._behind(parent, more)
        except RecipeError as error:
            raise ApiError(str(error), param="messages" if asked.is_chat else "prompt") from error
        digest = hashlib.sha256(repr(ids).encode()).hexdigest()
        first, depth = self._drawn[ids], 0 if parent is None else parent.depth
        made = [
            Draw(asked, parent, self.request(asked, ids, depth, f"{digest} {number}"))
            for number in range(first, first + asked.n)
        ]
        if self.keeps_all:
            self._drawn[ids] += asked.n
        return made

    def take(self, draw: Draw, completion: Completion) -> Choice:
        """Keeps what was sampled, as the next turn of its branch or the first of a new one."""
        parent, ids = draw.parent, draw.request.prompt_ids
        if parent is not None and parent.is_end:
            turns, context = parent.turns, ids[len(parent.ids) :]
            parent.is_end = False
        else:
            turns, context = [], ids
            if self.keeps_all:
                self.branches.append(turns)
        turns.append(Turn(context, completion))
        self.main = turns
        message = self._message(draw, completion)
        if self._goes_on(draw.asked, completion):
            history = draw.asked.history + _said(draw.asked, message, completion)
            self.nodes.append(Node(history, ids + completion.token_ids, turns, draw.depth + 1))
        return self._choice(draw, completion, message)

    def _goes_on(self, asked: Asked, completion: Completion) -> bool:
        """Whether a history can go on from this answer. A raw text cannot behind a stop id, which
        it does not hold; and texts of unrelated clients begin alike by chance."""
        if not isinstance(asked.history.content, str):
            return True
        return self.keeps_all and completion.token_ids[-1:] not in self._stops

    # --- histories to ids -----------------------------------------------------------------------

    def _longest(self, history: History) -> tuple[Node | None, Any]:
        """The longest known history that this one begins with, and what follows it; the newest of
        equals."""
        best: Node | None = None
        more: Any = None
        for node in self.nodes:
            follows = history.after(node.history)
            if follows is not None and (best is None or len(node.history) >= len(best.history)):
                best, more = node, follows
        return best, more

    def _encoded(self, history: History) -> tuple[int, ...]:
        content: Any = history.content
        if history.is_chat:
            prompt = Prompt("request", messages=content, tools=history.tools)
            if history.tools:
                prompt = with_tools(prompt, history.tools, self.template)
            return self.template.encode_prompt(prompt)
        if isinstance(content, str):
            return self.template.encode_prompt(Prompt("request", text=content))
        unknown = [each for each in content if each >= self.template.vocab_size]
        if unknown:
            raise RecipeError(f"prompt holds the id {unknown[0]}, which the model does not have")
        return tuple(content)

    def _behind(self, node: Node, more: Any) -> tuple[int, ...]:
        """The ids of a known history and of what follows it; what was sampled is not encoded."""
        if isinstance(more, str):
            return node.ids + (self.template.encode(more) if more else ())
        if not node.history.is_chat:
            return (*node.ids, *more)
        tools: dict[str, Any] = {"tools": list(node.history.tools)} if node.history.tools else {}
        return node.ids + self.template.continuation(node.ids, more, **tools)

    # --- completions to answers -----------------------------------------------------------------

    def _message(self, draw: Draw, completion: Completion) -> dict[str, Any]:
        """The answer's message, without the stop string that ended it."""
        text = completion.text
        for stop in draw.asked.stop:
            text = text.removesuffix(stop)
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if not draw.asked.calls:
            return message
        parsed = parse_tool_calls(text, tool_style(self.template, draw.asked.history.tools))
        self.counts["malformed_calls"] += bool(parsed.errors)
        if not parsed.calls:
            return message
        calls = [
            {
                "type": "function",
                # Nine characters, as some templates want, and others in every turn.
                "id": f"call{(100 * draw.depth + place) % 100_000:05d}",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for place, call in enumerate(parsed.calls)
        ]
        return {**message, "content": parsed.text, "tool_calls": calls}

    def _choice(self, draw: Draw, completion: Completion, message: dict[str, Any]) -> Choice:
        reason = "length" if completion.finish_reason in ("length", "deadline") else "stop"
        ids = completion.token_ids if draw.asked.logprobs else ()
        texts = [self.template.decode([each]) for each in ids]
        return Choice(
            message=message,
            finish_reason="tool_calls" if "tool_calls" in message else reason,
            prompt_tokens=len(draw.request.prompt_ids),
            completion_tokens=completion.num_tokens,
            tokens=tuple(zip(texts, completion.sampler_logprobs)),
        )


def _said(asked: Asked, message: dict[str, Any], completion: Completion) -> Any:
    """What a history that goes on holds of an answer: the message as `read_messages` reads it, the
    whole text with its stop string, or the ids."""
    if asked.is_chat:
        return ({**message, "content": message["content"].strip()},)
    return completion.text if isinstance(asked.history.content, str) else completion.token_ids
