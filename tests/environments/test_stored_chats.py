"""Chats, calls and tools as data sets store them reach the policy's prompt as they are meant."""

import json
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from groupwise.environments import load_environment
from groupwise.environments.readers import unpadded
from groupwise.errors import RecipeError
from groupwise.policies import load_policy
from groupwise.templates.chat import render_chat

FIXTURES = Path(__file__).parents[1] / "templates" / "fixtures"
SPECIAL = {"bos_token": "<bos>", "eos_token": "<eos>"}
NUMBER = [{"name": "number"}]


def call(arguments, name="add"):
    return {"type": "function", "id": "call00000", "function": {"name": name,
            "arguments": arguments}}  # fmt: skip


def chat(*calls, content=""):
    return [
        {"role": "user", "content": "What is 17 + 23?"},
        {"role": "assistant", "content": content, "tool_calls": list(calls)},
        {"role": "tool", "name": "add", "tool_call_id": "call00000", "content": "40"},
    ]


def jsonl(folder, *rows):
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def load(path, **arguments):
    return load_environment("dataset", verifiers=NUMBER, path=path, **arguments)


def rendered(family, messages, **variables):
    text = (FIXTURES / f"{family}.jinja").read_text(encoding="utf-8")
    return render_chat(text, messages, now=datetime(2025, 1, 1), special_tokens=SPECIAL,
                       add_generation_prompt=True, **variables)  # fmt: skip


# --- the arguments of a stored call -------------------------------------------------------------

FAMILIES = ["qwen2_5", "qwen3", "hermes_3", "llama3_2", "mistral_nemo"]
ARGUMENTS = [
    {"a": 17, "b": 23},
    {},
    {"city": 'Z"ürich"', "days": [1, {"x": None}]},
    {"text": "a\nb \\ c"},
    {"nested": {"deep": {"deeper": True}}},
    {"json": '{"a": 1}'},
]


@pytest.mark.parametrize("arguments", ARGUMENTS)
@pytest.mark.parametrize("family", FAMILIES)
def test_arguments_as_text_are_written_once(family, arguments):
    tools = {"tools": [ADD]} if family == "hermes_3" else {}  # its template needs some
    as_object = rendered(family, chat(call(arguments)), **tools)
    for text in (json.dumps(arguments), json.dumps(arguments, indent=1)):
        assert rendered(family, chat(call(text)), **tools) == as_object
    assert json.dumps(arguments, ensure_ascii=False) in as_object


@pytest.mark.parametrize("arguments", ARGUMENTS)
def test_a_template_that_joins_text_gets_text(arguments):
    """DeepSeek's own template adds the arguments to a string, and fails on an object."""
    written = json.dumps(arguments, ensure_ascii=False)
    texts = {
        rendered("deepseek_r1_distill", chat(call(form), content=None))
        for form in (arguments, json.dumps(arguments))
    }
    (text,) = texts
    assert f"```json\n{written}\n```" in text


def test_a_call_without_arguments_has_none():
    assert '"arguments": {}' in rendered("qwen2_5", chat(call("")))
    assert '"arguments": {}' in rendered("qwen2_5", chat(call(None)))


@pytest.mark.parametrize(
    ("calls", "message"),
    [
        ([call("{a: 1}")], "calls 'add' with arguments that are not JSON: '{a: 1}'"),
        ([call("[1, 2]")], "calls 'add' with the arguments [1, 2]; give an object"),
        ([call(7)], "calls 'add' with the arguments 7; give an object"),
        ([{"function": {"arguments": {}}}], "has the tool call {'function': {'arguments'"),
        (["add(1)"], "has the tool call 'add(1)'; give an object as"),
        ({"name": "add"}, "has the tool_calls {'name': 'add'}; give a list of calls"),
    ],
)
def test_calls_that_are_not_valid_name_the_row(tmp_path, calls, message):
    messages = chat(call({}))
    messages[1]["tool_calls"] = calls
    with pytest.raises(RecipeError) as error:
        load(jsonl(tmp_path, {"prompt": messages, "answer": 40}))
    assert f"rows.jsonl, line 1: message 2 of column 'prompt' {message}" in str(error.value)


# --- what Parquet adds --------------------------------------------------------------------------


def parquet(folder, *rows):
    pq.write_table(pa.Table.from_pylist(list(rows)), folder / "rows.parquet")
    return str(folder / "rows.parquet")


def test_calls_from_parquet_are_those_from_jsonl(tmp_path):
    other = chat(call({"x": 2, "y": 3}, "mul"))
    other[0]["content"] = "And 2 * 3?"
    first = {"prompt": chat(call({"a": 17, "b": 23})), "answer": 40}
    rows = (first, {"prompt": other, "answer": 6})
    plain = load(jsonl(tmp_path, *rows)).prompts()
    stored = load(parquet(tmp_path, *rows)).prompts()
    assert [prompt.messages for prompt in stored] == [prompt.messages for prompt in plain]
    assert [prompt.id for prompt in stored] == [prompt.id for prompt in plain]
    for prompt, keys in zip(stored, ("ab", "xy")):
        assert set(prompt.messages[1]["tool_calls"][0]["function"]["arguments"]) == set(keys)
        assert "null" not in rendered("qwen2_5", prompt.messages)


