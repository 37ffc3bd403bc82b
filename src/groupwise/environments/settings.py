"""The recipe's `[environment]` table: a name, that environment's own arguments, the verifiers."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from groupwise.environments.tools import ToolSettings
from groupwise.environments.user import UserSettings
from groupwise.verifiers import Combine, VerifierSettings


def verifier_tables(value: Any) -> Any:
    """The value of `verifiers` in a table. Raises ValueError if it is not a list of tables."""
    is_list = isinstance(value, list | tuple)
    if is_list and all(isinstance(each, dict | VerifierSettings) for each in value):
        return value
    raise ValueError(f'expected a list of tables, got {value!r:.60}; give [{{ name = "number" }}]')


VerifierList = Annotated[tuple[VerifierSettings, ...], BeforeValidator(verifier_tables)]


class NamedEnvironment(BaseModel):
    """An environment by name, and what judges its completions.

    Every further key is an argument of the named environment and is validated by it.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str = Field(
        description="A built-in environment, as arithmetic or dataset; `reasoning_gym:<task>`; or "
        "`module:Class`, an Environment of your own."
    )
    verifiers: VerifierList = Field(
        default=(),
        description="What judges completions; the environment's own verifiers where empty.",
    )
    combine: Combine = Field(
        default="sum",
        description="How the weighted values become one: their sum, or their product, which is 0 "
        "where any of them is. For `strict_verifiers` too.",
    )

    @property
    def arguments(self) -> dict[str, Any]:
        """The named environment's own arguments."""
        return dict(self.model_extra or {})


class EnvironmentSettings(NamedEnvironment):
    """Which prompts, and what judges them."""

    strict_verifiers: VerifierList = Field(
        default=(),
        description="A second, stricter judgement (or hidden test cases) that training never "
        "sees: it scores the evaluations' completions; its gap to the reward is recorded and "
        "watched.",
    )
    drop_too_long: bool = Field(
        default=False,
        description="Drop and count prompts that leave no room for a completion of "
        "`sampling.max_tokens`. Without it they stop the run, their rows named; nothing is cut.",
    )
    audit: bool = Field(
        default=True,
        description="Audit the verifiers on this data before training, once for each pair: a few "
        "seconds; what it finds is printed and recorded.",
    )

    tools: tuple[ToolSettings, ...] = Field(
        default=(),
        description="Tools that the policy may call: calculator, python or `module:function`; a "
        "list of names, or tables with `name` and `arguments`.",
    )
    tool_seconds: float = Field(
        default=10.0, gt=0, description="Seconds for one tool call; then it is an error."
    )
    tool_characters: int = Field(
        default=4000, ge=1, description="Characters of a tool's result; the rest is cut off."
    )
    answer_characters: int = Field(
        default=20_000,
        ge=1,
        description="Characters of one message of the environment or the user; the rest is cut "
        "off.",
    )
    user: UserSettings | None = Field(
        default=None,
        description="A user who answers the policy by rules.",
    )
    judged: Literal["last", "all"] | None = Field(
        default=None,
        description="Which of the policy's words verifiers read in a rollout of several turns: "
        "the last turn's, or all turns'. Unset: the environment's own choice, mostly last.",
    )
    max_turns: int = Field(
        default=16, ge=1, description="Completions of a rollout at most, those with calls included."
    )
    turn_tokens: int | None = Field(
        default=None,
        ge=1,
        description="Tokens that the policy may write in one turn; sampling.max_tokens is for all "
        "turns together.",
    )
    max_seconds: float | None = Field(
        default=600.0, gt=0, description="Seconds from a rollout's start after which it ends."
    )
    wait_seconds: float = Field(
        default=60.0,
        gt=0,
        description="Seconds for one answer of the environment; then the rollout has failed.",
    )

    @model_validator(mode="after")
    def _waits_for_tools(self) -> EnvironmentSettings:
        if self.tools and self.tool_seconds >= self.wait_seconds:
            raise ValueError(
                f"tool_seconds = {self.tool_seconds:g} is not below wait_seconds = "
                f"{self.wait_seconds:g}: a slow tool would fail the rollout; give less"
            )
        return self
