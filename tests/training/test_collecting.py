"""Whole runs of the tiny policy in which not every rollout gets a gradient: faults 30 to 32, resume
in the middle of what waits, and what is counted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from test_data_runs import rows

import groupwise as gw
from groupwise.environments import Environment
from groupwise.errors import GroupwiseError, RecipeError
from groupwise.policies import load_policy
from groupwise.recipe import load_recipe
from groupwise.records import find_metric
from groupwise.training.preparing import prepare
from groupwise.types import Prompt, Score
from groupwise.verifiers import Case, Verifier
from run_helpers import Keep, StopAfter

DYNAMIC = {"kind": "dynamic_sampling", "max_batches": 6}
BASE: dict[str, Any] = {
    "seed": 2,
    "model": {"name": "tiny"},
    "environment": {"name": "arithmetic", "level": "table", "audit": False},
    "algorithm": {"preset": "dapo", "filters": [DYNAMIC]},
    "sampling": {"group_size": 4, "max_tokens": 4},
    "training": {"prompts_per_step": 8, "steps": 6, "learning_rate": 1e-3},
    "evaluation": {"every": 0, "samples": 1, "max_prompts": 2},
    "checkpoints": {"every": 2, "keep": 9},
}


class Parity(Verifier):
    """Passed for an even last character where the answer is "mixed"; else by the answer alone.

    The tiny policy is even about half of the time on the sums below.
    """

    name = "parity"  # type: ignore[assignment]

    def score(self, cases: Sequence[Case]) -> list[Score]:
        return [_score(case) for case in cases]


def _score(case: Case) -> Score:
    passed = case.prompt.answer == "always"
    if case.prompt.answer == "mixed":
        passed = case.text[-1:] in set("02468")
    return Score(float(passed), "correct" if passed else "incorrect")


def sums(seed: int, mixed: int = 0, always: int = 0, never: int = 0) -> Environment:
    """Prompts by how they go: sometimes passed, always, never."""
    kinds = ["mixed"] * mixed + ["always"] * always + ["never"] * never
    sums = ("6+0=", "0+1=", "3+0=", "4+4=", "1+7=", "1+5=", "2+7=", "3+6=")
    rows = [
        Prompt(
            f"p{n}",
            ({"role": "user", "content": sums[n % len(sums)]},),
            answer=kind,
            columns={"kind": kind},
        )
        for n, kind in enumerate(kinds)
    ]
    return Environment("sums", Parity(), {"train": rows})


class Alternating(Verifier):
    """Tells any two neighbours apart, right or wrong."""

    name = "alternating"  # type: ignore[assignment]

    def score(self, cases: Sequence[Case]) -> list[Score]:
        return [Score(float(n % 2), "partial") for n, _ in enumerate(cases)]


def own(**counts: int) -> dict[str, Any]:
    return {"environment": {"name": "test_collecting:sums", "audit": False, **counts}}


def weights(folder: Path, step: int) -> dict[str, torch.Tensor]:
    return load_file(folder / "checkpoints" / f"step_{step:06d}" / "model.safetensors")


def lines(run: Any) -> list[dict[str, Any]]:
    return run.metrics().to_pylist()  # type: ignore[no-any-return]


# --- fault 30 -----------------------------------------------------------------------------------


def test_fault_30_a_reward_that_is_always_1_skips_steps_by_name(tmp_path: Path) -> None:
    """Bounded rounds, no update, no schedule, everything counted and recorded."""
    keep = Keep()
    changes = {**own(always=10), "training.prompts_per_step": 4, "training.steps": 2}
    changes["training.schedule"] = "linear"
    run = gw.train({**BASE, **own(always=10)}, changes, output=tmp_path / "a", callbacks=[keep])
    for line in lines(run):
        assert (line["selection/rounds"], line["groups/count"]) == (6, 24)
        assert (line["selection/skipped"], line["selection/trained"]) == (1, 0)
        assert line["selection/discarded"] == 24
        assert (line["updates"], line["updates/skipped"], line["updates_total"]) == (0, 1, 0)
        assert line["tokens/gradient_share"] == 0.0
        assert line["groups/no_signal"] == 1.0
        assert line["learning_rate"] is None
    start = dict(load_policy("tiny").model.state_dict())
    assert all(torch.equal(start[name], each) for name, each in weights(run.folder, 2).items())
    table = run.rollouts().to_pandas()
    assert len(table) == 2 * 24 * 4
    assert set(table["kind"]) == {"discarded"}
    told = [note for note in keep.notes if "the step is skipped" in note]
    assert len(told) == 2
    assert "6 rounds of dynamic sampling sampled 24 groups and only 0 of 4" in told[0]
    assert "of different reward (1 to 1, mean 1)" in told[0]
    assert any("no update was made" in note for note in keep.notes)


class OutOfTen(Verifier):
    """A reward of 1 to 10, the last digit plus one; above 1 it has no verdict."""

    name = "out_of_ten"  # type: ignore[assignment]

    def score(self, cases: Sequence[Case]) -> list[float]:
        digits = [int(case.text[-1:]) if case.text[-1:].isdigit() else 0 for case in cases]
        return [1.0 + digit for digit in digits]


def out_of_ten(seed: int) -> Environment:
    return Environment("out of ten", OutOfTen(), {"train": sums(seed, mixed=12).prompts()})


@pytest.mark.parametrize("filters", [None, ["zero_variance_drop", "overlong_mask"]])
def test_rewards_above_one_are_learned_from(tmp_path: Path, filters: list[str] | None) -> None:
    """Their scale is not declared, so there is no accuracy and a warning says why."""
    keep = Keep()
    changes: dict[str, Any] = {
        "environment": {"name": f"{__name__}:out_of_ten", "audit": False},
        "training.steps": 8, "sampling.group_size": 8, "algorithm": {"preset": "dapo"},
    }  # fmt: skip
    if filters is not None:
        changes["algorithm"] = {"preset": "dapo", "filters": filters}
    run = gw.train(BASE, changes, output=tmp_path / "a", callbacks=[keep])
    rewards = [line["reward"] for line in lines(run)]
    assert sum(line["updates"] for line in lines(run)) >= 5
    assert max(rewards[-3:]) > rewards[0] + 1.0
    assert run.summary["eval/accuracy_last"] is None
    assert sum("Set correct_from in [[environment.verifiers]]" in note for note in keep.notes) == 1


def test_what_discards_every_group_is_named(tmp_path: Path) -> None:
    """By the verdict every group here is solved, while its rewards differ: the message says so."""
    keep = Keep()
    changes = {
        "environment": {"name": f"{__name__}:out_of_ten", "audit": False}, "training.steps": 1,
        "algorithm": {"preset": "dapo", "filters": [{**DYNAMIC, "by": "accuracy"}]},
    }  # fmt: skip
    gw.train(BASE, changes, output=tmp_path / "a", callbacks=[keep])
    told = " ".join(keep.notes)
    assert "of different accuracy (1 to 1, mean 1)" in told
    assert "the rewards of discarded groups do differ (by = 'reward' keeps those)" in told
    assert "had completions of different accuracy; read groups/no_signal" in told


def test_fault_30_or_stops_where_the_recipe_says_so(tmp_path: Path) -> None:
    stop = {"algorithm.filters": [{**DYNAMIC, "when_short": "stop", "max_batches": 2}]}
    with pytest.raises(GroupwiseError, match=r"step 0: 2 rounds .*the run stops.*when_short"):
        gw.train({**BASE, **own(always=4)}, stop, output=tmp_path / "a")
    assert gw.open_run(tmp_path / "a").summary["status"] == "failed"


def test_fault_30_a_reward_that_informs_on_1_of_10_prompts_fills_the_batch(tmp_path: Path) -> None:
    filters = [{**DYNAMIC, "max_batches": 60}]
    changes = {"training.prompts_per_step": 4, "training.steps": 2, "algorithm.filters": filters}
    changes["sampling.group_size"] = 16
    run = gw.train({**BASE, **own(mixed=1, always=4, never=5)}, changes, output=tmp_path / "a")
    table = run.rollouts().to_pandas()
    trained = table[table["kind"] == "training"]
    for step, line in enumerate(lines(run)):
        own_rows = trained[trained["step"] == step]
        assert set(own_rows["prompt_id"]) == {"p0"}
        assert len(own_rows) == 4 * 16
        assert own_rows.groupby("visit")["reward"].nunique().eq(2).all()
        assert line["groups/count"] == line["selection/trained"] + line["selection/discarded"]
        assert line["groups/count"] >= 31  # four visits of one prompt in ten
        assert line["updates_total"] == step + 1
    # no noise is drawn twice: the visits of a prompt number themselves through
    visits = table.drop_duplicates(["prompt_id", "visit"])
    assert len(visits) * 16 == len(table)
    own_visits = sorted(visits[visits["prompt_id"] == "p0"]["visit"])
    assert own_visits == list(range(len(own_visits)))
    assert len(own_visits) >= 8
    texts = trained.groupby("visit")["text"].agg("".join)
    assert texts.nunique() > 1


def test_fault_30_seven_prompts_and_batches_of_four_cross_the_epochs_edge(tmp_path: Path) -> None:
    run = gw.train(
        {**BASE, **own(mixed=7)},
        {"training.prompts_per_step": 4, "training.steps": 5, "sampling.group_size": 16},
        output=tmp_path / "a",
    )
    table = run.rollouts().to_pandas().drop_duplicates(["prompt_id", "visit"])
    sampled = sum(line["groups/count"] for line in lines(run))
    assert len(table) == sampled >= 20
    counts = table["prompt_id"].value_counts()
    assert counts.max() - counts.min() <= 1  # every epoch whole before the next
    assert [line["selection/trained"] for line in lines(run)] == [4] * 5


# --- surplus, partial steps, which values -------------------------------------------------------


def test_surplus_waits_with_its_version_and_is_counted_stale(tmp_path: Path) -> None:
    filters = [{**DYNAMIC, "oversample": 2.0}]
    run = gw.train(BASE, {"algorithm.filters": filters}, output=tmp_path / "a")
    table = run.rollouts().to_pandas()
    trained = table[table["kind"] == "training"]
    found = lines(run)
    assert any(line["selection/carried"] > 0 for line in found)
    for step, line in enumerate(found):
        rows = trained[trained["step"] == step]
        assert rows.groupby(["prompt_id", "visit"]).ngroups == 8
        ages = step - rows["version"]
        assert line["staleness"] == pytest.approx(ages.mean())
        before = 0 if step == 0 else found[step - 1]["selection/carried"]
        assert line["groups/count"] + before == (
            line["selection/trained"] + line["selection/discarded"] + line["selection/carried"]
        )
        settled = table[(table["step"] == step) & table["kind"].isin(["training", "discarded"])]
        tokens = sum(sum(mask) for mask in settled["mask"])
        useful = line["tokens/with_gradient"]
        assert line["tokens/gradient_share"] == pytest.approx(useful / tokens)
        assert line["tokens/gradient_share"] <= 1
    assert (trained["step"] - trained["version"]).max() >= 1
    names = ["prompt_id", "visit", "group_index"]
    once = table[table["kind"] != "waiting"]
    assert len(once) == len(once.drop_duplicates(names))
    assert len(table.drop_duplicates(names)) == 4 * sum(line["groups/count"] for line in found)
    discarded = gw.train(
        BASE,
        {"algorithm.filters": [{**filters[0], "surplus": "discard"}], "training.steps": 3},
        output=tmp_path / "b",
    )
    assert all(
        line["staleness"] == 0 and not line["selection/carried"] for line in lines(discarded)
    )


def test_a_short_step_can_learn_from_what_it_has(tmp_path: Path) -> None:
    """Fewer groups than minibatches: the updates without groups are skipped and counted."""
    filters = [{**DYNAMIC, "max_batches": 1, "when_short": "partial"}]
    changes = {
        "algorithm.filters": filters, "training.minibatches": 4, "training.steps": 4,
        "training.prompts_per_step": 4, "sampling.group_size": 16,
    }  # fmt: skip
    run = gw.train({**BASE, **own(mixed=3, never=4)}, changes, output=tmp_path / "a")
    seen = {line["selection/trained"] for line in lines(run)}
    assert seen <= {0, 1, 2, 3}
    assert seen & {1, 2, 3}
    for line in lines(run):
        assert line["updates"] + line["updates/skipped"] == 4
        assert line["updates"] <= line["selection/trained"]


def test_groups_are_kept_by_accuracy_not_by_the_shaped_reward(tmp_path: Path) -> None:
    """A second verifier tells the rows of a solved group apart; the outcome does not."""
    verifiers = [
        {"name": "number"},
        {"name": "test_collecting:Alternating", "weight": 0.1, "label": "alternating"},
    ]
    for by, names in (("accuracy", None), ("number", None), ("reward", "more")):
        filters = [{**DYNAMIC, "by": by, "max_batches": 1, "when_short": "partial"}]
        changes = {
            "algorithm.filters": filters,
            "training.steps": 1,
            "training.prompts_per_step": 44,
        }
        run = gw.train(
            {**BASE, "environment": {**BASE["environment"], "verifiers": verifiers}},
            changes,
            output=tmp_path / by,
        )
        table = run.rollouts().to_pandas()
        kept = table[table["kind"] == "training"].groupby("prompt_id")["outcome"].nunique()
        assert (kept > 1).all() == (names is None)
        assert len(kept) < 44 or by == "reward"
    with pytest.raises(
        RecipeError, match=r"by = 'numbr' is not a verifier .*accuracy, reward, number"
    ):
        prepare(load_recipe(BASE, {"algorithm.filters": [{**DYNAMIC, "by": "numbr"}]}))


def test_a_prompt_that_is_dropped_is_still_counted_as_passed(tmp_path: Path) -> None:
    """scale_rl's pass rate beside dynamic sampling: solved groups never reach the batch."""
    keep = Keep()
    filters = [{**DYNAMIC, "when_short": "partial", "max_batches": 2}, {"kind": "pass_rate"}]
    changes = {"algorithm.filters": filters, "training.prompts_per_step": 6, "training.steps": 2}
    run = gw.train({**BASE, **own(mixed=2, always=4)}, changes, tmp_path / "a", callbacks=[keep])
    assert keep.session is not None
    assert {f"p{n}" for n in range(2, 6)} <= {
        each for each, h in keep.session.state.passes.items() if h.rate == 1.0
    }
    table = run.rollouts().to_pandas()
    assert not set(table[table["step"] == 1]["prompt_id"]) & {f"p{n}" for n in range(2, 6)}


