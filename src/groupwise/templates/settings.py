"""The recipe's `[template]` table: variables and date for the chat template, fixed for a run."""

from __future__ import annotations

import datetime as clock
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from groupwise.errors import RecipeError
from groupwise.templates.template import Template


class TemplateSettings(BaseModel):
    """How chats become ids."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    chat_template_kwargs: dict[str, Any] = Field(
        default_factory=dict[str, Any],
        description="Variables for the chat template, as `{ enable_thinking = false }`. One that "
        "the template does not read is refused.",
    )
    date: clock.date = Field(
        default=clock.date(2025, 1, 1),
        description="Today, for chat templates that write it: fixed, so that a run that is resumed "
        "or repeated on another day reads the same prompts.",
    )
    history: Literal["refuse", "keep"] = Field(
        default="refuse",
        description="Where several turns meet a chat template that would write an earlier "
        "completion differently (drop its thinking, move the tools): refuse, or keep what was "
        "sampled, ids as they were.",
    )

    def applied(self, template: Template) -> Template:
        """The template with these settings. Raises RecipeError for a variable it does not read."""
        today = clock.datetime.combine(self.date, clock.time())
        try:
            return template.with_variables(self.chat_template_kwargs, now=today)
        except RecipeError as error:
            raise RecipeError(f"template.chat_template_kwargs: {error}") from error
