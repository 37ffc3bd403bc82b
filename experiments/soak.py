"""A soak: 2,000 tiny steps with every verifier kind and 1 % injected faults, and what must hold.

The tiny policy samples; which text a verifier reads in its place (a right one, a wrong one or a
fault) is decided by a hash of step, prompt and place. So every verifier works, and nothing can be
learned. In one of 25 steps a child process of the run is killed. Checked at the end: memory in use
within 1 % after a quarter of the steps; no descriptor, thread or process more than there was then;
every rollout trained on, filtered, failed or waiting, none twice; the record readable on the way.

    python experiments/soak.py --output runs/soak               # a run that is there is resumed
    python experiments/soak.py --output runs/soak --steps 60    # the test's size
"""

from __future__ import annotations

import argparse
import atexit
import ctypes
import gc
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow
import transformers

import groupwise as gw
from groupwise.environments import Environment, Episode
from groupwise.environments.mixture import MixedVerifier
from groupwise.policies.tiny import build_tiny
from groupwise.records import open_run
from groupwise.training.callbacks import Callback
from groupwise.types import Prompt, Score
from groupwise.verifiers import Case, Verifier, compose
from groupwise.verifiers.core.composition import VerifierGroup
from groupwise.verifiers.core.registry import BUILTIN

FAULTY = 100
"""One rollout in so many is a fault."""
KILLED = 25
"""In one of so many steps a child process is killed."""
MEASURED = 5
"""In one of so many steps the memory in use is measured."""
DEEP = "\\boxed{" * 2000 + "7"
HOSTILE = ("\0\ud800\u202e\x1b[2J", DEEP, "9" * 40_000, "[" * 30_000, "<think>" * 999)
PROGRAM = "```python\ndef f(n):\n    return n + {}\n```"
BAD_PROGRAMS = tuple(
    f"```python\n{source}\n```"
    for source in (
        "def f(n):\n    while True: pass",
        "import os\ndef f(n): os.abort()",
        "def f(n): return bytearray(10**10)",
        "def f(n): return 'x' * 10**7",
        "def f(n): raise SystemExit(0)",
    )
)
ENDLESS = "with recursive c(n) as (select 1 union all select n + 1 from c) select max(n) from c"
GERMAN = "Das ist ein ganz gewöhnlicher Satz, den man überall lesen könnte."
ENGLISH = "This is a perfectly ordinary sentence that anyone could read anywhere."


def marks(completions: Sequence[str], **_: Any) -> list[float]:
    """A reward function; it raises, hangs or ends its process where a text says so."""
    if any("hang" in text for text in completions):
        time.sleep(30)
    if any("kill" in text for text in completions):
        os.kill(os.getpid(), signal.SIGKILL)
    if any("raise" in text for text in completions):
        raise RuntimeError("an injected fault")
    return [float(text == "7") for text in completions]


async def slow_marks(completions: Sequence[str], **_: Any) -> list[float]:
    return marks(completions)


class OwnClass(Verifier):
    name = "own_class"

    def score_case(self, case: Case) -> float:
        return marks([case.text])[0]


