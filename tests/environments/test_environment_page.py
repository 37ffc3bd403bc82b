"""docs/environments.md is what the environments say of themselves."""

import importlib.util
import re
from pathlib import Path

import pytest

import groupwise as gw
from groupwise.environments import BUILTIN, load_environment

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def renderer():
    spec = importlib.util.spec_from_file_location("environment_page", DOCS / "environment_page.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def page(renderer):
    return renderer.page()


def test_the_page_is_up_to_date(page):
    written = (DOCS / "environments.md").read_text(encoding="utf-8")
    assert written == page, "run: python docs/environment_page.py"


def test_every_generated_or_shaped_environment_is_on_it(renderer):
    shown = {*renderer.GENERATED, *renderer.WRITTEN, *renderer.SHAPED, *renderer.GAMES}
    shown |= {"arithmetic", "dataset", "mixture", "repository", "target_token"}
    assert shown == set(BUILTIN)


def test_the_first_python_block_runs(renderer, capsys):
    block = re.search(r"```python\n(.*?)```", renderer.INTRO, re.DOTALL)[1]
    exec(compile(block, "environments.md", "exec"), {})
    assert "outcome='" in capsys.readouterr().out
    assert gw.load_environment is load_environment


def test_the_file_of_ones_own_runs(page, tmp_path, monkeypatch):
    block = re.search(r"```python\n(\"\"\"The twice.*?)```", page, re.DOTALL)[1]
    assert len(block.splitlines()) < 60
    (tmp_path / "twice_page.py").write_text(block, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    environment = load_environment("twice_page:twice", level="mixed", num_train=40, num_heldout=8)
    assert environment.describe()["splits"] == {"train": 40, "heldout": 8}
    assert 'level = "mixed"' in block
    prompt = environment.prompts(1)[0]
    assert environment.verify(prompt, str(2 * prompt.columns["number"])).value == 1


def test_the_file_of_several_turns_runs(page, tmp_path, monkeypatch):
    block = re.search(r"```python\n(\"\"\"The guess.*?)```", page, re.DOTALL)[1]
    assert len(block.splitlines()) < 60
    (tmp_path / "guess_page.py").write_text(block, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    environment = load_environment("guess_page:Guess")
    assert (len(environment), environment.answer_role) == (50, "user")
    play = environment.start(environment.prompts(1)[0])
    assert play.next("50")[0]["content"] == "It is less."
    assert play.next("It must be 1") is None
    assert (play.result().value, play.rewards) == (1.0, [0.0, 1.0])
