"""`groupwise init environment`: what it writes works as it is, in a test and in a recipe."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest

from groupwise.cli.app import run
from groupwise.environments import (
    EnvironmentSettings,
    environment_from_settings,
    load_environment,
)


def test_the_scaffold_passes_its_own_test(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(["init", "environment", "twice_it", "--folder", str(tmp_path)]) == 0
    written = [Path(line) for line in capsys.readouterr().out.splitlines()]
    assert [path.name for path in written] == ["twice_it.py", "test_twice_it.py"]
    assert len(written[0].read_text().splitlines()) < 60
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(written[1])],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "6 passed" in done.stdout
    monkeypatch.syspath_prepend(str(tmp_path))
    shown = textwrap.dedent(written[0].read_text().split("key there:\n", 1)[1].split('"""')[0])
    printed = EnvironmentSettings.model_validate(tomllib.loads(shown)["environment"])
    assert (printed.name, printed.arguments) == ("twice_it:twice_it", {"level": "mixed"})
    made = environment_from_settings(printed)
    assert made.describe()["splits"] == {"train": 1000, "heldout": 200}
    assert {prompt.columns["level"] for prompt in made.prompts()} == {"easy", "medium", "hard"}
    assert len(load_environment("twice_it:twice_it")) == 1000
    environment = load_environment(
        "twice_it:twice_it", level="mixed", largest=500, num_train=30, num_heldout=12
    )
    assert environment.describe()["splits"] == {"train": 30, "heldout": 12}
    assert run(["init", "environment", "twice_it", "--folder", str(tmp_path)]) == 2
    assert "is there already" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("name", ["groupwise", "json", "torch", "sys", "pytest"])
@pytest.mark.parametrize("kind", ["environment", "verifier"])
def test_a_name_that_would_hide_a_module(
    name: str, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["init", kind, name, "--folder", str(tmp_path)]) == 2
    assert f"'{name}' is an installed module" in " ".join(capsys.readouterr().err.split())
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    for kind in ("verifier", "loss", "environment"):
        assert run(["init", kind, "mine_own", "--folder", str(tmp_path / "file" / "x")]) == 2
        assert "file' is a file; name a folder" in " ".join(capsys.readouterr().err.split())


def test_a_name_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["init", "environment", "not-a-name"]) == 2
    assert "my_task" in capsys.readouterr().err
