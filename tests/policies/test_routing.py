"""Routing replay: the sampler's experts in the learner's passes, weighed by its own router."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn

from groupwise.algorithms import preset
from groupwise.batches import align, make_batch, split_groups, split_rows
from groupwise.errors import RecipeError
from groupwise.learner import Learner, TrainingSettings
from groupwise.policies import Policy, checkpoint_activations, sequence_logprobs, why_no_replay
from groupwise.policies.heads import head_of
from groupwise.policies.routing import Routers, find_routers, noting, packed_experts, stacked
from groupwise.samplers import make_sampler
from groupwise.types import Completion, Group, Prompt, Request, Rollout, Score, Turn
from model_families import VOCABULARY, family_policy
from plain_pass import assert_same_gradients, gradients
from sampler_requests import PROMPTS, unending

# Enough layers and experts that some choice is close.
LAYERS, EXPERTS, CHOSEN = 4, 16, 3


def mixture(dtype: torch.dtype = torch.float32, family: str = "qwen3_moe") -> Policy:
    experts = "num_local_experts" if family == "mixtral" else "num_experts"
    sizes = {"num_hidden_layers": LAYERS, experts: EXPERTS, "num_experts_per_tok": CHOSEN}
    return unending(family_policy(family, dtype=dtype, **sizes))


def asked(tokens: int = 20) -> list[Request]:
    return [
        Request(PROMPTS[i // 3], key=i, max_tokens=tokens - 5 * (i % 3), experts=True)
        for i in range(12)
    ]


def groups_of(requests: Sequence[Request], made: Sequence[Completion]) -> list[Group]:
    """Three completions a prompt, in order."""
    groups = []
    for first in range(0, len(requests), 3):
        prompt = Prompt(f"p{first}", text="x")
        rollouts = [
            Rollout(
                prompt,
                (Turn(requests[first + i].prompt_ids, made[first + i]),),
                Score(float(i == 0), "correct" if i == 0 else "incorrect"),
                group_index=i,
                visit=0,
                step=0,
            )
            for i in range(3)
        ]
        groups.append(Group(prompt, tuple(rollouts)))
    return groups


def gap(policy: Policy, groups: Sequence[Group], *, replay: bool) -> float:
    """Mean |learner - sampler| in nats a token."""
    rows = align(groups)
    with torch.no_grad():
        logprobs = sequence_logprobs(
            policy, rows.prompt_ids, rows.completion_ids, experts=rows.experts if replay else None
        ).logprobs
    return float((logprobs - rows.sampler_logprobs)[rows.mask].abs().mean())


def perturbed(policy: Policy, size: float) -> Policy:
    """Another policy object whose weights are off by about that share."""
    other = replace(policy, model=copy.deepcopy(policy.model))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in other.model.parameters():
            parameter.mul_(1 + size * torch.randn(parameter.shape, generator=generator))
    return other


# --- which routers are understood -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "changed"),
    [
        ("Mixtral", {"num_local_experts": 4}),
        ("Qwen2Moe", {"num_experts": 4, "shared_expert_intermediate_size": 16}),
        ("Olmoe", {"num_experts": 4}),
        ("GraniteMoe", {"num_local_experts": 4}),
        ("DeepseekV3", {"n_routed_experts": 4, "num_local_experts": 4, "n_group": 2,
                        "topk_group": 1, "first_k_dense_replace": 1, "q_lora_rank": None,
                        "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4,
                        "v_head_dim": 8, "num_key_value_heads": 4}),
    ],
)  # fmt: skip
def test_the_choice_of_every_family_is_forced_with_its_own_rule_of_weights(
    family: str, changed: dict[str, Any]
) -> None:
    """Its own choice given back changes no bit; another one is taken, and weighed in its own way:
    the weights are those of a router that prefers these experts by a great margin."""
    torch.manual_seed(0)
    sizes = {
        "vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48,
        "moe_intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "num_experts_per_tok": 2, "initializer_range": 0.3,
        "pad_token_id": 2,
    }  # fmt: skip
    config = getattr(transformers, f"{family}Config")(**sizes | changed)
    decoder = getattr(transformers, f"{family}ForCausalLM")(config).eval().get_decoder()
    routers = find_routers(decoder)
    assert isinstance(routers, Routers)
    sparse = 1 if family == "DeepseekV3" else 2
    assert (len(routers.modules), routers.num_experts, routers.top_k) == (sparse, 4, 2)
    ids = torch.arange(3, 11)[None]
    with torch.no_grad():
        plain = decoder(input_ids=ids).last_hidden_state
        with noting(decoder, True) as chosen:
            decoder(input_ids=ids)
        own = torch.stack(chosen, dim=1)
        with routers.choosing(own):
            assert torch.equal(decoder(input_ids=ids).last_hidden_state, plain)
        with routers.choosing(torch.full_like(own, -1)):
            assert torch.equal(decoder(input_ids=ids).last_hidden_state, plain)
        other = (own + 1) % 4
        with routers.choosing(other) as taken:
            assert not torch.equal(decoder(input_ids=ids).last_hidden_state, plain)
        assert torch.equal(torch.stack(taken, dim=1), other)


def test_what_has_no_experts_is_refused_by_name() -> None:
    policy = family_policy("llama")
    assert why_no_replay(policy) == "it has no experts that a router chooses among"
    assert why_no_replay(mixture()) is None
    with pytest.raises(RecipeError, match="LlamaModel cannot replay them: it has no experts"):
        sequence_logprobs(policy, [[3]], [[4]], experts=[[b"\0\0"]])
    with pytest.raises(RecipeError, match="LlamaModel cannot replay them: it has no experts"):
        make_sampler("local", policy).sample([Request((3,), key=0, max_tokens=2, experts=True)])


def test_experts_of_another_model_are_refused_by_number() -> None:
    routers = find_routers(head_of(mixture().model).decoder)
    assert isinstance(routers, Routers)
    with pytest.raises(ValueError, match="4 bytes; 4 layers of 3 experts make 24"):
        routers.tensor([b"", b"\0" * 4], torch.device("cpu"))
    with pytest.raises(ValueError, match="expert 16 of a token: there are 16"):
        routers.tensor([b"\x10\0" * 12], torch.device("cpu"))
    assert routers.tensor([b""], torch.device("cpu")).tolist() == [[[-1] * CHOSEN] * LAYERS]


# --- what the samplers note -----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["static", "transformers"])
def test_samplers_note_what_the_plain_pass_chooses(name: str) -> None:
    """Float32, equal weights: the experts of every token but the last, prompts included."""
    policy = mixture()
    sampler: Any = make_sampler(
        "transformers" if name == "transformers" else "local", policy, batch_rows=5
    )
    sampler.static = name == "static"
    requests = asked()
    made = sampler.sample(requests)
    decoder = head_of(policy.model).decoder
    for request, completion in zip(requests, made):
        ids = [*request.prompt_ids, *completion.token_ids][:-1]
        with torch.no_grad(), noting(decoder, True) as chosen:
            decoder(input_ids=torch.tensor([ids]))
        assert completion.experts == tuple(packed_experts(stacked(chosen)))
    unasked = sampler.sample([replace(requests[0], experts=False)])
    assert unasked[0].experts is None
    assert unasked[0].token_ids == made[0].token_ids


@pytest.mark.parametrize("name", ["local", "transformers"])
def test_turns_keep_the_experts_of_the_pass_that_ran_a_token_first(name: str) -> None:
    policy = mixture()
    sampler = make_sampler(name, policy)
    turns: dict[int, list[Turn]] = {0: [], 1: [], 2: []}
    current = dict(enumerate(asked(12)[:3]))
    context = {place: current[place].prompt_ids for place in current}

    def then(place: int, completion: Completion) -> Request | None:
        turns[place].append(Turn(context[place], completion))
        if len(turns[place]) == 3:
            return None
        context[place] = (30, 31, 3)[: 1 + place]
        ids = (*current[place].prompt_ids, *completion.token_ids, *context[place])
        current[place] = replace(current[place], prompt_ids=ids, max_tokens=4)
        return current[place]

    sampler.play(list(current.values()), then)
    for place in range(3):
        rollout = Rollout(
            Prompt("p", text="x"), tuple(turns[place]), Score(1.0, "correct"), place, 0, 0
        )
        ids = [*rollout.prompt_ids, *rollout.completion_ids][:-1]
        decoder = head_of(policy.model).decoder
        with torch.no_grad(), noting(decoder, True) as chosen:
            decoder(input_ids=torch.tensor([ids]))
        assert rollout.experts == tuple(packed_experts(stacked(chosen)))


@pytest.mark.parametrize("name", ["local", "transformers"])
def test_what_was_begun_by_other_weights_keeps_its_experts(name: str) -> None:
    policy = mixture()
    request = replace(asked()[0], pause_after=6)
    (begun,) = make_sampler(name, policy).sample([request])
    assert begun.finish_reason == "paused"
    assert begun.experts is not None
    later = make_sampler(name, perturbed(policy, 0.3))
    (made,) = later.sample([replace(request, begun=begun, pause_after=0)])
    assert made.experts is not None
    count = len(request.prompt_ids) + 6
    assert made.experts[: count - 1] == begun.experts
    assert len(made.experts) == count + made.num_tokens - 7
    whole = Request((*request.prompt_ids, *made.token_ids[:-1]), key=0, max_tokens=1, experts=True)
    (again,) = later.sample([whole])
    assert again.experts is not None
    assert made.experts[count - 1 :] == again.experts[count - 1 :]
    assert made.experts[: count - 1] != again.experts[: count - 1]


def test_tokens_without_a_note_are_empty_and_rows_of_a_prompt_share_its_experts() -> None:
    def rollout(*turns: tuple[tuple[int, ...], int, str | None]) -> Rollout:
        return Rollout(
            Prompt("p", text="x"),
            tuple(
                Turn(
                    context,
                    Completion(
                        (9,) * count,
                        "x",
                        (-1.0,) * count,
                        "stop",
                        experts=None if notes is None else tuple(n.encode() for n in notes),
                    ),
                )
                for context, count, notes in turns
            ),
            Score(1.0, "correct"),
            0,
            0,
            0,
        )

    def text(given: Rollout) -> str:
        return "".join(each.decode() or "-" for each in given.experts or ())

    # A later turn may tell its whole history again, or what it added; the first telling counts.
    assert text(rollout(((1, 2), 2, "abc"), ((3,), 2, "ABCDEF"))) == "abcDEF"
    assert text(rollout(((1, 2), 2, "abc"), ((3,), 2, "DEF"))) == "abcDEF"
    assert text(rollout(((1, 2), 2, None), ((3,), 2, "DEF"))) == "---DEF"
    assert text(rollout(((1, 2), 2, "abc"), ((3,), 0, ""))) == "abc-"
    assert rollout(((1, 2), 2, None)).experts is None
    one, two, none = (rollout(((1, 2), 2, notes)) for notes in ("abc", "xyz", None))
    rows = align([Group(one.prompt, (one, two, none))])
    assert rows.experts == [(b"a", b"b", b"c"), (b"a", b"b", b"z"), (b"a", b"b", b"")]
    assert align([Group(none.prompt, (none,))]).experts is None


# --- the gap --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["local", pytest.param("transformers", marks=pytest.mark.slow)])
def test_the_gap_falls_where_the_sampler_rounds_and_is_the_same_where_it_does_not(
    name: str,
) -> None:
    gaps = {}
    for dtype in (torch.float32, torch.bfloat16):
        policy = mixture(dtype)
        groups = groups_of(asked(), make_sampler(name, policy).sample(asked()))
        gaps[dtype] = [gap(policy, groups, replay=replay) for replay in (False, True)]
    assert max(gaps[torch.float32]) < 2e-6
    without, with_replay = gaps[torch.bfloat16]
    assert with_replay < 0.8 * without


def test_the_gap_to_a_sampler_of_other_weights_falls_too() -> None:
    policy = mixture(family="mixtral")
    groups = groups_of(asked(), make_sampler("local", perturbed(policy, 0.02)).sample(asked()))
    assert gap(policy, groups, replay=True) < 0.7 * gap(policy, groups, replay=False)


# --- the gradient ---------------------------------------------------------------------------------


class Forced(nn.Module):
    """Mixtral's router with the experts given: a softmax over all, weights over the given ones."""

    def __init__(self, router: Any, given: Tensor) -> None:
        super().__init__()
        self.weight, self.given = router.weight, given

    def forward(self, states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        logits = states.reshape(-1, states.shape[-1]) @ self.weight.T
        chosen = logits.double().softmax(-1).gather(1, self.given)
        return logits, (chosen / chosen.sum(-1, keepdim=True)).to(logits.dtype), self.given


@pytest.mark.parametrize("checkpointing", [False, True])
def test_the_gradient_reaches_the_router_as_in_a_plain_pass_with_forced_experts(
    checkpointing: bool,
) -> None:
    policy, prompt, completion = mixture(family="mixtral"), [5, 6, 7], [8, 9, 10, 11]
    count = len(prompt) + len(completion) - 1
    given = torch.stack([torch.randperm(EXPERTS)[:CHOSEN] for _ in range(count * LAYERS)])
    given = given.view(count, LAYERS, CHOSEN)
    plain = copy.deepcopy(policy.model)
    for layer, block in enumerate(plain.model.layers):
        block.mlp.gate = Forced(block.mlp.gate, given[:, layer])
    ids = torch.tensor([[*prompt, *completion]])
    logits = plain(input_ids=ids[:, :-1], use_cache=False).logits[0, len(prompt) - 1 :]
    theirs = logits.log_softmax(-1).gather(1, ids[0, len(prompt) :, None])[:, 0]
    theirs.sum().backward()
    if checkpointing:
        checkpoint_activations(policy.model)
    experts = [packed_experts(given.to(torch.int16))]
    ours = sequence_logprobs(policy, [prompt], [completion], experts=experts).logprobs[0]
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)
    made = gradients(policy, ours.sum())
    expected = {n: p.grad for n, p in plain.named_parameters() if p.grad is not None}
    assert float(made["model.layers.0.mlp.gate.weight"].abs().max()) > 0
    assert_same_gradients(made, expected, 2e-5)


