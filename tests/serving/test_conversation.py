"""Histories to ids: what was sampled is never encoded again, a rewritten history is a branch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from groupwise.errors import RecipeError
from groupwise.serving.conversation import Conversation
from groupwise.serving.protocol import ApiError, Asked, Choice, answer, read_request
from groupwise.templates import Template
from groupwise.types import Completion, Request
from serving_helpers import ADD, CALL, chat, letters, make_template, user


class Plain(Conversation):
    """Every request as it is, its key the name of the draw."""

    def __init__(self, template: Template, *, refuses: bool = False) -> None:
        super().__init__(template)
        self.refuses = refuses
        self.names: list[str] = []

    def request(self, asked: Asked, ids: tuple[int, ...], depth: int, name: str) -> Request:
        self.names.append(f"{depth} {name}")
        return Request(ids, key=len(self.names), max_tokens=50, stop_strings=asked.stop)

    def check_rewrite(self, asked: Asked) -> None:
        if self.refuses:
            raise ApiError("rewritten")


@pytest.fixture(scope="module")
def template() -> Template:
    return make_template()


def said(
    conversation: Plain,
    body: dict[str, Any],
    *replies: str,
    chat: bool = True,
    ends: bool = True,
) -> tuple[list[Request], list[Choice], list[Completion]]:
    asked = read_request(body, ["policy"], chat=chat)
    draws = conversation.draws(asked)
    assert len(draws) == len(replies)
    completions = []
    for reply in replies:
        ids = letters(conversation.template, reply, ends=ends)
        text = conversation.template.decode_completion(ids)
        completions.append(Completion(ids, text, (-0.5,) * len(ids), "stop", version=3))
    choices = [conversation.take(*pair) for pair in zip(draws, completions, strict=True)]
    return [draw.request for draw in draws], choices, completions


def replied(choice: Choice, asked_chat: dict[str, Any]) -> dict[str, Any]:
    """The assistant's message as a client gets it over the wire."""
    asked = read_request(asked_chat, ["policy"], chat=True)
    message: dict[str, Any] = answer(asked, [choice])["choices"][0]["message"]
    return message


def test_the_toy_tokenizer_would_encode_sampled_text_differently(template: Template) -> None:
    sampled = letters(template, "the answer is seven", ends=False)
    assert template.decode(sampled) == "the answer is seven"
    assert len(template.encode("the answer is seven")) < len(sampled)


def test_a_turn_that_goes_on_keeps_the_sampled_ids(template: Template) -> None:
    talk = Plain(template)
    first = chat(user("go on"))
    (one,), (choice,), (completion,) = said(talk, first, "the answer is seven")
    assert one.prompt_ids == template.encode("<|bos|><|user|>go on<|end|><|assistant|>")
    assert choice.message == {"role": "assistant", "content": "the answer is seven"}
    second = chat(user("go on"), replied(choice, first), user("the answer"))
    (two,), _, _ = said(talk, second, "seven")
    behind = template.encode("<|user|>the answer<|end|><|assistant|>")
    assert two.prompt_ids == one.prompt_ids + completion.token_ids + behind
    assert [turn.context_ids for turn in talk.branches[0]] == [one.prompt_ids, behind]
    assert talk.branches[0][0].completion is completion
    assert len(talk.branches) == 1
    assert talk.counts["rewrites"] == 0


def test_encoding_the_history_again_would_be_seen(template: Template) -> None:
    """The same two requests, the second to a conversation that has forgotten the first: other ids
    of the same text. A server that encodes every request would fail the test above."""
    first = chat(user("go on"))
    second = chat(user("go on"), {"role": "assistant", "content": "the answer is seven"}, user("x"))
    talk, fresh = Plain(template), Plain(template)
    (one,), _, (completion,) = said(talk, first, "the answer is seven")
    (kept,), _, _ = said(talk, second, "seven")
    (encoded,), _, _ = said(fresh, second, "seven")
    assert template.decode(kept.prompt_ids) == template.decode(encoded.prompt_ids)
    assert kept.prompt_ids != encoded.prompt_ids
    assert kept.prompt_ids[: len(one.prompt_ids) + completion.num_tokens] == (
        one.prompt_ids + completion.token_ids
    )


