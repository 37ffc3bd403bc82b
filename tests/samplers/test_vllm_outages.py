"""Servers that fail in the middle of a round, start again, or answer what no server should."""

from __future__ import annotations

import os
import shutil
import signal
import ssl
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from test_vllm_faults import check, sampler_on

from groupwise.errors import GroupwiseError, NonFiniteError
from groupwise.policies import Policy, load_policy
from groupwise.samplers.servers.sampler import ServerSampler
from groupwise.samplers.servers.settings import VllmSettings
from groupwise.types import Completion
from sampler_requests import requests
from vllm_stub import Stub, moved, vllm_stub


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("groupwise.samplers.servers.sampler._REVIVALS", (0.0, 0.05))


def two(policy: Policy, opened: ExitStack) -> tuple[ServerSampler, Stub, Stub]:
    one, other = (opened.enter_context(vllm_stub(policy)) for _ in range(2))
    sampler = sampler_on(opened, policy, one, other)
    sampler.load(policy, 0)
    return sampler, one, other


def test_a_server_that_dies_in_a_round_loses_no_request(policy: Policy, opened: ExitStack) -> None:
    sampler, one, other = two(policy, opened)
    asked = requests(8, max_tokens=4)
    expected = sampler.sample(asked)
    made: dict[int, Completion] = {}

    def then(place: int, completion: Completion) -> None:
        made[place] = completion
        if len(made) == 3:
            one.faults.add("dead")
            one.gone()

    sampler.batch_rows = 2
    sampler.play(asked, then)
    assert [made[place] for place in range(8)] == expected
    assert len(sampler.take_notes()) == 1
    other.faults.add("dead")
    with pytest.raises(GroupwiseError, match=f"left: {one.url}.*; {other.url}.*engine dead"):
        sampler.sample(asked)
    one.gone = lambda: None


def test_one_failed_reply_of_the_only_server_does_not_end_the_run(
    policy: Policy, opened: ExitStack
) -> None:
    stub = opened.enter_context(vllm_stub(policy))
    sampler = sampler_on(opened, policy, stub)
    sampler.load(policy, 0)
    asked = requests(4, max_tokens=3)
    stub.failures = 2
    check(policy, asked, sampler.sample(asked))
    lost, *_, back = (note for _, note in sampler.take_notes())
    assert "replied 500" in lost
    assert back == f"{stub.url} samples again"


def test_only_a_server_with_the_weights_is_taken_back(policy: Policy, opened: ExitStack) -> None:
    stub = opened.enter_context(vllm_stub(policy))
    sampler = sampler_on(opened, policy, stub)
    sampler.load(policy, 0)
    stub.failures, stub.version = 1, "default"  # it started again behind its proxy
    moved(stub.policy)
    sampler.servers[0].probed = True
    with pytest.raises(GroupwiseError, match="has the weights 'default' and not 'version-0-"):
        sampler.sample(requests(2, max_tokens=3))