@pytest.mark.slow
def test_micro_batches_packing_and_turns_of_the_optimiser_see_the_same_routing() -> None:
    """Weights after two passes over rows of a perturbed sampler: by whole batches, by single rows,
    and with the order of groups changed."""
    start = mixture(family="mixtral")
    groups = groups_of(asked(), make_sampler("local", perturbed(start, 0.02)).sample(asked()))

    def trained(budget: int, order: int, replay: bool = True) -> Tensor:
        policy = replace(start, model=copy.deepcopy(start.model))
        settings = TrainingSettings(
            learning_rate=0.05, optimizer="sgd", passes=2, micro_batch_tokens=budget
        )
        learner = Learner(policy, preset("dr_grpo"), settings, temperature=1.0, divide=split_rows)
        rows = align(groups[::order])
        rows = rows if replay else replace(rows, experts=None)
        pick = partial(split_groups, rows.group_ids, 1, seed=0, step=0)
        passes = [pick(pass_index=number) for number in range(2)]
        batch = make_batch(
            groups[::order],
            rows,
            learner.algorithm,
            max_tokens=20,
            old_logprobs=learner.evidence(rows, passes[0]).old_logprobs,
        )
        learner.learn(batch, passes, step=0)
        return torch.cat([p.detach().flatten() for p in policy.model.parameters()])

    whole = trained(100_000, 1)
    before = torch.cat([p.detach().flatten() for p in start.model.parameters()])
    moved = float((whole - before).norm())
    for budget, order in ((1, 1), (60, -1)):
        assert float((trained(budget, order) - whole).norm()) <= 1e-4 * moved
    assert float((trained(100_000, 1, replay=False) - whole).norm()) > 1e-2 * moved
