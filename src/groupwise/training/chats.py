"""Whether a model's chat template suits an environment: before a run, and what a person is told.

Left out: the templates themselves (`templates/`), and whether a prompt is short enough.
"""

from __future__ import annotations

from groupwise.environments import Environment
from groupwise.errors import RecipeError
from groupwise.recipe import Recipe
from groupwise.templates import Template


def check_turns(recipe: Recipe, environment: Environment, template: Template) -> None:
    """Whether the chat template keeps earlier turns as they were sampled. Raises RecipeError."""
    found = _rewriting(environment, template)
    if found is not None and recipe.template.history == "refuse":
        raise RecipeError(
            f"the chat template of model.name = {recipe.model.name!r} {found}, but training keeps "
            "what was sampled, so the model would be trained on chats that nobody sends it. Set "
            'template.history = "keep" to train on them all the same, or use another model'
        )


def _rewriting(environment: Environment, template: Template) -> str | None:
    """What the chat template does to earlier turns of this environment, None where it is nothing.

    Raises RecipeError where it does not take the environment's messages.
    """
    role = environment.answer_role
    if role is None:
        return None
    system = any(
        message.get("role") == "system"
        for prompt in environment.prompts(split="all")
        for message in prompt.messages
    )
    found = template.rewrites(role, system=system, **environment.variables)
    return None if found is None else f"{found} once a message of the role {role!r} follows"


def text_notes(environment: Environment, template: Template) -> list[str]:
    """What is legal and often not meant, about chats and their template."""
    notes = []
    rewriting = _rewriting(environment, template)
    if rewriting is not None:
        notes.append(f"the chat template {rewriting}; the run keeps what was sampled")
    first = environment.prompts(1)[0]
    if first.text is not None and template.chat_template is not None:
        notes.append(
            "the prompts are raw text, though the model has a chat template: right for a text to "
            "go on with, wrong for a question; environment.chat = true makes a data set's texts "
            "user messages"
        )
    return notes