@cache
def classifier(kind: str) -> str:
    """The folder of a small classifier of sequences or tokens, with random weights."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(build_tiny())
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, max_position_embeddings=64, pad_token_id=tokenizer.pad_token_id,
        num_labels=2,
    )  # fmt: skip
    folder = tempfile.mkdtemp(prefix="soak-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    getattr(transformers, f"LlamaFor{kind}Classification")(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def kinds() -> dict[str, tuple[dict[str, Any], Any, dict[str, Any], str, str, Any]]:
    """By name: recipe entry, gold answer, columns, a right text, a wrong one, faults."""
    own, asked = {}, {"url": "soak:judge", "model": "rules", "tries": 1, "time_limit": 5.0}
    rows: dict[str, tuple[dict[str, Any], Any, dict[str, Any], str, str, Any]] = {
        name: (own, "7", {}, right, wrong, HOSTILE)
        for name, right, wrong in (
            ("exact", "7", "8"),
            ("number", "It is 7.", "It is 8."),
            ("boxed", "\\boxed{7}", "\\boxed{8}"),
            ("tagged", "<answer>7</answer>", "<answer>8</answer>"),
            ("format", "\\boxed{7}", "7"),
            ("text", "\\boxed{7}", "\\boxed{8}"),
            ("repetition", "a b c d e f", "a a a a a a a a"),
        )
    }
    rows |= {
        "math": (own, "\\sqrt{8}", {}, "\\boxed{2\\sqrt2}", "\\boxed{\\sqrt7}",
                 (*HOSTILE, "\\boxed{9^{9^{9^9}}}")),
        "choice": (own, "B", {"choices": ["red", "green"]}, "\\boxed{B}", "\\boxed{A}", HOSTILE),
        "regex": ({"pattern": "(a+)+b", "time_limit": 0.2}, None, {}, "aab", "zz",
                  ("a" * 40_000,)),
        "json_schema": ({"json_schema": {"type": "object", "required": ["a"]}}, None, {},
                        '{"a": 1}', "{}", HOSTILE),
        "language": ({"language": "en", "part": "all"}, None, {}, ENGLISH, GERMAN, HOSTILE),
        "length": ({"max_tokens": 2}, None, {}, "7", "7", HOSTILE),
        "target": ({"target": "7"}, None, {}, "777", "888", HOSTILE),
        "instructions": ({"ids": ["startend:quotation"]}, None, {}, '"quoted"', "not", HOSTILE),
        "countdown": (own, None, {"numbers": [3, 4], "target": 7}, "\\boxed{3+4}", "\\boxed{3*4}",
                      HOSTILE),
        "code": ({"time_limit": 0.5, "memory_megabytes": 64}, None,
                 {"tests": [[[2], 4], [[3], 5]], "entry": "f"}, PROGRAM.format(2),
                 PROGRAM.format(3), BAD_PROGRAMS),
        "sql": ({"time_limit": 0.5}, "select a from t", {"setup": "create table t(a); "
                "insert into t values (1)"}, "```sql\nselect 1\n```", "```sql\nselect 2\n```",
                (f"```sql\n{ENDLESS}\n```", "```sql\ndrop table t\n```", *HOSTILE)),
        "judge": (asked, "7", {}, "a good answer", "a poor answer", ("a fault", "a junk")),
        "rubric": ({"criteria": [{"name": "good", "text": "It is good."}], "judge": asked}, "7", {},
                   "a good answer", "a poor answer", ("a fault", "a junk")),
        "play": (own, None, {}, "7", "8", HOSTILE),
        "soak:marks": (own, "7", {}, "7", "8", ("raise",)),
        "soak:slow_marks": (own, "7", {}, "7", "8", ("raise",)),
        "soak:OwnClass": (own, "7", {}, "7", "8", ("raise",)),
        "isolated": ({"time_limit": 1.0}, "7", {}, "7", "8", ("raise", "hang", "kill")),
        "reward_model": ({"model": classifier("Sequence")}, "7", {}, "7", "8", HOSTILE),
        "process_reward_model": ({"model": classifier("Token"), "separator": "\n"}, "7", {},
                                 "7\n8", "8\n7", HOSTILE),
    }  # fmt: skip
    try:
        from reasoning_gym.factory import create_dataset

        entry = dict(create_dataset("gcd", size=1, seed=1)[0])
        rows["reasoning_gym"] = ({"task": "gcd"}, entry["answer"], {"entry": entry},
                                 f"<answer>{entry['answer']}</answer>", "<answer>0</answer>",
                                 HOSTILE)  # fmt: skip
    except ImportError:
        print("reasoning_gym is not installed: its verifier is left out", file=sys.stderr)
    return rows


class Spoken(VerifierGroup):
    """Lets the kinds' verifiers read the texts above in place of the policy's."""

    def __init__(self, mixed: MixedVerifier, rows: Mapping[str, Any]) -> None:
        self.mixed, self.rows, self.step = mixed, rows, 0
        self.injected: Counter[str] = Counter()

    @property
    def members(self) -> Sequence[Verifier]:
        return [self.mixed]

    required_columns = frozenset[str]()  # each kind's prompts have its own
    needs_answer = False

    def begin_step(self, step: int) -> None:
        self.step = step
        super().begin_step(step)

    def score(self, cases: Sequence[Case]) -> list[Score]:
        spoken = [self._spoken(case, place) for place, case in enumerate(cases)]
        found = self.mixed.score(spoken)
        return [replace(each, steps=None) for each in found if each is not None]

    def _spoken(self, case: Case, place: int) -> Case:
        kind = case.prompt.id.partition("/")[0]
        *_, right, wrong, faults = self.rows[kind]
        draw = zlib.crc32(f"{self.step}|{case.prompt.id}|{place}|{case.text}".encode())
        if draw % FAULTY == 0:
            self.injected[kind] += 1
            return replace(case, text=faults[draw // FAULTY % len(faults)])
        return replace(case, text=(right, wrong)[draw // FAULTY % 2])


class Plays(Episode):
    def result(self) -> Score | None:
        return Score(1.0, "correct", "won")


class Soak(Environment):
    """Two prompts of every kind; the start of one rollout in 500 raises."""

    def __init__(self, seed: int) -> None:
        rows = kinds()
        parts: dict[str, Verifier] = {}
        for kind, (arguments, *_) in rows.items():
            table: dict[str, Any] = {"name": kind, "arguments": arguments, "on_error": "skip"}
            if kind == "isolated":
                table |= {"name": "soak:marks", "arguments": {}, **arguments}
            parts[kind] = compose([table | {"label": kind.removeprefix("soak:")}])
        prompts = [
            Prompt(f"{kind}/{n}", text=f"{place % 5}+{n}=", answer=answer, columns=columns)
            for place, (kind, (_, answer, columns, *_)) in enumerate(rows.items())
            for n in (3, 4)
        ]
        self.spoken = Spoken(MixedVerifier(parts), rows)
        super().__init__("soak", self.spoken, {"train": prompts})
        self.started = 0

    def start(self, prompt: Prompt) -> Episode:
        self.started += 1
        if self.started % (5 * FAULTY) == 0:
            self.spoken.injected["start"] += 1
            raise RuntimeError("an injected fault")
        return Plays(prompt)


@cache
def judge() -> str:
    """The address of a judge by rules, on the loopback: good is right; a fault is a 500, junk is
    no verdict. It ends with the process."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            field = body.partition('{\\"score_')[2][:8]
            top = 1 if "It is good." in body else 10
            verdict = {f"score_{field}": top if "a good answer" in body else 0}
            said = "no verdict" if "a junk" in body else json.dumps(verdict)
            text = json.dumps({"choices": [{"message": {"role": "assistant", "content": said}}]})
            self.send_response(500 if "a fault" in body else 200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: Any) -> None:
            return

    class Server(ThreadingHTTPServer):
        daemon_threads = True

    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_address[1]}/v1"


