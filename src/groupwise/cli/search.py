"""`groupwise search`: a model, a method and a data file, from the command line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from groupwise.errors import RecipeError
from groupwise.texts import counted

if TYPE_CHECKING:
    from rich.console import Console

    from groupwise.policies import Policy
    from groupwise.search import SearchResult


def search_model(
    model: str,
    data: Path,
    fields: Mapping[str, Any],
    *,
    correct_by: str,
    verifier: str | None,
    arguments: str,
    limit: int | None,
    plot: Path | None = None,
) -> SearchResult:
    """The search that the options ask for; everything but the weights is checked first."""
    from groupwise.cli.audit import arguments_of
    from groupwise.environments import load_environment
    from groupwise.policies import describe_model
    from groupwise.records.files import check_place, check_suffix, write_for_user
    from groupwise.search.chart import search_chart
    from groupwise.search.run import search
    from groupwise.search.scoring import check_scorer
    from groupwise.search.settings import SearchSettings
    from groupwise.verifiers import load_verifier
    from groupwise.verifiers.core.names import validated

    if isinstance(separator := fields.get("separator"), str):
        separator = separator.replace("\\n", "\n").replace("\\t", "\t")
        fields = {**fields, "separator": separator}
    settings = validated(SearchSettings, fields, "search")
    if not data.is_file():
        raise RecipeError(f"--data {str(data)!r}: no such file; give rows with prompt and answer")
    if plot is not None:
        check_suffix(plot, "--plot", ".svg")
        check_place(plot, "--plot")
    if verifier is None and arguments:
        raise RecipeError("--arguments are the verifier's; give --verifier with them")
    scorer = None if verifier is None else load_verifier(verifier, **arguments_of(arguments))
    check_scorer(settings, scorer)
    is_run = (Path(model) / "recipe.toml").is_file()
    chat = is_run or describe_model(model).template.chat_template is not None
    try:
        environment = load_environment(
            "dataset",
            verifiers=[{"name": correct_by}],
            path=str(data),
            chat=chat,
            limit=limit,
            on_duplicate="drop",
        )
    except RecipeError as error:
        named = re.sub(
            r"environment\.(prompt|answer) = '\w+'", r"--data needs the column '\1'", str(error)
        )
        raise RecipeError(named) from error
    try:
        found = search(
            _policy(model, is_run),
            environment.prompts(),
            settings,
            correct_by=environment.verifier,
            verifier=scorer,
        )
    finally:
        environment.close()
        if scorer is not None:
            scorer.close()
    if plot is not None:
        write_for_user(plot, search_chart(found), "--plot")
    return found


def _policy(model: str, is_run: bool) -> Policy:
    if is_run:
        from groupwise.training.trained import trained_policy

        return trained_policy(model)
    from groupwise.policies import load_policy

    return load_policy(model)


def print_search(result: SearchResult, console: Console) -> None:
    """Accuracy by samples, the cost, and what was counted."""
    from groupwise.cli.tables import plain_table

    def shown(value: float | None) -> str:
        return "-" if value is None else f"{value:.3f}"

    budgets = any(each.budget is not None for each in result.points)
    rows = [
        (
            *([str(each.budget)] if budgets else []),
            str(each.samples),
            f"{each.accuracy:.3f}",
            "{:.3f} to {:.3f}".format(*each.accuracy_interval),
            f"{each.tokens:.0f}",
            *([] if budgets else [shown(each.pass_at_k), shown(each.kl)]),
        )
        for each in result.points
    ]
    scored = "" if result.scorer is None else f", scored by {result.scorer}"
    console.print(f"{result.method}{scored}: {counted(result.prompts, 'prompt')}")
    titles: tuple[str, ...] = (
        "samples",
        "accuracy",
        "95 % interval",
        "tokens a prompt",
        "pass@samples",
        "KL, nats",
    )
    titles = ("budget", *titles[:4]) if budgets else titles
    console.print(plain_table(titles, rows))
    console.print(f"{counted(result.tokens, 'token')} in {result.seconds:.1f} s")
    for name, values in result.diversity.items():
        listed = ", ".join(f"{key} {shown(value)}" for key, value in values.items())
        console.print(f"diversity of {name}: {listed}")
    counts = {**result.counts, "unscored": result.unscored}
    for name, value in counts.items():
        if value:
            console.print(f"{name}: {value}")
    for note in result.notes:
        console.print(f"note: {note}")