def test_calls_from_a_datasets_folder_have_no_padding(tmp_path):
    import datasets

    rows = [{"prompt": chat(call({"a": 1})), "answer": 1},
            {"prompt": chat(call({"b": 2})), "answer": 2}]  # fmt: skip
    datasets.Dataset.from_list(rows).save_to_disk(str(tmp_path / "saved"))
    found = [each.messages[1]["tool_calls"][0]["function"]["arguments"]
             for each in load(str(tmp_path / "saved")).prompts()]  # fmt: skip
    assert found == [{"a": 1}, {"b": 2}]


def test_arguments_in_a_map_column_are_an_object(tmp_path):
    arguments = pa.map_(pa.string(), pa.int64())
    inner = pa.struct([("name", pa.string()), ("arguments", arguments)])
    message = pa.struct([("role", pa.string()), ("content", pa.string()),
                         ("tool_calls", pa.list_(pa.struct([("function", inner)])))])  # fmt: skip
    messages = [
        {"role": "user", "content": "1?", "tool_calls": None},
        {"role": "assistant", "content": None,
         "tool_calls": [{"function": {"name": "add", "arguments": [("a", 1)]}}]},
        {"role": "tool", "content": "1", "tool_calls": None},
    ]  # fmt: skip
    table = pa.table({"prompt": pa.array([messages], pa.list_(message)), "answer": [1]})
    pq.write_table(table, tmp_path / "map.parquet")
    (prompt,) = load(str(tmp_path / "map.parquet")).prompts()
    assert prompt.messages[1]["tool_calls"] == [{"function": {"name": "add",
                                                               "arguments": {"a": 1}}}]  # fmt: skip
    assert prompt.messages[1]["content"] is None
    assert "tool_calls" not in prompt.messages[0]


@pytest.mark.parametrize(
    ("stored", "meant"),
    [
        ({"a": None}, {}),
        ([{"a": 1, "b": None}, {"a": None, "b": 2}], [{"a": 1}, {"b": 2}]),
        ({"x": {"y": {"z": None, "w": 0}}}, {"x": {"y": {"w": 0}}}),
        ([None, {"a": [None]}], [None, {"a": [None]}]),
        ({"role": "assistant", "content": None, "name": None}, {"role": "assistant",
                                                                "content": None}),
        ({"empty": "", "no": False, "zero": 0, "list": []}, {"empty": "", "no": False, "zero": 0,
                                                             "list": []}),
    ],
)  # fmt: skip
def test_only_the_nulls_of_objects_go(stored, meant):
    assert unpadded(stored) == meant


def test_a_null_in_jsonl_and_in_a_column_of_its_own_stays(tmp_path):
    row = {"prompt": chat(call({"a": None})), "answer": 40, "note": None}
    (prompt,) = load(jsonl(tmp_path, row)).prompts()
    assert prompt.messages[1]["tool_calls"][0]["function"]["arguments"] == {"a": None}
    rows = [{"prompt": "1?", "answer": 1, "note": None}, {"prompt": "2?", "answer": 2, "note": "x"}]
    assert load(parquet(tmp_path, *rows)).prompts()[0].columns["note"] is None


# --- a row's tools ------------------------------------------------------------------------------

ADD = {"type": "function", "function": {"name": "add_numbers", "description": "Adds.",
       "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}}  # fmt: skip


@pytest.mark.parametrize(
    "column",
    [
        [ADD],
        json.dumps([ADD]),
        [ADD["function"]],
        [json.dumps(ADD)],
        ADD,
        json.dumps(ADD["function"]),
    ],
)
def test_the_tools_of_a_row_reach_the_chat_template(tmp_path, column):
    row = {"prompt": [{"role": "user", "content": "1+1?"}], "answer": 2, "tools": column}
    plain = {**row, "tools": None}
    environment = load(jsonl(tmp_path, row, plain))
    offered, bare = environment.prompts()
    assert offered.tools == (ADD,)
    assert bare.tools == ()
    assert offered.id != bare.id
    text = rendered("qwen2_5", offered.messages, tools=list(offered.tools))
    assert json.dumps(ADD) in text
    template = load_policy("tiny", device="cpu").template
    ids = {each.id: environment.prompt_ids(each, template) for each in (offered, bare)}
    assert "add_numbers" in template.tokenizer.decode(ids[offered.id], skip_special_tokens=False)
    assert "add_numbers" not in template.tokenizer.decode(ids[bare.id], skip_special_tokens=False)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("hammer, saw", "column 'tools' is 'hammer, saw', which is not JSON"),
        ([7], "column 'tools' holds 7; a tool is an object as"),
        ([{"description": "Adds."}], "holds {'description': 'Adds.'}; a tool is an object"),
        (7, "column 'tools' is 7, not a list of tools"),
        (["add"], "column 'tools' is 'add', which is not JSON"),
        ('"add"', "column 'tools' is '\"add\"', not a list of tools"),
    ],
)
def test_a_tools_column_that_is_something_else_is_refused_or_left_alone(tmp_path, column, message):
    path = jsonl(tmp_path, {"prompt": "1+1?", "answer": 2, "tools": column})
    with pytest.raises(RecipeError) as error:
        load(path)
    assert message in str(error.value)
    assert 'tools_column = ""' in str(error.value)
    (prompt,) = load(path, tools_column="").prompts()
    assert (prompt.tools, prompt.columns["tools"]) == ((), column)


