"""Mixtures: shares, orders that resume, each source's own verifier, splits and checks."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from groupwise.environments import Environment, Episode, load_environment
from groupwise.environments.mixture import MixtureCursor
from groupwise.environments.order import PromptCursor
from groupwise.errors import RecipeError
from groupwise.types import Prompt
from groupwise.verifiers import Case, load_verifier

NUMBER = [{"name": "number"}]


class Asks(Environment):
    """An environment of two turns."""

    def __init__(self, seed):
        verifier = load_verifier("exact")
        super().__init__("asks", verifier, {"train": [Prompt("p", text="hi", answer="yes")]})

    def start(self, prompt):
        return Answers(prompt)


class Answers(Episode):
    def next(self, completion):
        return None if completion == "end" else [{"role": "user", "content": self.prompt.id}]


def jsonl(folder, name, rows):
    path = folder / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


@pytest.fixture
def sources(tmp_path):
    """Ten sums judged by `number`, four words judged by `exact`."""
    sums = [{"prompt": f"{n}+1=", "answer": n + 1} for n in range(10)]
    words = [{"prompt": f"Say {w}.", "answer": w} for w in ("one", "two", "six", "ten")]
    held = [{"prompt": "20+1=", "answer": 21}]
    return [
        {
            "name": "dataset",
            "label": "sums",
            "weight": 3.0,
            "path": jsonl(tmp_path, "sums.jsonl", sums),
            "heldout_path": jsonl(tmp_path, "held.jsonl", held),
            "verifiers": NUMBER,
        },
        {
            "name": "dataset",
            "label": "words",
            "path": jsonl(tmp_path, "words.jsonl", words),
            "verifiers": [{"name": "exact"}],
        },
    ]


def mixture(sources, **arguments):
    return load_environment("mixture", seed=0, sources=sources, **arguments)


def test_prompts_splits_and_what_is_recorded(sources):
    environment = mixture(sources)
    assert environment.splits == ("train", "heldout_sums")
    facts = environment.describe()
    assert facts["splits"] == {"train": 14, "heldout_sums": 1}
    assert facts["shares"] == {"sums": 0.75, "words": 0.25}
    assert facts["sources"]["words"]["splits"] == {"train": 4, "heldout": 0}
    ids = [prompt.id for prompt in environment.prompts()]
    assert Counter(each.split("/")[0] for each in ids) == {"sums": 10, "words": 4}
    assert environment.prompt(ids[0]).id == ids[0]
    assert environment.place(ids[0]) == "sums.jsonl, line 1"


def test_every_step_holds_the_shares_and_every_source_its_epochs(sources):
    environment = mixture(sources)
    cursor = environment.cursor(0)
    visits = [cursor.at(index) for index in range(160)]
    for start in range(0, 160, 16):
        labels = Counter(each.split("/")[0] for _, each in visits[start : start + 16])
        assert labels == {"sums": 12, "words": 4}
    words = [visit for visit in visits if visit[1].startswith("words/")]
    for epoch in range(10):
        each = words[4 * epoch : 4 * epoch + 4]
        assert {number for number, _ in each} == {epoch}
        assert len({id_ for _, id_ in each}) == 4


def test_a_resumed_mixture_visits_what_the_unbroken_one_does(sources):
    environment = mixture(sources)
    unbroken = environment.cursor(0)
    visits = [unbroken.at(index) for index in range(60)]
    for stop in (0, 1, 13, 59):
        resumed = environment.cursor(0)
        assert [resumed.at(index) for index in range(stop, 60)] == visits[stop:]
    assert unbroken.at(3) == visits[3]
    assert environment.cursor(1).at(0) != visits[0] or environment.cursor(1).at(1) != visits[1]
    assert len(unbroken) == 14


@pytest.mark.parametrize("weights", [(1, 1, 1), (5, 2, 1), (0.1, 0.7, 0.2), (1, 1000, 1)])
def test_counts_never_leave_their_shares_by_more_than_one(weights):
    parts = {str(n): PromptCursor([f"p{n}"], 0) for n in range(3)}
    cursor = MixtureCursor(parts, {str(n): float(w) for n, w in enumerate(weights)})
    counts: Counter[str] = Counter()
    for index in range(500):
        counts[cursor.at(index)[1].split("/")[0]] += 1
        for n, weight in enumerate(weights):
            assert abs(counts[str(n)] - weight / sum(weights) * (index + 1)) < 2


def test_each_source_is_judged_by_its_own_verifier_in_order(sources):
    environment = mixture(sources)
    prompts = environment.prompts()
    cases = [
        Case(prompts[0], "It is 1."),
        Case(prompts[10], "one"),
        Case(prompts[1], "one"),
        Case(prompts[11], "It is two."),
    ]
    scores = environment.score(cases)
    assert [score.value for score in scores] == [1.0, 1.0, 0.0, 0.0]
    assert [list(score.parts) for score in scores] == [["number"], ["exact"], ["number"], ["exact"]]
    assert environment.verifier.check_answers(prompts) == [None] * 14
    assert environment.verifier.gold_completion(prompts[10]) == "one"
    assert json.loads(environment.verifier.signature())[1].keys() == {"sums", "words"}


def test_turns_of_their_own(sources):
    environment = mixture([{"name": "test_mixture:Asks", "label": "asks"}, sources[0]])
    asks, sums = environment.prompts()[:2]
    assert environment.start(asks).next("go") == [{"role": "user", "content": "p"}]
    assert environment.start(sums).next("go") is None
    assert environment.answer_role == "user"
    assert mixture(sources).answer_role is None


def test_each_source_says_which_turns_are_read(sources):
    environment = mixture([{"name": "tic_tac_toe", "num_train": 1, "num_heldout": 0}, sources[1]])
    game, word = environment.prompts()[:2]
    assert [environment.judged_for(each) for each in (game, word)] == ["all", "last"]
    environment.set_judged("all")
    assert environment.judged_for(word) == "all"


def test_prompts_that_do_not_fit_are_named_or_dropped_everywhere(sources):
    environment = mixture(sources)
    with pytest.raises(RecipeError, match=r"4 prompts do not fit: words.jsonl, line 1 \(8"):
        environment.fit(lambda prompt: len(prompt.last_text), 6, drop=False, advice="")
    trimmed = [sources[0], {**sources[1], "template": "{prompt}{answer}"}]
    environment = mixture(trimmed)
    with pytest.raises(RecipeError, match="no training prompt is left"):
        environment.fit(lambda prompt: len(prompt.last_text), 6, drop=True, advice="")
    environment = mixture(sources)
    environment.fit(lambda prompt: 9 if prompt.answer == "one" else 1, 6, drop=True, advice="")
    cursor = environment.cursor(0)
    seen = {environment.prompt(cursor.at(index)[1]).answer for index in range(60)}
    assert "one" not in seen
    assert len(seen) == 13


def test_overlap_between_sources_is_refused(sources, tmp_path):
    path = jsonl(tmp_path, "more.jsonl", [{"prompt": "20+1=", "answer": 21}])
    more = {"name": "dataset", "label": "more", "path": path, "verifiers": NUMBER}
    with pytest.raises(RecipeError) as error:
        mixture([*sources, more])
    assert str(error.value) == (
        "environment 'mixture', sources 'sums' and 'more': 1 held-out prompts are also in the "
        'training data (held.jsonl, line 1 = more.jsonl, line 1); set on_overlap = "drop" to '
        'take them out of training, or "allow"'
    )
    allowed = mixture([*sources, more], on_overlap="allow")
    assert allowed.describe()["overlap"] == 1
    assert "held-out prompts that are also in the training data: 1" in allowed.notes
    path = jsonl(tmp_path, "more.jsonl", [{"prompt": f"{n}+1=", "answer": n + 1} for n in (20, 30)])
    dropped = mixture([*sources, more], on_overlap="drop")
    assert dropped.describe()["splits"] == {"train": 15, "heldout_sums": 1}
    cursor = dropped.cursor(0)
    visited = {dropped.prompt(cursor.at(index)[1]).last_text for index in range(60)}
    assert "30+1=" in visited
    assert "20+1=" not in visited
    nested = {"name": "mixture", "label": "both", "sources": [more]}
    inner = mixture([*sources, nested], on_overlap="drop")
    cursor = inner.cursor(0)
    assert "20+1=" not in {inner.prompt(cursor.at(index)[1]).last_text for index in range(60)}


def test_overlap_is_seen_whether_a_source_words_chats_or_raw_text(sources, tmp_path):
    path = jsonl(tmp_path, "more.jsonl", [{"prompt": "20+1= ", "answer": 21}])
    more = {"name": "dataset", "label": "more", "path": path, "verifiers": NUMBER, "system": "Add."}
    with pytest.raises(RecipeError, match=r"held\.jsonl, line 1 = more\.jsonl, line 1"):
        mixture([*sources, more])


def test_what_a_mixture_refuses(sources, tmp_path):
    twice = [{**source, "label": ""} for source in sources]
    bad = {**sources[1], "path": jsonl(tmp_path, "bad.jsonl", [{"prompt": "x"}])}
    for given, arguments, message in [
        (twice, {}, "two sources are called 'dataset'"),
        ([], {}, "sources"),
        ([{**sources[0], "weight": 0}], {}, "weight"),
        ([{**sources[0], "label": "a/b"}], {}, "label"),
        ([sources[0], bad], {}, "source 'words': environment.answer = 'answer': bad.jsonl, line 1"),
        ([{"name": "datset"}], {}, "source 'datset': "),
        (sources, {"verifiers": NUMBER}, "give each source its own"),
    ]:
        with pytest.raises(RecipeError) as error:
            mixture(given, **arguments)
        assert message in str(error.value)
