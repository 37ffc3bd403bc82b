"""What is the `local` sampler's own: shared prompts, refill, turns, its budget, its weights."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
import torch

from groupwise.errors import RecipeError
from groupwise.policies import Policy, sequence_logprobs
from groupwise.policies.heads import head_of
from groupwise.policies.load import checkpoint_activations
from groupwise.samplers import LocalSampler, TransformersSampler, make_sampler
from groupwise.samplers.local.attention import lay_out
from groupwise.samplers.local.cache import Cache
from groupwise.samplers.local.decoder import FAMILIES as DECODED
from groupwise.samplers.local.decoder import Decoder
from groupwise.samplers.local.head import SamplingHead
from groupwise.samplers.local.schedule import PATIENCE
from groupwise.samplers.local.static import StaticSteps, frame_rows
from groupwise.samplers.local.weights import Matrix, can_pack
from groupwise.types import Completion, Request
from model_families import FAMILIES, cases, family_policy
from sampler_requests import PROMPTS, requests, unending

DECODED_HERE = [name for name in FAMILIES if name in DECODED or name == "gemma3"]


def local(policy: Policy, **kwargs: Any) -> LocalSampler:
    sampler = make_sampler("local", policy, **kwargs)
    assert isinstance(sampler, LocalSampler)
    return sampler


def learned(policy: Policy, asked: Sequence[Request], made: Sequence[Completion]) -> torch.Tensor:
    with torch.no_grad():
        return sequence_logprobs(
            policy, [r.prompt_ids for r in asked], [c.token_ids for c in made]
        ).logprobs


@pytest.mark.parametrize("family", cases(DECODED_HERE))
def test_families_are_decoded_here_and_past_every_growth_of_the_cache(family: str) -> None:
    """Windows of 6, own parts that outgrow their first buffers, rows refilled from a queue."""
    policy = unending(family_policy(family))
    asked = [Request(PROMPTS[i % 5], key=i, max_tokens=(90, 7, 40)[i % 3]) for i in range(9)]
    sampler = local(policy, batch_rows=4)
    made = sampler.sample(asked)
    ours = torch.zeros(9, 90)
    for row, completion in enumerate(made):
        ours[row, : completion.num_tokens] = torch.tensor(completion.sampler_logprobs)
    assert (ours - learned(policy, asked, made)).abs().max().item() <= 2e-5
    assert sampler.counts.most_rows == 4


def test_the_table_holds_what_the_readme_lists() -> None:
    assert {
        "llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3_text", "phi3", "olmo2",
        "qwen3_moe", "mixtral", "smollm3",
    } == set(DECODED)  # fmt: skip


@pytest.mark.parametrize("family", ["granite", "gpt2", "gpt_neox"])
def test_another_family_falls_back_in_words(family: str) -> None:
    for name in ("auto", "local"):
        sampler = make_sampler(name, family_policy(family))
        assert isinstance(sampler, TransformersSampler)
        assert sampler.notes == (
            "sampled by transformers, not by the faster local sampler: models of type "
            f"{family!r} are not supported by the local sampler",
        )
    assert make_sampler("transformers", family_policy("llama")).notes == ()


def test_a_variant_that_the_description_misses_falls_back() -> None:
    policy = family_policy("llama")
    policy.model.model.layers[1].mlp.register_forward_hook(lambda _, __, out: out * 1.5)
    assert isinstance(make_sampler("auto", policy), TransformersSampler)


def test_what_a_family_does_not_apply_is_not_applied() -> None:
    """A configuration may name a window or a cap that the model's own attention ignores."""
    for family, name, value in (
        ("llama", "sliding_window", 6),
        ("olmo2", "sliding_window", 6),
        ("gemma3", "attn_logit_softcapping", 2.0),
    ):
        policy = unending(family_policy(family))
        setattr(policy.model.config, name, value)
        asked = [Request(PROMPTS[i], key=i, max_tokens=30) for i in range(4)]
        made = local(policy).sample(asked)
        ours = torch.tensor([completion.sampler_logprobs for completion in made])
        assert (ours - learned(policy, asked, made)).abs().max().item() <= 2e-5


def test_rotary_positions_that_depend_on_the_length_are_left_to_transformers() -> None:
    policy = family_policy("llama")
    policy.model.config.rope_parameters = {
        **policy.model.config.rope_parameters,
        "rope_type": "dynamic",
    }
    (note,) = make_sampler("auto", policy).notes
    assert note.endswith("its rotary positions depend on the length of the sequence at hand")


