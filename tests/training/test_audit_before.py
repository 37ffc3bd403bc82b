"""The audit before training, the gap beside it, and the run's record of both."""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import groupwise as gw
from groupwise.environments import load_environment
from groupwise.policies import describe_model
from groupwise.training.auditing import _key, audit_before, audit_warnings
from groupwise.training.callbacks import Callback
from groupwise.verifiers import compose

HOLED = "groupwise.verifiers.audit.holed:answer_anywhere"
BASE: dict[str, Any] = {
    "model": {"name": "tiny"},
    "environment": {
        "name": "arithmetic",
        "verifiers": [{"name": HOLED}],
        "strict_verifiers": [{"name": "number"}],
    },
    "algorithm": {"preset": "grpo"},
    "sampling": {"group_size": 4, "max_tokens": 6, "temperature": 2.0},
    "training": {"prompts_per_step": 4, "steps": 2},
    "evaluation": {"every": 1, "samples": 4, "strict_gap_alarm": 0.01},
    "checkpoints": {"every": 0},
}


class Heard(Callback):
    def __init__(self) -> None:
        self.warnings: list[str] = []
        self.steps = 0
        self.before: list[str] = []

    def on_warning(self, message: str) -> None:
        self.warnings.append(message)
        if not self.steps:
            self.before.append(message)

    def on_step(self, line: Any) -> None:
        self.steps += 1


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own, with the tiny model of the usual one."""
    from groupwise.policies.cache import cache_folder

    folder = tmp_path / "cache"
    folder.mkdir()
    gw.load_policy("tiny")
    (folder / "models").symlink_to(cache_folder() / "models")
    monkeypatch.setenv("GROUPWISE_CACHE", str(folder))
    return folder


def test_the_hole_is_named_before_the_first_step(tmp_path: Path, cache: Path) -> None:
    heard = Heard()
    run = gw.train(BASE, output=tmp_path / "run", callbacks=[heard])
    assert heard.before[0].startswith(f"auditing the verifier ({HOLED}) before the first step")
    assert heard.before[1].startswith("auditing the strict verifiers (number) before the first")
    assert any("every_option" in w and "0123456789" in w for w in heard.before)
    recorded = run.environment["audit"]
    assert recorded["passed"] is False
    assert "every_option" in {p["name"] for p in recorded["probes"] if p["hole"]}
    assert recorded["strict"]["verifier"] == "number"
    assert recorded["strict"]["passed"] is True
    about = [event["about"] for event in run.events("warning")]
    assert "audit" in about


def test_the_gap_is_recorded_and_raises_an_alarm(tmp_path: Path, cache: Path) -> None:
    heard = Heard()
    run = gw.train(BASE, output=tmp_path / "run", callbacks=[heard])
    table = run.evaluations().to_pylist()
    for row in table:
        assert row["eval/strict_gap"] == pytest.approx(
            row["eval/accuracy"] - row["eval/strict"], abs=1e-9
        )
        assert row["eval/strict_gap"] >= 0
        assert row["eval/heldout_strict"] is not None
    assert table[0]["eval/strict_gap"] > 0.01  # temperature 2: some answers are followed by more
    assert any("strict verifiers" in warning for warning in heard.warnings)
    alarms = [e for e in run.events("warning") if e["about"] == "strict_gap"]
    assert alarms
    assert "gamed" in alarms[0]["message"]
    line = run.metrics().to_pylist()[-1]
    assert line["eval/strict"] == table[-1]["eval/strict"]


def test_a_strict_verifier_with_a_hole_is_named_too(cache: Path) -> None:
    strict = [{"name": HOLED}]
    environment = load_environment("arithmetic", verifiers=[{"name": "number"}])
    environment.strict = compose(strict)
    found = audit_before(environment, describe_model("tiny").template)
    assert found["passed"] is True
    warnings = audit_warnings(found)
    assert "audit of the strict verifiers: the probe every_option" in "".join(warnings)


async def hangs(completions: list[Any], **_: Any) -> list[float]:
    await asyncio.sleep(600)
    return []


def slow(completions: list[Any], **_: Any) -> list[float]:
    time.sleep(0.8)
    return [0.0] * len(completions)


def test_a_function_that_hangs_ends_the_audit_at_its_limit(
    cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One that can be abandoned; a slow one in the main thread is named and waited for."""
    monkeypatch.setattr("groupwise.training.auditing.LIMIT", 0.3)
    monkeypatch.setattr("groupwise.training.auditing.BUDGET", 0.1)
    found = {}
    for name in ("hangs", "slow"):
        environment = load_environment(
            "arithmetic", verifiers=[{"name": f"test_audit_before:{name}"}]
        )
        start = time.monotonic()
        found[name] = audit_before(environment, describe_model("tiny").template)
        assert time.monotonic() - start < 10
        assert any("0.1 s, without" in warning for warning in found[name]["warnings"])
    assert found["hangs"]["outcomes"]["verifier_timeout"] >= 1
    assert "verifier_timeout" not in found["slow"]["outcomes"]
    assert any("is waited for: it is in slow (" in message for message in caplog.messages)


