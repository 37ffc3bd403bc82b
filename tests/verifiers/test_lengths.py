"""length and repetition by numbers worked out by hand. Fault 23 in part."""

import pytest

from groupwise.errors import RecipeError, VerifierError
from groupwise.types import Prompt
from groupwise.verifiers import Case, load_verifier, score_cases


def value(num_tokens, text="7", answer="7", **arguments):
    case = Case(Prompt("p", text="q", answer=answer), text, completion_ids=tuple(range(num_tokens)))
    (score,) = score_cases(load_verifier("length", **arguments), [case])
    return score.value


def test_budget():
    values = [value(n, max_tokens=16, slack=4) for n in (1, 16, 17, 18, 20, 21)]
    assert values == [1.0, 1.0, 0.75, 0.5, 0.0, 0.0]
    assert [value(n, max_tokens=16) for n in (16, 17)] == [1.0, 0.0]
    assert [value(n, max_tokens=16, min_tokens=4, slack=2) for n in (4, 3, 2)] == [1.0, 0.5, 0.0]


def test_tokens_are_counted_in_ids_only():
    case = Case(Prompt("p", text="q"), "some text")
    with pytest.raises(VerifierError, match="no completion_ids"):
        score_cases(load_verifier("length", max_tokens=5), [case])


@pytest.mark.parametrize("arguments", [{}, {"max_tokens": 0}, {"max_tokens": 5, "min_tokens": 6}])
def test_bad_arguments(arguments):
    with pytest.raises(RecipeError, match=r"max_tokens|min_tokens"):
        load_verifier("length", **arguments)


def test_the_cosine_is_refused_with_what_to_use():
    with pytest.raises(RecipeError, match="'kind' was removed; use a reward function of your own"):
        load_verifier("length", max_tokens=5, kind="cosine")


def repetition(text, ids=(), **arguments):
    case = Case(Prompt("p", text="q"), text, completion_ids=tuple(ids))
    return score_cases(load_verifier("repetition", **arguments), [case])[0].value


def test_repetition():
    assert repetition("a b c d e") == 1.0
    assert repetition("a b") == 1.0
    assert repetition("") == 1.0
    assert repetition("a b a b a b", ngram=2) == pytest.approx(2 / 5)
    assert repetition("A a A a", ngram=1) == pytest.approx(1 / 4)
    assert repetition("x", ids=[1, 2, 1, 2, 1, 2], ngram=2, unit="tokens") == pytest.approx(2 / 5)
