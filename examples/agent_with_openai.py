"""An agent on the `openai` package: a loop around chat completions with one tool."""

import json
import os
import sys

from openai import OpenAI

CALCULATOR = {
    "type": "function",
    "function": {
        "name": "calculator",
        "description": "Multiplies two whole numbers.",
        "parameters": {"type": "object", "properties": {"expression": {"type": "string"}}},
    },
}

client = OpenAI()
messages = json.load(sys.stdin)["messages"]
while True:
    answer = client.chat.completions.create(
        model=os.environ["OPENAI_MODEL"], messages=messages, tools=[CALCULATOR]
    )
    message = answer.choices[0].message
    messages.append(message)
    for call in message.tool_calls or []:
        first, _, second = json.loads(call.function.arguments)["expression"].partition("*")
        result = str(int(first) * int(second))
        messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    if not message.tool_calls:
        break
print(message.content)
