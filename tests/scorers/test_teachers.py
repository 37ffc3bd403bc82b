"""Teachers: who teaches a row, what it reads, and what is refused before weights load."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from groupwise.environments import load_environment
from groupwise.errors import GroupwiseError, RecipeError
from groupwise.policies import build_tiny, describe_model
from groupwise.recipe import load_recipe
from groupwise.scorers import Teachers, TeacherSettings, check_teachers
from groupwise.training.preparing import prepare
from groupwise.types import Completion, Group, Prompt, Rollout, Score, Turn
from helpers import make_policy

BASE: dict[str, Any] = {
    "model": {"name": "tiny"},
    "environment": {"name": "arithmetic", "level": "table"},
    "algorithm": {"preset": "on_policy_distillation"},
    "sampling": {"group_size": 2, "max_tokens": 3},
}
CHAT = Prompt("a/1", messages=({"role": "user", "content": "3+4="},), answer=7)
RAW = Prompt("b/1", text="34", answer=5)


def rollout(prompt: Prompt, text: str, value: float, index: int, ids: int = 2) -> Rollout:
    completion = Completion((8,) * ids, text, (-1.0,) * ids, "stop")
    score = Score(value, "correct" if value else "incorrect", f"{text} was judged")
    return Rollout(prompt, (Turn((5, 6), completion),), score, index, 0, 0)


def group_of(prompt: Prompt, *values: float) -> Group:
    return Group(
        prompt, tuple(rollout(prompt, f"text {i}", value, i) for i, value in enumerate(values))
    )


class Said:
    """An environment and a template that note which prompts they are asked to encode."""

    name = "said"

    def __init__(self) -> None:
        self.prompts: list[Prompt] = []

    def prompt_ids(self, prompt: Prompt, template: Any) -> tuple[int, ...]:
        self.prompts.append(prompt)
        return (1, 2, 3)


def teachers(said: Any, names: dict[str, int], **fields: Any) -> Teachers:
    settings = TeacherSettings(**{"name": "self", **fields})
    policies = {name: make_policy(seed) for name, seed in names.items()}
    return Teachers(settings, policies, said, policies[settings.name].template, 1.0)


def test_without_a_context_the_teacher_reads_the_students_ids() -> None:
    made = teachers(Said(), {"one": 0, "two": 1}, name="one", by_source={"b": "two"})
    found = made.teach([group_of(CHAT, 1, 0), group_of(RAW, 0)])
    assert found.which == [0, 0, 1]
    assert found.prompt_ids == [(5, 6)] * 3
    assert found.taught.tolist() == [True] * 3


@pytest.mark.parametrize(
    ("context", "chat", "raw"),
    [
        ("answer", "3+4=\n\nThe correct answer is 7.", "The correct answer is 5.\n34"),
        (
            "feedback",
            "3+4=\n\nAn earlier attempt was judged so: text 0 was judged",
            "An earlier attempt was judged so: text 0 was judged\n34",
        ),
        ("sibling", "3+4=\n\nA correct solution:\ntext 1", "A correct solution:\ntext 1\n34"),
    ],
)
def test_what_a_teacher_reads_beside_the_prompt(context: str, chat: str, raw: str) -> None:
    said = Said()
    made = teachers(said, {"self": 0}, context=context)
    found = made.teach([group_of(CHAT, 0, 1), group_of(RAW, 0, 1)])
    assert said.prompts[0].messages[-1]["content"] == chat
    assert said.prompts[-2 if context != "sibling" else -1].text == raw
    assert CHAT.messages[-1]["content"] == "3+4="  # the student's prompt stays as it is
    # a right completion is no sibling of itself, and the only right one has none
    assert found.which == ([0, None, 0, None] if context == "sibling" else [0, 0, 0, 0])


def test_rows_without_a_context_or_room_have_no_teacher() -> None:
    made = teachers(Said(), {"self": 0}, context="answer", wording="={text}")
    bare = replace(RAW, answer=None)
    long = Group(CHAT, (rollout(CHAT, "x", 1.0, 0, ids=62),))  # 3 + 62 > 64 positions
    found = made.teach([group_of(CHAT, 1.0), group_of(bare, 1.0), long])
    assert found.which == [0, None, None]
    assert found.taught.tolist() == [True, False, False]


def test_a_self_teacher_stays_or_follows() -> None:
    student = make_policy(4)
    for weights, follows in (("input", False), ("step", True)):
        made = teachers(Said(), {"self": 0}, context="answer", weights=weights)
        before = next(made.policies["self"].model.parameters()).clone()
        made.refresh(student)
        now = next(made.policies["self"].model.parameters())
        assert torch.equal(now, next(student.model.parameters())) is follows
        assert torch.equal(now, before) is not follows
        with torch.no_grad():
            next(student.model.parameters()).add_(1.0)
        assert not torch.equal(now, next(student.model.parameters()))
        student = make_policy(4)


def test_other_weights_than_the_checkpoints_are_refused() -> None:
    made = teachers(Said(), {"one": 0}, name="one")
    made.same(dict(made.hashes))
    with pytest.raises(GroupwiseError, match="teacher 'one' are not those"):
        made.same({"one": "0" * 64})


def test_another_vocabulary_is_refused_before_weights_load(tmp_path: Path) -> None:
    folder = tmp_path / "other"
    folder.mkdir()
    for name in ("config.json", "tokenizer_config.json", "tokenizer.json"):
        text = (build_tiny() / name).read_text(encoding="utf-8")
        if name == "tokenizer.json":
            text = text.replace('"3"', '"\\u00e9"')
        (folder / name).write_text(text, encoding="utf-8")
    assert not list(folder.glob("*.safetensors"))  # nothing to load
    recipe = load_recipe({**BASE, "teacher": {"name": str(folder)}})
    with pytest.raises(
        RecipeError,
        match=r"different vocabularies: token '3' has the id .* in one and None in the other",
    ):
        prepare(recipe)
    prepare(load_recipe({**BASE, "teacher": {"name": "tiny"}}))


def test_a_teacher_with_too_few_positions_and_an_unknown_source_are_refused() -> None:
    info, environment = describe_model("tiny"), load_environment("arithmetic")
    with pytest.raises(RecipeError, match=r"positions for 1024 tokens.*up to 1025"):
        check_teachers(TeacherSettings(name="tiny"), info, environment, 1025)
    settings = TeacherSettings(name="tiny", by_source={"code": "tiny"})
    with pytest.raises(RecipeError, match=r"teacher.by_source.code is not a source"):
        check_teachers(settings, info, environment, 10)
    mixture = SimpleNamespace(name="mixture", parts={"sums": None})
    with pytest.raises(RecipeError, match="sources: sums"):
        check_teachers(settings, info, mixture, 10)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({}, r"learns from a teacher, and the recipe has no \[teacher\] table"),
        ({"teacher": {"name": "self"}}, "without a context"),
        ({"teacher": {"name": "tiny"}, "algorithm": {"preset": "grpo"}}, "does not learn from a"),
        ({"teacher": {"name": "tiny", "context": "hint"}}, "'none', 'answer', 'feedback'"),
        ({"teacher": {"name": "tiny", "wording": "no place"}}, "wording = 'no place'"),
        ({"teacher": {"name": "tiny", "temperature": 0}}, "teacher.temperature = 0"),
        ({"teacher": {"name": "no/such/folder"}}, "no/such/folder"),
        (
            {"teacher": {"name": "tiny"}, "sampling": {"group_size": 2, "top_p": 0.9}},
            "teacher's whole one",
        ),
    ],
)
def test_bad_tables_are_refused_before_weights_load(table: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        prepare(load_recipe({**BASE, **table}))
