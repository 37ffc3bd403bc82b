"""Checkpoints: bit-exact, whole or not at all, never fewer than one, the best one kept."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

from groupwise.checkpoints import (
    CheckpointWarning,
    best_checkpoints,
    checkpoint_steps,
    clean_leftovers,
    is_complete,
    load_checkpoint,
    newest_complete,
    prune,
    restore_model,
    restore_training_state,
    save_checkpoint,
    training_state,
)
from groupwise.checkpoints import files as checkpoints
from groupwise.errors import GroupwiseError

WEIGHTS = {"w": torch.arange(6.0).reshape(2, 3)}


class Tied(nn.Module):
    """An embedding that is also the output layer, as small language models have it."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.embed = nn.Embedding(7, 4)
        self.mlp = nn.Sequential(nn.Linear(4, 8), nn.SiLU(), nn.Linear(8, 4))
        self.register_buffer("positions", torch.arange(5))
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.mlp(self.embed(ids)))


def make_optimizer(name: str, model: nn.Module) -> torch.optim.Optimizer:
    if name == "sgd":
        return torch.optim.SGD(model.parameters(), lr=0.1)
    if name == "momentum":
        return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return torch.optim.AdamW(
        model.parameters(), lr=1e-2, betas=(0.9, 0.95), weight_decay=0.1, fused=name == "fused"
    )


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> None:
    for step in steps:
        generator = torch.Generator().manual_seed(step)
        ids = torch.randint(0, 7, (3, 5), generator=generator)
        optimizer.zero_grad(set_to_none=True)
        model(ids).logsumexp(-1).square().mean().backward()
        optimizer.param_groups[0]["lr"] = 0.01 / (step + 1)
        optimizer.step()


def save(folder: Path, step: int, **metrics: float | None) -> Path:
    return save_checkpoint(
        folder, step, model_state=WEIGHTS, state={"cursor": step}, metrics=metrics
    )


def same(a: object, b: object) -> bool:
    """Equal bit for bit, nested."""
    if isinstance(a, torch.Tensor):
        return (
            isinstance(b, torch.Tensor)
            and a.dtype == b.dtype
            and a.shape == b.shape
            and a.contiguous()
            .view(-1)
            .view(torch.uint8)
            .equal(b.contiguous().view(-1).view(torch.uint8))
        )
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


@pytest.mark.parametrize("name", ["adamw", "fused", "sgd", "momentum"])
@pytest.mark.parametrize("stop", [0, 1, 3])
def test_a_resumed_run_equals_the_unbroken_one_bit_for_bit(tmp_path: Path, name: str, stop: int):
    whole = Tied()
    whole_optimizer = make_optimizer(name, whole)
    train(whole, whole_optimizer, range(5))

    first = Tied()
    optimizer = make_optimizer(name, first)
    train(first, optimizer, range(stop))
    model_state, optimizer_state = training_state(first, optimizer)
    path = save_checkpoint(
        tmp_path, stop, model_state=model_state, optimizer_state=optimizer_state, state={}
    )

    resumed = Tied(seed=9)
    resumed_optimizer = make_optimizer(name, resumed)
    restore_training_state(resumed, resumed_optimizer, load_checkpoint(path))
    assert same(dict(resumed.state_dict()), dict(first.state_dict()))
    assert same(resumed_optimizer.state_dict(), optimizer.state_dict())
    train(resumed, resumed_optimizer, range(stop, 5))
    assert same(dict(resumed.state_dict()), dict(whole.state_dict()))
    assert same(resumed_optimizer.state_dict(), whole_optimizer.state_dict())


def test_saving_changes_nothing_in_the_run():
    model = Tied()
    optimizer = make_optimizer("adamw", model)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    _, fresh = training_state(model, optimizer)
    assert fresh["state"] == {}
    assert not optimizer.state
    assert same(dict(model.state_dict()), before)
    train(model, optimizer, range(2))
    moments = {k: v.clone() for k, v in next(iter(optimizer.state.values())).items()}
    training_state(model, optimizer)
    assert same(dict(next(iter(optimizer.state.values()))), moments)


