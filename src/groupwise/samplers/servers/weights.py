"""A policy's weights as folders that servers read: checked before, the last good one kept."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from groupwise.errors import GroupwiseError, NonFiniteError, RecipeError
from groupwise.policies.adapters import base_tensors, has_adapter
from groupwise.policies.export import save_pretrained
from groupwise.policies.policy import Policy
from groupwise.texts import from_json

Shapes = dict[str, tuple[int, ...]]


class Handover:
    """Writes folders of weights under `root`, which is in `parent` (None: a temporary folder).

    `adapter`: of the adapter alone. `untied`: an output layer that shares the embeddings' weights
    is written as one of its own, because vLLM on a CPU, which packs weights, reloads a shared one
    only in part. `good` is the newest folder that a server took.
    """

    def __init__(
        self, policy: Policy, parent: str | None, *, adapter: bool = False, untied: bool = False
    ) -> None:
        self.untied = untied
        self.adapter = adapter
        self.good: Path | None = None
        self._shapes = _shapes(policy)
        self._count = 0
        try:
            if parent is not None:
                Path(parent).mkdir(parents=True, exist_ok=True)
            self.root = Path(tempfile.mkdtemp(prefix="groupwise-vllm-", dir=parent)).absolute()
        except OSError as error:
            raise RecipeError(
                f"folder = {parent!r} of the sampler's table cannot be written into: {error}; "
                'give another place, for example "/shared/weights"'
            ) from error

    def write(self, policy: Policy) -> Path:
        """A new folder with the policy's present weights.

        Raises NonFiniteError for weights that are not finite and GroupwiseError for tensors of
        other names or shapes than at the start, before anything is written; GroupwiseError where
        the files do not hold every tensor.
        """
        self.check(policy)
        self._count += 1
        folder = self.root / f"version-{policy.version}-{self._count}"
        merge = has_adapter(policy.model) and not self.adapter
        try:
            save_pretrained(policy, folder, merge=merge)
        except OSError as error:
            raise GroupwiseError(
                f"weights for the servers cannot be written into {str(folder)!r}: {error}; name "
                "another place with `folder` of the sampler's table"
            ) from error
        if not self.adapter:
            self._complete(policy, folder)
        return folder

    def check(self, policy: Policy) -> None:
        """Raises what `write` does before it writes."""
        for name, parameter in policy.model.named_parameters():
            if not bool(torch.isfinite(parameter).all()):
                raise NonFiniteError(
                    f"{name} of version {policy.version} holds NaN or infinity; it was not sent to "
                    "the servers"
                )
        found = _shapes(policy)
        if found != self._shapes:
            other = sorted(set(found.items()) ^ set(self._shapes.items()))[0][0]
            raise GroupwiseError(
                f"version {policy.version} has other tensors than the version before, {other} for "
                "one; it was not sent to the servers"
            )

    def _complete(self, policy: Policy, folder: Path) -> None:
        """Checks that the files hold every tensor, because a server takes a folder that lacks some
        without a word; then unties."""
        written: Shapes = {}
        for file in folder.glob("*.safetensors"):
            with safe_open(file, framework="pt") as opened:
                names = opened.keys()
                written |= {name: tuple(opened.get_slice(name).get_shape()) for name in names}
        tensors = base_tensors(policy.model)
        shared = {tensors[name].data_ptr() for name in written if name in tensors}
        rest = {name: tensor for name, tensor in tensors.items() if name not in written}
        wrong = [name for name, shape in written.items() if self._shapes.get(name) != shape]
        wrong += [name for name, tensor in rest.items() if tensor.data_ptr() not in shared]
        if wrong:
            raise GroupwiseError(
                f"{folder} does not hold the policy: {len(wrong)} tensors differ or are missing, "
                f"the first is {wrong[0]}"
            )
        if self.untied and rest:
            own = {name: tensor.detach().cpu().contiguous() for name, tensor in rest.items()}
            save_file(own, folder / "untied.safetensors", metadata={"format": "pt"})
            file = folder / "config.json"
            config = from_json(file.read_text("utf-8"))
            file.write_text(json.dumps({**config, "tie_word_embeddings": False}), "utf-8")

    def keep(self, folder: Path | None) -> None:
        """A server took `folder`: the good one before it goes."""
        if self.good != folder:
            self.drop(self.good)
        self.good = folder

    def drop(self, folder: Path | None) -> None:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        self.drop(self.root)


def _shapes(policy: Policy) -> Shapes:
    """The plain model's weights."""
    return {name: tuple(tensor.shape) for name, tensor in base_tensors(policy.model).items()}
