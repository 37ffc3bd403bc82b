"""Math-Shepherd labels: exact counts with a scripted sampler, prefixes by turn, resume, cost."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import groupwise as gw
from groupwise.environments import Environment, Episode, load_environment
from groupwise.errors import RecipeError
from groupwise.policies import Policy, load_policy
from groupwise.records.files import read_json_lines
from groupwise.samplers import SamplingSettings
from groupwise.samplers.scripted import ScriptedSampler
from groupwise.stages import prefixes
from groupwise.stages.prefixes import Labelling
from groupwise.stages.traces import Source
from groupwise.templates import Template
from groupwise.types import Message, Prompt, Request, Score
from groupwise.verifiers import Case, Verifier
from pipeline_helpers import pipeline


class Endings(Verifier):
    """Right where the text ends with the answer."""

    name = "endings"

    def score_case(self, case: Case) -> Score:
        if "?" in case.text:
            return Score(None, "infrastructure_error", "unreadable")
        right = case.text.endswith(str(case.prompt.answer))
        return Score(float(right), "correct" if right else "incorrect")


def labelled(
    monkeypatch: pytest.MonkeyPatch,
    script: Any,
    environment: Environment,
    completions: int = 4,
    separator: str = "\n",
) -> tuple[dict[str, Any], list[Request]]:
    """The line of one prompt with two solutions, and what was asked for."""
    policy = load_policy("tiny", device="cpu")
    sampler = ScriptedSampler(policy.template, script(policy.template))
    monkeypatch.setattr(prefixes, "sampler_of", lambda *_, **__: sampler)
    sampling = SamplingSettings(group_size=2, max_tokens=40)
    prompts = environment.prompts()
    source = Source(environment, prompts[:1], sampling, 0, policy.template)
    (line,) = Labelling(source, completions, separator).labelled(prompts[:1], policy)
    return line, sampler.requests


def one_prompt() -> Environment:
    prompt = Prompt("p", ({"role": "user", "content": "1+1="},), answer="2")
    return Environment("one", Endings(), {"train": [prompt]})


def test_a_step_is_worth_the_share_of_right_completions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal prefixes are completed once; the last step has the solution's outcome."""
    asked: Counter[str] = Counter()

    def script(template: Template) -> Any:
        start = len(template.encode_prompt(one_prompt().prompts()[0]))
        endings = {"": ["1\n3\n2", "1\n4\n5"], "1\n": "2395", "1\n3\n": "2229", "1\n4\n": "5555"}

        def reply(request: Request, _: int) -> str:
            prefix = template.decode_completion(request.prompt_ids[start:])
            asked[prefix] += 1
            assert request.max_tokens == 40 - len(request.prompt_ids[start:])
            return endings[prefix][asked[prefix] - 1]

        return reply

    line, requests = labelled(monkeypatch, script, one_prompt())
    assert [(row["steps"], row["labels"]) for row in line["rows"]] == [
        (["1\n", "3\n", "2"], [0.25, 0.75, 1.0]),
        (["1\n", "4\n", "5"], [0.25, 0.0, 0.0]),
    ]
    assert line["rows"][0]["right"] == [1, 3, 1]
    assert line["rows"][0]["completed"] == [4, 4, 1]
    assert line["rows"][1]["outcome"] == "incorrect"
    assert asked == {"": 2, "1\n": 4, "1\n3\n": 4, "1\n4\n": 4}
    assert len({request.key for request in requests}) == len(requests), "noise is never shared"
    counts = line["counts"]
    assert (counts["completions"], counts["shared"], counts["labels"]) == (12, 1, 6)
    assert counts["tokens"] == 2 * 6 + 12 * 2, "prefixes are not sampled again"


def test_what_cannot_be_judged_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def script(template: Template) -> Any:
        start = len(template.encode_prompt(one_prompt().prompts()[0]))
        solutions = iter(["1\n2", "?"])
        endings = iter(["2", "?", "?", "3"])
        return lambda request, _: next(endings if len(request.prompt_ids) > start else solutions)

    line, _ = labelled(monkeypatch, script, one_prompt())
    (row,) = line["rows"]
    assert (row["labels"], row["completed"]) == ([0.5, 1.0], [2, 1])
    assert line["counts"]["dropped/unscored"] == 1


class Counting(Episode):
    """Asks three times; what was said before is in its question."""

    said = ""

    async def next(self, text: str) -> Sequence[Message] | None:
        self.said += text
        return None if len(self.said) == 3 else [{"role": "user", "content": f"{self.said}?"}]


class Turns(Environment):
    answer_role = "user"
    judged = "all"

    def start(self, prompt: Prompt) -> Episode:
        return Counting(prompt)