# --- everything else of [selection], exact on resume --------------------------------------------

SELECTIONS: dict[str, dict[str, Any]] = {
    "surplus waits": {"algorithm.filters": [{**DYNAMIC, "oversample": 2.0}]},
    "skipped steps carry": {
        **own(mixed=2, never=6), "sampling.group_size": 8,
        "algorithm.filters": [{**DYNAMIC, "max_batches": 2}],
        "training.prompts_per_step": 4,
    },
    "replay": {
        "algorithm": {"preset": "grpo", "correction": "truncate"}, "sampling.group_size": 8,
        "selection.replay": {"per_step": 2, "at_most": 0.4, "max_staleness": 3},
    },
    "weighted, pool, sizes": {
        "algorithm": {"preset": "grpo"}, "sampling.group_size": 6,
        "selection.order": "weighted", "selection.pool": {"low": 0.05, "high": 0.95},
        "selection.sizes": {"low": 3, "high": 12}, "training.steps": 8,
    },
    "curriculum": {
        **own(mixed=6, never=6), "algorithm": {"preset": "grpo"},
        "selection.curriculum": {
            "column": "kind", "levels": ["mixed", "never"], "promote_at": 0.2, "window": 20,
        },
    },
    "best of many, longer and longer": {
        "sampling.group_size": 8, "selection.train_on": 4,
        "selection.length": {"start": 1, "updates": 4},
    },
}  # fmt: skip


