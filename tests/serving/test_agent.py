"""Agents as programs of their own: what they are asked, how they end, and what is kept of it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from groupwise.algorithms import preset
from groupwise.batches import align, make_batch
from groupwise.environments import Environment, load_environment
from groupwise.environments.registry import environment_from_settings
from groupwise.environments.settings import EnvironmentSettings
from groupwise.errors import GroupwiseError, RecipeError
from groupwise.records import rollout_rows
from groupwise.records.rows import rows_table
from groupwise.rollouts import collect
from groupwise.samplers import SamplingSettings, ScriptedSampler
from groupwise.selection import from_plain, to_plain
from groupwise.serving.agent import make_agent
from groupwise.templates import Template
from groupwise.types import Group, Rollout
from serving_helpers import Lettered, letters, make_template

ASK = """
import json, os, subprocess, sys, time, urllib.error, urllib.request

task = json.load(sys.stdin)

def ask(*messages, status=200, **more):
    body = {"model": "policy", "messages": list(messages), **more}
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps(body).encode(),
        {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]},
    )
    try:
        with urllib.request.urlopen(request) as response:
            return json.load(response)["choices"][0]["message"]
    except urllib.error.HTTPError as error:
        return json.load(error)["error"]

def user(text):
    return {"role": "user", "content": text}

