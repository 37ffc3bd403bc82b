"""Groups as plain values and back: what a checkpoint holds of rollouts that wait.

Every field of the types comes back equal, floats bit for bit; prompts are kept by id, or whole for
a stream, which may have passed them. A tuple is written as a list, a list as `{"list": ...}`, a
mapping as `{"map": ...}`, a type of `types.py` as `{"of": name, "fields": ...}`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from groupwise.types import Completion, Extras, Group, Prompt, Rollout, Score, StepReward, Turn

PromptOf = Callable[[str], Prompt]
_TYPES = {
    each.__name__: each
    for each in (Completion, Extras, Group, Prompt, Rollout, Score, StepReward, Turn)
}


def group_to_plain(group: Group, *, whole_prompts: bool = False) -> Any:
    """JSON-able; TypeError where a rollout's extras (or a whole prompt) hold what JSON cannot."""
    return _plain(group, whole_prompts)


def group_from_plain(data: Any, prompt_of: PromptOf) -> Group:
    """What `group_to_plain` was given; `prompt_of` gives a prompt by its id."""
    group = _back(data, prompt_of)
    assert isinstance(group, Group)
    return group


def _plain(value: Any, whole: bool) -> Any:
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, tuple):
        return [_plain(inner, whole) for inner in value]
    if isinstance(value, list):
        return {"list": [_plain(inner, whole) for inner in value]}
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {"map": {key: _plain(inner, whole) for key, inner in value.items()}}
    if isinstance(value, Prompt) and not whole:
        return {"prompt": value.id}
    if is_dataclass(value) and type(value).__name__ in _TYPES:
        own = {each.name: _plain(getattr(value, each.name), whole) for each in fields(value)}
        return {"of": type(value).__name__, "fields": own}
    raise TypeError(
        f"a rollout holds {value!r:.80}, a {type(value).__name__}, which no checkpoint can keep; "
        "give numbers, texts, lists and mappings with text keys"
    )


def _back(data: Any, prompt_of: PromptOf) -> Any:
    if isinstance(data, list):
        return tuple(_back(inner, prompt_of) for inner in data)
    if not isinstance(data, dict):
        return data
    if "prompt" in data:
        return prompt_of(data["prompt"])
    if "list" in data:
        return [_back(inner, prompt_of) for inner in data["list"]]
    if "map" in data:
        return {key: _back(inner, prompt_of) for key, inner in data["map"].items()}
    own = {name: _back(inner, prompt_of) for name, inner in data["fields"].items()}
    return _TYPES[data["of"]](**own)
