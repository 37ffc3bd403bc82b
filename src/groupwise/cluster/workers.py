"""What runs in Ray's processes beside the learner: a sampler, a verifier."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from groupwise.errors import GroupwiseError
from groupwise.recipe import Recipe, load_recipe
from groupwise.texts import from_toml
from groupwise.types import Completion, Request, Score
from groupwise.verifiers import Case

Weights = Mapping[str, Any]
"""numpy arrays by the parameter's name: Ray moves them several times faster than tensors."""


class Worker:
    """Reads the recipe in the folder that the run was started in, so that its relative paths and
    its modules are found where that folder is shared."""

    def __init__(self, recipe_text: str, folder: str) -> None:
        if os.path.isdir(folder):
            os.chdir(folder)
            sys.path.insert(0, folder)
        self.recipe: Recipe = load_recipe(from_toml(recipe_text))

    def where(self) -> str:
        """This process's node; answered while it works, unless it is stopped."""
        import ray

        return f"{ray.util.get_node_ip_address()} (process {os.getpid()})"


class SamplerWorker(Worker):
    """A policy and its sampler. Weights come with the first chunk that needs them."""

    def __init__(self, recipe_text: str, folder: str) -> None:
        super().__init__(recipe_text, folder)
        from groupwise.samplers.make import sampler_of
        from groupwise.training.session import policy_of

        self.policy = policy_of(self.recipe)
        self.policy.model.requires_grad_(False)
        self.sampler = sampler_of(self.recipe.sampling, self.policy)
        self.serial = 0

    def sample(
        self, serial: int, version: int, weights: list[Any], requests: Sequence[Request]
    ) -> list[Completion]:
        """The chunk's completions from the weights of that `serial`; `weights` holds Ray's
        reference to them."""
        import ray
        import torch

        from groupwise.training.session import num_threads

        # torch keeps the number for each thread, and Ray calls from any of a few.
        training, sampling = self.recipe.training, self.recipe.sampling
        rows = training.prompts_per_step * sampling.group_size
        torch.set_num_threads(num_threads(training.threads, self.policy, rows))
        if serial != self.serial:
            put_weights(self.policy.model, ray.get(weights[0]))
            self.policy.version = version
            self.sampler.load(self.policy, version)
            self.serial = serial
        return self.sampler.sample(requests)


class VerifierWorker(Worker):
    """The environment's verifier, for verifiers that judge each completion alone."""

    def __init__(self, recipe_text: str, folder: str) -> None:
        super().__init__(recipe_text, folder)
        from groupwise.environments import environment_from_settings

        self.environment = environment_from_settings(self.recipe.environment, seed=self.recipe.seed)

    def score(self, cases: Sequence[Case]) -> list[Score]:
        return self.environment.score(cases)


def weights_of(model: Any) -> Weights:
    """A model's parameters as numpy arrays; bfloat16 as its bits."""
    import torch

    found = {}
    for name, parameter in model.named_parameters():
        tensor = parameter.detach().cpu()
        bits = tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor
        found[name] = bits.numpy()
    return found


def put_weights(model: Any, weights: Weights) -> None:
    """Copy such arrays into a model. GroupwiseError where names or shapes differ."""
    import torch

    own = dict(model.named_parameters())
    there, here = ({n: tuple(p.shape) for n, p in each.items()} for each in (weights, own))
    if there != here:
        differ = sorted(n for n in there.keys() | here.keys() if there.get(n) != here.get(n))
        raise GroupwiseError(
            f"the learner's weights do not fit this worker's model; first {differ[0]}: "
            f"{there.get(differ[0])} there, {here.get(differ[0])} here"
        )
    with torch.no_grad():
        for name, parameter in own.items():
            tensor = torch.tensor(weights[name])
            is_bits = tensor.dtype == torch.int16 and parameter.dtype == torch.bfloat16
            parameter.copy_(tensor.view(torch.bfloat16) if is_bits else tensor)