opening = user(task["prompt"])
"""


NUMBER = [{"name": "number"}]


@pytest.fixture(scope="module")
def template() -> Template:
    return make_template()


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.jsonl"
    lines = [{"prompt": f"go {n}", "answer": "7", "hint": n, "secret": "s"} for n in range(4)]
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


def agent(rows: Path, code: str, **arguments: Any) -> Environment:
    """An agent whose program is `code` behind the helpers above."""
    file = rows.parent / "agent.py"
    file.write_text(ASK + code)
    tasks = {"name": "dataset", "path": str(rows), "chat": True, "verifiers": NUMBER}
    table = {"command": ["{python}", str(file)], "tasks": tasks, **arguments}
    return make_agent(table, seed=0)


def played(
    environment: Environment,
    template: Template,
    replies: Any,
    *,
    prompts: int = 1,
    group_size: int = 1,
    **sampling: Any,
) -> tuple[list[Group], Lettered]:
    script = Lettered(template, *([replies] if isinstance(replies, str) else replies))
    try:
        groups = collect(
            environment,
            ScriptedSampler(template, script, version=5),
            template,
            [(prompt, 0) for prompt in environment.prompts(prompts)],
            group_size=group_size,
            sampling=SamplingSettings(
                **{"max_tokens": 200, "group_size": group_size, "deadline": None, **sampling}
            ),
            seed=3,
            step=5,
        )
    finally:
        environment.close()
    return groups, script


TWICE = """
first = ask(opening)
second = ask(opening, first, user("on"))
print(second["content"])
"""


def test_the_record_has_the_ids_that_were_sampled(rows: Path, template: Template) -> None:
    ((group,), script) = played(agent(rows, TWICE), template, ["the answer", "seven 7"])
    (rollout,) = group.rollouts
    one, two = script.requests
    first, second = letters(template, "the answer"), letters(template, "seven 7")
    between = template.encode("<|user|>on<|end|><|assistant|>")
    assert one.prompt_ids == template.encode(
        f"<|bos|><|user|>{group.prompt.last_text}<|end|><|assistant|>"
    )
    assert two.prompt_ids == one.prompt_ids + first + between
    (row,) = rows_table(rollout_rows(5, [group])).to_pylist()
    assert tuple(row["prompt_ids"]) == one.prompt_ids
    assert tuple(row["completion_ids"]) == first + between + second
    mask = [True] * len(first) + [False] * len(between) + [True] * len(second)
    assert row["mask"] == mask
    assert row["sampler_logprobs"] == [-0.5 if own else 0.0 for own in mask]
    assert (row["version"], row["output"], row["reward"], row["outcome"]) == (
        5,
        "seven 7",
        1.0,
        "correct",
    )
    assert [message["role"] for message in json.loads(row["messages"])] == [
        "user", "assistant", "user", "assistant",
    ]  # fmt: skip
    assert (rollout.extras.counts["branches"], rollout.finish_reason) == (0, "stop")


def test_the_agent_gets_its_task_and_never_the_answer(rows: Path, template: Template) -> None:
    code = 'print(json.dumps(task)); print(ask(opening)["content"], file=sys.stderr)'
    environment = agent(rows, code, columns=["hint"])
    prompt = environment.prompts(1)[0]
    ((group,), _) = played(environment, template, "7")
    task = json.loads(group.rollouts[0].extras.output or "")
    assert task == {
        "id": prompt.id,
        "prompt": prompt.last_text,
        "messages": [{"role": "user", "content": prompt.last_text}],
        "hint": prompt.columns["hint"],
    }


@pytest.mark.slow
def test_a_function_is_an_agent(
    rows: Path, template: Template, monkeypatch: pytest.MonkeyPatch
) -> None:
    (rows.parent / "agents_of_a_test.py").write_text(
        "import json, os, urllib.request\n"
        "async def solve(base_url, task):\n"
        "    print('to standard error')\n"
        "    body = json.dumps({'model': 'policy', 'messages': task['messages']}).encode()\n"
        "    key = {'Authorization': 'Bearer ' + os.environ['OPENAI_API_KEY']}\n"
        "    request = urllib.request.Request(base_url + '/chat/completions', body, key)\n"
        "    answer = json.load(urllib.request.urlopen(request))\n"
        "    return answer['choices'][0]['message']['content']\n"
        "def takes_one(base_url): ...\n"
    )
    monkeypatch.syspath_prepend(str(rows.parent))
    function = "agents_of_a_test:solve"
    ((group,), _) = played(agent(rows, "", command=(), function=function), template, "it is 7")
    assert (group.rollouts[0].extras.output, group.rollouts[0].reward) == ("it is 7", 1.0)
    with pytest.raises(RecipeError, match=r"cannot be called as function\(base_url, task\)"):
        agent(rows, "", command=(), function="agents_of_a_test:takes_one")


def test_the_recipes_agent_calls_its_tool(template: Template, rows: Path) -> None:
    call = '<tool_call>{"name": "calculator", "arguments": {"expression": "12*34"}}</tool_call>'
    found = {}
    for name, size in (("solve", 2), ("guess", 1)):
        function = f"groupwise.examples.tiny_agent:{name}"
        environment = agent(rows, "", command=(), function=function)
        ((group,), script) = played(environment, template, [call, "7"])
        found[name] = group.rollouts[0]
        assert (len(script.requests), group.rollouts[0].extras.counts["branches"]) == (size, 0)
    assert [each.reward for each in found.values()] == [1.0, 0.0]
    assert template.decode(found["solve"].turns[1].context_ids).startswith("<|tool|>408<|end|>")
    assert template.decode(found["solve"].prompt_ids).startswith("<|bos|><|system|>calculator")
    assert found["guess"].extras.output == call


def test_what_is_judged_is_a_choice(rows: Path, template: Template) -> None:
    code = 'ask(opening); print("8")'
    ((group,), _) = played(agent(rows, code), template, "it is 7")
    assert group.rollouts[0].reward == 0.0
    ((group,), _) = played(agent(rows, code, answer="completion"), template, "it is 7")
    assert (group.rollouts[0].reward, group.rollouts[0].extras.output) == (1.0, None)


# --- batches -------------------------------------------------------------------------------------


class Waves(ScriptedSampler):
    """Keeps the prompts of every batch."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.waves: list[list[tuple[tuple[int, ...], int]]] = []

    def sample(self, requests: Any) -> Any:
        self.waves.append([(each.prompt_ids, each.key) for each in requests])
        return super().sample(requests)


