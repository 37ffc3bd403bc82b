"""The server over HTTP: what clients of the API expect, and what is refused and how."""

from __future__ import annotations

import json
import logging
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import httpx
import pytest

from groupwise.errors import RecipeError
from groupwise.policies import Policy, load_policy
from groupwise.samplers import ScriptedSampler
from groupwise.serving.desk import listening
from groupwise.serving.serve import Server
from serving_helpers import ADD, CALL, Lettered, chat, letters, make_template, user

openai = pytest.importorskip("openai")

REPLIES = ("the answer is seven", "12")


@pytest.fixture(scope="module")
def policy() -> Policy:
    return replace(load_policy("tiny", device="cpu"), template=make_template(), max_length=400)


@pytest.fixture
def script(policy: Policy) -> Lettered:
    return Lettered(policy.template, *REPLIES)


@pytest.fixture
def server(policy: Policy, script: Lettered) -> Iterator[Server]:
    sampler = ScriptedSampler(policy.template, script)
    with Server(policy, listening("127.0.0.1", 0), sampler=sampler, name="policy") as made:
        yield made


@pytest.fixture
def client(server: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=server.address, api_key=server.key, max_retries=0) as made:
        yield made


def post(server: Server, body: Any, path: str = "/chat/completions", **headers: str) -> Any:
    sent = {"Authorization": f"Bearer {server.key}", **headers}
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return httpx.post(server.address + path, content=content, headers=sent)


# --- with the real client ------------------------------------------------------------------------


def test_the_openai_client_chats(client: openai.OpenAI, server: Server, script: Lettered) -> None:
    assert [each.id for each in client.models.list()] == ["policy"]
    assert client.models.retrieve("policy").id == "policy"
    messages: list[Any] = [user("go on")]
    first = client.chat.completions.create(
        model="policy", messages=messages, max_tokens=30, logprobs=True
    )
    (choice,) = first.choices
    assert (choice.message.content, choice.finish_reason) == ("the answer is seven", "stop")
    ids = letters(script.template, "the answer is seven")
    assert first.usage is not None
    assert (first.usage.prompt_tokens, first.usage.completion_tokens) == (
        len(script.requests[0].prompt_ids),
        len(ids),
    )
    assert choice.logprobs is not None
    assert choice.logprobs.content is not None
    assert [(each.token, each.logprob) for each in choice.logprobs.content] == [
        (script.template.decode([i]), -0.5) for i in ids
    ]
    client.chat.completions.create(
        model="policy", messages=[*messages, choice.message, user("12")], max_tokens=30
    )
    one, two = script.requests
    assert two.prompt_ids[: len(one.prompt_ids) + len(ids)] == one.prompt_ids + ids


def test_the_openai_client_reads_a_stream(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model="policy",
        messages=[user("go")],
        n=2,
        stream=True,
        stream_options={"include_usage": True},
    )
    texts, reasons, usage = {0: "", 1: ""}, {}, None
    for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
            reasons[choice.index] = choice.finish_reason or reasons.get(choice.index)
    assert texts == {0: "the answer is seven", 1: "12"}
    assert reasons == {0: "stop", 1: "stop"}
    assert usage is not None
    assert usage.completion_tokens == len("the answer is seven") + len("12") + 2


def test_the_openai_client_runs_tools(policy: Policy) -> None:
    script = Lettered(policy.template, CALL, "7")
    sampler = ScriptedSampler(policy.template, script)
    with (
        Server(policy, listening("127.0.0.1", 0), sampler=sampler, name="policy") as server,
        openai.OpenAI(base_url=server.address, api_key=server.key) as client,
    ):
        tools: Any = [ADD]
        asked: list[Any] = [user("go")]
        for stream in (False, True):
            script.requests.clear()
            if stream:
                with client.chat.completions.stream(
                    model="policy", messages=asked, tools=tools
                ) as events:
                    message = events.get_final_completion().choices[0].message
            else:
                made = client.chat.completions.create(model="policy", messages=asked, tools=tools)
                message = made.choices[0].message
            assert message.tool_calls is not None
            (call,) = message.tool_calls
            assert call.type == "function"
            assert (call.function.name, json.loads(call.function.arguments)) == ("add", {"a": 1})
            result = {"role": "tool", "tool_call_id": call.id, "content": "7"}
            last = client.chat.completions.create(
                model="policy", messages=[*asked, message, result], tools=tools
            )
            assert last.choices[0].message.content == "7"
            one, two = script.requests
            kept = one.prompt_ids + letters(policy.template, CALL)
            assert two.prompt_ids[: len(kept)] == kept


def test_the_openai_client_completes_texts(client: openai.OpenAI, script: Lettered) -> None:
    made = client.completions.create(
        model="policy", prompt="go", stop=["seven"], temperature=0, max_tokens=30, logprobs=0
    )
    assert (made.choices[0].text, made.choices[0].finish_reason) == ("the answer is ", "stop")
    (request,) = script.requests
    assert (request.greedy, request.stop_strings) == (True, ("seven",))
    assert request.prompt_ids == script.template.encode("<|bos|>go")
    cut = client.completions.create(model="policy", prompt="go", max_tokens=1)
    assert (cut.choices[0].text, cut.choices[0].finish_reason) == ("1", "length")


