"""`groupwise suggest`: samples a model on some prompts and says where to start, with a recipe."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from groupwise.cli.suggestion import Suggestion
from groupwise.environments import BUILTIN, Environment, load_environment
from groupwise.environments.dataset import DatasetSettings
from groupwise.environments.readers import READERS
from groupwise.environments.registry import offered
from groupwise.errors import RecipeError
from groupwise.evaluation import prospects_of
from groupwise.evaluation.measure import choose
from groupwise.imports import import_object
from groupwise.recipe import load_recipe, parse_value, set_field
from groupwise.records.files import check_place
from groupwise.rollouts import collect
from groupwise.samplers import sampler_of
from groupwise.suggestions import nearest
from groupwise.texts import counted
from groupwise.training.preparing import Prepared, prepare
from groupwise.training.session import policy_of
from groupwise.types import Group, Prompt
from groupwise.verifiers import Case, Composite, load_verifier, score_cases

MOST_TOKENS = 256
"""Tokens of a completion at most, where `sampling.max_tokens` is not given."""
_FORMULA = re.compile(r"[\\^=+*/]")
_ROWS = DatasetSettings.model_fields


def suggest(
    data: str,
    model: str,
    overrides: Mapping[str, Any],
    *,
    verifier: str | None,
    prompts: int,
    samples: int,
    output: Path | None,
    say: Callable[[str], None],
) -> Suggestion:
    """Measure, decide, and write the recipe to `output` where one is given.

    `samples` completions and a greedy one of at most `prompts` training prompts; `overrides` are
    fields of the recipe by dotted name, and stay in it. `say` takes messages for a person.

    Raises RecipeError for bad input and where nothing can be scored.
    """
    for path in () if output is None else (output, Suggestion.rows_path(output)):
        check_place(path, "--output")
        if path.exists():
            raise RecipeError(f"--output: {path} is there already; give another file")
    tables: dict[str, Any] = {
        "model": {"name": model},
        "environment": _environment(data),
        "algorithm": {"preset": "grpo"},
    }
    for dotted, value in overrides.items():
        set_field(tables, dotted, parse_value(value))
    chosen = _choose_verifier(tables["environment"], verifier)
    if chosen:
        say(f"{chosen}; --verifier NAME chooses another")
    given = tables.get("sampling", {}).get("max_tokens")
    prepared = prepare(load_recipe(tables, {} if given else {"sampling.max_tokens": 1}))
    room = prepared.model.max_length - prepared.longest_prompt
    cap = given or min(MOST_TOKENS, room)
    try:
        found = prospects_of(_sample(prepared, cap, prompts, samples, say))
        lacking = found.verdict in ("too_hard", "split")
        starts = _starts(prepared.environment) if lacking else []
    finally:
        prepared.environment.close()
    suggestion = Suggestion(data, model, chosen, tables, prepared, found, cap, starts)
    if output is not None:
        suggestion.write(output)
    return suggestion


def _environment(data: str) -> dict[str, Any]:
    """The environment that DATA names: rows of a file, folder, generator or data set, or itself."""
    names = [*BUILTIN, *offered()]
    if data in names or data.startswith("reasoning_gym:"):
        return {"name": data}
    if ":" in data and isinstance(import_object(data, "DATA"), type):
        return {"name": data}
    if Path(data).suffix.lower() in READERS or "/" in data or ":" in data or Path(data).exists():
        return {"name": "dataset", "path": data}
    near = nearest(data, names)
    hint = f"did you mean {near!r}?" if near else f"environments are {', '.join(names)}"
    raise RecipeError(f"{data!r} is neither a file of rows nor an environment; {hint}")


def _choose_verifier(environment: dict[str, Any], name: str | None) -> str:
    """Set the verifier of rows that name none, by the form of their answers; why, in a sentence."""
    if name is not None:
        environment["verifiers"] = [{"name": name}]
    if environment["name"] != "dataset" or environment.get("verifiers"):
        return ""
    arguments = {key: value for key, value in environment.items() if key in _ROWS}
    rows = load_environment("dataset", verifiers=[{"name": "repetition"}], **arguments)
    golds = rows.prompts(split="all")
    for prompt in golds:
        if prompt.answer in (None, ""):
            raise RecipeError(
                f"{rows.place(prompt.id)} has no answer to compare with; name the answers' column "
                "with --environment.answer, or with --verifier what judges without one"
            )
    texts = [str(prompt.answer).strip("() .") for prompt in golds]
    if not any(load_verifier("number").check_answers(golds)):
        found, why = "number", "every answer is a number"
    elif all(len(text) == 1 and text.isalpha() for text in texts):
        found, why = "choice", "every answer is a letter"
    elif any(_FORMULA.search(text) for text in texts):
        found, why = "math", "there are formulas among the answers"
    else:
        found, why = "text", "the answers are texts"
    environment["verifiers"] = [{"name": found}]
    return f"verifier {found}: {why}"


def _sample(
    prepared: Prepared, cap: int, prompts: int, samples: int, say: Callable[[str], None]
) -> list[Group]:
    """The scored groups, one a prompt, each with its greedy rollout."""
    recipe, environment = prepared.recipe, prepared.environment
    chosen = choose(environment.prompts(), prompts, recipe.seed)
    sampler = sampler_of(recipe.sampling, policy_of(recipe))
    say(
        f"sampling {samples} completions of at most {counted(cap, 'token')}, and a greedy one, for "
        f"each of {counted(len(chosen), 'prompt')}"
    )
    try:
        return collect(
            environment,
            sampler,
            prepared.model.template,
            [(prompt, 0) for prompt in chosen],
            group_size=samples,
            sampling=recipe.sampling.model_copy(update={"max_tokens": cap}),
            seed=recipe.seed,
            purpose="evaluation",
            greedy=True,
        )
    finally:
        sampler.close()


def _starts(environment: Environment) -> list[tuple[Prompt, str]]:
    """Every training prompt with a completion that the verifier accepts, made from its gold answer;
    without those of which it can make none."""
    whole = part = environment.verifier
    if isinstance(whole, Composite):
        part = max(whole.components, key=lambda each: each.weight).verifier
    written = ((prompt, part.gold_completion(prompt)) for prompt in environment.prompts())
    pairs = [(prompt, text) for prompt, text in written if text]
    scores = score_cases(whole, [Case(prompt, text) for prompt, text in pairs])
    return [pair for pair, score in zip(pairs, scores, strict=True) if score.outcome == "correct"]