def test_tied_weights_are_stored_once_and_come_back_under_both_names(tmp_path: Path):
    model = Tied()
    model_state, _ = training_state(model, make_optimizer("sgd", model))
    path = save_checkpoint(tmp_path, 1, model_state=model_state, state={})
    size = (path / "model.safetensors").stat().st_size
    numbers = sum(p.numel() for p in model.parameters()) * 4
    assert numbers < size < numbers + 5 * 8 + 1024
    loaded = load_checkpoint(path)
    assert loaded.model_state.keys() == model.state_dict().keys()
    assert loaded.model_state["head.weight"].equal(model.embed.weight)
    other = Tied(seed=5)
    restore_model(other, loaded)
    assert other.head.weight is other.embed.weight
    assert same(dict(other.state_dict()), dict(model.state_dict()))


def test_a_transformers_model_survives(tmp_path: Path):
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=17,
        hidden_size=8,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        tie_word_embeddings=True,
    )
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters())
    model(input_ids=torch.tensor([[1, 2, 3]])).logits.sum().backward()
    optimizer.step()
    model_state, optimizer_state = training_state(model, optimizer)
    path = save_checkpoint(
        tmp_path, 1, model_state=model_state, optimizer_state=optimizer_state, state={}
    )
    other = transformers.LlamaForCausalLM(config)
    other_optimizer = torch.optim.AdamW(other.parameters())
    restore_training_state(other, other_optimizer, load_checkpoint(path))
    assert same(dict(other.state_dict()), dict(model.state_dict()))
    assert same(other_optimizer.state_dict(), optimizer.state_dict())
    assert other.lm_head.weight is other.model.embed_tokens.weight


def test_frozen_parameters_and_groups_keep_their_place(tmp_path: Path):
    def build(seed: int) -> tuple[Tied, torch.optim.Optimizer]:
        model = Tied(seed)
        model.mlp[0].requires_grad_(False)
        return model, torch.optim.AdamW(
            [
                {"params": [model.embed.weight], "lr": 0.5},
                {"params": list(model.mlp[2].parameters())},
            ]
        )

    model, optimizer = build(0)
    train(model, optimizer, range(2))
    model_state, optimizer_state = training_state(model, optimizer)
    path = save_checkpoint(
        tmp_path, 2, model_state=model_state, optimizer_state=optimizer_state, state={}
    )
    other, other_optimizer = build(1)
    restore_training_state(other, other_optimizer, load_checkpoint(path))
    assert same(other_optimizer.state_dict(), optimizer.state_dict())


@pytest.mark.parametrize(
    "value",
    [
        torch.tensor([1.0, -0.0, math.inf, -math.inf, math.nan]),
        torch.tensor([1.5, 2.5], dtype=torch.bfloat16),
        torch.tensor([1e-320, 0.1], dtype=torch.float64),
        torch.tensor(3, dtype=torch.int64),
        torch.zeros(0, 4),
        torch.tensor([True, False]),
        torch.arange(12.0).reshape(3, 4).t(),
    ],
)
def test_tensors_of_every_kind_come_back(tmp_path: Path, value: torch.Tensor):
    path = save_checkpoint(tmp_path, 0, model_state={"x": value}, state={})
    assert same(load_checkpoint(path).model_state["x"], value)


def test_views_of_one_storage_are_kept_apart(tmp_path: Path):
    base = torch.arange(10.0)
    views = {"a": base[:6], "b": base[4:], "c": base}
    path = save_checkpoint(tmp_path, 0, model_state=views, state={})
    assert same(load_checkpoint(path).model_state, views)


def test_nested_state_comes_back_as_it_was(tmp_path: Path):
    optimizer_state = {
        "state": {0: {"step": torch.tensor(2.0), "m": torch.ones(2)}, 1: {}},
        "groups": [{"lr": 0.1, "betas": (0.9, 0.999), "fused": None, "name": "ü"}],
        "empty": [],
    }
    state = {"cursor": 3, "rate": 0.1 + 0.2, "ids": ["a", "b"], "algorithm": {"p": {"count": 2}}}
    path = save_checkpoint(
        tmp_path,
        5,
        model_state=WEIGHTS,
        optimizer_state=optimizer_state,
        state=state,
        extra_tensors={"ema/w": torch.zeros(2)},
        metrics={"reward": 0.5, "kl": None},
    )
    loaded = load_checkpoint(path)
    assert same(loaded.optimizer_state, optimizer_state)
    assert loaded.state == state
    assert loaded.state["rate"] == 0.1 + 0.2
    assert same(loaded.extra_tensors, {"ema/w": torch.zeros(2)})
    assert (loaded.step, loaded.metrics) == (5, {"reward": 0.5, "kl": None})