QUICK = ("surplus waits", "replay")
NAMES = [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in SELECTIONS]


@pytest.mark.parametrize("name", NAMES)
def test_a_resumed_run_equals_the_unbroken_one(name: str, tmp_path: Path) -> None:
    """Stopped in the fourth step, with a checkpoint after the second: what waits is in it."""
    changes = SELECTIONS[name]
    recipe = {**BASE, **({} if "environment" not in changes else {"environment": {}})}
    run = resumed_equals_unbroken(recipe, changes, tmp_path)
    if name == "curriculum":  # the second level opens between the checkpoint and the stop
        assert [line["selection/level"] for line in lines(run)] == [0, 0, 0, 1, 1, 1]


@pytest.mark.slow
def test_the_surplus_of_a_file_waits_with_its_prompts(tmp_path: Path) -> None:
    """A waiting group's prompt is found by its id when the run resumes."""
    recipe = {**BASE, "environment": {**rows(tmp_path), "audit": False}}
    changes = {"algorithm.filters": [{**DYNAMIC, "oversample": 2.0}]}
    run = resumed_equals_unbroken(recipe, changes, tmp_path)
    assert any(line["selection/carried"] for line in lines(run)[1:4])


def resumed_equals_unbroken(recipe: Any, changes: Any, folder: Path) -> Any:
    whole = gw.train(recipe, changes, output=folder / "whole")
    with pytest.raises(KeyboardInterrupt):
        gw.train(recipe, changes, output=folder / "broken", callbacks=[StopAfter(3)])
    run = gw.train(recipe, changes, output=folder / "broken", resume=True)
    last = run.summary["steps"]
    for key, tensor in weights(whole.folder, last).items():
        assert torch.equal(tensor, weights(run.folder, last)[key]), key
    for mine, theirs in zip(lines(run), lines(whole), strict=True):
        for key, value in theirs.items():
            if not find_metric(key).measured:
                assert mine[key] == value, key
    columns = [
        "step", "kind", "prompt_id", "visit", "group_index", "text", "reward", "advantage",
        "version", "finish_reason",
    ]  # fmt: skip
    found, expected = run.rollouts().to_pandas(), whole.rollouts().to_pandas()
    assert found[columns].equals(expected[columns])
    return run