def test_the_openai_client_meets_errors_it_knows(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="no such model; give 'policy'"):
        client.chat.completions.create(model="gpt-4o", messages=[user("go")])
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model="policy", messages=[user("go")], frequency_penalty=0.5)
    assert (refused.value.code, refused.value.param) == ("unsupported_value", "frequency_penalty")
    with pytest.raises(openai.BadRequestError) as long:
        client.chat.completions.create(model="policy", messages=[user("x" * 900)])
    assert long.value.code == "context_length_exceeded"
    assert "tokens; the model has positions for 400, prompt and answer" in str(long.value)
    with pytest.raises(openai.BadRequestError, match="tokens and max_tokens is 401; the model"):
        client.chat.completions.create(model="policy", messages=[user("x")], max_tokens=401)
    with pytest.raises(openai.NotFoundError, match="no such model; give 'policy'") as unknown:
        client.models.retrieve("meta/other")
    assert (unknown.value.code, unknown.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.AuthenticationError, match="not known"):
        client.with_options(api_key="sk-other").models.list()  # pragma: allowlist secret


# --- what is refused -----------------------------------------------------------------------------

BAD: list[tuple[Any, str, str]] = [
    ([], "body", "a JSON object"),
    ({"model": "policy"}, "messages", "missing"),
    (chat(), "messages", "at least one message"),
    ({"model": "policy", "messages": "go"}, "messages", "a list"),
    (chat("go"), "messages", "message 1 is 'go'; give an object"),
    (chat({"role": "bot", "content": "x"}), "messages", "legal: system, user"),
    (chat({"content": "x"}), "messages", "message 1 has the role None"),
    (chat({"role": "user", "content": 3}), "messages", "give a text"),
    (
        chat({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}),
        "messages",
        "parts of the type text",
    ),
    (chat(user("x"), {"role": "assistant", "content": "y"}), "messages", "another role"),
    (chat({"role": "assistant", "tool_calls": [3]}), "messages", "has the tool call 3"),
    (chat(user("x"), n=0), "n", "from 1 to 128"),
    (chat(user("x"), n=True), "n", "a whole number"),
    (chat(user("x"), max_tokens=0), "max_tokens", "from 1 on"),
    (chat(user("x"), max_tokens=1.5), "max_tokens", "a whole number"),
    (chat(user("x"), temperature="hot"), "temperature", "a number"),
    (chat(user("x"), temperature=1e-9), "temperature", "give 0, or 0.0001 or more"),
    (chat(user("x"), temperature=float("inf")), "temperature", "give a number from 0.0 on"),
    (chat(user("x"), temperature=10**400), "temperature", "give a number from 0.0 on"),
    (chat(user("x"), temperature=float("nan")), "temperature", "give a number from 0.0 on"),
    (chat(user("x"), stream="yes"), "stream", "stream = 'yes'; give true or false"),
    (chat(user("x"), stream=1), "stream", "true or false"),
    (chat(user("x"), stream_options=3), "stream_options", "an object"),
    (
        chat(user("x"), stream_options={"include_usage": 0}),
        "stream_options.include_usage",
        "stream_options.include_usage = 0; give true or false",
    ),
    (chat(user("x"), tools=""), "tools", "tools = ''; give a list"),
    (chat(user("x"), logprobs=1), "logprobs", "true or false"),
    (chat(user("x"), user=3), "user", "a text"),
    (chat(user("x"), metadata="x"), "metadata", "an object"),
    (chat(user("x"), store=0), "store", "give false"),
    (chat(user("x"), frequency_penalty=False), "frequency_penalty", "give 0"),
    (chat(user("x"), top_p=2), "top_p", "from 0.0 to 1.0"),
    (chat(user("x"), top_p=0), "top_p", "or temperature = 0"),
    (chat(user("x"), stop=[""]), "stop", "at least one character"),
    (chat(user("x"), stop=[3]), "stop", "at least one character"),
    (chat(user("x"), stop=3), "stop", "at least one character"),
    (chat(user("x"), tools=[3]), "tools", "a tool is an object"),
    (chat(user("x"), tools=[ADD], tool_choice="required"), "tool_choice", '"auto" or "none"'),
    (chat(user("x"), response_format={"type": "json_object"}), "response_format", '"text"'),
    (chat(user("x"), logprobs=3), "logprobs", "true"),
    (chat(user("x"), top_logprobs=3), "top_logprobs", "leave it out"),
    (chat(user("x"), logit_bias={"3": 1}), "logit_bias", "not supported"),
    (chat(user("x"), tempreture=1), "tempreture", "did you mean 'temperature'"),
    (chat(user("x"), functions=[]), "functions", "not supported"),
    (chat(user("x"), stop="\ud800"), "stop", "half of a surrogate pair"),
    (chat(user("x"), **{"\ud800": 1}), "", "half of a surrogate pair"),
    (chat({"role": "user", "content": "\udc00"}), "messages", "half of a surrogate pair"),
]