def test_turns_are_played_back_and_gone_on_from(monkeypatch: pytest.MonkeyPatch) -> None:
    prompt = Prompt("p", ({"role": "user", "content": "x"},), answer="7")
    environment = Turns("turns", Endings(), {"train": [prompt]})
    seen: list[str] = []

    def script(template: Template) -> Any:
        replies = iter(["1", "4", "2", "5", "7", "6"])

        def reply(request: Request, _: int) -> str:
            seen.append(template.decode_completion(request.prompt_ids))
            return next(replies, "7")

        return reply

    line, _ = labelled(monkeypatch, script, environment, completions=2, separator="")
    assert [row["steps"] for row in line["rows"]] == [["1\n", "2\n", "7"], ["4\n", "5\n", "6"]]
    assert [row["labels"] for row in line["rows"]] == [[1.0, 1.0, 1.0], [1.0, 1.0, 0.0]]
    gone_on = Counter(text[text.index("?") - 1 :].count("?") for text in seen[6:])
    assert gone_on == {1: 4, 2: 8}, "of each prefix twice, those of one turn with two turns more"
    for said in ("12?", "45?"):
        assert sum(said in text for text in seen[6:]) == 2


def test_labels_of_another_data_set_are_refused(tmp_path: Path) -> None:
    environment = load_environment("arithmetic", level="table")
    template = load_policy("tiny", device="cpu").template
    source = Source(environment, environment.prompts()[:2], SamplingSettings(), 0, template)
    path = tmp_path / "labelled.jsonl"
    path.write_text('{"prompt_id": "other", "rows": [], "counts": {}}\n', encoding="utf-8")
    policy: Any = None
    with pytest.raises(RecipeError, match="has labels of other prompts"):
        list(Labelling(source, 2, "\n").stored(path, policy))


# The stage.


def recipe(**more: Any) -> dict[str, Any]:
    """A hot policy that writes a 7 and goes on now and then: a step ends behind it."""
    stage = {
        "name": "prm",
        "kind": "process",
        "rollouts": {"completions": 3},
        "prompts": 40,
        "separator": "7",
        "sampling": {"temperature": 3.0},
        "training": {"steps": 3, "learning_rate": 1e-3, "examples_per_step": 8},
        "checkpoints": {"every": 1},
        "heldout_share": 0.3,
    }
    made = pipeline(Path(), {**stage, **more})
    del made["evaluation"]
    return {**made, "guard": {"evaluation": {"samples": 1, "max_prompts": 4}}}


def test_the_rows_are_kept_the_cost_is_recorded_and_they_are_read_again(tmp_path: Path) -> None:
    made = recipe()
    hard = {"name": "hard", "kind": "process", "data": {"stage": "prm"}, "labels": "hard"}
    hard |= {"separator": "7", "training": {"steps": 1}}
    made["stages"].append(hard)
    run = gw.train(made, output=tmp_path / "run")
    first, second = run.summary["stages"]
    rows = list(read_json_lines(run.folder / "stages" / "prm" / "data.jsonl"))
    last = first["last"]
    blank = last.get("labels/dropped/empty", 0)
    assert last["labels/solutions"] == len(rows) == 160 - blank
    assert all(row["labels"][-1] in (0.0, 1.0) for row in rows)
    completed = [number for row in rows for number in row["completed"][:-1]]
    assert len(completed) > 5
    assert set(completed) == {3}
    assert last["labels/completions"] == 3 * (len(completed) - last["labels/shared"])
    assert last["labels/labels"] == sum(len(row["labels"]) for row in rows)
    assert last["labels/tokens_a_label"] == last["labels/tokens"] / last["labels/labels"]
    about = gw.open_run(run.folder / "stages" / "hard").environment
    assert about["examples"] == len(rows)
    assert first["last"]["fit/eval_loss"] < first["first"]["fit/eval_loss"]
    assert second["status"] == "finished"


def test_killed_while_it_labels_it_ends_as_the_unbroken_stage_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gw.train(recipe(), output=tmp_path / "whole")
    labelled = Labelling.labelled

    def once(self: Labelling, prompts: Sequence[Prompt], policy: Policy) -> Any:
        if len(prompts) < prefixes.CHUNK:  # the second part
            raise KeyboardInterrupt
        return labelled(self, prompts, policy)

    monkeypatch.setattr(Labelling, "labelled", once)
    with pytest.raises(KeyboardInterrupt):
        gw.train(recipe(), output=tmp_path / "broken")
    stored = tmp_path / "broken" / "stages" / "prm" / "labelled.jsonl"
    assert len(list(read_json_lines(stored))) == prefixes.CHUNK
    with stored.open("a", encoding="utf-8") as file:
        file.write('{"prompt_id": "torn')
    monkeypatch.undo()
    gw.train(recipe(), output=tmp_path / "broken", resume=True)
    for name in ("data.jsonl", "labelled.jsonl", "model/model.safetensors"):
        one, other = (
            (tmp_path / each / "stages" / "prm" / name).read_bytes() for each in ("whole", "broken")
        )
        assert one == other, name


def test_rollouts_need_a_policy(tmp_path: Path) -> None:
    run = gw.train(recipe(training={"steps": 0}), output=tmp_path / "run")
    folder = str(run.folder / "stages" / "prm" / "model")
    assert json.loads(Path(folder, "config.json").read_text())["step_separator"] == "7"
    with pytest.raises(RecipeError, match=r"is a reward model .*a language model is needed"):
        gw.train(recipe(model={"name": folder}), output=tmp_path / "again")