def test_replayed_groups_are_weighed_by_their_own_sampler(tmp_path: Path) -> None:
    changes = {**SELECTIONS["replay"], "training.learning_rate": 3e-3}
    run = gw.train(BASE, changes, output=tmp_path / "a")
    found = lines(run)
    assert found[0]["selection/replayed"] == 0
    assert any(line["selection/replayed"] for line in found)
    table = run.rollouts().to_pandas()
    again = table[table["kind"] == "replayed"]
    assert (again["version"] < again["step"]).all()
    assert (again["step"] - again["version"]).max() <= 3
    assert again.groupby(["step", "prompt_id", "visit"])["reward"].mean().between(0.01, 0.4).all()
    uses = again.drop_duplicates(["step", "prompt_id", "visit"])[["prompt_id", "visit"]]
    assert uses.value_counts().max() <= 2
    for line in found:
        stale = line["selection/replayed"] > 0
        assert (line["correction/max"] > 1.0001 or line["correction/min"] < 0.9999) == stale
        assert (line["staleness"] > 0) == stale
    with pytest.raises(RecipeError, match=r"selection\.replay: .*correction = \"truncate\""):
        load_recipe(BASE, {"selection.replay": {}})


def test_best_of_many_learns_from_the_extremes(tmp_path: Path) -> None:
    run = gw.train(
        {**BASE, "algorithm": {"preset": "grpo"}},
        {"sampling.group_size": 8, "selection.train_on": 2, "training.steps": 1},
        output=tmp_path / "a",
    )
    table = run.rollouts().to_pandas()
    line = lines(run)[0]
    assert table["kind"].value_counts().to_dict() == {"discarded": 48, "training": 16}
    spread = table.groupby("prompt_id")["reward"].nunique()
    kept = table[table["kind"] == "training"].groupby("prompt_id")["reward"].nunique()
    assert (kept == spread).all()
    assert line["completions/count"] == 64
    with pytest.raises(RecipeError, match="train_on = 8"):
        load_recipe(BASE, {"sampling.group_size": 8, "selection.train_on": 8})


