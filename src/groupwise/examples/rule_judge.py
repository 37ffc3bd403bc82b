"""A stand-in for a judge: rules behind an OpenAI-compatible endpoint on this machine's loopback.

No language model answers here. The rules read what `tiny-reasoner` writes, so that recipes with a
judge run without a network: `url = "groupwise.examples.rule_judge:reasoning"`. It is named for what
it is in its replies and by the `model` that recipes ask it for.
"""

from __future__ import annotations

import json
import re
import threading
import zlib
from collections.abc import Callable
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from groupwise.policies.tiny_reasoner import CHINESE, ENGLISH, Language

Rule = Callable[[str, str, str], float | None]
"""(rubric, task, completion) to a mark from 0 to 1, None where it has no rule for the rubric."""


def reasoning() -> str:
    """The address of the judge of worked sums; the server starts with the first call."""
    return start(reasoning_mark)


def coin() -> str:
    """The address of a judge whose marks are bits of the texts: a control."""
    return start(coin_mark)


def coin_mark(rubric: str, task: str, completion: str) -> float:
    return float(zlib.crc32(f"{rubric}\0{task}\0{completion}".encode()) % 2)


def reasoning_mark(rubric: str, task: str, completion: str) -> float | None:
    """The share of the rules that the rubric names which a worked sum meets.

    >>> text = "<think>first, seven plus eight is fifteen.\\n</think><answer>15</answer>"
    >>> [reasoning_mark(name, "7+8=", text) for name in ("in steps", "adds up", "is polite")]
    [1.0, 1.0, None]
    """
    named = [rule for phrase, rule in RULES.items() if phrase in rubric]
    steps = steps_of(completion)
    operands = [int(each) for each in re.findall(r"\d+", task)]
    marks = [float(rule(steps, operands, completion)) for rule in named]
    return sum(marks) / len(marks) if marks else None


Steps = list[tuple[bool, Language, int, int, int]]
"""Whether a line checks the one before it, its language, and a, b, c of "a plus b is c"."""


def steps_of(completion: str) -> Steps:
    found: Steps = []
    for line in completion.removeprefix("<think>").partition("</think>")[0].splitlines():
        for words in (ENGLISH, CHINESE):
            number = "(" + "|".join(sorted(map(re.escape, words.numbers), key=len)[::-1]) + ")"
            starts = "|".join((*words.places, words.check))
            end = re.escape(words.end.strip())
            sum_ = f"({starts}){number}{words.plus}{number}{words.equals}{number}{end}"
            if match := re.fullmatch(sum_, line):
                a, b, c = (words.numbers.index(each) for each in match.groups()[1:])
                found.append((match.group(1) == words.check, words, a, b, c))
    return found


def _uses_all(steps: Steps, operands: list[int], _text: str) -> bool:
    """The numbers of the task are added in order, each to the result before it."""
    total, added = operands[0], list[int]()
    for checks, _, a, b, c in steps:
        if not checks:
            if a != total:
                return False
            added.append(b)
        total = c
    return added == operands[1:]


def _ends_with_result(steps: Steps, _operands: list[int], text: str) -> bool:
    return bool(steps) and text.endswith(f"<answer>{steps[-1][4]}</answer>")


RULES: dict[str, Callable[[Steps, list[int], str], bool]] = {
    "in steps": lambda steps, _operands, _text: bool(steps),
    "adds up": lambda steps, _o, _t: bool(steps) and all(a + b == c for _, _, a, b, c in steps),
    "every number of the task": _uses_all,
    "result of the last step": _ends_with_result,
    "in English": lambda steps, _o, _t: bool(steps) and all(s[1] is ENGLISH for s in steps),
}
"""What a criterion has to say for a rule to be applied, and the rule."""


def reply(rule: Rule, question: str, rubric: str) -> str:
    """What the stand-in says to a judge's question: no verdict where it has no rule."""
    found = re.findall(r'\{"(score|better|order)_([0-9a-f]{8})"', question)
    if not found:
        return "A stand-in made of rules: this is not a judge's question."
    kind, nonce = found[-1]
    shown = re.findall(rf"<(\w+)-{nonce}>\n(.*?)\n</\1-{nonce}>", question, re.DOTALL)
    task = dict(shown)["task"]
    texts = {name: text for name, text in shown if name.startswith("completion")}
    marks = {name[-1]: rule(rubric, task, text) for name, text in texts.items()}
    known = {name: mark for name, mark in marks.items() if mark is not None}
    if len(known) < len(marks):
        return "A stand-in made of rules: it has none for this rubric."
    verdict: Any
    if kind == "score":
        low, high = map(int, re.findall(r"from (-?\d+) \(not at all\) to (-?\d+)", question)[-1])
        verdict = round(low + (high - low) * next(iter(known.values())))
    else:
        verdict = sorted(known, key=lambda name: -known[name])
        if kind == "better":
            verdict = "tie" if known["A"] == known["B"] else verdict[0]
    values = ", ".join(f"{mark:.2g}" for mark in known.values())
    return f"By rules, not by reading: {values}.\n{json.dumps({f'{kind}_{nonce}': verdict})}"


@cache
def start(rule: Rule) -> str:
    """The address of a server on the loopback that answers judges' questions by a rule. It ends
    with the process."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            system, user = (str(each["content"]) for each in body["messages"])
            said = reply(rule, user, system.partition("Rubric: ")[2])
            message = {"role": "assistant", "content": said}
            text = json.dumps({"model": "rules", "choices": [{"message": message}]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *arguments: Any) -> None:
            return

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 64

    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_address[1]}/v1"
