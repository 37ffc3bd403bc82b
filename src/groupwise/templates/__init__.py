"""Text and token ids: chat templates, encoding, decoding, stops, tool calls. No torch.

`Template` holds a tokenizer with its chat template and special ids; `StopStrings` finds stop
strings across token boundaries; `token_ends` finds the tokens that end parts of a text;
`parse_tool_calls` reads the calls in a completion.
"""

from groupwise.templates.alignment import token_ends as token_ends
from groupwise.templates.settings import TemplateSettings as TemplateSettings
from groupwise.templates.stops import StopStrings as StopStrings
from groupwise.templates.stored_calls import offered as offered
from groupwise.templates.stored_calls import parsed_calls as parsed_calls
from groupwise.templates.stored_calls import tool_schemas as tool_schemas
from groupwise.templates.template import Template as Template
from groupwise.templates.template import differing_tokenizers as differing_tokenizers
from groupwise.templates.tool_calls import ParsedCalls as ParsedCalls
from groupwise.templates.tool_calls import ToolCall as ToolCall
from groupwise.templates.tool_calls import ToolStyle as ToolStyle
from groupwise.templates.tool_calls import parse_tool_calls as parse_tool_calls
from groupwise.templates.tool_calls import renders_tools as renders_tools
from groupwise.templates.tool_calls import tool_instructions as tool_instructions
from groupwise.templates.tool_calls import tool_message as tool_message
from groupwise.templates.tool_calls import tool_style as tool_style
