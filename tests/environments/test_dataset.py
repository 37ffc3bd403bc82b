"""Prompts from files: mapping, refusals that name rows, splits that never mix. Faults 34 and 49."""

import csv
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from groupwise.environments import load_environment
from groupwise.errors import RecipeError
from groupwise.verifiers import Case

NUMBER = [{"name": "number"}]
ROWS = [{"prompt": f"{n}+1=", "answer": str(n + 1), "level": n % 3} for n in range(10)]


def jsonl(folder, rows, name="data.jsonl"):
    path = folder / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def load(path, seed=0, verifiers=NUMBER, **arguments):
    return load_environment("dataset", seed=seed, verifiers=verifiers, path=path, **arguments)


def test_jsonl(tmp_path):
    environment = load(jsonl(tmp_path, ROWS))
    prompts = environment.prompts()
    assert [prompt.last_text for prompt in prompts] == [row["prompt"] for row in ROWS]
    assert prompts[2].answer == "3"
    assert prompts[2].columns == {"answer": "3", "level": 2}
    assert prompts[2].messages == ({"role": "user", "content": "2+1="},)
    assert environment.verify(prompts[2], "3").value == 1.0
    assert environment.prompts(split="heldout") == []


def test_csv_tsv_parquet_and_json_give_the_same_prompts(tmp_path):
    ids = [prompt.id for prompt in load(jsonl(tmp_path, ROWS)).prompts()]
    for name, delimiter in (("data.csv", ","), ("data.tsv", "\t")):
        with (tmp_path / name).open("w", newline="") as file:
            writer = csv.DictWriter(file, ROWS[0], delimiter=delimiter)
            writer.writeheader()
            writer.writerows(ROWS)
        assert [prompt.id for prompt in load(str(tmp_path / name)).prompts()] == ids
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "data.parquet")
    assert [prompt.id for prompt in load(str(tmp_path / "data.parquet")).prompts()] == ids
    (tmp_path / "data.json").write_text(json.dumps(ROWS))
    assert [prompt.id for prompt in load(str(tmp_path / "data.json")).prompts()] == ids


def test_a_saved_datasets_folder(tmp_path):
    import datasets

    data = datasets.Dataset.from_list(ROWS)
    data.save_to_disk(str(tmp_path / "one"))
    assert len(load(str(tmp_path / "one"))) == 10
    both = datasets.DatasetDict({"train": data, "test": datasets.Dataset.from_list(OTHER)})
    both.save_to_disk(str(tmp_path / "two"))
    environment = load(str(tmp_path / "two"), heldout_split="test")
    assert environment.describe()["splits"] == {"train": 10, "heldout": 2}
    with pytest.raises(RecipeError, match="no split 'dev'; it has train, test"):
        load(str(tmp_path / "two"), split="dev")


OTHER = [{"prompt": f"{n}+2=", "answer": n + 2, "level": 0} for n in (20, 21)]


def test_columns_are_mapped_and_kept(tmp_path):
    rows = [{"question": "3+4=", "solution": "so\n#### 7", "source": "me"}]
    environment = load(jsonl(tmp_path, rows), prompt="question", answer="solution",
                       answer_pattern="#### (.+)")  # fmt: skip
    (prompt,) = environment.prompts()
    assert (prompt.last_text, prompt.answer) == ("3+4=", "7")
    assert prompt.columns == {"solution": "so\n#### 7", "source": "me"}


def test_chats_and_text_as_chat(tmp_path):
    chat = [{"role": "user", "content": "3+4="}]
    (prompt,) = load(jsonl(tmp_path, [{"prompt": chat, "answer": 7}])).prompts()
    assert prompt.messages == tuple(chat)
    (prompt,) = load(jsonl(tmp_path, [{"prompt": "3+4=", "answer": 7}])).prompts()
    assert prompt.messages == tuple(chat)
    (prompt,) = load(jsonl(tmp_path, [{"prompt": "3+4=", "answer": 7}]), chat=False).prompts()
    assert (prompt.text, prompt.messages) == ("3+4=", ())
    (prompt,) = load(jsonl(tmp_path, [{"prompt": chat, "answer": 7}]), system="Short.").prompts()
    assert [message["role"] for message in prompt.messages] == ["system", "user"]


