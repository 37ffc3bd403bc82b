"""In a notebook: progress and curves under the cell, and an interruption without a traceback."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from groupwise.errors import RecipeError
from groupwise.records import open_run
from groupwise.training.notebook import NotebookDisplay, notebook_callbacks

RECIPE = """
[model]
name = "tiny"
[environment]
name = "arithmetic"
audit = false
[algorithm]
preset = "grpo"
[sampling]
group_size = 2
max_tokens = 4
[training]
prompts_per_step = 2
steps = {steps}
[evaluation]
samples = 1
max_prompts = 2
[checkpoints]
every = 0
"""


class Drawn:
    """IPython as the display uses it; keeps what was drawn."""

    def __init__(self) -> None:
        self.shown: list[str] = []
        self.display = SimpleNamespace(HTML=lambda text: text, display=self._display)

    def _display(self, text: str, display_id: bool) -> Any:
        self.shown.append(text)
        return SimpleNamespace(update=self.shown.append)


def test_what_is_drawn() -> None:
    drawn = Drawn()
    display = NotebookDisplay(drawn)
    display.on_stage("<first>", "rl", Path("a"))
    for version, value in ((0, 0.25), (2, 0.75)):
        name = "eval/heldout"
        display.on_evaluation(
            version, {name: value, f"{name}_low": value - 0.1, f"{name}_high": value + 0.1}
        )
    for step in range(1000):
        display.on_step({"step": step, "reward": step / 1000, "entropy": None})
    display.on_warning("a <b> note")
    display.on_end({}, Path("a"))
    shown = drawn.shown[-1]
    assert len(drawn.shown) < 10  # at most two a second
    assert "<b>stage &lt;first&gt; (rl)</b> step 1000 of ?" in shown
    assert "reward 0.999" in shown
    assert "a &lt;b&gt; note" in shown
    assert shown.count("<polyline") == 2  # held-out accuracy and the reward; no entropy
    assert shown.count("<circle") == 2 + 200


def test_nothing_is_shown_outside_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert notebook_callbacks() == []
    terminal = SimpleNamespace(get_ipython=lambda: SimpleNamespace())
    monkeypatch.setitem(sys.modules, "IPython", terminal)
    assert notebook_callbacks() == []
    kernel = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=object()))
    monkeypatch.setitem(sys.modules, "IPython", kernel)
    assert [type(each) for each in notebook_callbacks()] == [NotebookDisplay]


def test_an_error_of_ours_is_one_line_in_a_notebook() -> None:
    assert RecipeError("steps = -1")._render_traceback_() == ["RecipeError: steps = -1"]


@pytest.mark.slow
def test_a_real_kernel(tmp_path: Path) -> None:
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    for name, steps in (("short", 3), ("long", 100_000)):
        (tmp_path / f"{name}.toml").write_text(RECIPE.format(steps=steps))
    interrupting = (
        "import os, signal\n"
        "class Stop(gw.Callback):\n"
        "    def on_step(self, line):\n"
        "        if line['step'] == 3:\n"
        "            os.kill(os.getpid(), signal.SIGINT)  # as the kernel's stop button does\n"
        "gw.train('long.toml', output='long', callbacks=[Stop()])"
    )
    cells = [
        "import groupwise as gw\ngw.train('short.toml', output='short')",
        interrupting,
        "gw.train('short.toml', {'training.steps': -1}, output='bad')",
        "gw.open_run('long').summary['status']",
    ]
    book = nbformat.v4.new_notebook(cells=list(map(nbformat.v4.new_code_cell, cells)))
    client = nbclient.NotebookClient(
        book, timeout=200, allow_errors=True, resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    first, second, third, fourth = (cell.outputs for cell in book.cells)
    shown = [each["data"]["text/html"] for each in first if "text/html" in each.get("data", {})]
    assert "step 3 of 3" in shown[0]
    assert "<polyline" in shown[0]
    assert "finished, 3 steps" in shown[1]  # the run's own table
    (error,) = [each for each in second if each.output_type == "error"]
    assert error.ename == "Interrupted"
    assert len(error.traceback) == 1
    assert "resume it with --resume --output" in error.traceback[0]
    (refused,) = [each for each in third if each.output_type == "error"]
    assert (refused.ename, len(refused.traceback)) == ("RecipeError", 1)
    assert fourth[0]["data"]["text/plain"] == "'interrupted'"
    assert open_run(tmp_path / "long").steps == [0, 1, 2, 3]
    assert (tmp_path / "long" / "checkpoints" / "step_000004").is_dir()
