"""`math` on gold answers of eleven shapes: refused, rewritten, one character changed; time."""

import pytest
from gold_corpus import corpus, defended, figures, written


def check(rows):
    found = figures(rows)
    assert found["rejected"] == []
    chosen = {(row.gold, given) for row in rows for given in row.wrong}
    assert [each for each in found["accepted"] if each[1:] in chosen] == []
    assert len(found["refused"]) <= 0.02 * len(rows)
    alone = [row for row, both in zip(found["accepted"], defended(found["accepted"])) if not both]
    assert len(alone) <= 0.003 * found["mutants"] + 1, alone
    assert found["p99"] < 1


def test_a_sample_of_the_gold_answers():
    check(corpus()[::12])


def test_a_sample_of_the_written_gold_answers():
    check(written()[::4])


@pytest.mark.slow
@pytest.mark.parametrize("make", [corpus, written])
def test_all_gold_answers(make):
    rows = make()
    assert len(rows) >= 500
    check(rows)