class Watch(Callback):
    """Writes a line a step: memory, descriptors, threads, children, what was injected."""

    def __init__(self, log: Path, output: Path) -> None:
        import psutil

        self.log, self.output, self.me = log, output, psutil.Process()
        self.seen = 0

    def on_ready(self, session: Any) -> None:
        self.environment: Soak = session.environment
        self.seen = self.environment.started  # its check starts two

    def on_evaluation(self, version: int, values: Mapping[str, Any]) -> None:
        self.seen += 2 * int(values["eval/prompts"] or 0)  # one sampled, one greedy each

    def on_step(self, line: Mapping[str, Any]) -> None:
        step = int(line["step"] or 0)
        children = [each for each in self.me.children(recursive=True) if each.is_running()]
        found = {
            "step": step,
            "started": self.environment.started - self.seen,
            "recorded": line["completions/count"],
            "rss": self.me.memory_info().rss,
            "kept": kept(self.me) if step % MEASURED == 0 else None,
            "descriptors": self.me.num_fds(),
            "threads": sum(type(each) is not threading.Timer for each in threading.enumerate()),
            "children": len(children),
            "injected": dict(self.environment.spoken.injected),
            "seconds": line["seconds/step"],
        }
        self.environment.spoken.injected.clear()
        self.seen = self.environment.started
        with self.log.open("a") as log:
            log.write(json.dumps(found) + "\n")
        if step % 100 == 99:  # the record is readable while the run goes on
            run = open_run(self.output)
            assert run.steps == list(range(step + 1))
            assert run.rollouts(step).num_rows >= line["completions/count"]
        if step % KILLED == KILLED - 1 and children:
            victim = random.Random(step).choice(children)
            threading.Timer(random.Random(step).random() * found["seconds"], kill, [victim]).start()


def kept(process: Any) -> int:
    """Bytes of memory that are in use: what allocators hold in reserve is given back first."""
    gc.collect()
    pyarrow.default_memory_pool().release_unused()
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)
    return int(process.memory_info().rss)