@pytest.mark.slow
def test_batches_and_draws_do_not_depend_on_who_comes_first(rows: Path, template: Template) -> None:
    code = f"""
order = int(os.environ["ORDER"])
time.sleep(0.3 * ((task["hint"] + order) % 4))
{TWICE}
"""
    found = []
    for order in (0, 1, 3):
        os.environ["ORDER"] = str(order)
        environment = agent(rows, code, columns=["hint"], pass_on=["ORDER"])
        sampler = Waves(template, lambda request, place: letters(template, f"{place}"))
        collect(
            environment,
            sampler,
            template,
            [(prompt, 0) for prompt in environment.prompts()],
            group_size=2,
            sampling=SamplingSettings(max_tokens=200, group_size=2),
            seed=3,
        )
        environment.close()
        found.append(sampler.waves)
    del os.environ["ORDER"]
    assert [len(wave) for wave in found[0]] == [8, 8]
    assert found[0] == found[1] == found[2]
    keys = [key for wave in found[0] for _, key in wave]
    assert len(set(keys)) == len(keys)


@pytest.mark.slow
def test_few_at_a_time_give_the_same_rollouts(rows: Path, template: Template) -> None:
    found = []
    for at_once in (1, 3, 32):
        environment = agent(rows, TWICE, at_once=at_once)
        groups, _ = played(environment, template, "it is 7", prompts=4, group_size=2)
        found.append([rollout.turns for group in groups for rollout in group.rollouts])
    assert found[0] == found[1] == found[2]
    assert len(found[0]) == 8


@pytest.mark.slow
def test_an_agent_that_is_late_is_not_waited_for_for_ever(rows: Path, template: Template) -> None:
    code = 'time.sleep(3.0 * (task["hint"] == 0)); print(ask(opening)["content"])'
    environment = agent(rows, code, columns=["hint"], gather_seconds=1.0)
    sampler = Waves(template, lambda request, place: letters(template, "7"))
    groups = collect(
        environment, sampler, template, [(each, 0) for each in environment.prompts()],
        group_size=1, sampling=SamplingSettings(max_tokens=9, group_size=1), seed=0,
    )  # fmt: skip
    environment.close()
    assert [len(wave) for wave in sampler.waves] == [3, 1]
    late = {group.prompt.columns["hint"]: group.rollouts[0].extras.counts for group in groups}
    assert [late[hint].get("late", 0) > 0 for hint in range(4)] == [True, False, False, False]
    assert all(group.rollouts[0].reward == 1.0 for group in groups)


# --- branches ------------------------------------------------------------------------------------

REWRITES = """
first = ask(opening)
second = ask(user("12"))
third = ask(user("12"), second, user("34"))
print("7" if int(task["prompt"].split()[-1]) % 2 else "8")
"""


def test_branches_train_with_their_rollouts_advantage(rows: Path, template: Template) -> None:
    replies = ["the answer", "12", "seven"]
    groups, _ = played(agent(rows, REWRITES), template, replies, prompts=4)
    (row,) = groups[0].rollouts
    assert [turn.completion.text for turn in row.turns] == ["12", "seven"]
    assert [len(turns) for turns in row.branches] == [1]
    assert row.extras.counts["rewrites"] == row.extras.counts["branches"] == 1
    # One group of four rollouts, two of them right, as if they had one prompt.
    members = tuple(rollout for group in groups for rollout in group.rollouts)
    assert sorted(rollout.reward or 0.0 for rollout in members) == [0.0, 0.0, 1.0, 1.0]
    group = Group(groups[0].prompt, members)
    laid = align([group])
    assert laid.num_rows == 8
    assert laid.group_ids.tolist() == [0] * 8
    batch = make_batch([group], laid, preset("grpo"), max_tokens=200)
    plain = make_batch(
        [Group(group.prompt, tuple(without(each) for each in members))],
        align([Group(group.prompt, tuple(without(each) for each in members))]),
        preset("grpo"),
        max_tokens=200,
    )
    advantages = batch.advantages.tolist()
    assert advantages[::2] == advantages[1::2] == plain.advantages.tolist()
    assert min(map(abs, advantages)) > 0.5
    assert batch.mask.sum(1).tolist() == [
        sum(each.mask) for rollout in members for each in rollout.sequences
    ]
    assert batch.metrics["filter/unscored_rows"] == 0
    table = rollout_rows(5, [group], advantages)
    assert [each["kind"] for each in table] == ["training", "branch"] * 4
    assert [each["advantage"] for each in table] == advantages
    assert [each["reward"] for each in table[::2]] == [each["reward"] for each in table[1::2]]
    by_id = {each.id: each for each in (group.prompt, *(r.prompt for r in members))}
    assert from_plain(json.loads(json.dumps(to_plain(group))), by_id.__getitem__)