def test_another_precision_of_the_same_weights_is_read_anew() -> None:
    policy = family_policy("llama")
    sampler = local(policy)
    assert sampler.decoder is not None
    assert sampler.decoder.dtype == torch.float32
    policy.dtype = torch.bfloat16
    sampler.load(policy, 1)
    assert sampler.decoder.dtype == torch.bfloat16


# --- what is run ---------------------------------------------------------------------------------


def test_a_prompt_is_run_once_for_its_group_and_a_token_once() -> None:
    policy = unending(family_policy("llama"))
    sampler = local(policy)
    sampler.sample([Request(p, key=i, max_tokens=5) for i, p in enumerate(PROMPTS[:2] * 4)])
    counts = sampler.counts
    # 2 + 7 prompt tokens; of 5 tokens a row the first comes from the prompt's last state.
    assert (counts.prefilled, counts.decoded, counts.extended) == (9, 8 * 4, 0)
    assert (counts.steps, counts.most_rows) == (4, 8)
    assert counts.projected == 2 + 8 * 4  # the first token of a group is projected once


def test_places_are_filled_again_at_once() -> None:
    policy = unending(family_policy("llama"))
    sampler = local(policy, batch_rows=2)
    limits = [8, 2, 2, 2, 2]
    asked = [Request(PROMPTS[0], key=i, max_tokens=limit) for i, limit in enumerate(limits)]
    made = sampler.sample(asked)
    assert [completion.num_tokens for completion in made] == limits
    # The long row takes 7 steps; four short ones of one step each pass through the other place.
    assert sampler.counts.steps == 7
    assert sampler.counts.prefilled == 2


def test_more_prompts_than_the_cache_holds_at_once() -> None:
    policy = unending(family_policy("llama"))
    asked = requests(20, max_tokens=6)
    whole = local(policy).sample(asked)
    for rows in (1, 2, 5):
        sampler = local(policy, batch_rows=rows)
        assert [c.token_ids for c in sampler.sample(asked)] == [c.token_ids for c in whole]
        assert sampler.counts.prefilled == sum(len(prompt) for prompt in PROMPTS)


def test_completions_come_out_while_others_still_run() -> None:
    policy = unending(family_policy("llama"))
    asked = [Request(PROMPTS[0], key=i, max_tokens=limit) for i, limit in enumerate([9, 1, 5])]
    sampler = local(policy)
    seen: list[tuple[int, int]] = []

    def then(place: int, completion: Completion) -> None:
        seen.append((place, sampler.counts.steps))

    sampler.play(asked, then)
    assert seen == [(1, 0), (2, 4), (0, 8)]


# --- turns ---------------------------------------------------------------------------------------


def follow(request: Request, completion: Completion, context: tuple[int, ...]) -> Request:
    return Request(
        (*request.prompt_ids, *completion.token_ids, *context),
        key=request.key + 1000,
        max_tokens=6,
    )


@pytest.mark.parametrize("family", cases(["llama", "mistral", "gemma2", "gemma3"]))
def test_a_turn_goes_on_without_running_its_history(family: str) -> None:
    policy = unending(family_policy(family))
    asked = requests(6, max_tokens=5)
    sampler = local(policy)
    current = dict(enumerate(asked))
    made: dict[int, list[Completion]] = {place: [] for place in range(6)}

    def then(place: int, completion: Completion) -> Request | None:
        made[place].append(completion)
        if len(made[place]) == 3 or place == 4:
            return None
        current[place] = follow(current[place], completion, (30, 31, 3)[: 1 + place % 3])
        return current[place]

    sampler.play(asked, then)
    assert [len(made[place]) for place in range(6)] == [3, 3, 3, 3, 1, 3]
    for place in range(6):
        expected = learned(policy, [current[place]], [made[place][-1]])[0]
        ours = torch.tensor(made[place][-1].sampler_logprobs)
        assert (ours - expected).abs().max().item() <= 2e-5
    context = sum(1 + place % 3 for place in (0, 1, 2, 3, 5))
    # Each turn adds its context and the newest token of the turn before.
    assert sampler.counts.extended == 2 * (context + 5)
    assert sampler.counts.prefilled == sum(map(len, PROMPTS))
    waves = make_sampler("transformers", policy)
    again: dict[int, list[Completion]] = {place: [] for place in range(6)}
    current = dict(enumerate(asked))
    made = again
    waves.play(asked, then)
    assert [[c.token_ids for c in again[p]] for p in range(6)] == [
        [c.token_ids for c in made[p]] for p in range(6)
    ]