@pytest.mark.slow
def test_group_sizes_follow_the_pass_rate_within_the_budget(tmp_path: Path) -> None:
    changes = {
        "algorithm": {"preset": "grpo"}, "sampling.group_size": 6, "training.steps": 12,
        "selection.sizes": {"low": 2, "high": 16}, "training.learning_rate": 1e-6,
    }  # fmt: skip
    run = gw.train(BASE, changes, output=tmp_path / "a")
    table = run.rollouts().to_pandas()
    groups = table.groupby(["step", "prompt_id", "visit"]).size()
    assert groups.min() >= 2
    assert groups.max() > 6
    assert (table.groupby("step").size() <= 48).all()
    later = table[table["visit"] >= 1]
    size = later.groupby(["prompt_id", "visit"]).size().groupby("prompt_id").max()
    earlier = table[table["visit"] == 0].groupby("prompt_id")["reward"].mean()
    uneven = size[earlier[earlier.isin([0.0, 1.0])].index.intersection(size.index)]
    even = size[earlier[earlier.between(0.3, 0.7)].index.intersection(size.index)]
    assert uneven.mean() > even.mean()
    for table_, words in (
        ({"selection.sizes": {"low": 8}}, r"group_size = 4 is outside"),
        ({"algorithm": {"preset": "two_grpo"}, "sampling.group_size": 2,
          "selection.sizes": {"low": 2}}, "takes exactly 2"),
    ):  # fmt: skip
        with pytest.raises(RecipeError, match=words):
            load_recipe(BASE, table_)


