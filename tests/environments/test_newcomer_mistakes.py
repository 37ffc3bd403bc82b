"""What people get wrong in a first data file: each mistake has one message, with its row.

Faults 33, 34 and 49 beside the plain slips; whole messages where they matter most.
"""

from __future__ import annotations

import json

import pytest

from groupwise.environments import load_environment
from groupwise.errors import RecipeError

NUMBER = [{"name": "number"}]
LEVEL = [{"name": "reward_for_data:wants_level"}]
GOOD = [{"prompt": f"{n}+1=", "answer": n + 1} for n in range(6)]


def chat(*roles, content="3+4="):
    return {"prompt": [{"role": role, "content": content} for role in roles], "answer": 7}


@pytest.fixture
def refused(tmp_path, monkeypatch):
    """The message with which a file, and arguments, are refused."""
    monkeypatch.chdir(tmp_path)

    def of(content, name="data.jsonl", verifiers=NUMBER, **arguments):
        if isinstance(content, list):
            content = "".join(json.dumps(row) + "\n" for row in content).encode()
        (tmp_path / name).write_bytes(content)
        with pytest.raises(RecipeError) as error:
            load_environment("dataset", verifiers=verifiers, path=name, **arguments)
        message = str(error.value)
        assert "\n" not in message
        return message

    return of


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\n\n", "environment.path = 'data.jsonl' holds no rows"),
        (b'{"prompt":"a","answer":1},\n', "data.jsonl, line 1: not JSON: Extra data"),
        (b'{\n "prompt": "a",\n "answer": 1\n}\n', "data.jsonl, line 1: not JSON"),
        (b"{'prompt': 'a'}\n", "data.jsonl, line 1: not JSON: Expecting property name enclosed in"),
        (b'[{"prompt":"a","answer":1}]\n', "data.jsonl, line 1: a list, not an object"),
        (b'{"prompt":"a","answer":1,"answer":2}', "line 1: the key 'answer' is there twice"),
        (b'{"prompt":"a","answer":NaN}\n', "line 1 (answer nan): number: the answer is missing"),
        ('{"prompt":"a","answer":1}'.encode("utf-16"), "line 1: not UTF-8 text; save it as UTF-8"),
        ([*GOOD, {"prompt": "x"}], "data.jsonl, line 7 has no such column; it has prompt"),
        ([*GOOD, {"prompt": "x", "answer": ""}], "line 7 (answer '')"),
        ([*GOOD, {"prompt": "x", "answer": "so\n#### 7"}], "line 7 (answer 'so\\n#### 7')"),
        ([*GOOD, {"prompt": 5, "answer": 1}], "line 7: column 'prompt' must be a text"),
        ([*GOOD, {"prompt": "  ", "answer": 1}], "line 7: column 'prompt' must be a text"),
        ([*GOOD, chat("user", content=None)], "message 1 of column 'prompt' has the content None"),
        (
            [*GOOD, chat("user", content=[{"type": "text"}])],
            "line 7: message 1 of column 'prompt' has the content [{'type': 'text'}]; give a text",
        ),
        (
            [*GOOD, chat("user", "assistant")],
            "data.jsonl, line 7: the last message of column 'prompt' has the role 'assistant'; a "
            "prompt ends where the policy is to answer, with a user's message or a tool's",
        ),
        ([*GOOD, chat("system")], "line 7: the last message of column 'prompt' has the role"),
    ],
)
def test_rows(refused, content, message):
    assert message in refused(content)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "a.csv",
            b"prompt;answer\n3+4=;7\n",
            "a.csv, line 1: one column 'prompt;answer', with",
        ),
        ("a.csv", b"3+4=,7\n3+5=,8\n", "a.csv, line 2 has no such column; it has 3+4=, 7"),
        ("a.csv", b"prompt,prompt\na,b\n", "a.csv, line 1: the column 'prompt' is there twice"),
        ("a.csv", b"prompt,answer\na,1,2\n", "a.csv, line 2: not as many fields as the header"),
        ("a.csv", b"prompt,answer\n", "environment.path = 'a.csv' holds no rows"),
        ("a.jsonl.gz", b"x", "the ending '.gz' is not one of .jsonl, .json"),
        ("a.json", b'{"prompt": "a"}', "a.json holds a dict; give a list of objects"),
    ],
)
def test_files(refused, name, content, message):
    assert message in refused(content, name)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"hedlout_share": 0.2}, "did you mean 'heldout_share'?"),
        ({"split": "trian"}, "environment.split = 'trian': 'data.jsonl' is one file and has no"),
        ({"heldout_split": "test"}, "environment.heldout_split = 'test': 'data.jsonl' is one file"),
        ({"heldout_path": "data.jsonl"}, "is the training data itself; held-out rows differ"),
        ({"heldout_share": 0.01}, "for instance 0.167"),
        ({"limit": 1, "heldout_share": 0.5}, "there is one prompt, which cannot be on both sides"),
        ({"limit": 0}, "limit = 0"),
        ({"template": "{question}"}, "columns are prompt, answer; write a literal brace"),
        ({"streaming": True}, "unknown argument of environment 'dataset' 'streaming'"),
        ({"verifiers": []}, "needs a verifier; add [[environment.verifiers]]"),
        ({"verifiers": [{"name": "nubmer"}]}, "did you mean 'number'?"),
    ],
)
def test_arguments(refused, arguments, message):
    assert message in refused(GOOD, **arguments)