def kill(process: Any) -> None:
    import psutil

    try:
        process.kill()
    except psutil.NoSuchProcess:
        return


def recipe(steps: int) -> dict[str, Any]:
    return {
        "seed": 7,
        "model": {"name": "tiny", "device": "cpu"},
        "environment": {"name": "soak:Soak", "audit": False},
        "algorithm": {
            "preset": "dapo",
            "filters": [{"kind": "dynamic_sampling", "max_batches": 3, "when_short": "partial"}],
        },
        "sampling": {"group_size": 4, "max_tokens": 3},
        "training": {"prompts_per_step": 14, "steps": steps, "learning_rate": 1e-5},
        "evaluation": {"every": 0, "samples": 1, "max_prompts": 8},
        "checkpoints": {"every": 100, "keep": 2},
    }


def outcome(output: Path, log: Path, steps: int, growth: float = 0.01) -> dict[str, Any]:
    """What must hold, measured; raises AssertionError naming what does not."""
    lines = {line["step"]: line for line in map(json.loads, log.read_text().splitlines())}
    assert sorted(lines) == list(range(steps))
    rows = (
        open_run(output)
        .rollouts(
            columns=["step", "kind", "prompt_id", "visit", "group_index", "reward", "outcome"]
        )
        .to_pylist()
    )
    made: dict[tuple[Any, ...], list[tuple[str, Any]]] = {}
    for row in rows:
        key = (row["prompt_id"], row["visit"], row["group_index"])
        made.setdefault(key, []).append((row["kind"], row["reward"]))
    fate: Counter[str] = Counter()
    for key, found in made.items():
        assert len({reward for _, reward in found}) == 1, f"{key} has two rewards"
        names = [kind for kind, _ in found]
        assert names.count("training") <= 1, f"{key} was trained on twice"
        if found[0][1] is None:
            fate["failed"] += 1
        elif "training" in names:
            fate["trained"] += 1
        else:
            fate["filtered" if "discarded" in names else "waiting"] += 1
    generated = sum(line["recorded"] for line in lines.values())
    assert generated == len(made) == fate.total(), (generated, len(made), fate)
    wrong = [line["step"] for line in lines.values() if line["started"] != line["recorded"]]
    assert not wrong, f"steps {wrong[:5]}: started and recorded rollouts differ"
    warm = max(steps // 4, 1)
    width = max(steps // 10, 1)
    early, late = list(lines.values())[warm : warm + width], list(lines.values())[-width:]
    injected: Counter[str] = Counter()
    for line in lines.values():
        injected.update(line["injected"])
    memory, peak = (
        [median(line[name] for line in part if line[name]) for part in (early, late)]
        for name in ("kept", "rss")
    )
    report = {
        "steps": steps,
        "generated": generated,
        **{name: fate[name] for name in ("trained", "filtered", "failed", "waiting")},
        "kinds": sorted({key[0].partition("/")[0] for key in made}),
        "outcomes": dict(Counter(row["outcome"] for row in rows)),
        "injected": dict(injected),
        "processes_killed": steps // KILLED,
        "memory_megabytes": [round(each / 1e6, 1) for each in memory],
        "memory_growth": round(memory[1] / memory[0] - 1, 5),
        "with_reserves_megabytes": [round(each / 1e6, 1) for each in peak],
        "hours": round(sum(line["seconds"] for line in lines.values()) / 3600, 3),
    }
    for name in ("descriptors", "threads", "children"):
        report[name] = [max(line[name] for line in part) for part in (early, late)]
    print(json.dumps(report, indent=2))
    for name in ("descriptors", "threads", "children"):
        assert report[name][1] <= report[name][0], f"{name} leak: {report[name]}"
    assert report["memory_growth"] <= growth, f"memory grew by {report['memory_growth']:.2%}"
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("runs/soak"))
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--growth", type=float, default=0.01, help="of the memory in use")
    given = parser.parse_args()
    log = given.output.parent / f"{given.output.name}.soak.jsonl"
    left_out = set(BUILTIN) - set(kinds())
    print(f"built-in verifiers that are left out: {sorted(left_out) or 'none'}", file=sys.stderr)
    watch = Watch(log, given.output)
    gw.train(recipe(given.steps), output=given.output, resume=True, callbacks=[watch])
    report = outcome(given.output, log, given.steps, given.growth)
    (given.output / "soak.json").write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