@pytest.mark.parametrize(
    "echo",
    [
        {"role": "assistant", "content": " the answer\n"},
        {"role": "assistant", "content": "the answer"},
        {"role": "assistant", "content": [{"type": "text", "text": "the answer"}]},
        {"role": "assistant", "content": "the answer", "refusal": None, "tool_calls": None},
    ],
)
def test_a_message_is_the_same_however_a_client_sends_it_back(
    template: Template, echo: dict[str, Any]
) -> None:
    talk = Plain(template)
    said(talk, chat(user("go on")), " the answer ")
    (two,), _, _ = said(talk, chat(user("go on"), echo, user("12")), "34")
    assert letters(template, " the answer ") == talk.branches[0][0].completion.token_ids
    assert len(talk.branches) == 1
    assert two.prompt_ids[-4:] == template.encode("<|user|>12<|end|><|assistant|>")[-4:]


def test_tool_calls_go_out_as_the_api_has_them_and_come_back(template: Template) -> None:
    talk = Plain(template)
    first = chat(user("go on"), tools=[ADD])
    (one,), (choice,), (completion,) = said(talk, first, CALL)
    assert template.decode(one.prompt_ids).startswith("<|bos|><|system|>add<|end|><|user|>")
    sent = replied(choice, first)
    assert sent["content"] is None
    (call,) = sent["tool_calls"]
    assert (call["function"], call["type"], len(call["id"])) == (
        {"name": "add", "arguments": '{"a": 1}'},
        "function",
        9,
    )
    assert choice.finish_reason == "tool_calls"
    result = {"role": "tool", "tool_call_id": call["id"], "content": "7"}
    (two,), (last,), _ = said(talk, chat(user("go on"), sent, result, tools=[ADD]), CALL)
    behind = template.encode("<|tool|>7<|end|><|assistant|>")
    assert two.prompt_ids == one.prompt_ids + completion.token_ids + behind
    assert last.message["tool_calls"][0]["id"] != call["id"]


def test_a_call_that_cannot_be_read_stays_text_and_is_counted(template: Template) -> None:
    talk = Plain(template)
    words = '<tool_call>{"name": </tool_call>'
    _, (choice,), _ = said(talk, chat(user("go"), tools=[ADD]), words)
    assert choice.message == {"role": "assistant", "content": words}
    assert (choice.finish_reason, talk.counts["malformed_calls"]) == ("stop", 1)
    _, (choice,), _ = said(talk, chat(user("no tools")), CALL)
    assert choice.message["content"] == CALL


def branch_cases() -> list[tuple[str, list[dict[str, Any]], bool]]:
    seven = {"role": "assistant", "content": "seven"}
    other = {"role": "assistant", "content": "eight"}
    return [
        ("another first message", [dict(user("stop"))], False),
        ("the same again", [dict(user("go on"))], False),
        ("another answer", [dict(user("go on")), other, dict(user("x"))], False),
        ("back to the first answer", [dict(user("go on")), seven, dict(user("x"))], True),
    ]


@pytest.mark.parametrize(("name", "messages", "forks"), branch_cases())
def test_a_rewritten_history_starts_a_branch_and_is_counted(
    template: Template, name: str, messages: list[dict[str, Any]], forks: bool
) -> None:
    talk = Plain(template)
    seven = {"role": "assistant", "content": "seven"}
    (one,), _, (first,) = said(talk, chat(user("go on")), "seven")
    said(talk, chat(user("go on"), seven, user("12")), "34")
    (request,), _, _ = said(talk, chat(*messages), "the answer")
    assert talk.counts["rewrites"] == 1
    assert [len(turns) for turns in talk.branches] == [2, 1]
    assert talk.main is talk.branches[1]
    # A branch's own tokens train; what it shares with another branch is its prompt.
    assert talk.main[0].context_ids == request.prompt_ids
    kept = one.prompt_ids + first.token_ids
    assert (request.prompt_ids[: len(kept)] == kept) is forks


