"""The page in a real browser, as one file and served: reading, keys, phone, accessibility."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import uvicorn

from groupwise.dashboard import write_report
from groupwise.dashboard.server import application
from groupwise.records import RunWriter
from groupwise.records.importing import import_rollouts
from page_helpers import row, write_run

SECTIONS = ("metrics", "distributions", "clip and advantage", "pass@k", "time", "plan", "two runs")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("both")
    return [write_run(folder / name, n, 4) for n, name in enumerate("ab")]


@contextmanager
def serving(folders: list[Path]) -> Iterator[str]:
    server = uvicorn.Server(uvicorn.Config(application(folders, "t"), log_level="warning"))
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        thread = Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/?token=t"
        server.should_exit = True
        thread.join(10)


@pytest.fixture(scope="module")
def served(runs: list[Path]) -> Iterator[str]:
    with serving(runs) as address:
        yield address


@pytest.fixture(scope="module")
def written(runs: list[Path], tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_report(runs, tmp_path_factory.mktemp("page") / "r.html").as_uri()


def opened(browser: Any, address: str, width: int = 1280, scheme: str = "light") -> Any:
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, reduced_motion="reduce"
    )
    page = context.new_page()
    page.set_default_timeout(60_000)  # machines that tests share are slow
    page.errors = []
    page.on("pageerror", lambda error: page.errors.append(str(error)))
    page.goto(address)
    page.wait_for_selector("h2")
    return page


def heading(page: Any) -> str:
    return str(page.inner_text("h2"))


@pytest.mark.parametrize("kind", ["written", "served"])
def test_reading_by_keys_alone(
    browser: Any, kind: str, request: pytest.FixtureRequest, runs: list[Path]
) -> None:
    (runs[0] / "seen.json").unlink(missing_ok=True)
    page = opened(browser, request.getfixturevalue(kind))
    assert "20.0% [10.0%, 30.0%]" in page.inner_text("main")
    page.keyboard.press("2")
    page.wait_for_selector(".member")
    text = page.inner_text("main")
    assert "user: 3+4=" in text
    assert "⟨202e⟩abc⟨001b⟩[31m" in text  # marks that reorder or colour are written out
    assert page.evaluate("window.hacked") is None
    assert "The members part at token 1." in text
    first = page.locator(".member").first
    first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    facts = first.locator(".picked-facts").inner_text()
    assert facts.startswith('token 1, "⟨8⟩": loss weight after all masks: 0.2500; advantage: 1.000')
    assert "sampler and learner differ by: 0.5000; entropy: 0.5000" in facts
    before = heading(page)
    page.keyboard.press("j")
    page.wait_for_selector("h2:has-text('Group 2 of')")
    page.keyboard.press("k")
    page.wait_for_selector(".member.seen")
    assert (heading(page), page.locator(".member.seen").count()) == (before, 2)
    page.keyboard.press("/")
    page.keyboard.type("nowhere")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=No group matches.")
    assert page.evaluate("document.activeElement.id") == "search"  # the focus stays
    assert page.errors == []
    page.context.close()


@pytest.mark.parametrize("kind", ["written", "served"])
def test_a_prompt_over_the_steps_and_its_folded_turns(
    browser: Any, kind: str, request: pytest.FixtureRequest
) -> None:
    page = opened(browser, request.getfixturevalue(kind))
    page.keyboard.press("2")
    page.select_option("#f-step", "0")
    page.wait_for_load_state("networkidle")  # the group before the choice has the same heading
    page.wait_for_selector("h2:has-text('step 0, prompt p0')")
    assert "advantage 1.00" in page.locator(".member").first.inner_text()
    turns = page.locator(".member details").first
    assert turns.locator("summary").first.inner_text() == "3 messages, 1 tool call"
    assert not turns.locator("pre").first.is_visible()
    turns.locator("summary").first.click()
    turns.locator("summary").nth(3).click()
    assert "<script>window.hacked=1</script>" in turns.locator("pre").nth(3).inner_text()
    page.click("button:text-is('11 (0.5)')")
    page.wait_for_selector("h2:has-text('Group 1 of 1: step 11, prompt p0')")
    page.click("button:has-text('all of them')")
    page.wait_for_selector("h2:has-text('step 0, prompt p0')")
    assert page.evaluate("window.hacked") is None
    assert page.errors == []
    page.context.close()


@pytest.mark.parametrize("kind", ["written", "served"])
def test_ten_samples_are_kept_as_seen(
    browser: Any, kind: str, request: pytest.FixtureRequest, runs: list[Path]
) -> None:
    (runs[0] / "seen.json").unlink(missing_ok=True)
    page = opened(browser, request.getfixturevalue(kind))
    page.keyboard.press("t")
    page.wait_for_selector("text=0 of these 10 seen, 0 of the run.")
    labels = page.locator(".member").evaluate_all("all => all.map(one => one.innerText)")
    assert len(set(labels)) == 10
    for number in range(1, 4):
        page.keyboard.press("s")
        page.wait_for_selector(f"text={number} of these 10 seen, {number} of the run.")
    if kind == "served":
        page.wait_for_timeout(200)
        page.evaluate("localStorage.clear()")  # the server keeps it, whatever the address
    page.reload()
    page.keyboard.press("t")
    page.wait_for_selector("text=0 of these 10 seen, 3 of the run.")
    assert page.errors == []
    page.context.close()


@pytest.mark.parametrize("kind", ["written", "served"])
def test_every_section_of_the_curves(
    browser: Any, kind: str, request: pytest.FixtureRequest
) -> None:
    page = opened(browser, request.getfixturevalue(kind))
    page.keyboard.press("3")
    said = {}
    for name in SECTIONS:
        page.wait_for_selector(f"button[aria-pressed=true]:text-is('{name}')")
        charts = page.locator("main [role=img]")
        said[name] = charts.evaluate_all("all => all.map(one => one.getAttribute('aria-label'))")
        assert page.locator("main canvas").count() == len(said[name])
        if name == "time":
            assert page.inner_text(".timeline tr:first-child").split() == [
                "rollout", "3.00", "s", "75", "%"
            ]  # fmt: skip
        if name == "two runs":
            assert "They first differ at step 4" not in page.inner_text("main")  # equal, but
            assert "No common step differs." in page.inner_text("main")  # for their seeds
        page.keyboard.press("]")
    heldout = "chart of eval/heldout: eval/heldout from 0.2 at 0 to 0.8 at 12"
    assert heldout in said["metrics"]
    assert "chart of reward: median from 0.5 at 0 to 0.5 at 11" in said["distributions"]
    assert "groups of step 0, 10 prompts from 0.5 at 1 to 1 at 2" in said["pass@k"][0]
    page.wait_for_selector("button[aria-pressed=true]:text-is('metrics')")
    page.check("#band")  # takes every seed of the recipe
    label = page.locator("main [role=img]").first.get_attribute("aria-label")
    assert label == "chart of reward: a and 1 more seed from 0.5 at 0 to 0.5 at 11"
    assert page.errors == []
    page.context.close()


@pytest.mark.slow
def test_a_running_run_is_followed(browser: Any, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a")
    with serving([folder]) as address:
        page = opened(browser, address)
        page.wait_for_selector("text=unfinished, 12 steps. All 240 rollouts can be read here.")
        with RunWriter.reopen(folder) as writer:
            writer.rollouts(12, [row(12, n, "new") for n in range(3)])
            writer.metrics(12, {"reward": 0.5, "completions/count": 3})
        page.wait_for_selector("text=unfinished, 13 steps. All 243 rollouts can be read here.")
        page.keyboard.press("2")
        page.select_option("#f-step", "12")
        page.wait_for_selector("h2:has-text('Group 1 of 1: step 12, prompt new')")
        assert page.errors == []
        page.context.close()


def pages_of(page: Any) -> Iterator[str]:
    """Every view and section, one after the other."""
    yield "overview"
    page.keyboard.press("2")
    page.wait_for_selector(".member")
    yield "groups"
    page.keyboard.press("t")
    page.wait_for_selector("text=Ten samples")
    yield "ten samples"
    page.keyboard.press("4")
    page.wait_for_selector("text=Recipe")
    yield "recipe"
    page.keyboard.press("3")
    for name in SECTIONS:
        page.wait_for_selector(f"button[aria-pressed=true]:text-is('{name}')")
        yield name
        page.keyboard.press("]")


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 380])
def test_no_accessibility_fault_and_no_sideways_scrolling(
    browser: Any, written: str, width: int, scheme: str
) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page = opened(browser, written, width, scheme)
    for name in pages_of(page):
        found = axe.run(page).response["violations"]
        named = [(each["id"], [node["html"][:200] for node in each["nodes"]]) for each in found]
        assert named == [], name
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
    assert page.errors == []
    page.context.close()


def test_an_imported_record_shows_what_it_does_not_hold(browser: Any, tmp_path: Path) -> None:
    source = tmp_path / "a.jsonl"
    source.write_text('{"prompt": "q", "text": "a", "reward": 1.5}\n' * 2)
    run = import_rollouts("jsonl", source, tmp_path / "run")
    page = opened(browser, write_report([run.folder], tmp_path / "r.html").as_uri())
    assert "imported, 1 step." in page.inner_text("body")
    page.keyboard.press("t")
    page.wait_for_selector(".member")
    card = page.locator(".member").first
    assert "end not recorded, tokens not recorded, repeats 0 %" in card.inner_text()
    assert card.locator("strong").get_attribute("class") == "unknown"
    assert "weight after all masks, not recorded." in page.inner_text("body")
    assert page.errors == []
