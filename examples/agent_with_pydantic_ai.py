"""An agent as the documentation of `pydantic-ai` writes one; nothing in it knows of training."""

import json
import os
import sys

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel

agent = Agent(OpenAIChatModel(os.environ["OPENAI_MODEL"]))


@agent.tool_plain
def calculator(expression: str) -> str:
    """Multiplies two whole numbers."""
    first, _, second = expression.partition("*")
    return str(int(first) * int(second))


print(agent.run_sync(json.load(sys.stdin)["prompt"]).output)
