"""`math` on gold answers of eleven shapes: refused, rewritten, one character changed; time."""

import pytest
from gold_corpus import corpus, defended, figures


def check(rows):
    found = figures(rows)
    assert found["rejected"] == []
    assert len(found["refused"]) <= 0.02 * len(rows)
    alone = [row for row, both in zip(found["accepted"], defended(found["accepted"])) if not both]
    assert len(alone) <= 0.003 * found["mutants"] + 1, alone
    assert found["p99"] < 1


def test_a_sample_of_the_gold_answers():
    check(corpus()[::12])


@pytest.mark.slow
def test_all_gold_answers():
    rows = corpus()
    assert len(rows) >= 500
    check(rows)