def test_an_answer_in_the_making_does_not_hold_the_others_and_waits_a_fixed_number_of_steps() -> (
    None
):
    policy = unending(family_policy("llama"))
    asked = [Request(PROMPTS[0], key=i, max_tokens=limit) for i, limit in enumerate([2, 40])]

    def play(seconds: float) -> tuple[list[tuple[int, int]], list[tuple[int, ...]]]:
        sampler = local(policy)
        ends: list[tuple[int, int]] = []
        texts: list[tuple[int, ...]] = []
        turns = {0: 0, 1: 0}
        with ThreadPoolExecutor(1) as pool:

            def slowly(request: Request) -> Request:
                time.sleep(seconds)
                return request

            def then(place: int, completion: Completion) -> Future[Request | None] | None:
                ends.append((place, sampler.counts.steps))
                texts.append(completion.token_ids)
                turns[place] += 1
                if place == 1 or turns[place] == 2:
                    return None
                return pool.submit(slowly, follow(asked[0], completion, (9,)))

            sampler.play(asked, then)
        return ends, texts

    fast, slow = play(0.0), play(0.2)
    assert fast == slow
    # Out after its second token; back PATIENCE steps later, 6 tokens more.
    assert fast[0] == [(0, 1), (0, 1 + PATIENCE + 5), (1, 39)]


def test_what_follows_must_go_on_from_the_history() -> None:
    policy = unending(family_policy("llama"))
    sampler = local(policy)
    with pytest.raises(ValueError, match="must start with the 4 ids"):
        sampler.play([Request((5, 6), key=1, max_tokens=2)], lambda _, __: Request((5,), 2, 3))


def test_an_error_of_what_follows_reaches_the_caller() -> None:
    failed: Future[Request | None] = Future()
    failed.set_exception(KeyError("tool"))
    with pytest.raises(KeyError, match="tool"):
        local(family_policy("llama")).play(requests(2), lambda _, __: failed)


# --- limits --------------------------------------------------------------------------------------


