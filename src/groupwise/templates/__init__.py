"""Text and token ids: chat templates, encoding, decoding, stops, tool calls. No torch.

`Template` holds a tokenizer with its chat template and special ids; `StopStrings` finds stop
strings across token boundaries; `token_ends` finds the tokens that end parts of a text;
`parse_tool_calls` reads the calls in a completion.
"""

from groupwise.templates.alignment import token_ends
from groupwise.templates.settings import TemplateSettings
from groupwise.templates.stops import StopStrings
from groupwise.templates.stored_calls import offered, parsed_calls, tool_schemas
from groupwise.templates.template import Template
from groupwise.templates.tool_calls import (
    ParsedCalls,
    ToolCall,
    ToolStyle,
    parse_tool_calls,
    renders_tools,
    tool_instructions,
    tool_message,
    tool_style,
)

__all__ = [
    "Template",
    "TemplateSettings",
    "StopStrings",
    "token_ends",
    "ParsedCalls",
    "ToolCall",
    "ToolStyle",
    "offered",
    "parse_tool_calls",
    "parsed_calls",
    "renders_tools",
    "tool_instructions",
    "tool_message",
    "tool_schemas",
    "tool_style",
]