def test_a_template_from_several_columns(tmp_path):
    rows = [{"a": 3, "b": 4, "answer": 7}]
    (prompt,) = load(jsonl(tmp_path, rows), template="{a}+{b}= {{x}}").prompts()
    assert prompt.last_text == "3+4= {x}"
    with pytest.raises(RecipeError, match=r"data.jsonl, line 1 .*columns are a, b, answer"):
        load(jsonl(tmp_path, rows), template="{c}")


def test_ids_come_from_content_and_stay_unique(tmp_path):
    rows = [ROWS[0], ROWS[1], ROWS[0]]
    environment = load(jsonl(tmp_path, rows))
    ids = [prompt.id for prompt in environment.prompts()]
    assert ids[2] == f"{ids[0]}#2"
    assert environment.prompt(ids[1]).last_text == "1+1="
    assert load(jsonl(tmp_path, rows[1:], "b.jsonl")).prompts(1)[0].id == ids[1]
    assert environment.describe()["duplicates"] == 1
    assert environment.notes == [
        "training prompts that are copies of another one, answer included: 1"
    ]
    assert load(jsonl(tmp_path, ROWS, "c.jsonl")).notes == []
    assert len(load(jsonl(tmp_path, rows), on_duplicate="drop")) == 2


def test_conflicting_answers_are_counted(tmp_path):
    rows = [{"prompt": "3+4=", "answer": 7}, {"prompt": "3+4= ", "answer": 8}]
    assert load(jsonl(tmp_path, rows)).describe()["conflicting_answers"] == 1


@pytest.mark.parametrize(
    ("rows", "arguments", "message"),
    [
        ([], {}, "holds no rows"),
        ([{"question": "q", "answer": 7}], {}, "has no such column; it has question, answer"),
        ([{"prompt": "q", "gold": 7}], {}, "environment.answer = 'answer'"),
        ([{"prompt": "q", "gold": 7}], {}, "it has prompt, gold"),
        ([*ROWS, {"prompt": "q"}], {}, "data.jsonl, line 11 has no such column"),
        ([{"prompt": "", "answer": 7}], {}, "line 1: column 'prompt' must be a text"),
        ([{"prompt": None, "answer": 7}], {}, "got None"),
        ([{"prompt": [{"role": "user"}], "answer": 7}], {}, "role and content"),
        ([{"prompt": [], "answer": 7}], {}, "got []"),
        ([*ROWS, {"prompt": "q", "answer": "x"}], {}, "line 11 (answer 'x')"),
        ([{"prompt": "q", "answer": None}], {}, "line 1 (answer None)"),
        (ROWS, {"heldout_share": 0.01}, "heldout_share = 0.01"),
        (ROWS, {"heldout_share": 2.0}, "heldout_share = 2.0"),
        (ROWS, {"heldout_split": "train"}, "is the training data itself"),
        (ROWS, {"answer_pattern": "no group"}, "answer_pattern = 'no group'"),
        (ROWS, {"answer_pattern": "("}, "not a regular expression"),
        (ROWS, {"answer_pattern": "(x)"}, "line 1 (answer '1')"),
        (ROWS, {"pormpt": "x"}, "did you mean 'prompt'"),
    ],
)
def test_bad_data_is_refused(tmp_path, rows, arguments, message):
    with pytest.raises(RecipeError) as error:
        load(jsonl(tmp_path, rows), **arguments)
    assert message in str(error.value)


