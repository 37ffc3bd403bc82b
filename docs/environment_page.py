"""Write docs/environments.md from the environments themselves; a test keeps the two equal.

Run: python docs/environment_page.py
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel

from groupwise.cli.environment_scaffold import ENVIRONMENT_MODULE
from groupwise.environments import GeneratedSettings, load_environment, settings_class
from groupwise.environments.arithmetic import LEVELS
from groupwise.environments.dataset import DatasetSettings
from groupwise.environments.shapes import ShapedSettings

PAGE = Path(__file__).parent / "environments.md"
GENERATED = (
    "countdown", "sorting", "strings", "multiple_choice", "knights", "sudoku", "equations",
    "calendar",
)  # fmt: skip
SHAPED = ("gsm8k", "math", "mmlu", "ifeval", "humaneval", "mbpp")

INTRO = """\
# Environments

<!-- Written by docs/environment_page.py; a test keeps it equal to the code. -->

An environment owns the prompts and the verifier that judges what is written to them. Name one in a
recipe, with its arguments beside the name:

```toml
[environment]
name = "countdown"
level = "medium"
num_train = 2000
```

or look at one first:

```python
import groupwise as gw

environment = gw.load_environment("countdown", seed=0, level="medium")
prompt = environment.prompts(1)[0]
print(prompt.messages[-1]["content"], prompt.answer)
print(environment.verify(prompt, "<answer>1 + 2</answer>"))
```

