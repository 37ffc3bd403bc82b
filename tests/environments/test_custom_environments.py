"""Environments of one's own: what is wrong with one has one message, before anything loads."""

from __future__ import annotations

import pytest

from groupwise.environments import load_environment
from groupwise.environments.base import Environment
from groupwise.environments.chat_messages import answer_messages
from groupwise.environments.custom import custom_environment
from groupwise.errors import RecipeError
from groupwise.types import Prompt
from groupwise.verifiers import compose

HEAD = """
from groupwise.environments import Environment, Episode, prompt_id
from groupwise.types import Prompt, Score
from groupwise.verifiers import compose

NUMBER = compose([{"name": "number"}])

def ask(n, **more):
    return Prompt(more.pop("id", f"p{n}"), text=f"{n}+1=", answer=n + 1, **more)

def made(train, heldout=(), verifier=NUMBER):
    return Environment("mine", verifier, {"train": train, "heldout": heldout})

class Base(Environment):
    def __init__(self, seed=0):
        super().__init__("mine", NUMBER, {"train": [ask(1), ask(2)], "heldout": [ask(3)]})
"""


@pytest.fixture
def written(tmp_path, monkeypatch, request):
    """Loads `Mine` of a module that holds the given source."""
    monkeypatch.syspath_prepend(str(tmp_path))
    numbers = iter(range(100))

    def of(source, **arguments):
        module = f"own_{request.node.name.partition('[')[0]}_{id(request)}_{next(numbers)}"
        (tmp_path / f"{module}.py").write_text(HEAD + source)
        return load_environment(f"{module}:Mine", **arguments)

    return of


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("class Mine:\n    def __init__(self, seed=0): pass", "is a Mine, not an Environment"),
        (
            "class Mine(Environment):\n    def __init__(self, seed=0): self.seed = seed",
            "the __init__ of Mine does not call super().__init__(",
        ),
        (
            "class Mine(Base):\n    def __init__(self, seed=0): {}['size']",
            "raised KeyError: 'size' (",
        ),
        (
            "class Mine(Base):\n    def __init__(self): pass",
            "with ['seed']: got an unexpected keyword argument 'seed'; it takes ()",
        ),
        ("def Mine(seed): raise SystemExit('usage')", "raised SystemExit: usage ("),
        (
            "def Mine(seed): return made([ask(1)], verifier=lambda text: 1.0)",
            "is not a Verifier; give groupwise.verifiers.compose(",
        ),
        (
            'def Mine(seed): return Environment("mine", NUMBER, [ask(1)])',
            "splits is a list; give prompts by split, as {",
        ),
        (
            'def Mine(seed): return Environment("mine", NUMBER, {"train": 3})',
            "split 'train' is a int; give prompts by split",
        ),
        (
            'def Mine(seed): return Environment("mine", NUMBER, {"heldout": [ask(1)]})',
            "has no training prompts",
        ),
        (
            'def Mine(seed): return made([ask(1), {"prompt": "x"}])',
            "prompt 2 of split 'train' is a dict; give a groupwise.types.Prompt",
        ),
        (
            "def Mine(seed): return made([ask(1, id=7)])",
            "prompt 1 of split 'train' has the id 7; give a text",
        ),
        (
            "def Mine(seed): return made([ask(1, id='a'), ask(2), ask(3, id='a')])",
            "prompt 1 of split 'train' and prompt 3 of split 'train' have the same id 'a'",
        ),
        (
            "def Mine(seed): return made([ask(1, id='a')], [ask(2, id='a')])",
            "prompt 1 of split 'train' and prompt 1 of split 'heldout' have the same id 'a'",
        ),
        ("def Mine(seed): return made([Prompt('a', text=5)])", "prompt a: text = 5; give a text"),
        (
            "def Mine(seed): return made([Prompt('a', messages=({'role': 'bot'},))])",
            "prompt a: message 1 has the role 'bot'; legal: system, user, assistant, tool",
        ),
        (
            "def Mine(seed): return made([ask(1, columns={'t': {1: 2, 'a': 3}})])",
            "column 't' cannot be written as JSON ('<' not supported",
        ),
        (
            "def Mine(seed): return made([Prompt('a', text='x', answer='none')])",
            "1 gold answer is rejected by their own verifier: prompt 'a' (answer 'none')",
        ),
    ],
)
def test_what_is_no_environment(written, source, words):
    with pytest.raises(RecipeError) as error:
        written(source)
    message = str(error.value)
    assert words in message
    assert message.startswith("environment '")
    assert "\n" not in message