def test_tools_under_another_name_and_in_raw_text(tmp_path):
    path = jsonl(tmp_path, {"prompt": "1+1?", "answer": 2, "functions": [ADD]})
    assert load(path).prompts()[0].tools == ()
    assert load(path, tools_column="functions").prompts()[0].tools == (ADD,)
    with pytest.raises(RecipeError, match="offers tools, but the prompt is raw text"):
        load(path, tools_column="functions", chat=False)


# --- a chat that was stored as text -------------------------------------------------------------

SAID = [{"role": "system", "content": "It's short."}, {"role": "user", "content": 'Say "7".'}]


@pytest.mark.parametrize(
    ("stored", "meant"),
    [
        (json.dumps(SAID), SAID),
        (json.dumps(SAID, indent=2), SAID),
        (f"  {json.dumps(SAID)}\n", SAID),
        (repr(SAID), SAID),
        (json.dumps({"messages": SAID}), SAID),
        (json.dumps(SAID[1]), SAID[1:]),
        (json.dumps([{"content": "Hi", "role": "user"}]), [{"role": "user", "content": "Hi"}]),
        (json.dumps(json.dumps(SAID)), SAID),
        (
            json.dumps([{"id": 1, "role": "user", "content": "Hi"}]),
            [{"id": 1, "role": "user", "content": "Hi"}],
        ),
    ],
)
def test_a_chat_as_text_is_a_chat(tmp_path, stored, meant):
    for chat_setting in (True, False):
        (prompt,) = load(jsonl(tmp_path, {"prompt": stored, "answer": 7}),
                         chat=chat_setting).prompts()  # fmt: skip
        assert (list(prompt.messages), prompt.text) == (meant, None)


@pytest.mark.parametrize(
    ("stored", "message"),
    [
        ('[{"role": "user", "content": "x"', "looks like a chat but is not JSON"),
        ("[{'role': 'user', 'content': 'x'}\n {'role': 'user'}]", "looks like a chat but"),
        ('[{"from": "human", "value": "x"}]', "a list of messages with role and content"),
        ('{"role": "user"}', "a list of messages with role and content"),
        ('{"messages": [{"role": "user", "content": "x"}], "tools": []}', "role and content"),
        ('{"messages": []}', "a list of messages with role and content"),
        ('[{"role": "assistant", "content": "x"}]', "has the role 'assistant'"),
        ('[{"role": "human", "content": "x"}]', "has the role 'human'; legal: system"),
    ],
)
def test_a_chat_as_text_that_is_broken_is_refused(tmp_path, stored, message):
    with pytest.raises(RecipeError) as error:
        load(jsonl(tmp_path, {"prompt": stored, "answer": 7}))
    assert message in str(error.value)


@pytest.mark.parametrize(
    "text",
    [
        "[1, 2, 3]: which is the largest?",
        '{"a": 1} What is a?',
        '{"name": "Ann", "role": "clerk"} Who is the clerk?',
        "[role] {x}",
        '[{"name": "x", "age": 3}] Who is older?',
        "role: user, content: hi",
        '"role"',
        "{role}",
    ],
)
def test_texts_that_are_no_chats_stay_texts(tmp_path, text):
    (prompt,) = load(jsonl(tmp_path, {"prompt": text, "answer": 7})).prompts()
    assert prompt.messages == ({"role": "user", "content": text},)


def test_a_text_for_a_model_without_a_chat_template_says_what_to_set():
    template = load_policy("tiny", device="cpu").template
    template = type(template)(template.tokenizer, None, stop_ids=tuple(template.stop_ids))
    with pytest.raises(RecipeError, match=r"dataset: chat = false"):
        template.render([{"role": "user", "content": "x"}])


def test_a_text_that_only_looks_like_a_chat_can_be_kept(tmp_path):
    text = '{"role": "user"} has which keys?'
    path = jsonl(tmp_path, {"prompt": text, "answer": 7})
    with pytest.raises(RecipeError, match=r"set environment.template = '\{prompt\}'"):
        load(path)
    assert load(path, template="{prompt}").prompts()[0].last_text == text
