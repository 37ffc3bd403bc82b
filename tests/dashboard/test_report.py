"""The page of a run: what it says, that texts stay texts, and that the server answers its token."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.testclient import TestClient

from groupwise.cli.app import run as command
from groupwise.dashboard.data import RunView, pair
from groupwise.dashboard.questions import _cut, _informative, _rising
from groupwise.dashboard.server import application
from groupwise.records import open_run
from page_helpers import EVIL, write_run


@pytest.fixture(scope="module")
def data(folder: Path) -> dict[str, Any]:
    return RunView(open_run(folder)).whole(24)


def test_the_questions_are_answered_from_the_record(data: dict[str, Any]) -> None:
    found = {each["question"]: each for each in data["answers"]}
    rising = found["Is accuracy rising on held-out problems?"]
    assert (rising["state"], rising["text"]) == (
        "good", "20.0% [10.0%, 30.0%] to 80.0% [70.0%, 90.0%] (held out)"
    )  # fmt: skip
    assert found["Are groups informative?"]["text"] == "100% of the groups have signal"
    assert found["Where does the time go?"]["text"] == "4.00 s a step: rollout 75%, learn 25%"


@pytest.mark.parametrize(
    ("metric", "value", "question", "state"),
    [
        ("groups/no_signal", 0.79, "Are groups informative?", "good"),
        ("groups/no_signal", 0.81, "Are groups informative?", "bad"),
        ("completions/truncated", 0.2, "Are completions cut?", "good"),
        ("completions/truncated", 0.21, "Are completions cut?", "bad"),
    ],
)
def test_shares_that_are_marked_without_a_finding(
    metric: str, value: float, question: str, state: str
) -> None:
    facts = SimpleNamespace(recent=lambda name: value if name == metric else None)
    (found,) = [
        made for made in (_informative(facts, set()), _cut(facts, set()))
        if made.question == question
    ]  # fmt: skip
    assert found.state == state


def test_accuracy_by_the_strict_verifiers_answers_where_there_are_any() -> None:
    def measured(strict: float) -> dict[str, Any]:
        values = {"eval/heldout": 1 - strict, "eval/heldout_strict": strict}
        ends = (("_low", -0.1), ("_high", 0.1))
        return values | {f"{n}{end}": v + by for n, v in values.items() for end, by in ends}

    for last, state in ((0.1, "bad"), (0.5, "unknown"), (0.9, "good")):
        answer = _rising(SimpleNamespace(evaluations=[measured(0.5), measured(last)]))
        assert answer.state == state
        assert answer.text.endswith("(held out, by the strict verifiers)")
        assert answer.metrics == ("eval/heldout_strict", "eval/heldout")


def test_the_sample_is_bounded_named_ones_first_then_prompts_that_recur(
    data: dict[str, Any],
) -> None:
    groups = data["groups"]
    assert data["rollouts"] == 240
    assert 20 <= len(groups) <= 24  # a group that is chosen twice is there once
    assert len({(group["step"], group["prompt_id"]) for group in groups}) == len(groups)
    assert {group["step"] for group in groups} >= {0, 11}
    assert [g["named"] for g in groups] == sorted((g["named"] for g in groups), reverse=True)
    visits = [g["step"] for g in groups if g["prompt_id"] == "p0" and not g["named"]]
    assert len(visits) >= 2
    assert visits == sorted(visits)
    group = groups[0]
    assert (group["parts_at"], len(group["rows"])) == (1, 2)
    assert group["rows"][0]["loss_weights"] == [0.25] * 3
    assert group["rows"][0]["tokens"] == ["⟨7⟩", "⟨8⟩", "⟨2⟩"]  # the model is not at hand


def test_the_plan_stands_beside_what_was_measured(data: dict[str, Any]) -> None:
    rows = [(row["unit"], row["planned"], row["measured"]) for row in data["plan"]]
    assert rows == [("bytes", 4e9, 2e9), ("s", 8.0, 4.0), ("tokens", 80, 71.0)]


def test_two_runs_part_at_the_step_where_ids_differ(tmp_path: Path) -> None:
    a, b = (open_run(write_run(tmp_path / str(n), n, 4 * (n + 1))) for n in range(2))
    found = pair(a, b)
    assert found["first_step"] == 4
    assert found["causes"][0].startswith("sampled ids (completion_ids) in 10 of 20 rows")
    assert found["recipe"] == ["seed: 0 -> 1"]
    assert RunView(a).overview()["family"] == RunView(b).overview()["family"]  # seeds of one recipe


def test_the_report_is_one_file_in_which_no_text_is_code(folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "r.html"
    assert command(["report", str(folder), "--output", str(output)]) == 0
    html = output.read_text("utf-8")
    assert "window.hacked=1</script>" not in html
    assert html.count("</script>") == 3
    assert re.findall(r'(?:src|href)\s*=\s*"(?!data:)[^"]', html) == []  # nothing is loaded
    made = json.loads(html.split('type="application/json">')[1].split("</script>")[0])
    assert made[0]["groups"][0]["rows"][1]["text"] == EVIL
    assert command(["report", str(folder), "--output", str(tmp_path / "r.pdf")]) == 2


def test_the_server_answers_its_token_on_loopback_names_alone(folder: Path) -> None:
    client = TestClient(application([folder], "secret"), base_url="http://127.0.0.1:8000")
    assert client.get("/?token=secret").text.startswith("<!doctype html>")
    assert client.get("/data?token=secret").json()[0]["rollouts"] == 240
    for path in ("/", "/data", "/?token=", "/?token=secre", "/data?token=secret2", "/part?run=0"):
        assert client.get(path).status_code == 403
    assert client.get("/?token=secret", headers={"host": "evil.example"}).status_code == 403
    assert client.get("/recipe.toml?token=secret").status_code == 404
    assert client.get("/?token=secret").headers["cache-control"] == "no-store"


def test_the_server_pages_through_the_whole_record_and_keeps_what_was_seen(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a")
    client = TestClient(application([folder], "t"), base_url="http://127.0.0.1:8000")

    def part(**query: Any) -> Any:
        return client.get("/part", params={"token": "t", "run": 0, **query})

    found = part(name="groups", step=3, offset=9, limit=5).json()
    assert (found["total"], [g["prompt_id"] for g in found["groups"]]) == (10, ["p3-9"])
    assert part(name="groups", text="ONERROR=WINDOW", offset=0, limit=1).json()["total"] == 120
    assert part(name="visits", prompt_id="p0").json() == [[step, 0.5] for step in range(12)]
    assert part(name="facets").json()["outcome"] == ["correct", "incorrect"]
    for query, message in (
        ({"name": "other"}, "name = 'other'"),
        ({"name": "groups", "offset": -1, "limit": 1}, "offset = '-1'"),
        ({"name": "groups", "step": "x", "offset": 0, "limit": 1}, "step = 'x'"),
        ({"name": "groups", "order": "up", "offset": 0, "limit": 1}, "order = 'up'"),
        ({"name": "facets", "run": 1}, "run = '1': there are 1"),
    ):
        answer = part(**query)
        assert (answer.status_code, message in answer.text) == (400, True), answer.text
    assert client.post("/seen?token=t&run=0", json=["0|p0|0|training|1"]).json() == 1
    assert client.get("/data?token=t").json()[0]["seen"] == ["0|p0|0|training|1"]
    assert client.post("/seen?token=t&run=0", json=[1]).status_code == 400
    assert client.post("/seen?token=x&run=0", json=[]).status_code == 403


def test_a_phase_of_one_step_counts_over_all_steps(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a")
    path = folder / "metrics.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[5]["seconds/evaluate"] = 12.0
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    answers = {a["question"]: a["text"] for a in RunView(open_run(folder)).overview()["answers"]}
    told = "5.00 s a step: rollout 60%, learn 20%, evaluate 20%"
    assert answers["Where does the time go?"] == told


def test_a_report_that_cannot_be_written_is_one_message(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert command(["report", str(folder), "--output", str(tmp_path / "file" / "x.html")]) == 2
    assert "cannot be written" in capsys.readouterr().err