def test_bad_files_are_refused(tmp_path):
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"prompt": "q", "answer": 7}\n{oops\n')
    (tmp_path / "list.jsonl").write_text("[1]\n")
    (tmp_path / "object.json").write_text("{}")
    (tmp_path / "short.csv").write_text("prompt,answer\nq\n")
    (tmp_path / "data.xlsx").write_text("")
    (tmp_path / "data.parquet").write_text("no")
    for name, message in [
        ("broken.jsonl", "broken.jsonl, line 2: not JSON"),
        ("list.jsonl", "list.jsonl, line 1: a list, not an object"),
        ("object.json", "give a list of objects"),
        ("short.csv", "line 2: not as many fields as the header has (prompt, answer)"),
        ("data.xlsx", "the ending '.xlsx' is not one of .jsonl"),
        ("data.parquet", "cannot be read as Parquet"),
        ("none.jsonl", "there is no such file"),
    ]:
        with pytest.raises(RecipeError) as error:
            load(str(tmp_path / name))
        assert message in str(error.value)


def test_a_verifier_is_needed(tmp_path):
    with pytest.raises(RecipeError, match="needs a verifier"):
        load_environment("dataset", path=jsonl(tmp_path, ROWS))
    with pytest.raises(RecipeError, match="path"):
        load_environment("dataset", verifiers=NUMBER)


def test_many_rejected_answers_are_named_and_counted(tmp_path):
    rows = [{"prompt": f"q{n}", "answer": "x"} for n in range(8)]
    with pytest.raises(RecipeError, match=r"8 gold answers are rejected .*line 5.*and 3 more"):
        load(jsonl(tmp_path, rows))


def test_dropping_bad_answers_is_counted(tmp_path):
    rows = [*ROWS, {"prompt": "q", "answer": "x"}]
    environment = load(jsonl(tmp_path, rows), on_bad_answer="drop")
    assert len(environment) == 10
    assert environment.describe()["dropped_bad_answers"] == 1
    with pytest.raises(RecipeError, match=r"no training prompt is left.*rejects all 1 gold"):
        load(jsonl(tmp_path, rows[10:]), on_bad_answer="drop")


def test_a_held_out_share_is_seeded_and_disjoint(tmp_path):
    path = jsonl(tmp_path, [*ROWS, ROWS[3], {**ROWS[3], "prompt": " 3+1= "}])
    for seed in range(5):
        environment = load(path, seed=seed, heldout_share=0.3)
        train, heldout = environment.prompts(), environment.prompts(split="heldout")
        texts = [{prompt.last_text.strip() for prompt in each} for each in (train, heldout)]
        assert not texts[0] & texts[1]
        assert len(texts[1]) == 3
        assert len(train) + len(heldout) == 12
        assert environment.describe()["overlap"] == 0
    loaded = [load(path, seed=seed, heldout_share=0.3) for seed in (0, 0, 1)]
    held = [tuple(p.last_text for p in each.prompts(split="heldout")) for each in loaded]
    assert held[0] == held[1] != held[2]


def test_overlap_with_the_held_out_file(tmp_path):
    train = jsonl(tmp_path, [*ROWS[:8], ROWS[0], ROWS[0]])
    heldout = jsonl(tmp_path, [{**ROWS[0], "prompt": "0+1=  "}, *OTHER], "eval.jsonl")
    with pytest.raises(RecipeError, match=r"1 held-out prompts are also in .*eval.jsonl, line 1"):
        load(train, heldout_path=heldout)
    allowed = load(train, heldout_path=heldout, on_overlap="allow").describe()
    assert (allowed["overlap"], allowed["duplicates"]) == (1, 2)
    assert allowed["splits"] == {"train": 10, "heldout": 3}
    dropped = load(train, heldout_path=heldout, on_overlap="drop")
    assert dropped.describe()["splits"] == {"train": 7, "heldout": 3}
    assert "0+1=" not in [prompt.last_text for prompt in dropped.prompts()]


def test_columns_that_a_reward_function_needs_are_checked_first(tmp_path):
    path = jsonl(tmp_path, ROWS)
    verifiers = [{"name": "reward_for_data:wants_level"}]
    environment = load(path, verifiers=verifiers)
    cases = [Case(prompt, "x") for prompt in environment.prompts(3) for _ in range(3)]
    values = [score.value for score in environment.score(cases)]
    assert values == [0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0]
    with pytest.raises(RecipeError, match=r"needs a column 'source'.*available: answer, level"):
        load(path, verifiers=[{"name": "reward_for_data:wants_source"}])


def test_a_reward_function_needs_no_answer_column(tmp_path):
    rows = [{"prompt": "q", "level": 2}]
    environment = load(jsonl(tmp_path, rows), verifiers=[{"name": "reward_for_data:wants_level"}])
    assert environment.prompts()[0].answer is None
    with pytest.raises(RecipeError, match=r"environment.answer = 'gold'"):
        load(jsonl(tmp_path, rows), verifiers=[{"name": "reward_for_data:wants_level"}],
             answer="gold")  # fmt: skip


def test_limit(tmp_path):
    assert len(load(jsonl(tmp_path, ROWS), limit=4)) == 4


def test_describe(tmp_path):
    facts = load(jsonl(tmp_path, ROWS), heldout_share=0.2).describe()
    assert facts["splits"] == {"train": 8, "heldout": 2}
    assert facts["arguments"]["heldout_share"] == 0.2
    changed = [{**ROWS[0], "level": 5}, *ROWS[1:]]
    assert (
        load(jsonl(tmp_path, changed, "c.jsonl")).describe()["data_hash"]
        != (load(jsonl(tmp_path, ROWS)).describe()["data_hash"])
    )


@pytest.mark.parametrize("name", ["data.jsonl", "data.json", "data.csv"])
def test_a_file_that_is_not_utf_8_is_refused_with_its_line(tmp_path, name):
    rows = ['{"prompt": "3+4=", "answer": 7}', '{"prompt": "caf\u00e9 3+4=", "answer": 7}']
    (tmp_path / name).write_bytes("\n".join(rows).encode("latin-1"))
    with pytest.raises(RecipeError, match=rf"{name}, line 2: not UTF-8 text; save it as UTF-8"):
        load(str(tmp_path / name))


@pytest.mark.parametrize("prompt", ["3+4=\ud800", [{"role": "user", "content": "\ud800"}]])
def test_half_of_a_surrogate_pair_is_refused_with_its_row(tmp_path, prompt):
    with pytest.raises(RecipeError) as error:
        load(jsonl(tmp_path, [*ROWS, {"prompt": prompt, "answer": 7}]))
    assert str(error.value).startswith(
        "data.jsonl, line 11: column 'prompt' holds '\\ud800', half of a surrogate pair"
    )


@pytest.mark.parametrize("role", ["usr", "User", None])
def test_a_role_that_does_not_exist_is_refused_with_its_row(tmp_path, role):
    good = [{"role": each, "content": "3+4="} for each in ("system", "user", "assistant", "tool")]
    assert len(load(jsonl(tmp_path, [{"prompt": good, "answer": 7}]))) == 1
    bad = [good[0], {"role": role, "content": "3+4="}]
    with pytest.raises(RecipeError) as error:
        load(jsonl(tmp_path, [*ROWS, {"prompt": bad, "answer": 7}]))
    assert str(error.value) == (
        f"data.jsonl, line 11: message 2 of column 'prompt' has the role {role!r}; "
        "legal: system, user, assistant, tool"
    )


def test_one_prompt_with_different_answers_is_refused_with_its_rows(tmp_path):
    rows = [*ROWS, {"prompt": "3+1=", "answer": 5}, {"prompt": "4+1=", "answer": 5}]
    with pytest.raises(RecipeError) as error:
        load(jsonl(tmp_path, rows))
    assert str(error.value) == (
        "environment 'dataset': the same prompt has different gold answers: data.jsonl, line 4 "
        "(answer '4') and data.jsonl, line 11 (answer '5'). Correct them, or set "
        'on_conflict = "allow"'
    )
    allowed = load(jsonl(tmp_path, rows), on_conflict="allow")
    assert len(allowed) == 12


@pytest.mark.parametrize(
    ("verifier", "answers", "right", "wrong"),
    [
        ("number", ["4", "5"], ("4", "5"), ("6", "45")),
        ("exact", ["four", "4"], ("four", "4"), ("five", "")),
        ("math", ["\\frac12", "0.75"], ("\\boxed{1/2}", "\\boxed{0.75}"), ("\\boxed{2}",)),
        ("text", ["Bern", "Berne"], ("<answer>Berne</answer>",), ("<answer>Basel</answer>",)),
        ("boxed", ["7", "seven"], ("\\boxed{7}", "\\boxed{seven}"), ("\\boxed{8}", "7")),
    ],
)
def test_a_list_of_gold_answers_means_any_of_them(tmp_path, verifier, answers, right, wrong):
    path = jsonl(tmp_path, [{"prompt": "?", "answer": answers}])
    environment = load(path, verifiers=[{"name": verifier}])
    (prompt,) = environment.prompts()
    assert [environment.verify(prompt, text).value for text in right] == [1.0] * len(right)
    assert [environment.verify(prompt, text).value for text in wrong] == [0.0] * len(wrong)


@pytest.mark.parametrize("answer", [None, [], {"a": 1}, [None], float("nan")])
def test_gold_answers_that_are_none_are_refused_by_row(tmp_path, answer):
    with pytest.raises(RecipeError, match=r"data.jsonl, line 1 \(answer"):
        load(jsonl(tmp_path, [{"prompt": "?", "answer": answer}]))
