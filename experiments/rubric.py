"""A rubric as the reward: 3 seeds, and the same recipe with random marks.

Runs recipes/rubric.toml, whose judge is a stand-in made of rules and never sees the gold answer;
asserts that the accuracy by the gold answer rises for every seed, and that it does not under random
marks; writes docs/rubric.md and docs/rubric.svg.

    python experiments/rubric.py            # about 15 minutes on one core; finished runs are read
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from arms import ROOT, Row, difference, draw, of_arm, play, shown, table

RECIPE = ROOT / "recipes" / "rubric.toml"
PAGE = ROOT / "docs" / "rubric.md"
SEEDS = (0, 1, 2)
URL = "environment.verifiers.0.arguments.judge.url"
ARMS: dict[str, dict[str, Any]] = {
    "the recipe": {},
    "random marks": {URL: "groupwise.examples.rule_judge:coin"},
}
SHOWN = {
    "eval/heldout_verifier/accuracy": "right, held out",
    "verifier/rubric": "the rubric's value",
    "completions/tokens_mean": "tokens",
}


def is_right(row: Mapping[str, Any]) -> bool:
    return bool(dict(row["rewards"])["accuracy"] == 1.0)


def check(rows: Sequence[Row]) -> None:
    """The rubric raises what it does not see; random marks do not."""
    for row in of_arm(rows, "the recipe"):
        assert row.gain[1] > 0.15, f"the recipe, seed {row.seed}: gained {shown(row.gain)}"
    for row in of_arm(rows, "random marks"):
        assert row.gain[0] < 0.05, f"random marks, seed {row.seed}: gained {shown(row.gain)}"


TEXT = """\
# A rubric as the reward

<!-- Written by experiments/rubric.py. -->

Written criteria with weights, which a judge reads one by one: the verifier `rubric`. Use it where
quality can be said in sentences and checked by no program.

```toml
[[environment.verifiers]]
name = "rubric"

[environment.verifiers.arguments]
criteria = "rubric.toml"          # tables of name, text and weight, in a file or here
judge = {{ url = "http://127.0.0.1:8000/v1", model = "my-judge" }}
# or: judge = {{ name = "local_judge", model = "folder" }}

[[criteria]]                      # rubric.toml
name = "works"
text = "The completion works the sum out in steps before it answers."
weight = 1.0                      # below 0: a fault, which loses
```

Each prompt can bring its own: `column = "own"` in place of `criteria`, a column of the data
with a list of texts, or of tables of `text`, `weight` (1 if absent) and `name` (only named ones are
parts of the score). A row whose column cannot be used is refused when the data is loaded.

```json
{{"prompt": "Say why.", "own": ["It names the axioms.", {{"text": "It errs.", "weight": -1}}]}}
```

The value is the weighted mean of the verdicts. Each is a part of the score
(`verifier/rubric/works` in the metrics), and the judge's words on each are in `reason`. A
completion without a readable verdict on each criterion is not scored, and counted
(`outcomes/...`): never a 0.

## Measured

`recipes/rubric.toml`: four criteria for sums of `tiny-reasoner`
([what it is](r1_zero.md#the-policy)): it works in steps, each step adds up, every number is used,
the answer is the last result. **The judge is a stand-in**: rules behind an endpoint on the loopback
(`groupwise.examples.rule_judge`), so that the recipe runs without a network; it shows that the way
from criteria to weights works, not how well a language model judges. It never sees the answer of
the sum; whether the answer is right only reports (`accuracy`, weight 0). The control replaces
the judge's marks by bits of the texts.

![Accuracy, rubric and length over the steps](rubric.svg)

{table}
Right by the gold answer, of the held-out prompts' sampled completions; the gain is paired by
prompt. The recipe less random marks, over prompts and seeds: {difference}.

## Judges that compare

A judge is one thing with three readouts.

| `readout` | asked | the value |
|---|---|---|
| `score` | each completion by itself | its mark, 0 to 1 |
| `pair` | two completions of a prompt at a time | the mean share of won comparisons |
| `list` | all completions of a prompt at once | the mean rank, 1 for the best, 0 for the last |

```toml
[[environment.verifiers]]
name = "judge"                    # or local_judge

[environment.verifiers.arguments]
readout = "pair"
opponents = 4
url = "http://127.0.0.1:8000/v1"
model = "my-judge"
```

`pair` and `list` ask every comparison in both orders and average, so that a judge that prefers what
stands first favours nobody. By how much it does is in the metrics: `custom/judge/position_bias`
(first less last, 0 for none), `custom/judge/orders_agree`, and `custom/judge/unread` for
comparisons left out because one of the two replies could not be read. The values compare
completions of one prompt in one step, which is what a group method needs; they say nothing about
accuracy (outcome `no_verdict`), so report that by a verifier of weight 0. `pair` on a group of G
takes G (G - 1) questions, `list` 2.

`local_judge` reads the probabilities of its words. With `think = 200` it writes its reasons first
(a generative reward model); `judge` always does, and the text before its verdict is the
`reason`.

Whether two judges agree, and how far an order in the text moves one: `groupwise audit`
([judges](verifiers_audit.md#judges)).

Run it: `groupwise train rubric`; the table: `python experiments/rubric.py`.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=ROOT / "runs" / "rubric")
    rows = play(RECIPE, ARMS, SEEDS, parser.parse_args().output, is_right)
    check(rows)
    draw(rows, SHOWN, ROOT / "docs" / "rubric.svg")
    gained = shown(difference(rows, "the recipe", "random marks"))
    PAGE.write_text(TEXT.format(table=table(rows), difference=gained), encoding="utf-8")


if __name__ == "__main__":
    main()
