"""Tools that a policy may call while it writes: functions with a schema, run with deadlines.

Any environment can have them (`[environment] tools = [...]`). Left out: how a model family writes a
call (`templates.tool_calls`).
"""

from groupwise.environments.tools.settings import BUILTIN_TOOLS as BUILTIN_TOOLS
from groupwise.environments.tools.settings import ToolSettings as ToolSettings
from groupwise.environments.tools.settings import load_tools as load_tools
from groupwise.environments.tools.tool import Tool as Tool
from groupwise.environments.tools.tool import ToolError as ToolError
from groupwise.environments.tools.tool import ToolUnavailable as ToolUnavailable
from groupwise.environments.tools.toolbox import Toolbox as Toolbox
from groupwise.environments.tools.toolbox import ToolEpisode as ToolEpisode
