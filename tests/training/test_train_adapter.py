"""Runs with an adapter: the base never changes, resume is exact, the sampler has W + B A."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import groupwise as gw
from groupwise.errors import GroupwiseError, NonFiniteError, RecipeError
from groupwise.policies import (
    base_tensors,
    effective_weight,
    linear_layers,
    load_policy,
    save_pretrained,
    score,
    weights_hash,
)
from groupwise.recipe import load_recipe
from groupwise.training.preparing import prepare
from groupwise.training.session import check_agreement, frozen_copy, open_session
from groupwise.training.trained import evaluate_source, trained_policy
from run_helpers import Keep, StopAfter

BASE: dict[str, Any] = {
    "seed": 5,
    "model": {"name": "tiny", "adapter": {"rank": 4, "alpha": 8.0}},
    "environment": {"name": "arithmetic", "level": "table", "audit": False},
    "algorithm": {"preset": "grpo"},
    "sampling": {"group_size": 4, "max_tokens": 4},
    "training": {"prompts_per_step": 12, "steps": 6, "learning_rate": 5e-3},
    "evaluation": {"every": 0, "samples": 1, "max_prompts": 4},
    "checkpoints": {"every": 3, "keep": 5},
}
PROMPT, COMPLETION = (1, 5, 30, 40), (50, 51, 2)


def with_(**overrides: Any) -> Any:
    return load_recipe(BASE, {name.replace("__", "."): value for name, value in overrides.items()})


def weights(folder: Path, step: int, name: str = "model") -> dict[str, torch.Tensor]:
    return load_file(folder / "checkpoints" / f"step_{step:06d}" / f"{name}.safetensors")


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "unbroken"
    kept = Keep()
    gw.train(BASE, output=folder, callbacks=[kept])
    policy = kept.session.policy
    plain = load_policy("tiny", device="cpu").model.state_dict()
    assert weights_hash(base_tensors(policy.model)) == weights_hash(plain)
    return folder


def test_a_resumed_run_equals_the_unbroken_one_bit_for_bit(unbroken: Path, tmp_path: Path) -> None:
    folder = tmp_path / "broken"
    with pytest.raises(KeyboardInterrupt):
        gw.train(BASE, output=folder, callbacks=[StopAfter(4)])
    run = gw.train(BASE, output=folder, resume=True)
    for name in ("model", "optimizer"):
        ours, theirs = weights(folder, 6, name), weights(unbroken, 6, name)
        assert ours.keys() == theirs.keys()
        for key, tensor in theirs.items():
            assert torch.equal(ours[key], tensor), key
    texts = [r.rollouts().to_pandas()["text"].tolist() for r in (run, gw.open_run(unbroken))]
    assert texts[0] == texts[1]


def test_a_checkpoint_holds_the_adapter_alone(unbroken: Path) -> None:
    stored = weights(unbroken, 6)
    assert {name.split(".")[-3] for name in stored} == {"lora_A", "lora_B"}
    assert sum(tensor.numel() for tensor in stored.values()) == 9_728
    moments = weights(unbroken, 6, "optimizer")
    assert sum(tensor.numel() for tensor in moments.values() if tensor.dim()) == 2 * 9_728
    started = {name: tensor for name, tensor in stored.items() if "lora_B" in name}
    assert all(float(tensor.abs().max()) > 0 for tensor in started.values())


@pytest.mark.parametrize("sampler", ["transformers", "local"])
def test_the_sampler_has_w_plus_b_a_after_every_load_and_resume(
    sampler: str, tmp_path: Path
) -> None:
    """Fault 41: three loads, a checkpoint, a resume, three loads; each time W + B A, once."""
    recipe = {**BASE, "sampling": {**BASE["sampling"], "sampler": sampler}}
    base = load_policy("tiny", device="cpu")
    plain = {name: module.weight for name, module in linear_layers(base.model).items()}

    class Compare(Keep):
        seen = 0

        def on_step(self, line: Any) -> None:
            policy = self.session.policy
            for name, module in linear_layers(policy.model).items():
                expected: Any = plain[name]
                if name != "lm_head":
                    a, b = (
                        getattr(module, each)["default"].weight for each in ("lora_A", "lora_B")
                    )
                    expected = expected + 2.0 * b @ a
                assert torch.allclose(effective_weight(module), expected, atol=1e-7), name
            assert check_agreement(self.session) < 1e-5
            self.seen += 1

    first, second = Compare(), Compare()
    folder = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        gw.train(recipe, output=folder, callbacks=[first, StopAfter(3)])
    gw.train(recipe, output=folder, resume=True, callbacks=[second])
    assert (first.seen, second.seen) == (4, 3)
    exported = trained_policy(folder)
    ours = score(second.session.policy, PROMPT, COMPLETION)
    assert torch.equal(ours, score(exported, PROMPT, COMPLETION))
    assert not torch.equal(ours, score(base, PROMPT, COMPLETION))


def test_a_sampler_with_other_weights_stops_the_run() -> None:
    """Fault 40, at the start and after a resume."""
    session = open_session(prepare(with_()))
    assert check_agreement(session) < 1e-5
    with torch.no_grad():
        for name, parameter in session.policy.model.named_parameters():
            if "lora_B" in name:
                parameter.fill_(0.05)
    session.sampler.load(session.policy, 1)
    assert check_agreement(session) < 1e-5
    old = load_policy("tiny", device="cpu")
    session.sampler.load(old, 1)
    with pytest.raises(
        GroupwiseError, match=r"does not sample from the policy of version 0: on \d"
    ):
        check_agreement(session)
    session.close()


def test_a_wrong_sampler_is_recorded_and_no_step_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from groupwise.training import session as module

    def stale(settings: Any, *_: Any) -> Any:
        sampler = make(settings, load_policy("tiny", device="cpu"))
        monkeypatch.setattr(type(sampler), "load", lambda *_: None)
        return sampler

    make = module.sampler_of
    folder = tmp_path / "run"
    gw.train(BASE, {"training.steps": 3}, output=folder)
    monkeypatch.setattr(module, "sampler_of", stale)
    with pytest.raises(GroupwiseError, match="of version 3"):
        gw.train(BASE, output=folder, resume=True)
    run = gw.open_run(folder)
    assert (run.summary["status"], len(run.metrics())) == ("failed", 3)


def test_a_changed_base_is_refused(unbroken: Path, tmp_path: Path) -> None:
    base = save_pretrained(load_policy("tiny", device="cpu"), tmp_path / "base")
    recipe = {**BASE, "model": {**BASE["model"], "name": str(base)}}
    gw.train(recipe, {"training.steps": 3}, output=tmp_path / "run")
    file = base / "model.safetensors"
    tensors = load_file(file)
    name = min(tensors)
    save_file({**tensors, name: tensors[name] + 1e-3}, file, metadata={"format": "pt"})
    with pytest.raises(GroupwiseError, match=r"the frozen weights under the adapter are not those"):
        gw.train(recipe, output=tmp_path / "run", resume=True)
    with pytest.raises(GroupwiseError, match=r"the frozen weights under the adapter are not those"):
        trained_policy(tmp_path / "run")


# --- the reference --------------------------------------------------------------------------------


def test_the_reference_shares_the_base(tmp_path: Path) -> None:
    session = open_session(prepare(with_(training__measure_kl=True)))
    assert session.learner.reference is not None
    ours = dict(session.policy.model.named_parameters())
    for name, parameter in session.learner.reference.model.named_parameters():
        assert (parameter is ours[name]) == ("lora_" not in name), name
    trained = [p for group in session.learner.optimizer.param_groups for p in group["params"]]
    assert sum(p.numel() for p in trained) == session.policy.num_trained == 9_728
    session.close()
    run = gw.train(BASE, {"training.measure_kl": True}, output=tmp_path / "run")
    kl = run.metrics().to_pandas()["kl"]
    assert kl[0] == 0.0
    assert kl.iloc[-1] > 1e-3


@pytest.mark.slow
def test_a_moving_reference_is_the_policy_and_comes_back(tmp_path: Path) -> None:
    moving = {"algorithm.kl": {"placement": "loss", "coef": 0.01, "refresh_every": 2}}
    kept = Keep()
    whole = gw.train(BASE, moving, output=tmp_path / "whole", callbacks=[kept])
    extra = weights(whole.folder, 3, "extra")
    assert sum(t.numel() for n, t in extra.items() if n.startswith("reference.")) == 9_728
    with pytest.raises(KeyboardInterrupt):
        gw.train(BASE, moving, output=tmp_path / "broken", callbacks=[StopAfter(3)])
    broken = gw.train(BASE, moving, output=tmp_path / "broken", resume=True)
    for name, tensor in weights(whole.folder, 6).items():
        assert torch.equal(tensor, weights(broken.folder, 6)[name]), name
    reference, policy = kept.session.learner.reference, kept.session.policy
    assert reference is not None
    assert torch.equal(score(reference, PROMPT, COMPLETION), score(policy, PROMPT, COMPLETION))


def test_the_next_stages_reference_is_this_stages_policy(unbroken: Path, tmp_path: Path) -> None:
    first = trained_policy(unbroken)
    folder = save_pretrained(first, tmp_path / "adapter")
    expected = score(first, PROMPT, COMPLETION)
    going_on = load_policy(str(folder), device="cpu")
    assert torch.equal(score(frozen_copy(going_on), PROMPT, COMPLETION), expected)
    second = load_policy(str(folder), device="cpu", adapter={"rank": 2})
    assert torch.allclose(score(frozen_copy(second), PROMPT, COMPLETION), expected, atol=1e-5)
    recipe = {**BASE, "model": {"name": str(folder)}}
    run = gw.train(
        recipe, {"training.steps": 2, "training.measure_kl": True}, output=tmp_path / "second"
    )
    assert run.metrics().to_pandas()["kl"][0] == 0.0


# --- precision, commands, refusals ----------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("adapter", [{"rank": 4}, None])
@pytest.mark.parametrize("sampler", ["transformers", "local"])
def test_every_precision_trains_a_step(
    dtype: str, adapter: dict[str, Any] | None, sampler: str, tmp_path: Path
) -> None:
    """Fault 60."""
    model = {"name": "tiny", "dtype": dtype, **({} if adapter is None else {"adapter": adapter})}
    recipe = {**BASE, "model": model, "sampling": {**BASE["sampling"], "sampler": sampler}}
    run = gw.train(recipe, {"training.steps": 2}, output=tmp_path / "run")
    lines = run.metrics().to_pandas()
    assert lines["updates"].tolist() == [1, 1]
    assert (lines["grad_norm"] > 0).all()
    stored = weights(run.folder, 2)
    assert {tensor.dtype for tensor in stored.values()} == {torch.float32}


def test_nan_in_an_adapter_stops_with_step_and_tensor_named(tmp_path: Path) -> None:
    class Poison(Keep):
        def on_step(self, line: Any) -> None:
            with torch.no_grad():
                for name, parameter in self.session.policy.model.named_parameters():
                    if "layers.1.mlp.down_proj.lora_B" in name:
                        parameter.fill_(float("nan"))
            self.session.sampler.load(self.session.policy, 1)

    with pytest.raises(NonFiniteError, match=r"logits of completion token 0 .* version 1"):
        gw.train(BASE, output=tmp_path / "run", callbacks=[Poison()])
    assert gw.open_run(tmp_path / "run").summary["status"] == "failed"


def test_export_and_evaluation_of_a_run(unbroken: Path, tmp_path: Path) -> None:
    from groupwise.cli.app import run as command

    adapter, merged = tmp_path / "adapter", tmp_path / "merged"
    assert command(["export", str(unbroken), str(adapter)]) == 0
    assert command(["export", str(unbroken), str(merged), "--merge"]) == 0
    expected = score(trained_policy(unbroken), PROMPT, COMPLETION)
    ours = load_policy(str(adapter), device="cpu")
    assert torch.equal(score(ours, PROMPT, COMPLETION), expected)
    whole = load_policy(str(merged), device="cpu")
    assert torch.allclose(score(whole, PROMPT, COMPLETION), expected, atol=1e-5)
    assert evaluate_source(unbroken)["eval/accuracy"] is not None


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"model.adapter.rank": 0}, "model.adapter.rank = 0: must be at least 1"),
        (
            {"model.adapter.ranks": 4},
            "unknown key 'model.adapter.ranks'; did you mean 'model.adapter.rank'",
        ),
        ({"model.adapter.target_modules": ["q_prj"]}, "no linear layer 'q_prj'; nearest: q_proj"),
        ({"model.adapter.target_modules": "q"}, 'give "all-linear" or a list of layer names'),
        ({"model.adapter.dropout": 0.1}, "dropout = 0.1: completions are sampled and scored"),
        ({"model.adapter.kind": "dora"}, "model.adapter.kind = 'dora'"),
        ({"algorithm.preset": "ppo"}, 'training.critic = "separate" trains a second model'),
        (
            {
                "algorithm.kl": {
                    "placement": "loss",
                    "coef": 0.1,
                    "refresh_every": 2,
                    "refresh_mix": 0.5,
                }
            },
            "refresh_mix = 0.5: a mixture of two adapters",
        ),
    ],
)
def test_what_does_not_go_with_an_adapter(overrides: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        prepare(load_recipe(BASE, overrides))


def test_a_shared_critic_trains_over_an_adapter(tmp_path: Path) -> None:
    run = gw.train(
        BASE,
        {"algorithm": {"preset": "ppo"}, "training.critic": "shared", "training.steps": 2},
        output=tmp_path / "run",
    )
    assert (run.metrics().to_pandas()["value/grad_norm"] > 0).all()
    assert {name.split(".")[-3] for name in weights(run.folder, 2)} == {"lora_A", "lora_B"}
