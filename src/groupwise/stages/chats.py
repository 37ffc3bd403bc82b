"""Chat rows as token ids with the mask of what trains: the assistant's tokens, template-exact.

The ids are those of reinforcement learning: a prompt is what the chat template writes before a
turn, a completion what the policy would have sampled in it, up to its stop id. A chat is one
example where each further prompt begins with the ids so far; where the template writes an earlier
turn differently (drops its thinking), the turn begins another example.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import Field

from groupwise.environments.readers import Row
from groupwise.stages.sources import RowData
from groupwise.templates import Template, tool_schemas
from groupwise.templates.turns import STAND_IN, opened_tag
from groupwise.types import Message, Prompt

Turns = Literal["every", "last"]


@dataclass(frozen=True, slots=True)
class TokenExample:
    """One row of ids: what is given, and what follows, with True where a token trains."""

    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    mask: tuple[bool, ...]

    @property
    def size(self) -> int:
        """Tokens that a pass runs over."""
        return len(self.prompt_ids) + max(len(self.completion_ids) - 1, 0)

    @property
    def tokens(self) -> int:
        """Positions that it takes."""
        return len(self.prompt_ids) + len(self.completion_ids)


class ChatData(RowData):
    """One source of chats: rows of `messages`, or of `prompt` and `completion`."""

    columns: ClassVar[tuple[str, ...]] = ("prompt", "messages", "completion")

    messages: str = Field("messages", description="The column with a chat.")
    completion: str = Field(
        "completion", description="The column with what follows the prompt (a text or messages)."
    )

    def examples(self, row: Row, template: Template, turns: Turns) -> list[TokenExample]:
        """A row's examples. Raises ValueError saying what is wrong with it."""
        values = row.values
        if self.messages in values:
            return chat_examples(template, self.messages_of(values[self.messages]), turns, values)
        missing = [name for name in (self.prompt, self.completion) if name not in values]
        if missing:
            raise ValueError(
                f"has neither {self.messages!r} nor {' and '.join(map(repr, missing))}, only "
                f"{', '.join(values) or 'nothing'}"
            )
        prompt, completion = values[self.prompt], values[self.completion]
        if isinstance(prompt, str) and isinstance(completion, str) and not self.chat:
            return [raw_example(template, prompt, completion)]
        messages, first = self.turns(prompt, completion, self.completion)
        return chat_examples(template, messages, turns, values, first)


def chat_examples(
    template: Template,
    messages: Sequence[Message],
    turns: Turns = "every",
    values: Mapping[str, Any] | None = None,
    first: int = 0,
) -> list[TokenExample]:
    """The examples of a chat; of `turns`, the assistant's ones from message `first` on train.

    `values` are the row's columns: its `tools` reach the chat template. Raises ValueError for a
    chat that cannot be learned from, RecipeError where the template refuses it.
    """
    tools = row_tools(values or {})
    places = [n for n, each in enumerate(messages) if n >= first and each["role"] == "assistant"]
    if not places:
        raise ValueError("has no message of the assistant")
    examples: list[TokenExample] = []
    ids: tuple[int, ...] = ()
    for place in places if turns == "every" else places[-1:]:
        before = list(messages[:place])
        if not before:
            raise ValueError("begins with the assistant; put what it answers before it")
        prompt = template.encode_prompt(Prompt("row", tuple(before), tools=tools))
        completion = _completion_ids(template, before, messages[place], tools)
        if examples and prompt[: len(ids)] == ids:
            old, between = examples.pop(), prompt[len(ids) :]
            mask = (*old.mask, *[False] * len(between), *[True] * len(completion))
            ids = (*prompt, *completion)
            examples.append(TokenExample(old.prompt_ids, ids[len(old.prompt_ids) :], mask))
        else:
            ids = (*prompt, *completion)
            examples.append(TokenExample(prompt, completion, (True,) * len(completion)))
    return examples


def check_length(tokens: int, longest: int) -> None:
    """Raises ValueError for an example of more tokens than the model has positions."""
    if tokens > longest:
        raise ValueError(f"is longer than the model's {longest} positions; it has {tokens} tokens")


def row_tools(values: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """The schemas in a row's `tools`, a list or its JSON text. Raises ValueError."""
    try:
        return tool_schemas(values.get("tools"))
    except ValueError as error:
        raise ValueError(f"has tools that cannot be read: 'tools' {error}") from error


def raw_example(template: Template, prompt: str, completion: str) -> TokenExample:
    """A raw text and what follows it, the end of text included."""
    if not completion:
        raise ValueError("has an empty completion")
    ids = _stopped(template, completion, completion)
    return TokenExample(template.encode_prompt(Prompt("row", text=prompt)), ids, (True,) * len(ids))


def _completion_ids(
    template: Template, before: list[Message], message: Message, tools: tuple[Any, ...]
) -> tuple[int, ...]:
    """What the policy would have sampled to say a message, its stop id included."""
    variables: dict[str, Any] = {"tools": list(tools)} if tools else {}
    prefix = template.render(before, **variables)
    whole = template.render([*before, message], add_generation_prompt=False, **variables)
    content = str(message.get("content") or "").strip()
    if not content and not message.get("tool_calls"):
        raise ValueError("has an empty message of the assistant")
    if whole.startswith(prefix) and content in whole[len(prefix) :]:
        return _stopped(template, whole[len(prefix) :], content)
    if message.get("tool_calls"):
        raise ValueError(
            "has tool calls that the chat template does not write behind its own prompt"
        )
    # The template would drop the thinking, which the policy samples all the same.
    opened = opened_tag(prefix).strip()
    body = content.removeprefix(opened).lstrip() if opened else content
    if opened and f"</{opened[1:]}" not in body:
        raise ValueError(
            f"does not close the {opened} that the chat template opens; write "
            f"{opened}...</{opened[1:]} before the answer, empty where there is no thinking"
        )
    question: Message = {"role": "user", "content": "x"}
    answer: Message = {"role": "assistant", "content": STAND_IN}
    closing = template.render([question, answer], add_generation_prompt=False)
    return _stopped(template, body + closing.partition(STAND_IN)[2], body)


def _stopped(template: Template, text: str, content: str) -> tuple[int, ...]:
    """The ids of a text up to the first stop id behind its content, where sampling would have
    ended; the turn's or the text's end behind where there is none."""
    ids = template.encode(text)
    inside = sum(each in template.stop_ids for each in template.encode(content))
    stops = [place for place, each in enumerate(ids) if each in template.stop_ids]
    if len(stops) > inside:
        return ids[: stops[inside] + 1]
    end = template.turn_end_id if template.turn_end_id is not None else template.eos_id
    return ids if end is None else (*ids, end)
