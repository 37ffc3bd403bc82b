"""The tool `python`: runs a program in the sandbox and gives back what it printed.

Every call starts afresh. Left out: isolation itself (`sandbox/`; docs/security.md says from what).
"""

from __future__ import annotations

from collections.abc import Callable

from pydantic import Field

from groupwise.environments.tools.tool import ToolError, ToolUnavailable
from groupwise.sandbox import Limits, SandboxUnavailable, TierChoice, TrustedCallFailed
from groupwise.verifiers.core.names import Arguments

# Runs inside the sandbox. Like an interactive session, a last expression is printed.
_RUNNER = """
import ast, contextlib, io

def run(code):
    out = io.StringIO()
    names = {"__name__": "__main__"}
    with contextlib.redirect_stdout(out):
        try:
            tree = ast.parse(code)
            last = None
            if tree.body and isinstance(tree.body[-1], ast.Expr):
                last = ast.Expression(tree.body.pop().value)
            exec(compile(tree, "program", "exec"), names)
            if last is not None:
                value = eval(compile(last, "program", "eval"), names)
                if value is not None:
                    print(repr(value))
        except SystemExit:
            pass
        except Exception as error:
            return ["error", out.getvalue(), type(error).__name__ + ": " + str(error)]
    return ["done", out.getvalue(), ""]
"""


class PythonArguments(Arguments, strict=True):
    """The arguments of the tool `python`."""

    time_limit: float = Field(
        default=5.0, gt=0, allow_inf_nan=False, description="Seconds of a program, as 5.0."
    )
    memory_megabytes: int = Field(default=512, ge=1, description="Memory of a program, as 512.")
    packages: list[str] = Field(
        default_factory=list,
        description='What a program may import beside the standard library, as ["numpy"].',
    )
    tier: TierChoice = Field(
        default="auto", description="How it is isolated, as auto: docs/security.md."
    )


def make_python(arguments: PythonArguments) -> Callable[[str], str]:
    """The tool's function."""
    seconds = arguments.time_limit
    limits = Limits(time=seconds, total_time=seconds, memory=arguments.memory_megabytes << 20)

    def python(code: str) -> str:
        """Runs a Python program and gives back what it prints, and the value of a last expression.

        Args:
            code: the program; nothing is kept from one call to the next
        """
        from groupwise.sandbox import shared_sandbox

        try:
            sandbox = shared_sandbox(arguments.tier, arguments.packages)
            kind, printed, error = sandbox.evaluate(_RUNNER, "run", [code], limits=limits)
        except SandboxUnavailable as unavailable:
            raise ToolUnavailable(str(unavailable)) from unavailable
        except TrustedCallFailed as failed:
            words = str(failed).removeprefix("run: ")
            if failed.outcome == "infrastructure_error":
                raise ToolUnavailable(words) from failed
            raise ToolError(words) from failed
        except (ValueError, TypeError) as broken:  # the program replaced what tells its result
            raise ToolError("the program gave no result") from broken
        if not (isinstance(printed, str) and isinstance(error, str)):
            raise ToolError("the program gave no result")
        if kind == "error":
            raise ToolError(f"{printed}{error}")
        return printed if printed else "(nothing was printed)"

    return python