@pytest.mark.parametrize(
    ("start", "words"),
    [
        ("pass", "start returned None for prompt 'p1'; return an object of a class derived from "),
        (
            "return Episode",
            "start returned <class 'groupwise.environments.episode.Episode'> for prompt",
        ),
        (
            "return Bare()",
            "the __init__ of Bare, which start returned for prompt 'p1', does",
        ),
        ("return self.one", "start returned the same episode twice; return a new one every time"),
        ("return Episode()", "start(prompt p1) raised TypeError: "),
        ("raise OSError('no server')", "start(prompt p1) raised OSError: no server ("),
    ],
)
def test_starts_that_give_no_play(written, start, words):
    source = (
        "class Bare(Episode):\n    def __init__(self): pass\n"
        "class Mine(Base):\n    one = Episode(ask(1))\n    def start(self, prompt):\n"
        f"        {start}\n"
    )
    with pytest.raises(RecipeError) as error:
        written(source)
    assert words in str(error.value)


def test_an_asynchronous_start(written):
    with pytest.raises(RecipeError, match="start returned <coroutine object"):
        written("class Mine(Base):\n    async def start(self, prompt): return Episode(prompt)\n")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("def x(:\n", "importing module 'unimportable' raised SyntaxError: invalid syntax (unimpo"),
        ("\n1 / 0\n", "raised ZeroDivisionError: division by zero ("),
        ("\n1 / 0\n", "unimportable.py, line 2)"),
        ("import sys\nsys.exit(3)\n", "importing module 'unimportable' raised SystemExit: 3 ("),
        ("import nosuchlib\n", "module 'unimportable' imports 'nosuchlib', which is neither in "),
    ],
)
def test_modules_that_cannot_be_imported(tmp_path, monkeypatch, content, words):
    """Of environments, rows and verifiers alike."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "unimportable.py").write_text(content)
    loads = [
        lambda: load_environment("unimportable:X"),
        lambda: load_environment(
            "dataset", path="unimportable:rows", verifiers=[{"name": "number"}]
        ),
        lambda: compose([{"name": "unimportable:reward"}]),
    ]
    for load in loads:
        with pytest.raises(RecipeError) as error:
            load()
        assert words in str(error.value)


def test_a_play_that_is_tried_is_closed_again(written):
    source = (
        "class Mine(Base):\n    opened = closed = 0\n    def start(self, prompt):\n"
        "        Mine.opened += 1\n        return Closing(prompt)\n"
        "class Closing(Episode):\n    def close(self): Mine.closed += 1\n"
    )
    mine = type(written(source))
    assert (mine.opened, mine.closed) == (2, 2)


BOTH = (
    "class Mine(Environment):\n    on_overlap = {!r}\n    def __init__(self, seed=0):\n"
    "        train = [ask(1), ask(2, id='q'), ask(3)]\n"
    "        held = [Prompt('h', text=' 2+1= ', answer=3), ask(3)]\n"
    '        super().__init__("mine", NUMBER, {{"train": train, "heldout": held}})\n'
)


def test_what_is_held_out_and_trained_on(written):
    """Prompt q asks what h asks; p3 is the same prompt on both sides."""
    with pytest.raises(RecipeError) as error:
        written(BOTH.format("refuse"))
    assert (
        "2 held-out prompts are also in the training data (prompt 1 of split 'heldout' = prompt 2 "
        "of split 'train'; prompt 2 of split 'heldout' = prompt 3 of split 'train'); set "
        'on_overlap = "drop" to take them out of training, or "allow"'
    ) in str(error.value)
    dropped = written(BOTH.format("drop"))
    assert [prompt.id for prompt in dropped.prompts()] == ["p1"]
    assert [prompt.id for prompt in dropped.prompts(split="heldout")] == ["h", "p3"]
    assert dropped.prompt("p3").answer == 4
    facts = dropped.describe()
    assert (facts["overlap"], facts["dropped_overlap"]) == (2, 2)
    allowed = written(BOTH.format("allow"))
    assert (len(allowed), allowed.describe()["overlap"]) == (3, 2)
    with pytest.raises(RecipeError, match="on_overlap = 'no' is not one of 'refuse', 'drop'"):
        written(BOTH.format("no"))


def test_a_function_that_gives_a_data_set_keeps_what_its_arguments_allow(written, tmp_path):
    for name in ("rows", "held"):
        (tmp_path / f"{name}.jsonl").write_text('{"prompt": "3+4=", "answer": 7}\n')
    source = (
        "from groupwise.environments import load_environment\n"
        "def Mine(seed, **arguments):\n"
        f"    folder = {str(tmp_path)!r}\n"
        "    data = dict(name='dataset', path=folder + '/rows.jsonl', heldout_path=folder + "
        "'/held.jsonl', verifiers=[{'name': 'number'}], on_overlap='allow', **arguments)\n"
        "    return load_environment(**data)\n"
    )
    assert written(source).describe()["overlap"] == 1
    mixed = source.replace("(**data)", "('mixture', sources=[data])")
    assert written(mixed).describe()["splits"] == {"train": 1, "heldout_dataset": 1}


def test_plays_may_hide_what_their_prompts_do_not_say(written):
    """All prompts say the same words; the number to be found is a column."""
    source = (
        "def task(n): return Prompt(f'n{n}', text='Guess.', answer=1, columns={'number': n})\n"
        "class Mine(Environment):\n    held = 5\n    def __init__(self, seed=0, held=5):\n"
        '        super().__init__("mine", NUMBER, {"train": [task(1), task(2)], '
        '"heldout": [task(held)]})\n'
        "    def start(self, prompt): return Episode(prompt)\n"
    )
    assert len(written(source)) == 2
    with pytest.raises(RecipeError, match="1 held-out prompts are also in the training data"):
        written(source, held=2)
    turnless = source.replace("    def start(self, prompt): return Episode(prompt)\n", "")
    with pytest.raises(RecipeError, match="1 held-out prompts are also in the training data"):
        written(turnless)


def test_a_start_of_an_environment_that_is_made_in_place_is_checked_too():
    class Nothing(Environment):
        def start(self, prompt):
            return None

    prompt = Prompt("p", text="3+4=", answer=7)
    environment = Nothing("mine", compose([{"name": "number"}]), {"train": [prompt]})
    with pytest.raises(RecipeError, match="start returned None for prompt 'p'"):
        environment.open(prompt, None)  # type: ignore[arg-type]


def test_a_callable_whose_signature_is_unknown():
    with pytest.raises(RecipeError, match="environment 'builtins:dict' is a dict, not an Env"):
        custom_environment("builtins:dict", 0, (), {})


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("Go on.", "`next` returned 'Go on.', a str; give a list of messages, as [{"),
        ({"role": "user", "content": "x"}, "a dict; give a list of messages"),
        (5, "`next` returned 5, a int; give a list"),
        ([], "`next` returned an empty list; give a list of messages, as [{"),
        (["x"], "message 1 that `next` returned is 'x', a str; give a dict with role and"),
        (
            [{"content": "x"}],
            "1 that `next` returned has no role, only content; legal: system",
        ),
        ([{}], "1 that `next` returned has no role, only nothing; legal: system, user"),
        (
            [{"role": "bot", "content": "x"}],
            "1 that `next` returned has the role 'bot'; legal: ",
        ),
        (
            [{"role": ["user"], "content": "x"}],
            "1 that `next` returned has the role ['user']; legal",
        ),
        ([{"role": "user"}], "1 that `next` returned has no content; give a text"),
        (
            [{"role": "user", "content": None}],
            "1 that `next` returned has the content None; give",
        ),
        (
            [{"role": "user", "content": 7}],
            "1 that `next` returned has the content 7; give a text",
        ),
        (
            ({"role": "user", "content": "x"}, {"role": "tool", "content": ["x"]}),
            "2 that `next` returned has the content ['x']; give a text",
        ),
    ],
)
def test_answers_that_are_no_messages(answer, words):
    with pytest.raises(ValueError, match="`next` returned") as error:
        answer_messages(answer)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_answers_that_are_messages():
    told = ({"role": "tool", "content": "7", "name": "add"}, {"role": "user", "content": ""})
    assert answer_messages(told) == list(told)
    called = {"role": "assistant", "content": None, "tool_calls": [{"name": "add"}]}
    assert answer_messages([called]) == [called]