def test_it_can_be_switched_off(tmp_path: Path, cache: Path) -> None:
    heard = Heard()
    run = gw.train(BASE, {"environment.audit": False}, tmp_path / "run", callbacks=[heard])
    assert run.environment["audit"] is None
    assert not any("audit of the verifier" in warning for warning in heard.before)
    assert not (cache / "audits").exists()


def test_one_audit_a_pair_of_verifier_and_data(cache: Path) -> None:
    template = describe_model("tiny").template
    holed = load_environment("arithmetic", verifiers=[{"name": HOLED}])
    first = audit_before(holed, template)
    (path,) = (cache / "audits").glob("*.json")
    marked = json.loads(path.read_text()) | {"verifier": "from the cache"}
    path.write_text(json.dumps(marked))
    again = audit_before(holed, template)
    assert again["verifier"] == "from the cache"
    assert again["hash"] == first["hash"]
    other_data = load_environment("arithmetic", verifiers=[{"name": HOLED}], level="below_20")
    other_verifier = load_environment("arithmetic", verifiers=[{"name": "number"}])
    hashes = {audit_before(each, template)["hash"] for each in (other_data, other_verifier)}
    assert len(hashes | {first["hash"]}) == 3
    assert len(list((cache / "audits").glob("*.json"))) == 3


@pytest.mark.parametrize("time_limit", [None, 5.0])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("return [grade(c) for c in completions]", "return [1 - grade(c) for c in completions]"),
        ("return float(text == '7')", "return float('7' in text)"),
    ],
    ids=["the function", "its helper"],
)
def test_a_changed_reward_function_is_audited_again(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    before: str,
    after: str,
    time_limit: float | None,
) -> None:
    source = (
        "def grade(text):\n    return float(text == '7')\n\n\n"
        "def reward(completions, **kwargs):\n    return [grade(c) for c in completions]\n"
    )
    monkeypatch.syspath_prepend(tmp_path)

    def key(text: str) -> str:
        (tmp_path / "audited_reward.py").write_text(text, encoding="utf-8")
        sys.modules.pop("audited_reward", None)
        importlib.invalidate_caches()
        table = {"name": "audited_reward:reward", "time_limit": time_limit}
        verifier = compose([table])
        verifier.close()
        return _key(verifier, "the same data")

    assert before in source
    assert key(source) == key(source)
    assert key(source) != key(source.replace(before, after))


def test_three_warnings_are_printed_and_the_rest_counted() -> None:
    assert audit_warnings(None) == []
    assert audit_warnings({"warnings": ["a", "b", "c"]}) == [
        f"audit of the verifier: {each}" for each in "abc"
    ]
    shown = audit_warnings({"warnings": list("abcde")})
    assert len(shown) == 4
    assert shown[3] == "audit: and 2 more: groupwise audit RECIPE.toml"


def test_dominating_weights_are_left_to_the_run_itself(cache: Path) -> None:
    tables = [{"name": "number"}, {"name": "repetition"}]
    loose = load_environment("arithmetic", verifiers=tables)
    (weights,) = loose.verifier.warnings()
    assert "as much as number" in weights
    audited = audit_before(loose, describe_model("tiny").template)
    assert weights not in audited["warnings"]