def test_a_state_that_json_would_change_is_refused(tmp_path: Path):
    with pytest.raises(TypeError, match=r"state\.counts: key 1 is not a text"):
        save_checkpoint(tmp_path, 0, model_state=WEIGHTS, state={"counts": {1: 2}})
    with pytest.raises(TypeError, match=r"state\.x is a Tensor"):
        save_checkpoint(tmp_path, 0, model_state=WEIGHTS, state={"x": torch.ones(1)})
    assert list(tmp_path.iterdir()) == []


def test_no_pickle_and_no_leftovers(tmp_path: Path):
    path = save(tmp_path, 1)
    assert [p.name for p in tmp_path.iterdir()] == ["step_000001"]
    assert {p.suffix for p in path.iterdir()} == {".safetensors", ".json"}


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        ("truncate", "model.safetensors is 95 bytes, expected 96"),
        ("flip", "model.safetensors does not match its hash"),
        ("swap", "state.json does not match its hash"),
        ("other step", "it was written after 0 steps"),
        ("remove", "model.safetensors cannot be read (No such file or directory)"),
        ("no manifest", "manifest.json cannot be read (No such file or directory)"),
        ("bad manifest", "manifest.json is damaged"),
        ("empty manifest", "manifest.json is damaged"),
        ("link", "model.safetensors is a symbolic link"),
        ("leaving manifest", "passwd cannot be read (No such file or directory)"),
    ],
)
def test_a_damaged_checkpoint_is_skipped_and_named(tmp_path: Path, damage: str, why: str):
    """And where it is asked for by name, that is an error."""
    older, newer = save(tmp_path, 1), save(tmp_path, 2)
    file = newer / "model.safetensors"
    content = file.read_bytes()
    if damage == "truncate":
        file.write_bytes(content[:-1])
    elif damage == "flip":
        file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    elif damage == "remove":
        file.unlink()
    elif damage == "link":
        file.rename(tmp_path / "elsewhere")
        file.symlink_to(tmp_path / "elsewhere")
    elif damage == "swap":
        for path in (older, newer):
            (path / "state.json").rename(path / "state.json.other")
        (older / "state.json.other").rename(newer / "state.json")
        (newer / "state.json.other").rename(older / "state.json")
        shutil.rmtree(older)
        save(tmp_path, 1)
    elif damage == "other step":
        shutil.rmtree(newer)
        save(tmp_path, 0).rename(newer)
    elif damage == "no manifest":
        (newer / "manifest.json").unlink()
    elif damage == "bad manifest":
        (newer / "manifest.json").write_text("{")
    else:
        manifest = json.loads((newer / "manifest.json").read_text())
        outside = manifest["files"] | {"../../../etc/passwd": {"bytes": 1, "sha256": ""}}
        manifest["files"] = {} if damage == "empty manifest" else outside
        (newer / "manifest.json").write_text(json.dumps(manifest))
    found = re.escape(f"step_000002 skipped: {why}")
    with pytest.warns(CheckpointWarning, match=found):
        assert newest_complete(tmp_path) == older
    with pytest.raises(GroupwiseError, match=re.escape(f"cannot be used: {why}")):
        load_checkpoint(newer)


def test_the_newest_is_the_one_with_most_steps(tmp_path: Path):
    assert newest_complete(tmp_path) is None
    assert newest_complete(tmp_path / "absent") is None
    for step in (9, 10, 2):
        save(tmp_path, step)
    assert newest_complete(tmp_path) == tmp_path / "step_000010"
    assert checkpoint_steps(tmp_path) == [2, 9, 10]


def test_loading_an_incomplete_one_is_refused(tmp_path: Path):
    path = save(tmp_path, 1)
    (path / "optimizer.json").unlink()
    with pytest.raises(GroupwiseError, match="cannot be used"):
        load_checkpoint(path)


def test_a_model_that_does_not_fit_is_refused(tmp_path: Path):
    path = save(tmp_path, 1)
    with pytest.raises(GroupwiseError, match="does not fit this model"):
        restore_model(Tied(), load_checkpoint(path))


def test_a_complete_one_stays_and_a_damaged_one_is_replaced(tmp_path: Path):
    path = save(tmp_path, 3, reward=0.1)
    inode = (path / "model.safetensors").stat().st_ino
    assert save(tmp_path, 3, reward=0.9) == path
    assert (path / "model.safetensors").stat().st_ino == inode
    (path / "model.safetensors").write_bytes(b"")
    save(tmp_path, 3, reward=0.9)
    assert is_complete(path)
    assert load_checkpoint(path).metrics == {"reward": 0.9}


