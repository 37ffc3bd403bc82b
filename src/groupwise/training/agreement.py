"""Whether the sampler samples from the policy: compared on a few tokens before the first rollout.

A sampler that kept old weights, or dropped an adapter, would train on another policy's rollouts and
nothing else would say so. Left out: the gap of every step, which is a metric of the batch.
"""

from __future__ import annotations

import torch

from groupwise.errors import GroupwiseError
from groupwise.policies import sequence_logprobs
from groupwise.randomness import stream_key
from groupwise.training.session import Session
from groupwise.types import Request

_ROWS, _TOKENS = 4, 8
# The mean over tokens of |sampler - policy|, in nats: rounding alone is ten times smaller.
_TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.1}


def check_agreement(session: Session) -> float:
    """The mean gap, in nats, between the sampler's and the policy's log-probabilities of the same
    tokens: four completions of one prompt, of at most 8 tokens.

    Raises GroupwiseError where it is beyond the precision's tolerance.
    """
    recipe, policy = session.recipe, session.policy
    prompt = session.environment.prompts(1)[0]
    prompt_ids = session.environment.prompt_ids(prompt, session.template)
    temperature = recipe.sampling.temperature
    completions = session.sampler.sample(
        [
            Request(
                prompt_ids=prompt_ids,
                key=stream_key(recipe.seed, "probe", "agreement", row),
                max_tokens=min(_TOKENS, recipe.sampling.max_tokens),
                temperature=temperature,
            )
            for row in range(_ROWS)
        ]
    )
    ids = [list(completion.token_ids) for completion in completions]
    with torch.no_grad():
        output = sequence_logprobs(policy, [prompt_ids] * _ROWS, ids, temperature=temperature)
    gaps: list[float] = [
        abs(ours - theirs)
        for row, completion in zip(output.logprobs.tolist(), completions, strict=True)
        for ours, theirs in zip(row, completion.sampler_logprobs)  # rows are padded behind
    ]
    gap, tolerance = sum(gaps) / len(gaps), _TOLERANCE.get(policy.dtype, 0.1)
    if not gap <= tolerance:
        raise GroupwiseError(
            f"the sampler does not sample from the policy of version {policy.version}: on "
            f"{len(gaps)} tokens after prompt {prompt.id!r} their log-probabilities are "
            f"{gap:.3g} nats apart on average, and {tolerance} is the most that the precision "
            "explains; it holds other weights. No rollout was sampled"
        )
    return gap