def test_other_tools_are_another_history(template: Template) -> None:
    talk = Plain(template)
    said(talk, chat(user("go on"), tools=[ADD]), "seven")
    echo = {"role": "assistant", "content": "seven"}
    said(talk, chat(user("go on"), echo, user("12")), "34")
    assert talk.counts["rewrites"] == 1


def test_a_refusal_leaves_nothing_behind(template: Template) -> None:
    talk = Plain(template, refuses=True)
    said(talk, chat(user("go on")), "seven")
    with pytest.raises(ApiError, match="rewritten"):
        said(talk, chat(user("stop")), "seven")
    echo = {"role": "assistant", "content": "seven"}
    said(talk, chat(user("go on"), echo, user("12")), "34")
    assert [len(turns) for turns in talk.branches] == [2]
    assert talk.counts["rewrites"] == 0


def test_draws_are_named_by_what_they_follow_and_not_by_their_order(template: Template) -> None:
    def names(*orders: Sequence[str]) -> set[str]:
        talk = Plain(template)
        for text in orders:
            said(talk, chat(user(str(text))), "seven")
        return set(talk.names)

    assert names("12", "34", "12") == names("34", "12", "12")
    assert len(names("12", "34", "12")) == 3


def test_choices_of_one_request_are_branches_with_names_of_their_own(template: Template) -> None:
    talk = Plain(template)
    requests, choices, _ = said(talk, chat(user("go"), n=3), "12", "34", "12")
    assert len({request.prompt_ids for request in requests}) == 1
    assert len(set(talk.names)) == 3
    assert [choice.message["content"] for choice in choices] == ["12", "34", "12"]
    assert [len(turns) for turns in talk.branches] == [1, 1, 1]
    echo = {"role": "assistant", "content": "34"}
    said(talk, chat(user("go"), echo, user("on")), "seven")
    assert [len(turns) for turns in talk.branches] == [1, 2, 1]
    assert talk.counts["rewrites"] == 0


def test_raw_texts_go_on_with_their_stop_string(template: Template) -> None:
    talk = Plain(template)
    (one,), (choice,), (completion,) = said(
        talk, {"model": "policy", "prompt": "go", "stop": "on"}, " 12on", chat=False, ends=False
    )
    assert choice.message["content"] == " 12"
    more = {"model": "policy", "prompt": "go 12on 34"}
    (two,), _, _ = said(talk, more, "seven", chat=False)
    assert two.prompt_ids == one.prompt_ids + completion.token_ids + template.encode(" 34")
    # Behind the end of a turn, which the text does not show, it is another history.
    said(talk, {"model": "policy", "prompt": "go 12on 34seven 12"}, "34", chat=False)
    assert [len(turns) for turns in talk.branches] == [2, 1]


def test_ids_as_a_prompt_are_taken_as_they_are(template: Template) -> None:
    talk = Plain(template)
    ids = list(letters(template, "the answer", ends=False))
    (one,), _, (completion,) = said(talk, {"model": "policy", "prompt": ids}, "12", chat=False)
    assert one.prompt_ids == tuple(ids)
    on = {"model": "policy", "prompt": [*ids, *completion.token_ids, 9]}
    said(talk, on, "34", chat=False)
    assert talk.branches[0][1].context_ids == (9,)
    with pytest.raises(ApiError, match="the id 99999, which the model does not have"):
        said(talk, {"model": "policy", "prompt": [99999]}, "12", chat=False)


def test_what_the_template_refuses_is_an_error_of_the_api(template: Template) -> None:
    broken = Template(
        template.tokenizer, "{{ raise_exception('no system here') }}", special_tokens={}
    )
    with pytest.raises(ApiError, match="no system here") as error:
        Plain(broken).draws(read_request(chat(user("go")), ["policy"], chat=True))
    assert (error.value.status, error.value.param) == (400, "messages")
    assert isinstance(error.value.__cause__, RecipeError)