def test_a_full_disk_is_reported_and_the_older_one_is_intact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    older = save(tmp_path, 1)
    monkeypatch.setattr(
        checkpoints.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(100, 90, 10)
    )
    with pytest.raises(
        GroupwiseError, match=r"a checkpoint needs \d+ bytes and .* has 10 bytes free"
    ):
        save(tmp_path, 2)
    monkeypatch.undo()
    monkeypatch.setattr(checkpoints, "fsync_file", _fail)
    with pytest.raises(GroupwiseError, match=r"could not be written.*No space left"):
        save(tmp_path, 2)
    assert [p.name for p in tmp_path.iterdir()] == ["step_000001"]
    assert is_complete(older)


def _fail(_: Path) -> None:
    raise OSError(28, "No space left on device")


def test_everything_is_on_the_disk_before_the_name_appears(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    synced: list[str] = []
    monkeypatch.setattr(checkpoints, "fsync_file", lambda p: synced.append(p.name))
    monkeypatch.setattr(checkpoints, "fsync_folder", lambda p: synced.append(f"{p.name}/"))
    rename = os.rename

    def watched(source: Path, target: Path) -> None:
        synced.append(f"rename {Path(target).name}")
        rename(source, target)

    monkeypatch.setattr(checkpoints.os, "rename", watched)
    path = save(tmp_path, 1)
    position = synced.index("rename step_000001")
    assert {p.name for p in path.iterdir()} <= set(synced[:position])
    assert synced[position - 1] == ".saving-step_000001/"
    assert synced[position + 1] == f"{tmp_path.name}/"


def test_at_least_one_is_complete_at_any_instant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Fault 45, keep = 1: counted before and after every change of a name or a file."""
    seen: list[int] = []

    def count() -> None:
        seen.append(sum(is_complete(p) for p in tmp_path.glob("step_*")))

    for module, name in ((os, "rename"), (shutil, "rmtree")):
        original = getattr(module, name)

        def watched(*args, original=original, **kwargs):
            count()
            result = original(*args, **kwargs)
            count()
            return result

        monkeypatch.setattr(module, name, watched)
    for step in range(1, 5):
        save(tmp_path, step)
        prune(tmp_path, keep=1)
    assert checkpoint_steps(tmp_path) == [4]
    assert len(seen) >= 12
    assert min(seen[2:]) >= 1


@pytest.mark.parametrize("failing", ["rename", "rmtree"])
def test_a_failed_deletion_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
):
    """Fault 45."""
    save(tmp_path, 1)
    save(tmp_path, 2)

    def refuse(*_args, **_kwargs):
        raise OSError("busy")

    monkeypatch.setattr(os if failing == "rename" else shutil, failing, refuse)
    with pytest.warns(CheckpointWarning, match="could not be deleted: busy"):
        assert prune(tmp_path, keep=1) == []
    monkeypatch.undo()
    assert newest_complete(tmp_path) == tmp_path / "step_000002"
    save(tmp_path, 3)
    prune(tmp_path, keep=1)
    clean_leftovers(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["step_000003"]


def test_the_newest_and_the_best_stay(tmp_path: Path):
    """Fault 46: reward [.2, .9, .5], loss [.01, .03, .02]; step 2 is best and survives."""
    for step, (reward, loss) in enumerate([(0.2, 0.01), (0.9, 0.03), (0.5, 0.02)], start=1):
        save(tmp_path, step, **{"eval/accuracy": reward, "loss": loss})
        prune(tmp_path, keep=1, best="eval/accuracy", direction="higher")
    assert checkpoint_steps(tmp_path) == [2, 3]
    assert best_checkpoints(tmp_path, "eval/accuracy", "higher")[0] == tmp_path / "step_000002"
    save(tmp_path, 4, **{"eval/accuracy": 0.95})
    prune(tmp_path, keep=1, best="eval/accuracy", direction="higher")
    assert checkpoint_steps(tmp_path) == [4]


def test_several_of_the_best_stay(tmp_path: Path):
    for step, reward in enumerate([0.9, 0.2, 0.7, 0.8, 0.1, 0.3], start=1):
        save(tmp_path, step, reward=reward)
        prune(tmp_path, keep=1, best="reward", direction="higher", keep_best=3)
    assert checkpoint_steps(tmp_path) == [1, 3, 4, 6]


def test_best_by_the_lower_value_and_without_a_value(tmp_path: Path):
    for step, kl in enumerate([0.3, None, 0.1, 0.1], start=1):
        save(tmp_path, step, kl=kl)
    ranked = best_checkpoints(tmp_path, "kl", "lower")
    assert [path.name for path in ranked] == ["step_000003", "step_000004", "step_000001"]
    assert best_checkpoints(tmp_path, "reward", "higher") == []
    prune(tmp_path, keep=1, best="reward", direction="higher")
    assert checkpoint_steps(tmp_path) == [4]


def test_pruning_counts_complete_ones_and_takes_old_damaged_ones(tmp_path: Path):
    for step in range(1, 6):
        save(tmp_path, step)
    for step in (2, 5):
        (tmp_path / f"step_{step:06d}" / "model.safetensors").unlink()
    prune(tmp_path, keep=2)
    assert checkpoint_steps(tmp_path) == [3, 4, 5]
    with pytest.warns(CheckpointWarning):
        assert newest_complete(tmp_path) == tmp_path / "step_000004"
    with pytest.raises(ValueError, match="keep = 0"):
        prune(tmp_path, keep=0)


def test_nothing_is_pruned_where_nothing_is_complete(tmp_path: Path):
    (tmp_path / "step_000001").mkdir()
    assert prune(tmp_path, keep=1) == []
    assert checkpoint_steps(tmp_path) == [1]


SAVER = """
import sys, torch
from groupwise.checkpoints import save_checkpoint, prune
weights = {f"w{i}": torch.full((256, 256), float(i)) for i in range(20)}
print("ready", flush=True)
step = 0
while True:
    step += 1
    save_checkpoint(sys.argv[1], step, model_state=weights, state={"step": step})
    prune(sys.argv[1], keep=1)
"""


def test_a_killed_save_leaves_a_complete_checkpoint(tmp_path: Path):
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "src")}
    process = subprocess.Popen(
        [sys.executable, "-c", SAVER, str(tmp_path)], stdout=subprocess.PIPE, env=environment
    )
    assert process.stdout is not None
    process.stdout.readline()
    deadline = time.monotonic() + 20
    while not checkpoint_steps(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.31)
    process.send_signal(signal.SIGKILL)
    process.wait(timeout=20)
    process.stdout.close()
    clean_leftovers(tmp_path)
    assert not list(tmp_path.glob(".*"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        path = newest_complete(tmp_path)
    assert path is not None
    loaded = load_checkpoint(path)
    assert loaded.state == {"step": loaded.step}
    assert all(bool((v == float(k[1:])).all()) for k, v in loaded.model_state.items())


def test_the_manifest_names_every_file_with_its_size(tmp_path: Path):
    path = save(tmp_path, 1)
    files = json.loads((path / "manifest.json").read_text())["files"]
    assert set(files) == {p.name for p in path.iterdir()} - {"manifest.json"}
    for name, entry in files.items():
        assert entry["bytes"] == (path / name).stat().st_size
        assert len(entry["sha256"]) == 64


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 bytes"), (999, "999 bytes"), (4_200, "4.2 kB"), (3_456_000, "3.46 MB"), (2e9, "2 GB")],
)
def test_sizes_are_never_rounded_to_nothing(number: int, text: str) -> None:
    assert checkpoints._size(int(number)) == text


def test_a_partly_frozen_model_saves_what_trains(tmp_path: Path) -> None:
    """The frozen rest is not written, stays as it is, and a whole checkpoint does not fit it."""

    def partly(seed: int) -> tuple[Tied, torch.optim.Optimizer]:
        model = Tied(seed)
        model.embed.requires_grad_(False)
        return model, torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.1)

    model, optimizer = partly(0)
    train(model, optimizer, range(3))
    model_state, optimizer_state = training_state(model, optimizer)
    trained = {f"mlp.{layer}.{kind}" for layer in (0, 2) for kind in ("weight", "bias")}
    assert set(model_state) == trained | {"positions"}
    path = save_checkpoint(
        tmp_path, 3, model_state=model_state, optimizer_state=optimizer_state, state={}
    )
    train(model, optimizer, range(3, 6))
    other, its = partly(0)
    restore_training_state(other, its, load_checkpoint(path))
    train(other, its, range(3, 6))
    for (name, ours), theirs in zip(model.named_parameters(), other.parameters(), strict=True):
        assert torch.equal(ours, theirs), name
    with pytest.raises(GroupwiseError, match=r"2 names are in one of the two alone, .* embed"):
        restore_model(Tied(0), load_checkpoint(path))
