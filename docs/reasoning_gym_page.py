"""Write docs/reasoning_gym.md: every task of reasoning-gym, how it is judged or why it is refused.

The gold answers of 20 entries of every usable task are put through their verifier, in the sandbox.

Run: python docs/reasoning_gym_page.py    # a few minutes; a test compares all but the gold answers
"""

from __future__ import annotations

from pathlib import Path

from groupwise.environments import load_environment
from groupwise.environments.reasoning_gym import tasks
from groupwise.verifiers import Case
from groupwise.verifiers.answers.reasoning_gym import REFUSED

PAGE = Path(__file__).parent / "reasoning_gym.md"
SAMPLES = 20

INTRO = """\
# Tasks of reasoning-gym

<!-- Written by docs/reasoning_gym_page.py; a test keeps it equal to the code. -->

The package [reasoning-gym](https://github.com/open-thought/reasoning-gym) 0.1.25 generates 106
kinds of seeded tasks. With it (`pip install "groupwise[reasoning-gym]"`) each usable one is an
environment:

```toml
[environment]
name = "reasoning_gym:gcd"
num_train = 500
config = { max_value = 100 }     # fields of the task's own configuration
```

**How answers are judged.** No scorer of the package ever runs in the training process on what a
policy wrote: it runs in the [sandbox](security.md), as a trusted function on untrusted data. Nine
scorers execute what they judge, with `eval` or through an algebra system, so that an answer could
forge its verdict even there. Their tasks are refused, and so are those without a usable verdict;
the reason, and what to use instead, is below.

**Where the answer is read.** The last `<answer>` tag, else the last box, else what follows `answer
is` at the end, else the last line (as many last lines as the gold answer has). Prompts ask for the
tag; `instructions_text` says it in other words. Answers of several lines want the tag.

**What counts.** 1 where the scorer gives full marks, else 0. Many scorers give some credit to any
text, 0.01 or 0.05, and some give most of it to a sentence around the answer. `partial = true` lets
values below 1 count, those up to `threshold` (0.01) set to 0; look at what an answer without
content earns first.

Held-out prompts are the first distinct questions of the seed, training prompts those after them;
every gold answer is put through the verifier when the environment is loaded.

"""

ARGUMENTS = """\
| argument | default | what it is |
|---|---|---|
"""


def status(task: str) -> str:
    """How a task is judged, in words."""
    if task in REFUSED:
        return f"refused: {REFUSED[task]}"
    return "its scorer, in the sandbox"


def rows() -> list[tuple[str, str]]:
    """Every task with its status."""
    return [(task, status(task)) for task in tasks()]


def accepted(task: str) -> int:
    """How many of 20 gold answers are accepted as completions."""
    environment = load_environment(f"reasoning_gym:{task}", num_train=SAMPLES, num_heldout=0)
    prompts = environment.prompts()
    golds = [Case(each, f"So it is.\\n<answer>{each.answer}</answer>") for each in prompts]
    return sum(score.outcome == "correct" for score in environment.score(golds))


def arguments() -> str:
    from groupwise.environments.reasoning_gym import ReasoningGymSettings

    lines = [ARGUMENTS]
    for name, info in ReasoningGymSettings.model_fields.items():
        default = info.get_default(call_default_factory=True)
        shown = "none" if default is None else f"`{default!r}`"
        lines.append(f"| `{name}` | {shown} | {info.description} |\n")
    return "".join(lines)


def page(golds: dict[str, int]) -> str:
    usable = [task for task, _ in rows() if task not in REFUSED]
    counts = (
        f"Of {len(rows())} tasks {len(usable)} are judged by their scorer in the sandbox, and "
        f"{len(REFUSED)} are refused.\n\n"
    )
    lines = [INTRO, counts, f"| task | how it is judged | gold answers accepted, of {SAMPLES} |\n"]
    lines.append("|---|---|---|\n")
    for task, words in rows():
        lines.append(f"| `{task}` | {words} | {golds.get(task, '-')} |\n")
    return "".join([*lines, "\n## Arguments\n\n", arguments()])


if __name__ == "__main__":
    found = {}
    for task in tasks():
        if task not in REFUSED:
            found[task] = accepted(task)
            print(task, found[task], flush=True)
    PAGE.write_text(page(found), encoding="utf-8")