@pytest.mark.parametrize(("body", "param", "words"), BAD, ids=[f"{b[1]}-{b[2][:20]}" for b in BAD])
def test_a_bad_request_is_refused_by_name(
    server: Server, script: Lettered, body: Any, param: str, words: str
) -> None:
    response = post(server, body)
    error = response.json()["error"]
    assert (response.status_code, error["type"]) == (400, "invalid_request_error")
    assert words in error["message"]
    assert error["param"] in (param, None)
    assert script.requests == []


@pytest.mark.parametrize("prompt", [None, "", [], ["a", "b"], [[1], [2]], [1.5], [True], [-1], {}])
def test_a_bad_prompt_is_refused(server: Server, prompt: Any) -> None:
    response = post(server, {"model": "policy", "prompt": prompt}, "/completions")
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "prompt"


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer nonsense", "Basic x"])
@pytest.mark.parametrize("path", ["/chat/completions", "/completions"])
def test_without_its_key_nothing_is_answered(server: Server, header: str, path: str) -> None:
    body = {**chat(user("go")), "prompt": "go"}
    response = post(server, body, path, Authorization=header)
    assert response.status_code == 401
    assert response.json()["error"]["code"] == "invalid_api_key"


def test_other_addresses_bodies_and_methods_are_named(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert post(server, b"{").json()["error"]["code"] == "invalid_json"
    assert post(server, b"[" * 100_000).json()["error"]["code"] == "invalid_json"
    monkeypatch.setattr("groupwise.serving.server.MOST_BYTES", 1000)
    assert post(server, b" " * 1001).status_code == 413
    missing = post(server, {}, "/embeddings")
    assert missing.status_code == 404
    assert "/v1/chat/completions" in missing.json()["error"]["message"]
    headers = {"Authorization": f"Bearer {server.key}"}
    assert httpx.get(server.address + "/chat/completions", headers=headers).status_code == 405


def test_a_client_that_leaves_in_the_middle_of_its_request_is_no_error(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    errors = logging.getLogger("uvicorn.error")
    errors.addHandler(caplog.handler)
    host, port = server.address.split("/")[2].split(":")
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.key}\r\n"
    try:
        for body in (b'{"mod', b""):
            with socket.create_connection((host, int(port))) as client:
                client.sendall(f"{head}Content-Length: 90\r\n\r\n".encode() + body)
        assert post(server, chat(user("x"))).status_code == 200
    finally:
        errors.removeHandler(caplog.handler)
    assert caplog.text == ""


def test_a_port_in_use_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(RecipeError, match=f"port = {port} cannot be used"):
            listening("127.0.0.1", port)


# --- sampled together ----------------------------------------------------------------------------


class Slow(ScriptedSampler):
    """Keeps the sizes of its batches, and ends none before `released`."""

    def __init__(self, template: Any, script: Any) -> None:
        super().__init__(template, script)
        self.sizes: list[int] = []
        self.entered, self.released = threading.Event(), threading.Event()

    def sample(self, requests: Any) -> Any:
        if requests:
            self.sizes.append(len(requests))
            self.entered.set()
            assert self.released.wait(30)
        return super().sample(requests)


def test_requests_that_arrive_together_are_one_batch(policy: Policy) -> None:
    sampler = Slow(policy.template, Lettered(policy.template, "12"))
    with (
        Server(policy, listening("127.0.0.1", 0), sampler=sampler, name="policy") as server,
        ThreadPoolExecutor(9) as threads,
    ):
        first = threads.submit(post, server, chat(user("first")))
        assert sampler.entered.wait(10)
        others = [threads.submit(post, server, chat(user(f"{n}"))) for n in range(8)]
        limit = time.monotonic() + 30
        while len(server.desk._tickets) < 8:
            assert time.monotonic() < limit
            time.sleep(0.01)
        sampler.released.set()
        answers = [each.result().json() for each in (first, *others)]
    assert {each["choices"][0]["message"]["content"] for each in answers} == {"12"}
    assert sampler.sizes == [1, 8]


def test_a_seed_repeats_and_none_does_not() -> None:
    tiny = load_policy("tiny", device="cpu")
    with (
        Server(tiny, listening("127.0.0.1", 0)) as server,
        openai.OpenAI(base_url=server.address, api_key=server.key) as client,
    ):

        def four(**more: Any) -> list[str | None]:
            made = client.completions.create(
                model="tiny", prompt="3+4=", n=4, max_tokens=12, temperature=2.0, **more
            )
            return [choice.text for choice in made.choices]

        assert four(seed=5) == four(seed=5)
        assert len(set(four(seed=5))) > 1
        assert four(seed=5) != four(seed=6)
        assert four() != four()
