"""The agent of recipes/agent.toml: a loop with a calculator, written for the OpenAI API alone.

It knows nothing of training and needs the standard library alone. examples/agent_with_openai.py
is the same loop on the `openai` package.
"""

from __future__ import annotations

import json
import os
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

TURNS = 3
CALCULATOR = {
    "type": "function",
    "function": {
        "name": "calculator",
        "description": "Multiplies two whole numbers.",
        "parameters": {
            "type": "object",
            "properties": {"expression": {"type": "string"}},
            "required": ["expression"],
        },
    },
}


def solve(base_url: str, task: dict[str, Any]) -> str:
    """Asks until an answer calls no tool; that answer."""
    return answered(base_url, task["messages"], [CALCULATOR])


def guess(base_url: str, task: dict[str, Any]) -> str:
    """The same without the tool: the control."""
    return answered(base_url, task["messages"], [])


def answered(base_url: str, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> str:
    for _ in range(TURNS):
        message = completion(base_url, {"messages": messages, "tools": tools or None})
        calls = message.get("tool_calls") or []
        if not calls:
            return str(message["content"])
        messages = [*messages, message, *(result_of(call) for call in calls)]
    return ""


def result_of(call: dict[str, Any]) -> dict[str, Any]:
    """The message with a call's result."""
    try:
        first, _, second = json.loads(call["function"]["arguments"])["expression"].partition("*")
        content = str(int(first) * int(second))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        content = f"error: {error}"
    return {"role": "tool", "tool_call_id": call["id"], "content": content}


def completion(base_url: str, body: dict[str, Any]) -> dict[str, Any]:
    """The message that the model answers."""
    address = urlsplit(base_url)
    connection = HTTPConnection(address.hostname or "", address.port)
    headers = {
        "Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}",
        "Content-Type": "application/json",
    }
    body = {"model": os.environ["OPENAI_MODEL"], **body}
    connection.request("POST", f"{address.path}/chat/completions", json.dumps(body), headers)
    answer = json.load(connection.getresponse())
    if "error" in answer:
        raise RuntimeError(answer["error"]["message"])
    message: dict[str, Any] = answer["choices"][0]["message"]
    return message