Your own prompts with answers are the environment `dataset` ([Data and verifiers](data.md)); data
sets of a known shape have [environments of their own](#rows-of-a-known-shape); a task that is made
by a program is [one file](#one-of-your-own).

## Generated puzzles

All of them are functions of the seed: the same seed gives the same prompts on every machine, with
ids that are hashes of their content. Training and held-out prompts are apart by construction: what
could give a task away (the same numbers in another order, the same puzzle under other names) is
one family, and a hash of the seed and the family puts it on one side, whatever counts are asked
for. Every gold answer is put through its own verifier when the environment is loaded. The answer is
read from the last box, else the last answer tag, else the last line after any reasoning section.

"""

ARITHMETIC = """\
## arithmetic

From the table of single-digit sums, which the built-in tiny policy learns in seconds, to small
stories. Training and held-out problems never overlap. Verifier: `number`, the last number; where a
format is asked for, a gated bonus and the strict reading are added as parts of their own.

| level | an example | gold answer |
|---|---|---|
"""

TARGET = """\
## target_token

Write a wanted token as often as possible: the reward is spread over the tokens, and which of them
earned it is known. Prompts are invented words. Verifier: `target`.

"""

SHAPES = """\
## Rows of a known shape

The data is yours: `path` is a file (JSON lines, CSV, Parquet), a folder, or a `datasets` name. The
columns, the words behind the prompt and the verifier are set; everything that `dataset` has
(`split`, `heldout_share`, `on_bad_answer`, ...) works here too.

```toml
[environment]
name = "gsm8k"
path = "openai/gsm8k"
config = "main"
heldout_split = "test"
```

| name | verifier | rows |
|---|---|---|
"""

OWN = """\
## One of your own

`groupwise init environment twice` writes this file, `twice.py`, and its test. Change the drawing of
a task, its words and the verifier; splits, levels, examples, ids and checks are there already.

```python
"""

OWN_END = """\
```

Where prompts are not drawn but listed, or a rollout has several turns, derive a class from
`groupwise.environments.Environment`: its constructor takes the prompts by split and a verifier, and
`start(prompt)` may give a `Play` of your own.
"""


def page() -> str:
    parts = [INTRO, _arguments(GeneratedSettings, without=()), "\n"]
    parts += [_section(name) for name in GENERATED]
    parts += [ARITHMETIC, _levels_of_arithmetic(), "\n"]
    parts += [_arguments(settings_class("arithmetic"), without=()), "\n"]
    parts += [TARGET, _arguments(settings_class("target_token"), without=()), "\n"]
    parts += [SHAPES, *(_shape(name) for name in SHAPED), "\n"]
    parts += [_heading("Their arguments, beside those of `dataset`"), _shaped_arguments(), "\n"]
    parts += [_heading("The arguments of `dataset`"), _arguments(DatasetSettings, without=()), "\n"]
    return "".join([*parts, OWN, ENVIRONMENT_MODULE.format(name="twice"), OWN_END])


def _section(name: str) -> str:
    model = settings_class(name)
    module = sys.modules[model.__module__]
    text = [f"### {name}\n\n", inspect.getdoc(module) or "", "\n\n"]
    for level in ("easy", "medium", "hard"):
        environment = load_environment(name, level=level, num_train=2, num_heldout=0)
        prompt = environment.prompts(1)[0]
        answer = str(prompt.answer).replace("\n", " / ")
        content = prompt.messages[-1]["content"]
        text.append(f"{level}, gold answer `{answer}`:\n\n```text\n{content}\n```\n\n")
    verifier = environment.verifier.name
    text.append(f"Verifier: `{verifier}`. Arguments of its own (defaults by level):\n\n")
    return "".join([*text, _arguments(model, without=GeneratedSettings.model_fields), "\n"])


def _levels_of_arithmetic() -> str:
    lines = []
    for level in LEVELS:
        prompt = load_environment("arithmetic", level=level).prompts(1)[0]
        lines.append(f"| `{level}` | {_cell(prompt.last_text)} | `{prompt.answer}` |\n")
    return "".join(lines)


def _shape(name: str) -> str:
    model = settings_class(name)
    assert issubclass(model, ShapedSettings)
    first = (inspect.getdoc(model) or "").split("\n\n")[0].replace("\n", " ")
    words = first.removeprefix(f"The arguments of `{name}`: ")
    return f"| `{name}` | `{model.default_verifier}` | {words} |\n"


def _shaped_arguments() -> str:
    lines = ["| environment | argument | default | what it is |\n|---|---|---|---|\n"]
    for name in SHAPED:
        model = settings_class(name)
        for field, info in model.model_fields.items():
            inherited = DatasetSettings.model_fields.get(field)
            if inherited is None or inherited.default != info.default:
                default = _code(repr(info.default))
                lines.append(f"| `{name}` | `{field}` | {default} | {_cell(info.description)} |\n")
    return "".join(lines)


def _arguments(model: type[BaseModel], without: Any) -> str:
    lines = ["| argument | type | default | what it is |\n|---|---|---|---|\n"]
    for name, info in model.model_fields.items():
        if name not in without:
            default = "none" if info.default is None else _code(repr(info.default))
            if name in LEVELS["table"] and model is settings_class("arithmetic"):
                default = "the level's"
            if info.is_required():
                default = "required"
            if info.default is None and issubclass(model, GeneratedSettings) and without:
                default = _of_levels(sys.modules[model.__module__].LEVELS, name)
            kind = _code(_kind(info.annotation))
            lines.append(f"| `{name}` | {kind} | {default} | {_cell(info.description)} |\n")
    return "".join(lines)


def _of_levels(levels: Mapping[str, Mapping[str, Any]], name: str) -> str:
    """What easy, medium and hard set, in this order."""
    values = (levels[level][name] for level in ("easy", "medium", "hard"))
    return "; ".join(
        _code(", ".join(map(str, value)) if isinstance(value, tuple) else str(value))
        for value in values
    )


def _kind(annotation: Any) -> str:
    """A type as a reader says it: no `None`, choices by their values."""
    parts = [each for each in get_args(annotation) if each is not type(None)]
    if get_origin(annotation) is Literal:
        return ", ".join(str(each) for each in parts)
    if get_origin(annotation) is tuple:
        inner = [_kind(each) for each in parts if each is not Ellipsis]
        return f"[{', '.join(inner)}]" if Ellipsis not in parts else f"list of: {inner[0]}"
    if parts:
        return _kind(parts[0])
    return str(getattr(annotation, "__name__", annotation))


def _heading(text: str) -> str:
    return f"### {text}\n\n"


def _code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|")


def _cell(text: str | None) -> str:
    return (text or "").replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
