"""Bad pipelines: one clear message before any weights load."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import groupwise as gw
from groupwise.errors import GroupwiseError, RecipeError
from groupwise.policies import describe_model, get_model
from groupwise.recipe import load_recipe
from groupwise.stages import CheckContext, load_pipeline
from groupwise.stages.recipe import stage_fields
from groupwise.training.trained import evaluate_source, trained_policy
from pipeline_helpers import pipeline, sum_rows, write_rows

RL: dict[str, Any] = {"kind": "rl", "training": {"steps": 1}}
EVALUATE: dict[str, Any] = {"kind": "evaluate"}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "sums.jsonl", sum_rows())


@pytest.fixture(autouse=True)
def no_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """A check that loads weights is late."""

    def load(*_: Any, **__: Any) -> None:
        raise AssertionError("weights were loaded")

    monkeypatch.setattr("groupwise.stages.stage.load_policy", load)
    monkeypatch.setattr("groupwise.training.session.load_policy", load)


def refused(table: Any, tmp_path: Path, **given: Any) -> str:
    with pytest.raises(RecipeError) as caught:
        gw.train(table, output=tmp_path / "run", **given)
    assert not (tmp_path / "run").exists()
    return str(caught.value)


JUDGE = {"name": "local_judge", "model": "tiny"}
SAMPLES = {"name": "samples", "kind": "rejection", "prompts": 4}
PAIRS = {
    "name": "pairs",
    "kind": "constitution",
    "mode": "label",
    "prompts": 4,
    "principles": [{"text": "It is short."}],
    "feedback": JUDGE,
}


def paired(stage: str = "samples", kind: str = "preference", **pairing: Any) -> dict[str, Any]:
    return {"kind": kind, "data": {"stage": stage, "pairing": pairing}}


@pytest.mark.parametrize(
    ("stages", "words"),
    [
        ([{"kind": "rll"}], "stages.0.kind = 'rll' is not known; did you mean 'rl'?"),
        ([{"name": "a"}], "stages.0.kind is missing; give one of supervised, rl"),
        ([{"kind": 3}], "stages.0.kind = 3: expected a text"),
        ([RL, RL], "stages.1.name = 'rl': stages.0 has the same name; give each its own"),
        ([{**RL, "name": "base"}], "'base' stands for the top-level [model]"),
        *(
            ([{**RL, "name": name}], f"stages.0.name = {name[:70]!r}: give a letter, then letters")
            for name in ("a/b", "12", "...", "v1.5", "x" * 65)
        ),
        (
            [{**RL, "name": "Start"}, {**RL, "name": "start"}],
            "stages.0 has the same name but for its case ('Start'), so the same folder",
        ),
        ([{**RL, "from": "sfft"}], "stage 'rl': from = 'sfft' is not known; one of base"),
        (
            [{**RL, "name": "a"}, {**RL, "from": 1}],
            "stage 'rl': from = 1: expected a text; one of base, a",
        ),
        (
            [{**RL, "name": "first", "from": "second"}, {**RL, "name": "second"}],
            "the stages read each other in a circle: first -> second -> first",
        ),
        ([{**RL, "from": "rl"}], "the stages read each other in a circle: rl -> rl"),
        (
            [{**RL, "from": "base", "model": {"name": "tiny"}}],
            "from = 'base' and model.name = 'tiny' are two models to start from",
        ),
        ([{**RL, "trainin": {}}], "unknown key 'trainin'; did you mean 'training'?"),
        ([{**RL, "training": {"step": 3}}], "unknown key 'training.step'"),
        ([{**RL, "training": {"steps": -1}}], "stage 'rl': training.steps = -1"),
        ([{**RL, "sampling": 3}], "stage 'rl': sampling = 3: expected a table"),
        ([RL, {**EVALUATE, "sampling": {"top_p": 2.0}}], "stage 'evaluate': sampling.top_p = 2.0"),
        ([{**RL, "sampling": {"group_size": 1}}], "stage 'rl': sampling.group_size = 1: algorithm"),
        ([{"kind": "merge", "models": [{"stage": "x"}]}], "stage 'merge': the stage 'x' is not"),
        ([{"kind": "merge", "models": [{}]}], "give stage or name, one of the two"),
        ([{"kind": "supervised", "data": []}], "stage 'supervised': data = []"),
        ([{"kind": "supervised", "data": "a.jsonl"}], 'give a table, as { path = "chats.jsonl" }'),
        (
            [RL, {"kind": "supervised", "data": {"stage": "rl"}}],
            "data.stage = 'rl': a stage of the kind 'rl' makes rollouts, and chats are read here",
        ),
        (
            [{"kind": "merge"}, {"kind": "supervised", "data": {"stage": "merge"}}],
            "data.stage = 'merge': a stage of the kind 'merge' makes no rows",
        ),
        (
            [SAMPLES, {"kind": "supervised", "data": {"stage": "samples", "messages": "chat"}}],
            "data.messages = 'chat': the rows of a stage have columns of their own; leave it out",
        ),
        (
            [
                PAIRS,
                {"kind": "preference", "data": {"stage": "pairs", "pairing": {"by": "reward"}}},
            ],
            "data.stage = 'pairs' makes pairs already; leave pairing out",
        ),
        (
            [PAIRS, {"kind": "supervised", "data": {"stage": "pairs"}}],
            "the kind 'constitution' makes pairs, and chats are read here",
        ),
        (
            [SAMPLES, paired(by="verifier", verifier="nummber")],
            "'samples': pairing.verifier = 'nummber' is not known; did you mean 'number'?",
        ),
        (
            [SAMPLES, paired(differ_in="steps")],
            "data.stage = 'samples': pairing.differ_in = 'steps' is not known; one of number",
        ),
        (
            [RL, paired("rl", kind="reward_model", differ_in="steps")],
            "data.stage = 'rl': pairing.differ_in = 'steps' is not known; one of number",
        ),
        ([SAMPLES, paired(by="judge")], 'pairing.by = "judge" and pairing.judge, its table, go'),
        (
            [SAMPLES, paired(by="judge", judge={**JUDGE, "readout": "list"})],
            'pairing.judge.readout = "list": two answers are compared; give "pair"',
        ),
        (
            [SAMPLES, paired(by="judge", judge={**JUDGE, "model": {"stage": "sampls"}})],
            "the stage 'sampls' is not known; did you mean 'samples'?",
        ),
        ([SAMPLES, paired(by="judge", judge={"name": "number"})], "'number' is not a judge"),
        ([{"kind": "supervised", "data": {}}], "give path (a file or data set) or stage"),
        (
            [{"kind": "supervised", "data": {"path": "nothing.jsonl"}}],
            "stage 'supervised': data.path = 'nothing.jsonl': there is no such file",
        ),
    ],
)
def test_one_message_names_the_stage_and_the_field(
    tmp_path: Path, data: Path, stages: list[Any], words: str
) -> None:
    assert words in refused(pipeline(data, *stages), tmp_path)


def test_a_wrong_entry_of_a_list_is_one_line(tmp_path: Path, data: Path) -> None:
    source = {"path": str(data), "limit": 0}
    said = refused(pipeline(data, {"kind": "supervised", "data": source}), tmp_path)
    assert "data.0.limit = 0" in said
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"stages": []}, "stages = []: a pipeline has at least one [[stages]]"),
        ({"stages": {"kind": "rl"}}, "expected [[stages]] tables"),
        ({"stages": ["a"]}, "stages.0 = 'a': expected a table; write each stage as [[stages]]"),
        ({"training": {"steps": 3}}, "a pipeline has no [training] of its own"),
        ({"modle": {}}, "the key 'modle' is not known; did you mean 'model'?"),
        ({"model": {}}, "the pipeline has no [model] table with a name"),
        ({"model": {"name": "tinny"}}, "did you mean 'tiny'?"),
        ({"guard": {"evaluation": {"splits": ["test"]}}}, "guard: evaluation.splits holds 'test'"),
    ],
)
def test_the_top_level(tmp_path: Path, data: Path, change: Any, words: str) -> None:
    assert words in refused({**pipeline(data, EVALUATE), **change}, tmp_path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"training": {"patience": 2}}, "training.patience = 2: no example is held out"),
        (
            {"training": {"patience": 2}, "heldout_share": 0.2},
            "set training.evaluate_every, for example to 20",
        ),
        ({"heldout_share": 1e-6}, "heldout_share = 1e-06 holds out 0 of 55 examples"),
        ({"training": {"epochs": 2, "schedule_updates": 3}}, "the stage has 7 updates"),
        ({"model": {"adapter": {"dropout": 0.1}}}, "model.adapter.dropout = 0.1"),
        ({"turns": "first"}, "turns = 'first'"),
        (
            {"training": {"epochs": 2, "steps": 3}},
            "training.steps = 3 and training.epochs = 2",
        ),
        ({"data": {"path": "x", "repeat": "2"}}, "data.repeat = '2': expected a number; write 2"),
        ({"data": [{"path": "x", "limit": True}]}, "data.0.limit = True: expected a number; wr"),
        ({"data": {"path": "x", "chat": 0}}, "data.chat = 0: expected true or false; write false"),
    ],
)
def test_supervised_settings(tmp_path: Path, data: Path, change: Any, words: str) -> None:
    stage = {"kind": "supervised", "data": {"path": str(data)}, **change}
    message = refused(pipeline(data, stage), tmp_path)
    assert message.startswith("stage 'supervised': ")
    assert words in message


def test_rows_are_named_or_dropped_and_counted(tmp_path: Path) -> None:
    broken = {"prompt": "1+1=", "completion": 2}
    data = write_rows(tmp_path / "rows.jsonl", [*sum_rows(), broken])
    said = refused(pipeline(data, {"kind": "supervised", "data": {"path": str(data)}}), tmp_path)
    assert "line 56: has the completion 2; give a text or messages" in said
    rows: list[Any] = [*sum_rows(), {"prompt": "1+1="}, {"prompt": "1+1=", "completion": ""}]
    data = write_rows(tmp_path / "rows.jsonl", [*rows, {"prompt": "x" * 1100, "completion": "1"}])
    stage: dict[str, Any] = {"kind": "supervised", "data": {"path": str(data)}}
    message = refused(pipeline(data, stage), tmp_path)
    assert "rows.jsonl, line 56: has neither" in message
    assert "line 57: has an empty message" in message
    assert "line 58: is longer than the model's 1024 positions; it has 11" in message
    assert 'set on_bad_row = "drop"' in message
    stage["data"]["on_bad_row"] = "drop"
    found = load_pipeline(pipeline(data, stage)).nodes[0].stage
    (tokens,) = found.check(CheckContext("supervised", "tiny")).values()
    assert len(tokens.examples) == 55
    assert tokens.rows == 58
    assert sum(tokens.dropped.values()) == 3


def other_tokenizer(folder: Path) -> Path:
    """`tiny` with two of its tokens swapped."""
    entry = get_model("tiny")
    assert entry is not None
    shutil.copytree(entry.get(), folder)
    file = folder / "tokenizer.json"
    text = file.read_text(encoding="utf-8")
    seven, eight = '"7": ', '"8": '
    (a, b) = (text.partition(each)[2].partition(",")[0].strip() for each in (seven, eight))
    file.write_text(
        text.replace(f"{seven}{a}", f"{seven}{b}").replace(f"{eight}{b}", f"{eight}{a}"),
        encoding="utf-8",
    )
    return folder


def test_a_model_with_another_tokenizer_is_refused(tmp_path: Path, data: Path) -> None:
    folder = str(other_tokenizer(tmp_path / "swapped"))
    stages = [EVALUATE, {**RL, "model": {"name": folder}}]
    message = refused(pipeline(data, *stages), tmp_path)
    assert "stage 'rl': model.name" in message
    assert "has another tokenizer than the model of 'evaluate' before it" in message
    assert "token '7' has the id" in message
    rows = [{"prompt": "1+1=", "steps": ["2"], "labels": [1]}]
    steps = {"kind": "process", "data": {"path": str(write_rows(tmp_path / "steps.jsonl", rows))}}
    message = refused(pipeline(data, EVALUATE, {**steps, "model": {"name": folder}}), tmp_path)
    assert f"stage 'process': model.name = {folder!r} has another tokenizer" in message
    merge = {"kind": "merge", "models": [{"name": folder}]}
    assert "has another tokenizer than the input" in refused(pipeline(data, merge), tmp_path)


def test_a_reward_model_is_no_policy(tmp_path: Path, data: Path) -> None:
    entry = get_model("tiny")
    assert entry is not None
    folder = tmp_path / "scorer"
    shutil.copytree(entry.get(), folder)
    config = folder / "config.json"
    text = config.read_text(encoding="utf-8")
    config.write_text(text.replace("LlamaForCausalLM", "LlamaForSequenceClassification"))
    words = "is a reward model (LlamaForSequenceClassification), and a language model is needed"
    for stage in (RL, {"kind": "supervised", "data": {"path": str(data)}}, {"kind": "export"}):
        assert words in refused(pipeline(data, {**stage, "model": {"name": str(folder)}}), tmp_path)


def test_half_of_a_character_is_a_bad_row(tmp_path: Path) -> None:
    data = write_rows(tmp_path / "rows.jsonl", [{"prompt": "1+1=", "completion": "\ud83d"}])
    stage = {"kind": "supervised", "data": {"path": str(data)}}
    said = refused(pipeline(data, stage), tmp_path)
    assert "line 1: the row: column 'completion' holds '\\ud83d', half of a surrogate pair" in said


def test_an_average_of_two_architectures_is_refused(tmp_path: Path, data: Path) -> None:
    entry = get_model("tiny")
    assert entry is not None
    folder = tmp_path / "other"
    shutil.copytree(entry.get(), folder)
    config = folder / "config.json"
    text = config.read_text(encoding="utf-8")
    config.write_text(text.replace('"num_hidden_layers": 2', '"num_hidden_layers": 3'))
    merge = {"kind": "merge", "models": [{"name": str(folder)}]}
    message = refused(pipeline(data, merge), tmp_path)
    assert "another architecture than the input: num_hidden_layers 2 and 3" in message


def test_a_missing_input_folder_is_refused(tmp_path: Path, data: Path) -> None:
    stage = {**RL, "model": {"name": "./no/such/model"}}
    assert "stage 'rl': model.name = './no/such/model': no such folder" in refused(
        pipeline(data, stage), tmp_path
    )


def test_overrides_reach_stages_by_place_and_by_name(data: Path) -> None:
    table = pipeline(data)
    found = load_pipeline(table, {"stages.mean.weight": "2.5", "stages.1.training.steps": "7"})
    assert found.nodes[2].stage.weight == 2.5  # type: ignore[attr-defined]
    assert found.nodes[1].stage.training.steps == 7  # type: ignore[attr-defined]
    with pytest.raises(RecipeError, match=r"the stage 'meen' is not known; did you mean 'mean'"):
        load_pipeline(table, {"stages.meen.weight": 1})
    with pytest.raises(RecipeError, match=r"stages.0.kind = 'rll' is not known"):
        load_pipeline(table, {"stages.0.kind": "rll"})
    with pytest.raises(RecipeError, match="'7' is not an index of a list of 3"):
        load_pipeline(table, {"stages.7.weight": 1})


def test_small_is_the_kinds_own_or_the_recipes(data: Path) -> None:
    table = pipeline(data)
    sft, rl, _ = (node.stage for node in load_pipeline(table, small=True).nodes)
    assert (sft.training.steps, rl.training.steps) == (2, 2)  # type: ignore[attr-defined]
    table["small"] = {"stages": {"rl": {"training": {"steps": 1}}}}
    sft, rl, _ = (node.stage for node in load_pipeline(table, small=True).nodes)
    assert (sft.training.steps, rl.training.steps) == (6, 1)  # type: ignore[attr-defined]


def test_an_option_replaces_the_fields_that_it_makes_void(data: Path) -> None:
    rejection = {"kind": "rejection", "keep": "best", "best": 2, "at_least": 3.0}
    sft = {"kind": "supervised", "data": {"path": str(data)}, "training": {"epochs": 4}}
    table = pipeline(data, rejection, sft)
    for given in ({"stages.supervised.training.steps": 3, "stages.0.keep": "all"}, {}):
        made = [node.stage for node in load_pipeline(table, given, small=not given).nodes]
        assert made[1].training.epochs is None  # type: ignore[attr-defined]
        assert (made[0].keep, made[0].best) == ("all", 1)  # type: ignore[attr-defined]
    both = {"stages.0.best": 3, "stages.0.keep": "best"}
    assert load_pipeline(table, both).nodes[0].stage.best == 3  # type: ignore[attr-defined]


def test_a_stage_may_stand_before_what_it_reads(data: Path) -> None:
    table = pipeline(data)
    table["stages"] = [table["stages"][2] | {"from": "rl"}, *table["stages"][:2]]
    table["stages"][1]["from"] = "base"
    made = load_pipeline(table)
    assert [node.name for node in made.order] == ["sft", "rl", "mean"]
    assert [node.name for node in made.nodes] == ["mean", "sft", "rl"]


def test_another_environment_takes_none_of_the_defaults_arguments(data: Path) -> None:
    other = {**RL, "environment": {"name": "countdown"}, "algorithm": {"preset": "rloo"}}
    table = pipeline(data, other, algorithm={"preset": "grpo", "kl_coef": 0.01})
    stage: Any = load_pipeline(table).nodes[0].stage
    assert stage.environment.name == "countdown"
    assert not hasattr(stage.environment, "level")
    assert stage.algorithm.name == "rloo"


def test_commands_of_one_run_say_that_it_is_a_pipeline(data: Path) -> None:
    with pytest.raises(GroupwiseError, match="this is a pipeline"):
        load_recipe(pipeline(data))


def test_a_pipelines_folder_names_the_models_in_it(data: Path, tmp_path: Path) -> None:
    model = tmp_path / "run" / "stages" / "sft" / "model"
    model.mkdir(parents=True)
    (model / "config.json").touch()
    (tmp_path / "run" / "recipe.toml").write_text(load_pipeline(pipeline(data)).to_toml())
    said = re.escape(f"Models of its stages: {model}")
    for call in (evaluate_source, trained_policy, describe_model):  # eval, export, suggest
        with pytest.raises(RecipeError, match=said):
            call(str(tmp_path / "run"))
    with pytest.raises(RecipeError, match=said):
        describe_model(str(model.parent))


def test_every_field_of_every_kind_is_explained() -> None:
    rows = stage_fields()
    names = {row[0] for row in rows}
    assert {"stages.kind", "stages.from", "stages.supervised.data.path"} <= names
    assert {"stages.supervised.training.patience", "stages.merge.models.weight"} <= names
    assert all(row[3] for row in rows)


def test_stages_in_one_process_are_named_where_others_have_several(tmp_path: Path) -> None:
    data = {"path": str(write_rows(tmp_path / "rows.jsonl", sum_rows()))}
    fits = {"kind": "supervised", "data": data}
    top = {
        "model": {"name": "tiny"},
        "environment": {"name": "arithmetic"},
        "algorithm": {"preset": "grpo"},
        "compute": {"processes": 2},
    }
    made = load_pipeline({**top, "stages": [fits, RL]})
    assert made.trained_alone == [
        "compute.processes = 2 is for rl stages; in one process: 'supervised'"
    ]
    assert load_pipeline({**top, "stages": [RL]}).trained_alone == []
    with pytest.raises(RecipeError, match=r"\[compute\] is read by stages of the kind rl, and the"):
        load_pipeline({**top, "stages": [fits]})
