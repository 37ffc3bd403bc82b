"""Tools that a policy may call while it writes: functions with a schema, run with deadlines.

Any environment can have them (`[environment] tools = [...]`). Left out: how a model family writes a
call (`templates.tool_calls`).
"""

from groupwise.environments.tools.settings import BUILTIN_TOOLS, ToolSettings, load_tools
from groupwise.environments.tools.tool import Tool, ToolError, ToolUnavailable
from groupwise.environments.tools.toolbox import Toolbox, ToolEpisode

__all__ = [
    "BUILTIN_TOOLS",
    "Tool",
    "ToolError",
    "ToolEpisode",
    "ToolSettings",
    "ToolUnavailable",
    "Toolbox",
    "load_tools",
]
