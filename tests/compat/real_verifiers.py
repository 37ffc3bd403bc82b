"""The adapter `verifiers_v1` against the real package, in a virtual environment of its own.

Not collected by `make test`, since that package's pins and this project's do not go together:
`make test-adapters` runs it.
"""

import textwrap

import pytest

from groupwise.compat.verifiers_v1 import make_verifiers_v1
from groupwise.errors import RecipeError

MODULE = """
import asyncio
import verifiers.v1 as vf


class Data(vf.TaskData):
    answer: str


class Config(vf.TasksetConfig):
    num: int = 12
    broken: str = ""


class Sum(vf.Task[Data, vf.State, vf.TaskConfig]):
    @vf.reward
    async def right(self, trace, task):
        text = trace.last_message.content
        if text == "wait":
            await asyncio.sleep(60)
        if text == "raise":
            raise RuntimeError("no luck")
        if text == "nan":
            return float("nan")
        return float(text.split()[-1] == task.answer)

    @vf.reward(weight=0.5)
    async def short(self, trace):
        return float(len(trace.last_message.content) < 10)

    @vf.metric
    async def length(self, trace):
        return len(trace.last_message.content)


class Runs(Sum):
    @vf.reward
    async def ran(self, trace, runtime):
        return 1.0


class Boxed(Sum):
    NEEDS_CONTAINER = True


class Sums(vf.Taskset[Sum, Config]):
    def load(self):
        kind = {"runtime": Runs, "container": Boxed}.get(self.config.broken, Sum)
        for n in range(self.config.num):
            prompt = None if self.config.broken == "opens" else f"{n} + {n} ="
            yield kind(Data(prompt=prompt, answer=str(2 * n), system_prompt="Add."))


__all__ = ["Sums"]
"""


@pytest.fixture(autouse=True)
def _module(tmp_path, monkeypatch):
    (tmp_path / "sums_taskset.py").write_text(textwrap.dedent(MODULE), encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))


def made(seed=0, **arguments):
    return make_verifiers_v1({"taskset": "sums_taskset", **arguments}, seed)


def test_prompts_splits_and_rewards():
    environment = made(heldout_share=0.25)
    train, heldout = environment.prompts(), environment.prompts(split="heldout")
    assert (len(train), len(heldout)) == (9, 3)
    assert made(heldout_share=0.25).prompts() == train
    assert made(1, heldout_share=0.25).prompts() != train
    prompt = train[0]
    assert [each["role"] for each in prompt.messages] == ["system", "user"]
    answer = prompt.columns["task"]["answer"]
    score = environment.verify(prompt, answer)
    assert (score.value, score.outcome) == (1.5, "no_verdict")  # above 1: of unknown scale
    assert dict(score.parts) == {"right": 1.0, "short": 0.5}
    assert environment.verify(prompt, f"I think it is {answer}").value == 1.0
    assert environment.verify(prompt, "no").value == 0.5
    assert environment.verify(prompt, "I do not know that").outcome == "incorrect"


def test_configuration_and_limit():
    assert len(made(arguments={"num": 30}, limit=20, heldout_share=0).prompts(split="all")) == 20
    with pytest.raises(RecipeError, match="nmu"):
        made(arguments={"nmu": 3})


@pytest.mark.parametrize(
    ("broken", "message"),
    [("runtime", "reward ran needs a runtime"), ("container", "container"), ("opens", "opens")],
)
def test_what_cannot_be_used_is_refused(broken, message):
    with pytest.raises(RecipeError, match=message):
        made(arguments={"broken": broken})


def test_a_module_that_is_not_there_is_named():
    with pytest.raises(RecipeError, match="no_such_taskset"):
        make_verifiers_v1({"taskset": "no_such_taskset"}, 0)


def test_rewards_that_fail():
    environment = made(seconds=0.5)
    prompt = environment.prompts()[0]
    assert environment.verify(prompt, "wait").outcome == "verifier_timeout"
    assert environment.verify(prompt, "nan").outcome == "infrastructure_error"
    from groupwise.errors import VerifierError

    with pytest.raises(VerifierError, match="no luck"):
        environment.verify(prompt, "raise")
