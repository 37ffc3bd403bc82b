"""Streams: keyed order, bounded memory, exact resume, rows checked when they are reached."""

from __future__ import annotations

import json
import logging
from collections import Counter

import pytest

from groupwise.environments import load_environment
from groupwise.environments.stream import StreamCursor
from groupwise.errors import RecipeError

NUMBER = [{"name": "number"}]
HELDOUT = [{"prompt": f"{n}+2=", "answer": n + 2} for n in range(5)]


def rows(count, start=0):
    return [{"prompt": f"{n}+1=", "answer": n + 1, "n": n} for n in range(start, start + count)]


def jsonl(folder, content, name="data.jsonl"):
    path = folder / name
    path.write_text("".join(json.dumps(row) + "\n" for row in content), encoding="utf-8")
    return str(path)


@pytest.fixture
def stream(tmp_path):
    def make(content, **arguments):
        held = arguments.pop("heldout", HELDOUT)
        arguments.setdefault("shuffle_buffer", 8)
        return load_environment(
            "dataset",
            seed=arguments.pop("seed", 0),
            verifiers=NUMBER,
            path=jsonl(tmp_path, content),
            heldout_path=jsonl(tmp_path, held, "held.jsonl"),
            streaming=True,
            **arguments,
        )

    return make


def numbers(environment, cursor, indices):
    return [environment.prompt(cursor.at(index)[1]).columns["n"] for index in indices]


def test_every_epoch_visits_every_row_once_in_another_order(stream):
    environment = stream(rows(30))
    cursor = environment.cursor(0)
    visits = [cursor.at(index) for index in range(90)]
    assert [epoch for epoch, _ in visits] == [0] * 30 + [1] * 30 + [2] * 30
    orders = [[each for _, each in visits[start : start + 30]] for start in (0, 30, 60)]
    assert sorted(orders[0]) == sorted(orders[1]) == sorted(orders[2])
    assert orders[0] != orders[1] != orders[2]
    assert len({each for _, each in visits}) == 30


def test_a_row_moves_by_the_buffer_at_most_and_the_seed_decides(stream):
    environment = stream(rows(200), shuffle_buffer=16)
    order = numbers(environment, environment.cursor(0), range(200))
    assert max(abs(place - n) for place, n in enumerate(order)) < 16
    assert order != sorted(order)
    assert sorted(order[:16]) == list(range(16))
    assert order == numbers(environment, environment.cursor(0), range(200))
    assert order != numbers(environment, environment.cursor(1), range(200))
    unshuffled = stream(rows(200), shuffle_buffer=1)
    assert numbers(unshuffled, unshuffled.cursor(0), range(200)) == list(range(200))


@pytest.mark.parametrize("window", [1, 8, 50, 1000])
def test_a_resumed_stream_visits_what_the_unbroken_one_does(stream, window):
    bad = [{"prompt": f"bad{n}", "answer": "x", "n": -1} for n in range(3)]
    content = [*rows(50), *bad, *rows(30, start=50)]
    environment = stream(content, shuffle_buffer=window, on_bad_answer="drop")
    unbroken = environment.cursor(0)
    visits, states = [], [unbroken.state_dict()]
    for index in range(200):
        visits.append(unbroken.at(index))
        states.append(json.loads(json.dumps(unbroken.state_dict())))
    for stop in (0, 1, 7, 49, 64, 79, 80, 81, 120, 159, 160, 199):
        resumed = environment.cursor(0)
        resumed.load_state_dict(states[stop])
        assert [resumed.at(index) for index in range(stop, 200)] == visits[stop:]
        assert resumed.state_dict() == states[200]
    assert states[200]["dropped"]["bad_answers"] in range(6, 10)