def test_requests_past_their_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault 56: what is unfinished comes back as it is, the rest goes on."""
    inner = Decoder.run

    def slow(*args: Any) -> torch.Tensor:
        time.sleep(0.02)
        return inner(*args)

    monkeypatch.setattr(Decoder, "run", slow)
    policy = unending(family_policy("llama"))
    asked = [
        Request(PROMPTS[0], key=0, max_tokens=8),
        Request(PROMPTS[0], key=1, max_tokens=100, deadline=0.4),
        Request(PROMPTS[1], key=2, max_tokens=100, deadline=1e-9),
        Request(PROMPTS[1], key=3, max_tokens=4),
    ]
    made = local(policy, batch_rows=2).sample(asked)
    assert [completion.finish_reason for completion in made] == [
        "length", "deadline", "deadline", "length",
    ]  # fmt: skip
    assert [made[0].num_tokens, made[3].num_tokens] == [8, 4]
    assert 1 <= made[1].num_tokens < 40
    assert (made[2].num_tokens, made[2].text) == (0, "")


def test_a_budget_of_memory_bounds_the_rows_and_names_the_least_that_works() -> None:
    policy = unending(family_policy("llama"))
    asked = [Request(PROMPTS[1], key=i, max_tokens=13) for i in range(8)]
    token = 2 * 2 * 2 * 8 * 4  # keys and values, layers, key heads, width, bytes
    sampler = local(policy, cache_gigabytes=token * (7 + 3 * 13) / 1e9)
    expected = [c.token_ids for c in local(policy).sample(asked)]
    assert [c.token_ids for c in sampler.sample(asked)] == expected
    assert sampler.counts.most_rows == 3
    tight = local(policy, cache_gigabytes=token * (7 + 12) / 1e9)
    with pytest.raises(RecipeError, match=rf"cache_gigabytes = .* needs {token * 20 / 1e9:.6g};"):
        tight.sample(asked)
    least = local(policy, cache_gigabytes=token * 20 / 1e9)
    assert [c.token_ids for c in least.sample(asked)] == expected


def test_the_least_budget_that_is_named_works_with_several_prompts() -> None:
    policy = unending(family_policy("llama"))
    asked = [Request(PROMPTS[i % 2], key=i, max_tokens=5) for i in range(4)]
    with pytest.raises(RecipeError) as caught:
        local(policy, cache_gigabytes=1e-10).sample(asked)
    least = float(str(caught.value).split("needs ")[1].split(";")[0])
    assert len(local(policy, cache_gigabytes=least).sample(asked)) == 4


def test_room_for_later_turns_counts_against_the_budget() -> None:
    policy = unending(family_policy("llama"))
    asked = [Request(PROMPTS[1], key=i, max_tokens=3, room=13) for i in range(8)]
    token = 2 * 2 * 2 * 8 * 4
    sampler = local(policy, cache_gigabytes=token * (7 + 3 * 13) / 1e9)
    sampler.sample(asked)
    assert sampler.counts.most_rows == 3


def test_the_sampler_keeps_no_cache_between_calls() -> None:
    """Fault 42: new weights without a load are new keys and values too."""
    policy = unending(family_policy("llama"))
    sampler = local(policy)
    sampler.sample(requests(5))
    with torch.no_grad():
        policy.model.model.embed_tokens.weight.mul_(0.5)
    sampler.load(policy, 1)
    fresh = local(policy).sample(requests(5))
    assert [c.token_ids for c in sampler.sample(requests(5))] == [c.token_ids for c in fresh]


@pytest.mark.parametrize("family", ["qwen3", "qwen3_moe"])
def test_modes_and_checkpointing_change_nothing(family: str) -> None:
    """Faults 38 and 58: dropout stays off, a cache is used, every mode is put back."""
    policy = unending(family_policy(family))
    expected = [c.token_ids for c in local(policy).sample(requests(6))]
    checkpoint_activations(policy.model)
    policy.model.train()
    sampler = local(policy)
    assert [c.token_ids for c in sampler.sample(requests(6))] == expected
    assert all(module.training for module in policy.model.modules())
    assert sampler.counts.decoded == 6 * 11  # one token a row and step


def test_what_follows_a_request_that_ended_while_it_waited() -> None:
    policy = unending(family_policy("llama"))
    asked = [
        Request(PROMPTS[0], key=0, max_tokens=3),
        Request(PROMPTS[2], key=1, max_tokens=3, deadline=1e-9),
    ]
    for name in ("local", "transformers"):
        seen: dict[int, list[Completion]] = {0: [], 1: []}

        def then(
            place: int, completion: Completion, seen: dict[int, list[Completion]] = seen
        ) -> Request | None:
            seen[place].append(completion)
            longer = Request((*PROMPTS[2], *range(3, 30)), key=7, max_tokens=4)
            return longer if completion.finish_reason == "deadline" else None

        make_sampler(name, policy, batch_rows=1).play(asked, then)
        assert [c.num_tokens for c in seen[0]] == [3]
        assert [c.num_tokens for c in seen[1]] == [0, 4]


# --- truncation ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["local", "transformers"])
@pytest.mark.parametrize(
    "kept",
    [
        {"keep_top_k": 3},
        {"keep_top_p": 0.6},
        {"keep_min_p": 0.2},
        {"keep_top_k": 5, "keep_top_p": 0.8},
    ],
)
def test_kept_ids_are_stored_and_the_logprobs_are_of_what_was_kept(
    name: str, kept: dict[str, Any]
) -> None:
    """Fault 5: the behaviour log-probability is over the kept tokens, and they are known."""
    policy = unending(family_policy("llama"))
    asked = [*requests(4, max_tokens=6, **kept), Request((5, 6), key=9, max_tokens=3)]
    made = make_sampler(name, policy).sample(asked)
    assert made[-1].supports is None
    for request, completion in zip(asked[:-1], made[:-1]):
        assert completion.supports is not None
        assert len(completion.supports) == 6
        ids = torch.tensor([[*request.prompt_ids, *completion.token_ids]])
        with torch.no_grad():
            logits = policy.model(ids).logits[0, len(request.prompt_ids) - 1 : -1]
        for place, support in enumerate(completion.supports):
            chosen = completion.token_ids[place]
            assert chosen in support
            assert list(support) == sorted(support)
            row = logits[place]
            exact = float(row[chosen] - row[list(support)].logsumexp(0))
            assert completion.sampler_logprobs[place] == pytest.approx(exact, abs=2e-5)
            assert support == expected_support(row, request)


def expected_support(logits: torch.Tensor, request: Request) -> tuple[int, ...]:
    order = sorted(range(len(logits)), key=lambda each: (-float(logits[each]), each))
    order = order[: request.keep_top_k or len(order)]
    mass = torch.softmax(logits[order].double(), 0)
    before = mass.cumsum(0) - mass
    return tuple(
        sorted(
            each
            for place, each in enumerate(order)
            if float(before[place]) < request.keep_top_p
            and float(mass[place]) >= request.keep_min_p * float(mass[0])
        )
    )


# --- weights -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_packed_and_plain_matrices_multiply_alike(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    layers = [torch.nn.Linear(64, 32, bias=False), torch.nn.Linear(64, 48)]
    x = torch.randn(5, 64).to(dtype)
    packed, plain = (Matrix(layers, dtype, pack=pack) for pack in (True, False))
    assert packed.packs == can_pack(dtype, torch.device("cpu"))
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(packed(x), plain(x), atol=tolerance, rtol=tolerance)
    with torch.no_grad():
        layers[0].weight.mul_(2.0)
    before = packed(x)
    packed.refresh()
    torch.testing.assert_close(packed(x)[:, :32], 2 * before[:, :32], atol=tolerance, rtol=1e-2)


@pytest.mark.skipif(
    not can_pack(torch.bfloat16, torch.device("cpu")), reason="oneDNN has no bfloat16 here"
)
def test_the_half_head_is_near_the_exact_one_where_the_probability_is() -> None:
    policy = family_policy("llama")
    with torch.no_grad():
        policy.model.lm_head.weight[:, 0] = 24.0  # all logits near 24
    head = SamplingHead(head_of(policy.model), pack=True, half=True)
    assert head.half
    states = torch.randn(16, 32, generator=torch.Generator().manual_seed(0)).bfloat16().float()
    states[:, 0] = 1.0
    with torch.no_grad():
        exact = head.exact(states).log_softmax(-1)
        best = head.exact(states).amax(-1) + 0.7  # the last token's, not this one's
        near = head.near(states, best).log_softmax(-1)
        rough = head.near(states, torch.zeros(16)).log_softmax(-1)
    p = exact.exp()
    error, unshifted = (p * (near - exact).abs()).sum(-1), (p * (rough - exact).abs()).sum(-1)
    assert error.max() < 0.02
    assert error.mean() < 0.5 * unshifted.mean()


# --- fixed shapes (what a CUDA graph replays) ----------------------------------------------------


@pytest.mark.parametrize("family", cases(["llama", "mistral", "gemma3", "qwen3_moe"]))
@pytest.mark.parametrize("rows", [pytest.param(3, marks=pytest.mark.slow), 20])
def test_steps_of_fixed_shapes_give_the_same_completions(family: str, rows: int) -> None:
    """Rows that are not there fill the shapes up and write to the spare row alone."""
    policy = unending(family_policy(family))
    asked = [Request(PROMPTS[i % 5], key=i, max_tokens=(60, 7, 20)[i % 3]) for i in range(14)]
    expected = local(policy).sample(asked)
    sampler = local(policy, batch_rows=rows)
    sampler.static = True
    made = sampler.sample(asked)
    assert [c.token_ids for c in made] == [c.token_ids for c in expected]
    for one, other in zip(made, expected):
        assert one.sampler_logprobs == pytest.approx(other.sampler_logprobs, abs=2e-5)


def test_fixed_shapes_go_on_over_turns() -> None:
    policy = unending(family_policy("llama"))
    results = []
    for static in (False, True):
        sampler = local(policy)
        sampler.static = static
        made: list[tuple[int, ...]] = []
        asked = requests(6, max_tokens=5)

        def then(
            place: int,
            completion: Completion,
            made: list[tuple[int, ...]] = made,
            asked: list[Request] = asked,
        ) -> Request | None:
            made.append(completion.token_ids)
            second = completion.num_tokens == 6
            return None if second else follow(asked[place], completion, (30, 31))

        sampler.play(asked, then)
        results.append(made)
    assert results[0] == results[1]
    assert len(results[0]) == 12


def test_a_step_is_captured_again_when_what_it_reads_has_grown() -> None:
    """Graphs hold on to own parts and rotary tables; one of an older size is never replayed."""
    policy = unending(family_policy("llama"))
    sampler = local(policy)
    decoder = sampler.decoder
    assert decoder is not None
    decoder.tables.clear()
    cache = Cache(decoder, rows=8, groups=1, longest_prompt=4, device=policy.device, spare=True)
    steps = StaticSteps(decoder, cache, largest=8, longest_prompt=4)
    layout = lay_out([0, 0], [4, 4], policy.device, steps.frame(2))
    ids = torch.tensor([5, 6])
    keys = []
    for own in (3, 250, 300):
        cache.make_room(own + 1)
        decoder.reserve(4 + own + 1)
        steps.states(layout, ids, torch.tensor([own, own]))
        (key,) = steps.steps
        keys.append(key)
    assert [key[0] for key in keys] == [8, 8, 8]
    assert [key[2] for key in keys] == [256, 256, 610]
    assert len({key[1:] for key in keys}) == 3


def test_few_shapes_serve_every_number_of_rows() -> None:
    assert [frame_rows(n, 100) for n in (1, 8, 9, 33, 64, 65, 100)] == [8, 8, 16, 64, 64, 100, 100]
    assert frame_rows(2, 3) == 3
