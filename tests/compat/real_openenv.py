"""The adapter `openenv` against the real package: its server, its client; a stub for failures only.

Not collected by `make test`, since that package's pins and this project's do not go together:
`make test-adapters` runs it.
"""

import asyncio
import json
import socket
import threading
import time

import pytest
import uvicorn
from openenv.core import Action, Environment, Observation, State, create_app
from websockets.asyncio.server import serve

from groupwise.compat.openenv import make_openenv
from groupwise.errors import GroupwiseError, RecipeError


class Guess(Action):
    message: str


class Told(Observation):
    text: str


class Guessing(Environment):
    """A number from 1 to 8 that the seed decides; three guesses; 1 for the right one."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        super().__init__()
        self._number = self._left = 0

    def reset(self, seed=None, episode_id=None, **kwargs):
        self._number, self._left = 1 + (seed or 0) * 5 % 8, 3
        return Told(text=f"Game {seed}: guess a number from 1 to 8.", done=False, reward=None)

    def step(self, action, timeout_s=None, **kwargs):
        self._left -= 1
        right = action.message.strip() == str(self._number)
        text = "right" if right else "higher" if self._lower(action) else "lower"
        return Told(text=text, done=right or self._left == 0, reward=1.0 if right else 0.0)

    def _lower(self, action):
        return action.message.strip().isdigit() and int(action.message) < self._number

    @property
    def state(self):
        return State(step_count=3 - self._left)


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@pytest.fixture(scope="module")
def url():
    port = free_port()
    app = create_app(Guessing, Guess, Told, env_name="guessing", max_concurrent_envs=8)
    server = uvicorn.Server(uvicorn.Config(app, "127.0.0.1", port, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until = time.monotonic() + 60
    while not server.started and time.monotonic() < until:
        time.sleep(0.05)
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join(10)


def made(url, **arguments):
    return make_openenv(
        {"url": url, "observation": "text", "num_train": 3, "num_heldout": 1, **arguments}, 0
    )


def test_prompts_are_seeds(url):
    environment = made(url, system="Play.")
    prompts = environment.prompts(split="all")
    assert [prompt.columns["seed"] for prompt in prompts] == [0, 1, 2, 3]
    assert prompts[1].messages[1]["content"] == "Game 1: guess a number from 1 to 8."
    assert environment.prompts(split="heldout") == prompts[3:]
    assert environment.answer_role == "user"


def test_a_game_is_played_to_its_end(url):
    environment = made(url)
    play = environment.start(environment.prompts()[1])  # the number is 6
    assert play.next("4") == ({"role": "user", "content": "higher"},)
    assert play.next("7") == ({"role": "user", "content": "lower"},)
    assert play.next("6") is None
    assert play.rewards == [0.0, 0.0, 1.0]
    assert (play.result().value, play.result().outcome) == (1.0, "correct")
    play.close()
    lost = environment.start(environment.prompts()[1])
    assert [lost.next(each) is None for each in ("1", "2", "3")] == [False, False, True]
    assert lost.result().outcome == "incorrect"
    lost.close()


def test_plays_have_sessions_of_their_own(url):
    environment = made(url)
    first, second = (environment.start(environment.prompts()[n]) for n in (0, 1))
    assert first.next("4") == ({"role": "user", "content": "lower"},)  # 1
    assert second.next("4") == ({"role": "user", "content": "higher"},)  # 6
    assert first.next("1") is None
    assert second.next("6") is None
    first.close()
    second.close()


def test_the_whole_observation_is_json_where_no_field_is_named(url):
    environment = made(url, observation=None)
    assert json.loads(environment.prompts()[0].messages[0]["content"])["text"].startswith("Game 0")


def test_a_field_that_is_not_there_is_refused_with_those_that_are(url):
    with pytest.raises(RecipeError, match=r"no field 'board'.*text"):
        made(url, observation="board")


def test_an_action_that_the_server_does_not_take_marks_the_play(url):
    environment = made(url, action="move")
    with pytest.raises(GroupwiseError, match="step of the server"):
        environment.start(environment.prompts()[0]).next("1")


def test_no_server_is_refused():
    with pytest.raises(RecipeError, match="reset of the server"):
        made(f"http://127.0.0.1:{free_port()}", seconds=2)


# Failures: a server that speaks the wire's words and does the wrong thing at the step.


def _reply(observation, done=False, reward=None):
    data = {"observation": observation, "done": done, "reward": reward}
    return json.dumps({"type": "observation", "data": data})


STEPS = {
    "silence": None,
    "garbage": "}{",
    "error": json.dumps({"type": "error", "data": {"message": "boom", "code": "EXECUTION_ERROR"}}),
    "no table": _reply("text"),
    "no number": _reply({"text": "?"}, reward="much"),
    "no end": _reply({"text": "?"}, done="maybe"),
    "gone": "close",
}


@pytest.fixture
def stub(request):
    port, ready, stop = free_port(), threading.Event(), threading.Event()

    async def handle(connection):
        async for text in connection:
            kind = json.loads(text)["type"]
            if kind == "reset":
                await connection.send(_reply({"text": "go"}))
            elif kind == "step" and STEPS[request.param] == "close":
                await connection.close()
            elif kind == "step" and STEPS[request.param] is not None:
                await connection.send(STEPS[request.param])

    async def main():
        async with serve(handle, "127.0.0.1", port):
            ready.set()
            while not stop.is_set():
                await asyncio.sleep(0.05)

    thread = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
    thread.start()
    ready.wait(10)
    yield f"http://127.0.0.1:{port}"
    stop.set()
    thread.join(10)


@pytest.mark.parametrize("stub", STEPS, indirect=True)
def test_a_server_that_fails_marks_the_play_within_its_deadline(stub):
    environment = made(stub, seconds=1.0)
    play = environment.start(environment.prompts()[0])
    began = time.monotonic()
    with pytest.raises(GroupwiseError, match="step of the server"):
        play.next("1")
    play.close()
    assert time.monotonic() - began < 10
    assert play.result() is None
