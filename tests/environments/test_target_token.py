"""`target_token`: seeded prompts, disjoint splits, a reward that can be counted by hand."""

import pytest

from groupwise.environments import load_environment
from groupwise.errors import RecipeError


def texts(environment, split):
    return [prompt.last_text for prompt in environment.prompts(split=split)]


def test_prompts_are_seeded_and_disjoint():
    environment = load_environment("target_token", seed=3, num_train=40, num_heldout=10)
    train, heldout = texts(environment, "train"), texts(environment, "heldout")
    assert (len(train), len(heldout)) == (40, 10)
    assert len({*train, *heldout}) == 50
    assert all(len(text) == 4 for text in train)
    again = load_environment("target_token", seed=3, num_train=40, num_heldout=10)
    assert again.describe() == environment.describe()
    other = load_environment("target_token", seed=4, num_train=40, num_heldout=10)
    assert texts(other, "train") != train
    assert environment.describe()["splits"] == {"train": 40, "heldout": 10}


def test_the_reward_counts():
    share = load_environment("target_token", target="e")
    prompt = share.prompts(1)[0]
    assert share.verify(prompt, "eel").value == pytest.approx(2 / 3)
    assert share.verifier.gives_steps
    count = load_environment("target_token", target="e", kind="count", cap=4)
    assert count.verify(count.prompts(1)[0], "eel").value == 0.5
    asked = load_environment("target_token", target="e", question="Many {target} on {word}.")
    assert texts(asked, "train")[0].startswith("Many e on ")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"targt": "7"}, "target"),
        ({"target": ""}, "target"),
        ({"question": "the same"}, "word"),
        ({"syllables": 1, "num_train": 65}, "syllables = 2"),
        ({"kind": "most"}, "share"),
    ],
)
def test_bad_arguments(arguments, words):
    with pytest.raises(RecipeError, match=words):
        load_environment("target_token", **arguments)