def without(rollout: Rollout) -> Rollout:
    return replace(rollout, branches=())


def test_branches_and_advantages_of_tokens_do_not_go_together(
    rows: Path, template: Template
) -> None:
    groups, _ = played(agent(rows, REWRITES), template, ["the answer", "12", "seven"], prompts=2)
    algorithm = preset("reinforce_pp", kl_coef=0.01)
    zeros = align(groups).sampler_logprobs * 0
    with pytest.raises(ValueError, match='on_rewrite = "refuse"'):
        make_batch(
            groups, align(groups), algorithm, max_tokens=9, old_logprobs=zeros, ref_logprobs=zeros
        )


def test_a_rewritten_history_is_refused_by_option(rows: Path, template: Template) -> None:
    code = """
first = ask(opening)
error = ask(user("12"))
print(error["code"], "7")
"""
    ((group,), script) = played(agent(rows, code, on_rewrite="refuse"), template, "the answer")
    (rollout,) = group.rollouts
    assert (rollout.extras.output, rollout.branches) == ("history_rewritten 7", ())
    assert rollout.extras.counts["refused_rewrites"] == 1
    assert len(script.requests) == 1


# --- how agents end ------------------------------------------------------------------------------


def ends(rows: Path, template: Template, code: str, **arguments: Any) -> Rollout:
    environment = agent(rows, code, **arguments)
    environment.limits = replace(environment.limits, seconds=4.0)
    ((group,), _) = played(environment, template, "it is 7", group_size=1)
    return group.rollouts[0]