def test_max_tokens_grows_with_the_updates_alone(tmp_path: Path) -> None:
    """A skipped step moves nothing."""
    changes = {
        "selection.length": {"start": 1, "updates": 3}, "training.prompts_per_step": 4,
        "algorithm.filters": [{**DYNAMIC, "max_batches": 1}], "sampling.group_size": 16,
    }  # fmt: skip
    run = gw.train({**BASE, **own(mixed=3, never=5)}, changes, output=tmp_path / "a")
    found = lines(run)
    assert any(line["selection/skipped"] for line in found)
    with pytest.raises(RecipeError, match=r"length\.start = 9 is above sampling\.max_tokens = 4"):
        load_recipe(BASE, {"selection.length": {"start": 9, "updates": 3}})
    updates = 0
    for line in found:
        assert line["selection/max_tokens"] == min(1 + updates, 4)
        assert line["completions/tokens_max"] <= line["selection/max_tokens"]
        updates = line["updates_total"]


def test_a_curriculum_opens_levels_in_a_run(tmp_path: Path) -> None:
    recipe = {
        **BASE, "algorithm": {"preset": "grpo"},
        "environment": {"name": "countdown", "level": "mixed", "num_train": 30, "num_heldout": 6,
                        "audit": False, "verifiers": [{"name": "test_collecting:Parity"}]},
    }  # fmt: skip
    levels = {"levels": ["easy", "medium", "hard"], "promote_at": 0.01, "window": 8}
    keep = Keep()
    run = gw.train(
        recipe,
        {"selection.curriculum": {**levels, "rehearse": 0.0}, "training.steps": 1},
        output=tmp_path / "a",
        callbacks=[keep],
    )
    assert [line["selection/level"] for line in lines(run)] == [0]
    assert keep.session is not None
    taken = run.rollouts().to_pandas()["prompt_id"].unique()
    found = {keep.session.environment.prompt(each).columns["level"] for each in taken}
    assert found == {"easy"}
    levels["levels"] = ["easy", "medium", "hard", "expert"]
    with pytest.raises(RecipeError, match="which no training prompt has"):
        prepare(load_recipe(recipe, {"selection.curriculum": levels}))


# --- faults 31 and 32 ---------------------------------------------------------------------------


def test_fault_31_any_pair_is_valid_and_the_plan_says_the_totals(tmp_path: Path) -> None:
    """32 prompts, 4 a step, groups of 8, 2 epochs: 16 steps. And one prompt a step is legal."""
    from groupwise.training.planned import plan_of

    recipe = {**BASE, **own(mixed=32), "algorithm": {"preset": "grpo"}}
    changes = {
        "training.prompts_per_step": 4, "sampling.group_size": 8, "training.steps": 16,
    }  # fmt: skip
    plan = plan_of(prepare(load_recipe(recipe, changes)))
    assert (plan.completions_per_step, plan.steps_per_epoch, plan.epochs) == (32, 8.0, 2.0)
    for words in ("16 steps", "4 prompts", "32 completions", "8 steps an epoch", "2 epochs"):
        assert words in plan.summary_line(), words
    odd = {"training.prompts_per_step": 1, "sampling.group_size": 7, "training.steps": 1}
    run = gw.train(recipe, odd, output=tmp_path / "odd")
    assert lines(run)[0]["completions/count"] == 7


def test_fault_32_a_high_share_without_signal_is_told_once(tmp_path: Path) -> None:
    """One prompt in four informs: the share stays near 3/4, is logged every step and told once."""
    keep = Keep()
    recipe = {**BASE, **own(mixed=2, never=6), "algorithm": {"preset": "grpo"}}
    run = gw.train(recipe, {"training.steps": 12}, output=tmp_path / "a", callbacks=[keep])
    assert all(line["groups/no_signal"] >= 0.75 for line in lines(run))
    told = [note for note in keep.notes if "teach nothing" in note and "groups sampled" in note]
    assert len(told) == 1
    assert "p^G + (1 - p)^G with G = sampling.group_size = 4" in told[0]
    events = [json.loads(line) for line in (run.folder / "events.jsonl").read_text().splitlines()]
    assert next(each["about"] for each in events if each["kind"] == "warning") == "no_signal"
    again = Keep()
    gw.train(recipe, {"training.steps": 14}, tmp_path / "a", resume=True, callbacks=[again])
    assert not [note for note in again.notes if "teach nothing" in note]
