"""`groupwise serve`: a run's policy or a model behind the OpenAI API."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from groupwise.policies import Policy


def serve(
    source: Annotated[str, typer.Argument(help="A run's folder, a model's name, or its folder.")],
    host: Annotated[str, typer.Option(help="Who may ask: this machine alone by default.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 0,
    step: Annotated[int | None, typer.Option(help="The run's checkpoint after so many steps.")] = (
        None
    ),
    name: Annotated[str | None, typer.Option(help="The name that requests give the model.")] = None,
) -> None:
    """Serve a policy by the OpenAI API (chat and completions); Ctrl-C ends it."""
    from groupwise.serving.desk import listening
    from groupwise.serving.serve import Server

    with (
        listening(host, port) as socket,  # refused before weights load
        Server(served_policy(source, step), socket, name=name) as server,
    ):
        print(f"base_url {server.address}", flush=True)  # noqa: T201
        print(f"api_key  {server.key}", flush=True)  # noqa: T201
        print(f"model    {server.model}", flush=True)  # noqa: T201
        server.wait()


def served_policy(source: str, step: int | None) -> Policy:
    """The policy of a run's checkpoint, with the run's chat template settings, or a model's."""
    from dataclasses import replace

    from groupwise.errors import RecipeError
    from groupwise.policies import load_policy
    from groupwise.recipe import load_recipe
    from groupwise.training.trained import trained_policy

    file = Path(source) / "recipe.toml"
    if file.is_file():
        policy = trained_policy(source, step=step)
        return replace(policy, template=load_recipe(file).template.applied(policy.template))
    if step is not None:
        raise RecipeError(f"--step is for a run's folder; {source!r} holds no recipe.toml")
    return load_policy(source)
