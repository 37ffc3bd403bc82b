"""`sample`: prompts of every kind, one call; the settings; the scripted sampler."""

from __future__ import annotations

import pytest
import torch

from groupwise.errors import RecipeError
from groupwise.policies import Policy, load_policy, score
from groupwise.samplers import Sampler, SamplingSettings, ScriptedSampler, sample
from groupwise.types import Prompt, Request
from model_families import family_policy

CHAT = [{"role": "user", "content": "3+4="}]


@pytest.fixture(scope="module")
def tiny() -> Policy:
    return load_policy("tiny", device="cpu")


def test_texts_chats_ids_and_prompts(tiny: Policy) -> None:
    ids = tiny.template.encode_prompt(Prompt("p", messages=tuple(CHAT)))
    prompts = ["3+4=", CHAT, list(ids), Prompt("p", messages=tuple(CHAT))]
    samples = sample(tiny, prompts, group_size=3, max_tokens=5)
    assert [len(group) for group in samples] == [3] * 4
    for group in samples[1:]:
        for completion in group:
            logprobs = score(tiny, ids, completion.token_ids)
            assert torch.tensor(completion.sampler_logprobs) == pytest.approx(logprobs, abs=2e-5)
    # The same ids given again are another visit, with noise of its own.
    flat = [[c.sampler_logprobs for c in group] for group in samples[1:]]
    assert flat[0] != flat[1] != flat[2]


def test_the_seed_decides_and_other_prompts_do_not(tiny: Policy) -> None:
    alone = sample(tiny, [CHAT], group_size=6, max_tokens=5, seed=1)[0]
    among = sample(tiny, ["1", CHAT, "22"], group_size=6, max_tokens=5, seed=1)[1]
    assert [c.token_ids for c in alone] == [c.token_ids for c in among]
    other = sample(tiny, [CHAT], group_size=6, max_tokens=5, seed=2)[0]
    assert [c.token_ids for c in alone] != [c.token_ids for c in other]
    assert len({c.token_ids for c in alone}) > 1


def test_temperature_zero_is_greedy(tiny: Policy) -> None:
    group = sample(tiny, [CHAT], group_size=4, max_tokens=5, temperature=0)[0]
    assert {c.text for c in group} == {"7"}
    assert {c.finish_reason for c in group} == {"stop"}


def test_what_is_no_prompt_is_refused(tiny: Policy) -> None:
    for bad in ([1.5], 7, None, CHAT[0], ["a"], [CHAT[0], 3]):
        with pytest.raises(TypeError, match=r"prompts\[1\]: give a text, a list of messages"):
            sample(tiny, ["a", bad], group_size=2)
    with pytest.raises(RecipeError, match=r"prompts\[1\]: give a text, .*; not \[\]"):
        sample(tiny, ["a", []], group_size=2)
    with pytest.raises(ValueError, match=r"'1\+1=': one prompt; give a list, \[prompt\]"):
        sample(tiny, "1+1=")
    with pytest.raises(
        ValueError, match=r"prompts\[0\]: id 100000 is not within the vocabulary of"
    ):
        sample(tiny, [[100000]])
    for bad in (float("inf"), float("nan"), 1e-39):
        with pytest.raises(ValueError, match=f"temperature = {bad}; give a finite number"):
            sample(tiny, ["a"], temperature=bad)
    with pytest.raises(ValueError, match="seed = -1; give 0 or more"):
        sample(tiny, ["a"], seed=-1)
    with pytest.raises(RecipeError, match="group_size = 0"):
        sample(tiny, ["a"], group_size=0)
    with pytest.raises(ValueError, match="temperature = -1"):
        sample(tiny, ["a"], temperature=-1)


def test_half_of_a_surrogate_pair_names_the_prompt(tiny: Policy) -> None:
    for prompt in ("3\ud800", [{"role": "user", "content": "3\ud800"}]):
        with pytest.raises(RecipeError, match=r"prompt 'prompt 1': holds '\\ud800', half of a sur"):
            sample(tiny, ["3+4=", prompt], group_size=1)


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ({"group_size": 0}, "greater than or equal to 1"),
        ({"temperature": 0.0}, "greater than or equal to 0.0001"),
        ({"temperature": 1e-39}, "greater than or equal to 0.0001"),
        ({"temperature": float("inf")}, r"temperature\n  Input should be a finite number"),
        ({"temperature": float("nan")}, r"temperature\n  Input should be a finite number"),
        ({"deadline": float("inf")}, r"deadline\n  Input should be a finite number"),
        ({"max_tokens": 0}, "greater than or equal to 1"),
        ({"temprature": 1.0}, "Extra inputs"),
        ({"sampler": "transformer"}, r"did you mean 'transformers'\?"),
        ({"sampler": "scripted"}, "samples nothing"),
        ({"stop": ["a", ""]}, "a stop string is empty"),
    ],
)
def test_illegal_settings(field: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SamplingSettings.model_validate(field)


def scripted(script: object) -> ScriptedSampler:
    return ScriptedSampler(family_policy("llama").template, script)  # type: ignore[arg-type]


def test_scripts_in_turn_and_by_function() -> None:
    asked = [Request((5,), key=i, max_tokens=9) for i in range(3)] + [Request((6,), 9, 9)]
    assert [c.text for c in scripted(["1", "23"]).sample(asked)] == ["1", "23", "1", "23"]
    by_place = scripted(lambda request, place: f"{request.prompt_ids[0]}{place}")
    assert [c.text for c in by_place.sample(asked)] == ["50", "51", "52", "63"]
    assert by_place.requests == asked


def test_scripted_completions_end_as_sampled_ones_do() -> None:
    sampler = scripted([(7, 8, 2, 9), (7, 8, 9), "123456", "12345"])
    asked = [Request((5,), key=i, max_tokens=4) for i in range(3)]
    asked.append(Request((5,), key=3, max_tokens=4, stop_strings=("23",), entropies=True))
    one, two, three, four = sampler.sample(asked)
    assert (one.token_ids, one.finish_reason) == ((7, 8, 2), "stop")
    assert (two.token_ids, two.finish_reason) == ((7, 8, 9), "length")
    assert (three.text, three.finish_reason, three.num_tokens) == ("1234", "length", 4)
    assert (four.text, four.finish_reason, four.num_tokens) == ("123", "stop", 3)
    assert four.entropies == (0.0,) * 3
    assert one.sampler_logprobs == (-0.5,) * 3
    sampler.load(family_policy("llama"), 5)
    assert sampler.sample(asked[:1])[0].version == 5
    assert isinstance(sampler, Sampler)