def test_a_server_that_starts_again_between_two_requests_is_left_out(
    policy: Policy, opened: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked for its weights where it was idle, in a round and before one."""
    sampler, one, other = two(policy, opened)
    monkeypatch.setattr("groupwise.samplers.servers.sampler._IDLE", 0.0)
    asked = requests(6, max_tokens=3)

    def then(place: int, completion: Completion) -> None:
        if one.version != "default":
            one.version = "default"
            moved(one.policy)
        order.append(place)
        made.append(completion)

    order: list[int] = []
    made: list[Completion] = []
    sampler.batch_rows = 1
    sampler.play(asked, then)
    check(policy, [asked[place] for place in order], made)
    assert "has the weights 'default'" in str(sampler.take_notes())
    sampler.load(policy, 0)
    other.version = "default"
    check(policy, asked, sampler.sample(asked))
    assert f"{other.url} has the weights 'default'" in str(sampler.take_notes())


def test_weights_that_reach_one_server_alone(policy: Policy, opened: ExitStack) -> None:
    sampler, one, other = two(policy, opened)
    policy.version = 1
    other.faults.add("unchanged")
    sampler.load(moved(policy), 1)
    before = len(other.bodies)
    asked = requests(6, max_tokens=3)
    completions = sampler.sample(asked)
    check(policy, asked, completions)
    assert {each.version for each in completions} == {1}
    assert len(other.bodies) == before
    one.failures = 1  # the other one is well, and has the weights of the version before
    check(policy, asked, sampler.sample(asked))
    assert len(other.bodies) == before


@pytest.mark.parametrize(
    ("fault", "error", "message"),
    [
        ("outside", GroupwiseError, "sampled 100000000, which is not an id it may"),
        ("longer", GroupwiseError, "2 ids with 1 logprobs"),
        ("nan", NonFiniteError, "gave the log-probability None of completion token"),
        ("nan_literal", NonFiniteError, "gave the log-probability nan of completion token"),
        ("other_prompt", GroupwiseError, "read other ids than it was sent"),
    ],
)
def test_answers_that_cannot_be_are_refused(
    fault: str, error: type[Exception], message: str, policy: Policy, opened: ExitStack
) -> None:
    stub = opened.enter_context(vllm_stub(policy))
    sampler = sampler_on(opened, policy, stub)
    sampler.load(policy, 0)
    stub.faults.add(fault)
    with pytest.raises(error, match=message):
        sampler.sample(requests(1, max_tokens=3))


def test_behind_a_path(policy: Policy, opened: ExitStack) -> None:
    stub = opened.enter_context(vllm_stub(policy))
    stub.prefix = "/team/vllm"
    sampler = ServerSampler(policy, VllmSettings(servers=(f"{stub.url}/team/vllm/v1",)))
    opened.callback(sampler.close)
    asked = requests(2, max_tokens=3)
    check(policy, asked, sampler.sample(asked))
    assert all(path.startswith("/team/vllm/") for path in stub.calls)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes a certificate with openssl")
def test_behind_https(
    policy: Policy, opened: ExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = tmp_path / "server.pem"
    made = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
         "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", certificate,
         "-out", tmp_path / "cert.pem"], capture_output=True, check=False,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    certificate.write_bytes(certificate.read_bytes() + (tmp_path / "cert.pem").read_bytes())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    secure = opened.enter_context(vllm_stub(policy, context=context))
    with pytest.raises(
        GroupwiseError, match=r"no vLLM server is left: .*CERTIFICATE_VERIFY_FAILED"
    ):
        sampler_on(opened, policy, secure)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))  # a certificate authority of one's own
    sampler = sampler_on(opened, policy, secure)
    asked = requests(2, max_tokens=3)
    check(policy, asked, sampler.sample(asked))


TRAINER = """
import sys
import groupwise as gw
table = {
    "model": {"name": "tiny"}, "algorithm": {"preset": "grpo"},
    "environment": {"name": "arithmetic", "audit": False},
    "sampling": {
        "sampler": "vllm", "group_size": 2, "max_tokens": 4, "vllm": {"servers": [sys.argv[1]]},
    },
    "training": {"prompts_per_step": 2, "steps": 3, "learning_rate": 1e-3},
    "evaluation": {"every": 0},
}
gw.train(table, output=sys.argv[2])
"""


@pytest.mark.slow
@pytest.mark.parametrize("reloads", [0, 1])
def test_a_trainer_ended_during_a_refresh_leaves_the_server_running(
    reloads: int, tmp_path: Path
) -> None:
    """Before its first step one signal ends it, afterwards the second."""
    with vllm_stub(load_policy("tiny", device="cpu")) as stub:
        stub.reloads_before_hanging = reloads
        command = [sys.executable, "-c", TRAINER, stub.url, str(tmp_path / "run")]
        with (tmp_path / "log").open("wb") as log:
            trainer = subprocess.Popen(command, stderr=log, stdout=log)
        try:
            deadline = time.monotonic() + 120
            while "hanging" not in stub.faults and time.monotonic() < deadline:
                time.sleep(0.05)
            assert stub.paused, (tmp_path / "log").read_text()
            for _ in range(1 + (reloads > 0)):
                time.sleep(0.5)
                os.kill(trainer.pid, signal.SIGTERM)
            trainer.wait(60)
            assert not stub.paused
            assert trainer.returncode != 0
        finally:
            trainer.kill()
            trainer.wait()