def test_fault_34_a_missing_column_is_named_with_the_row_that_lacks_it(refused):
    rows = [{"prompt": "3+4=", "answer": 7, "level": 1}, {"prompt": "3+5=", "answer": 8}]
    assert refused(rows, verifiers=LEVEL) == (
        "environment 'dataset': verifier 'reward_for_data:wants_level' needs a column 'level', "
        "which data.jsonl, line 2 does not have; available: answer"
    )


FUNCTIONS = """
def number():
    return 5

def text():
    yield "x"

def raises():
    yield {"prompt": "3+4=", "answer": 7}
    raise KeyError("boom")

def rows(split, seed):
    for n in range(4):
        yield {"prompt": f"{n}+{seed}=", "answer": n + seed, "split": split}
"""


def test_generators(refused, tmp_path, monkeypatch):
    """Rows from a function: called with what it takes; its mistakes are named."""
    (tmp_path / "newcomer_rows.py").write_text(FUNCTIONS)
    monkeypatch.syspath_prepend(str(tmp_path))

    def load(name, **arguments):
        path = f"newcomer_rows:{name}"
        return load_environment("dataset", seed=3, verifiers=NUMBER, path=path, **arguments)

    prompts = load("rows", split="dev").prompts()
    assert [prompt.last_text for prompt in prompts] == ["0+3=", "1+3=", "2+3=", "3+3="]
    assert prompts[0].columns == {"answer": 3, "split": "dev"}
    assert len(load("rows", limit=2)) == 2
    for name, message in [
        ("number", "environment.path = 'newcomer_rows:number' returned a int; give a function"),
        ("text", "newcomer_rows:text, row 1: a str, not an object with columns"),
        ("raises", "newcomer_rows:raises, row 2: raised KeyError: 'boom'"),
        ("rwos", "did you mean 'rows'?"),
    ]:
        with pytest.raises(RecipeError) as error:
            load(name)
        assert message in str(error.value)


def test_a_generator_without_an_end_asks_for_a_limit(refused, tmp_path, monkeypatch):
    (tmp_path / "endless.py").write_text(
        "def rows():\n    while True:\n        yield {'prompt': '3+4=', 'answer': 7}\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("groupwise.environments.readers.MOST_ROWS", 50)
    with pytest.raises(RecipeError, match="more than 50 rows; set limit"):
        load_environment("dataset", verifiers=NUMBER, path="endless:rows")