@pytest.mark.parametrize(
    ("code", "outcome", "words"),
    [
        ('ask(opening); sys.exit("no luck")', "crash", "exit code 1: no luck"),
        ("ask(opening); os.kill(os.getpid(), 11)", "crash", "signal 11"),
        pytest.param(
            "ask(opening); time.sleep(60)",
            "timeout",
            "did not end within 4 s",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_the_end_of_an_agent_is_an_outcome(
    rows: Path, template: Template, code: str, outcome: str, words: str
) -> None:
    rollout = ends(rows, template, code)
    assert (rollout.score.outcome, rollout.score.value) == (outcome, 0.0)
    assert words in rollout.score.reason
    assert rollout.num_tokens == len(letters(template, "it is 7"))
    assert rollout.finish_reason == ("deadline" if outcome == "timeout" else "stop")


def test_an_agent_that_never_asks_is_not_the_policys_fault(rows: Path, template: Template) -> None:
    with pytest.raises(GroupwiseError, match=r"failed in all 2 rollouts.*exit code 3: no key"):
        played(
            agent(rows, 'print("no key", file=sys.stderr); sys.exit(3)'),
            template,
            "7",
            group_size=2,
        )
    code = 'sys.exit(3) if task["hint"] else print(ask(opening)["content"])'
    groups, _ = played(agent(rows, code, columns=["hint"]), template, "7", prompts=4)
    outcomes = sorted(group.rollouts[0].score.outcome for group in groups)
    assert outcomes == ["correct", *["infrastructure_error"] * 3]
    failed = next(group.rollouts[0] for group in groups if group.rollouts[0].reward is None)
    assert (failed.finish_reason, failed.num_tokens) == ("error", 0)
    align(groups)


def test_an_agent_may_answer_without_asking(rows: Path, template: Template) -> None:
    ((group,), script) = played(agent(rows, 'print("7")'), template, "8")
    (rollout,) = group.rollouts
    assert (rollout.reward, rollout.num_tokens, script.requests) == (1.0, 0, [])


@pytest.mark.parametrize(
    ("limits", "code"),
    [({"max_tokens": 20}, "tokens"), ({"turns": 2}, "turns"), ({"length": 90}, "length")],
)
def test_limits_are_told_to_the_agent(
    rows: Path, template: Template, limits: dict[str, int], code: str
) -> None:
    loop = """
messages = [opening]
for turn in range(40):
    answer = ask(*messages)
    if "code" in answer:
        print(answer["code"], file=sys.stderr)
        sys.exit(answer["code"])
    messages += [answer, user("on")]
"""
    environment = agent(rows, loop)
    sampling = {"max_tokens": limits.pop("max_tokens", 400)}
    environment.limits = replace(environment.limits, **limits)  # type: ignore[arg-type]
    ((group,), script) = played(environment, template, "it is 7", **sampling)
    (rollout,) = group.rollouts
    assert (rollout.extras.limit, rollout.finish_reason) == (code, "length")
    assert (rollout.score.outcome, rollout.score.value) == ("limit", 0.0)
    assert rollout.num_tokens <= sampling["max_tokens"]
    longest = max(len(each.prompt_ids) + each.max_tokens for each in script.requests)
    assert longest <= (environment.limits.length or longest)


PARALLEL = """
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(3) as pool:
    said = list(pool.map(lambda number: ask(user(f"{number}")), range(3)))
print(*(answer.get("content", answer) for answer in said))
"""


def test_parallel_requests_and_choices_share_a_rollouts_limits(
    rows: Path, template: Template
) -> None:
    """One after the other, whenever they arrive: each has what the ones before left over."""
    ((group,), script) = played(
        agent(rows, PARALLEL), template, "it is 7", group_size=2, max_tokens=30
    )
    assert sorted(each.max_tokens for each in script.requests) == [14, 14, 22, 22, 30, 30]
    for rollout in group.rollouts:
        assert (rollout.extras.limit, rollout.extras.counts["branches"]) == (None, 2)
    code = """
with_n = ask(opening, n=3)
print(with_n.get("code", "answered"))
"""
    for limits, asked in ((30, 3), (2, 0)):
        ((group,), script) = played(agent(rows, code), template, "it is 7", max_tokens=limits)
        assert [each.max_tokens for each in script.requests] == [10] * asked
    environment = agent(rows, code)
    environment.limits = replace(environment.limits, turns=2)
    ((group,), script) = played(environment, template, "it is 7")
    assert (group.rollouts[0].extras.limit, script.requests) == ("turns", [])


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(")")[-1].split()[0] != "Z"
    except OSError:
        return False


def wait_until_gone(pids: Sequence[int]) -> None:
    limit = time.monotonic() + 10
    while any(map(alive, pids)):
        assert time.monotonic() < limit, f"still there: {[p for p in pids if alive(p)]}"
        time.sleep(0.02)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["returns", "overruns", "crashes"])
def test_its_processes_end_with_it(rows: Path, template: Template, how: str) -> None:
    """A child, a grandchild, and one that has left the group and the session."""
    last = {"returns": 'print("7")', "overruns": "time.sleep(60)", "crashes": "os.abort()"}[how]
    code = f"""
ask(opening)
sleeper = "import time; time.sleep(300)"
spawns = f"import subprocess as s, sys, time; p = s.Popen([sys.executable, '-c', {{sleeper!r}}])"
spawns += "; print(p.pid, flush=True); time.sleep(300)"
child = subprocess.Popen([sys.executable, "-c", spawns], stdout=subprocess.PIPE, text=True)
grandchild = int(child.stdout.readline())
left = subprocess.Popen([sys.executable, "-c", sleeper], start_new_session=True)
with open({str(rows.parent / "pids")!r}, "w") as file:
    json.dump([os.getpid(), child.pid, grandchild, left.pid], file)
{last}
"""
    ends(rows, template, code)
    wait_until_gone(json.loads((rows.parent / "pids").read_text()))


@pytest.mark.slow
def test_agents_end_when_the_sampler_fails(rows: Path, template: Template) -> None:
    def fails(request: Any, place: int) -> str:
        raise RuntimeError("no weights")

    code = f"""
with open({str(rows.parent)!r} + f"/pid{{task['hint']}}", "w") as file:
    file.write(str(os.getpid()))
ask(opening)
time.sleep(60)
"""
    environment = agent(rows, code, columns=["hint"])
    with pytest.raises(RuntimeError, match="no weights"):
        collect(
            environment, ScriptedSampler(template, fails), template,
            [(each, 0) for each in environment.prompts()], group_size=1,
            sampling=SamplingSettings(max_tokens=9, group_size=1), seed=0,
        )  # fmt: skip
    environment.close()
    wait_until_gone([int((rows.parent / f"pid{hint}").read_text()) for hint in range(4)])


def test_secrets_of_the_trainer_do_not_reach_it(
    rows: Path, template: Template, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (
        "WANDB_API_KEY",
        "HF_TOKEN",
        "AWS_SECRET_ACCESS_KEY",
        "OPENAI_API_KEY",
        "OPENAI_ORG_ID",
    ):
        monkeypatch.setenv(name, "s3cr3t")
    monkeypatch.setenv("MINE", "kept")
    code = "ask(opening); print(json.dumps(dict(os.environ)))"
    ((group,), _) = played(agent(rows, code, pass_on=["MINE"]), template, "7")
    seen = json.loads(group.rollouts[0].extras.output or "")
    assert "s3cr3t" not in json.dumps(seen)
    assert (seen["MINE"], seen["PATH"]) == ("kept", os.environ["PATH"])
    assert seen["OPENAI_BASE_URL"].startswith("http://127.0.0.1:")


def test_a_key_ends_with_its_rollout(rows: Path, template: Template) -> None:
    code = """
ask(opening)
print(json.dumps([os.environ["OPENAI_API_KEY"], os.environ["OPENAI_BASE_URL"]]))
"""
    environment = agent(rows, code)
    groups = collect(
        environment, ScriptedSampler(template, ["7"]), template,
        [(each, 0) for each in environment.prompts(2)], group_size=2,
        sampling=SamplingSettings(max_tokens=9, group_size=2), seed=0,
    )  # fmt: skip
    given = [json.loads(r.extras.output or "") for group in groups for r in group.rollouts]
    assert len({key for key, _ in given}) == 4
    for key, address in given:
        response = httpx.get(f"{address}/models", headers={"Authorization": f"Bearer {key}"})
        assert response.status_code == 401
    environment.close()


def test_settings_of_the_agent_that_the_recipe_decides_are_counted(
    rows: Path, template: Template
) -> None:
    code = 'ask(opening, temperature=0.3, top_p=0.5, seed=1); print("7")'
    ((group,), script) = played(agent(rows, code), template, "7", temperature=0.9)
    (request,) = script.requests
    assert (request.temperature, request.keep_top_p) == (0.9, 1.0)
    counts = group.rollouts[0].extras.counts
    assert [counts[f"replaced_{name}"] for name in ("temperature", "top_p", "seed")] == [1, 1, 1]


# --- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"command": []}, r'give command = \["\{python\}", "agent.py"\] or function'),
        ({"command": "python agent.py"}, "give a list"),
        ({"command": ["no-such-program"]}, "there is no program 'no-such-program'"),
        ({"function": "x:y"}, "one of the two"),
        ({"command": [], "function": "no_such_module:f"}, "no module 'no_such_module'"),
        ({"columns": ["hnt"]}, "columns holds 'hnt'"),
        ({"on_rewrite": "ignore"}, "on_rewrite = 'ignore'"),
        ({"at_once": 0}, "at_once = 0"),
        ({"tasks": {"name": "arithmtic"}}, "did you mean 'arithmetic'"),
        ({"tasks": {"name": "tic_tac_toe"}}, "has turns of its own"),
        ({"comand": ["x"]}, "did you mean 'command'"),
    ],
)
def test_bad_arguments_are_named(rows: Path, arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(RecipeError, match=words):
        agent(rows, "", **arguments)


def test_it_does_not_mix_and_takes_no_tools(rows: Path) -> None:
    tasks = {"name": "dataset", "path": str(rows), "chat": True, "verifiers": NUMBER}
    own = {"name": "agent", "command": ["{python}", "x.py"], "tasks": tasks}
    with pytest.raises(RecipeError, match="the agent brings its own"):
        environment_from_settings(EnvironmentSettings(**own, tools=["calculator"]))
    with pytest.raises(RecipeError, match="cannot be mixed"):
        load_environment("mixture", sources=[own])