def test_rows_are_read_as_they_are_needed(tmp_path, monkeypatch):
    """A generator without an end: memory and reading are bounded by the buffer."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "endless_rows.py").write_text(
        "given = []\n"
        "def rows(seed):\n"
        "    n = 0\n"
        "    while True:\n"
        "        given.append(n)\n"
        "        yield {'prompt': f'{n}+1=', 'answer': n + 1, 'n': n, 'seed': seed}\n"
        "        n += 1\n"
    )
    environment = load_environment(
        "dataset",
        seed=3,
        verifiers=NUMBER,
        path="endless_rows:rows",
        heldout_path=jsonl(tmp_path, HELDOUT),
        streaming=True,
        shuffle_buffer=32,
        checked_rows=10,
    )
    import endless_rows

    assert len(endless_rows.given) == 10
    assert len(environment) == 10
    endless_rows.given.clear()
    cursor = environment.cursor(3)
    assert isinstance(cursor, StreamCursor)
    found = numbers(environment, cursor, range(100))
    assert max(endless_rows.given) < 100 + 64 + 32
    assert environment.prompt(cursor.at(99)[1]).columns["seed"] == 3
    assert len(set(found)) == 100
    with pytest.raises(ValueError, match="the stream is past visit 5; it is at 99"):
        cursor.at(5)
    with pytest.raises(KeyError):
        environment.prompt("nothing")


def test_forgotten_prompts(stream, monkeypatch):
    monkeypatch.setattr("groupwise.environments.stream.REMEMBERED", 4)
    environment = stream(rows(20), checked_rows=1)
    cursor = environment.cursor(0)
    ids = [cursor.at(index)[1] for index in range(20)]
    assert [environment.prompt(each).id for each in ids[-4:]] == ids[-4:]
    assert len(environment._remembered) == 4


def test_equal_rows_have_ids_of_their_own(stream):
    environment = stream([*rows(3), *rows(3)])
    cursor = environment.cursor(0)
    ids = [cursor.at(index)[1] for index in range(6)]
    assert len(set(ids)) == 6
    assert sorted(Counter(each.split("@")[0] for each in ids).values()) == [2, 2, 2]
    assert {each.split("@")[1] for each in ids} == set("123456")


def test_describe_and_heldout(stream):
    environment = stream(rows(30), checked_rows=20)
    facts = environment.describe()
    assert facts["splits"] == {"train": 20, "heldout": 5}
    assert (facts["streamed"], facts["checked_rows"]) == (True, 20)
    assert environment.streamed
    assert environment.prompts(1, split="heldout")[0].last_text == "0+2="


def test_a_bad_row_is_named_before_the_run_or_when_it_is_reached(stream, caplog):
    content = [*rows(20), {"prompt": "q", "answer": "x"}]
    with pytest.raises(RecipeError, match=r"data.jsonl, line 21 \(answer 'x'\)"):
        stream(content)
    late = stream(content, checked_rows=10)
    cursor = late.cursor(0)
    with pytest.raises(RecipeError, match=r"data.jsonl, line 21 \(answer 'x'\)"):
        [cursor.at(index) for index in range(21)]
    dropping = stream(content, checked_rows=10, on_bad_answer="drop")
    cursor = dropping.cursor(0)
    with caplog.at_level(logging.WARNING):
        assert len({cursor.at(index)[1] for index in range(20)}) == 20
        cursor.at(20)
    assert "training rows dropped so far (bad answers): 1" in caplog.text
    assert cursor.state_dict()["dropped"] == {"bad_answers": 1}
    broken = stream([*rows(20), {"answer": 3}], checked_rows=10)
    with pytest.raises(RecipeError, match=r"data.jsonl, line 21 has no such column"):
        [broken.cursor(0).at(index) for index in (20,)]


def test_overlap_with_held_out_rows(stream):
    content = [*rows(20), HELDOUT[2]]
    with pytest.raises(RecipeError, match=r"held.jsonl, line 3 = data.jsonl, line 21"):
        stream(content)
    late = stream(content, checked_rows=10, on_overlap="drop")
    cursor = late.cursor(0)
    texts = {late.prompt(cursor.at(index)[1]).last_text for index in range(20)}
    assert "2+2=" not in texts
    assert stream(content, on_overlap="allow").describe()["splits"]["train"] == 21


def test_prompts_too_long_are_refused_or_dropped_when_reached(stream):
    content = [*rows(20), {"prompt": "1" * 40, "answer": 3}]

    def fitted(drop):
        made = stream(content, checked_rows=10)
        made.fit(lambda prompt: len(prompt.last_text), 20, drop=drop, advice="shorten it")
        return made.cursor(0)

    with pytest.raises(RecipeError, match=r"line 21: its prompt of 40 tokens does not fit; sh"):
        fitted(False).at(20)
    cursor = fitted(True)
    cursor.at(20)
    assert cursor.state_dict()["dropped"] == {"too_long": 1}


def test_data_that_shrank_cannot_go_on(stream):
    environment = stream(rows(30), shuffle_buffer=30)
    cursor = environment.cursor(0)
    cursor.at(3)
    state = cursor.state_dict()
    shorter = stream(rows(12), shuffle_buffer=30)
    with pytest.raises(RecipeError, match="cannot be resumed with data that has changed"):
        shorter.cursor(0).load_state_dict(state)


def test_nothing_usable_ends(stream):
    environment = stream(rows(12), checked_rows=10)
    environment.fit(lambda prompt: len(prompt.last_text), 100, drop=True, advice="")
    environment._length_of = lambda prompt: 101
    with pytest.raises(RecipeError, match=r"no usable row in epoch 0: dropped so far.*too_long"):
        environment.cursor(0).at(0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"heldout_share": 0.2}, "heldout_share cannot be cut from a stream"),
        ({"on_duplicate": "drop", "heldout_path": "x"}, 'on_duplicate = "drop" needs all rows'),
        ({}, "streaming needs held-out prompts of its own"),
    ],
)
def test_what_a_stream_cannot_do(tmp_path, arguments, message):
    with pytest.raises(RecipeError) as error:
        load_environment(
            "dataset", verifiers=NUMBER, path=jsonl(tmp_path, rows(3)), streaming=True, **arguments
        )
    assert message in str(error.value)


def test_parquet_csv_and_datasets_stream_alike(tmp_path):
    import csv

    import datasets
    import pyarrow as pa
    import pyarrow.parquet as pq

    content = rows(3000)
    pq.write_table(pa.Table.from_pylist(content), tmp_path / "data.parquet")
    with (tmp_path / "data.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, content[0])
        writer.writeheader()
        writer.writerows(content)
    datasets.Dataset.from_list(content).save_to_disk(str(tmp_path / "saved"))
    orders = []
    for name in ("data.parquet", "data.csv", "saved", jsonl(tmp_path, content, "data.jsonl")):
        environment = load_environment(
            "dataset",
            verifiers=NUMBER,
            path=str(tmp_path / name),
            heldout_path=jsonl(tmp_path, HELDOUT, "held.jsonl"),
            streaming=True,
            shuffle_buffer=100,
            checked_rows=20,
        )
        cursor = environment.cursor(0)
        cursor.at(1500)
        resumed = environment.cursor(0)
        resumed.load_state_dict(cursor.state_dict())
        orders.append([int(n) for n in numbers(environment, resumed, range(1501, 1550))])
        assert orders[-1] == [int(n) for n in numbers(environment, cursor, range(1501, 1550))]
    assert orders[0] == orders[1] == orders[2] == orders[3]


@pytest.mark.parametrize("name", ["rows.jsonl", "folder"])
def test_rows_are_found_wherever_the_process_works(tmp_path, monkeypatch, name):
    folder = tmp_path / "folder"
    folder.mkdir()
    for path in (folder / "rows.jsonl", tmp_path / "rows.jsonl"):
        path.write_text("".join(json.dumps(row) + "\n" for row in rows(20)))
    (tmp_path / "held.jsonl").write_text(json.dumps({"prompt": "9+9=", "answer": 18}) + "\n")
    monkeypatch.chdir(tmp_path)
    environment = load_environment(
        "dataset",
        path=name,
        heldout_path="held.jsonl",
        streaming=True,
        verifiers=[{"name": "number"}],
    )
    monkeypatch.chdir(folder)
    cursor = environment.cursor(0)
    assert len({cursor.at(index)[1] for index in range(60)}) == 20
