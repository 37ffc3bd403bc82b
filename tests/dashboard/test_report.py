"""The page of a run: what it says, that texts stay texts, and that the server answers its token."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from groupwise.cli.app import run as command
from groupwise.dashboard.data import run_data
from groupwise.dashboard.server import application
from groupwise.records import RunWriter, open_run

EVIL = (
    "</script><script>window.hacked=1</script><img src=x onerror=window.hacked=1>\u202eabc\x1b[31m"
)


def row(step: int, index: int, prompt: str, **more: Any) -> dict[str, Any]:
    good = index == 0
    return {
        "step": step, "version": step, "kind": "training", "prompt_id": prompt, "visit": 0,
        "group_index": index, "prompt": '[{"role": "user", "content": "3+4="}]', "answer": "7",
        "prompt_ids": [5], "completion_ids": [7, 8 + index, 2], "mask": [True] * 3,
        "sampler_logprobs": [-1.0] * 3, "learner_logprobs": [-1.0, -0.5, -1.0],
        "entropies": [0.5] * 3, "loss_weights": [0.25 if good else -0.25] * 3,
        "text": "7" if good else EVIL, "finish_reason": "stop", "reward": float(good),
        "rewards": {"number": float(good)}, "outcome": "correct" if good else "incorrect",
        "reason": EVIL, "advantage": 1.0 if good else -1.0, **more,
    }  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "a"
    recipe = '[model]\nname = "elsewhere"\n[algorithm]\npreset = "grpo"\n'
    with RunWriter.create(folder, recipe, {}) as writer:
        for version, value in ((0, 0.2), (12, 0.8)):
            name = "eval/heldout"
            writer.evaluation(
                version, {name: value, f"{name}_low": value - 0.1, f"{name}_high": value + 0.1}
            )
        for step in range(12):
            rows = [row(step, index, f"p{n}") for n in range(10) for index in range(2)]
            writer.rollouts(step, rows)
            writer.metrics(
                step,
                {"reward": 0.5, "completions/count": 20, "unscored": 0, "groups/no_signal": 0.0,
                 "seconds/rollout": 3.0, "seconds/learn": 1.0, "seconds/step": 4.0},
            )  # fmt: skip
    return folder


def test_the_questions_are_answered_from_the_record(folder: Path) -> None:
    found = {each["question"]: each for each in run_data(open_run(folder))["answers"]}
    rising = found["Is accuracy rising on held-out problems?"]
    assert (rising["state"], rising["text"]) == (
        "good", "20.0% [10.0%, 30.0%] to 80.0% [70.0%, 90.0%] (held out)"
    )  # fmt: skip
    assert found["Are groups informative?"]["text"] == "100% of the groups have signal"
    assert found["Where does the time go?"]["text"] == "4.00 s a step: rollout 75%, learn 25%"


def test_the_sample_is_bounded_and_even_over_the_steps(folder: Path) -> None:
    data = run_data(open_run(folder), groups=16)
    assert data["rollouts"] == 240
    assert len(data["groups"]) == 16
    assert {group["step"] for group in data["groups"]} == {0, 11}
    group = data["groups"][0]
    assert (group["parts_at"], len(group["rows"])) == (1, 2)
    assert group["rows"][0]["loss_weights"] == [0.25] * 3
    assert group["rows"][0]["tokens"] == ["⟨7⟩", "⟨8⟩", "⟨2⟩"]  # the model is not at hand


def test_the_report_is_one_file_in_which_no_text_is_code(folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "r.html"
    assert command(["report", str(folder), "--output", str(output)]) == 0
    html = output.read_text("utf-8")
    assert "window.hacked=1</script>" not in html
    assert html.count("</script>") == 3
    assert re.findall(r'(?:src|href)\s*=\s*"(?!data:)[^"]', html) == []  # nothing is loaded
    data = json.loads(html.split('type="application/json">')[1].split("</script>")[0])
    assert data[0]["groups"][0]["rows"][1]["text"] == EVIL
    assert command(["report", str(folder), "--output", str(tmp_path / "r.pdf")]) == 2


def test_the_server_answers_its_token_on_loopback_names_alone(folder: Path) -> None:
    client = TestClient(application([folder], "secret", 8), base_url="http://127.0.0.1:8000")
    assert client.get("/?token=secret").text.startswith("<!doctype html>")
    assert client.get("/data?token=secret").json()[0]["rollouts"] == 240
    for path in ("/", "/data", "/?token=", "/?token=secre", "/data?token=secret2"):
        assert client.get(path).status_code == 403
    assert client.get("/?token=secret", headers={"host": "evil.example"}).status_code == 403
    assert client.get("/recipe.toml?token=secret").status_code == 404
    assert client.get("/?token=secret").headers["cache-control"] == "no-store"


CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def browser_page(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("no chromium on the path")
    output = tmp_path_factory.mktemp("page") / "r.html"
    assert command(["report", str(folder), "--output", str(output)]) == 0
    with sync_api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(output.as_uri())
        page.errors = errors
        yield page
        browser.close()


def test_the_page_in_a_browser(browser_page: Any) -> None:
    page = browser_page
    assert "20.0% [10.0%, 30.0%]" in page.inner_text("main")
    page.keyboard.press("2")
    assert page.locator(".member").count() == 2
    text = page.inner_text("main")
    assert "user: 3+4=" in text
    assert "⟨202e⟩abc⟨001b⟩[31m" in text  # marks that reorder or colour are written out
    assert page.evaluate("window.hacked") is None
    weight = page.locator(".member .token").first
    assert "loss weight after all masks: 0.2500" in weight.get_attribute("title")
    first = page.inner_text("h2")
    page.keyboard.press("j")
    assert page.inner_text("h2") != first
    page.keyboard.press("k")
    assert page.locator(".member.seen").count() == 2
    page.keyboard.press("3")
    assert page.locator("canvas").count() >= 3
    page.set_viewport_size({"width": 380, "height": 800})
    page.keyboard.press("2")
    assert page.evaluate("document.documentElement.scrollWidth") <= 380
    assert page.errors == []
