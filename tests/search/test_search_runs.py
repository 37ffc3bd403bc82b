"""Whole searches on policies whose distribution is known, against the exact expectation."""

import math
import string
from xml.etree import ElementTree

import numpy as np
import pytest
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

from groupwise.errors import RecipeError
from groupwise.randomness import uniforms
from groupwise.samplers import ScriptedSampler
from groupwise.search import SearchSettings, search
from groupwise.search.chart import search_chart
from groupwise.search.drafts import Draft
from groupwise.search.scoring import step_likelihoods
from groupwise.templates import Template
from groupwise.types import Prompt
from groupwise.verifiers import Verifier, load_verifier
from step_verifier import Sums

NUMBER = load_verifier("number")
STEPS = Sums()


def character_template():
    table = {"<unk>": 0, "<end>": 1} | {each: i + 2 for i, each in enumerate(string.printable)}
    tokenizer = Tokenizer(models.WordLevel(table, unk_token="<unk>"))
    tokenizer.decoder = decoders.Fuse()
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    return Template(tokenizer, None, special_tokens={"eos_token": "<end>"}, stop_ids=(1,))


TEMPLATE = character_template()


class DrawnSampler(ScriptedSampler):
    """`reply(context, uniform)` of everything before the completion and a draw from the key."""

    def __init__(self, reply):
        def script(request, _place):
            uniform = float(uniforms(np.array([request.key], np.uint64), np.array([0]))[0])
            return reply(TEMPLATE.decode(request.prompt_ids), uniform)

        super().__init__(TEMPLATE, script, logprob=math.log(0.5))


def run(reply, prompts=300, verifier=None, **fields):
    rows = [Prompt(f"p{i}", text=f"[{i}]", answer="7") for i in range(prompts)]
    return search(
        None,
        rows,
        SearchSettings(**fields),
        correct_by=NUMBER,
        verifier=verifier,
        sampler=DrawnSampler(reply),
        template=TEMPLATE,
    )


def agrees(result, exact):
    """Within four standard errors of a share of that many prompts."""
    return abs(result.accuracy - exact) < 4 * math.sqrt(exact * (1 - exact) / result.prompts)


def answer(_context, uniform):
    """7 with probability 0.4, 8 with 0.35, 9 with 0.25."""
    return "7" if uniform < 0.4 else "8" if uniform < 0.75 else "9"


def test_majority_along_the_samples():
    found = run(answer, method="majority", samples=4)
    assert [point.samples for point in found.points] == [1, 2, 4]
    one, _, four = found.points
    assert abs(one.accuracy - 0.4) < 4 * math.sqrt(0.24 / 1200)
    exact = 0.0  # by counts of 7, 8 and 9 among four, ties shared
    for seven in range(5):
        for eight in range(5 - seven):
            counts = (seven, eight, 4 - seven - eight)
            ways = math.factorial(4) / math.prod(map(math.factorial, counts))
            probability = ways * 0.4**seven * 0.35**eight * 0.25 ** counts[2]
            exact += probability * (seven == max(counts)) / counts.count(max(counts))
    assert agrees(found, exact)
    assert four.accuracy_interval[0] < exact < four.accuracy_interval[1]
    assert four.pass_at_k == pytest.approx(1 - 0.6**4, abs=0.08)
    assert found.tokens == 2 * 1200  # a digit and the end
    assert (one.tokens, four.tokens, four.kl) == (2, 8, None)
    assert found.diversity["majority"]["answer_entropy"] > 0.5


def test_best_of_n_by_a_verifier_that_reads_the_answer_is_pass_at_n_and_says_so():
    found = run(answer, verifier=NUMBER, method="best_of_n", samples=4)
    assert found.accuracy == found.points[-1].pass_at_k
    assert agrees(found, 1 - 0.6**4)
    assert found.points[-1].kl == pytest.approx(0.636294, abs=1e-6)
    assert "upper bound" in found.notes[0]


def test_the_likelihood_scores_by_default():
    found = run(answer, prompts=4, method="best_of_n", samples=2)
    assert (found.scorer, found.unscored, found.notes) == ("likelihood", 0, [])
    assert found.accuracy == found.points[0].accuracy  # all are equally likely: a tie


def worked(context, uniform):
    """Two equations, each right with probability 0.6; the answer is 7 where both are."""
    lines = context.rpartition("]")[2].splitlines()
    text = "".join(f"{line}\n" for line in lines)
    while len(lines) < 2:
        right = uniform < 0.6
        uniform = uniform / 0.6 if right else (uniform - 0.6) / 0.4
        lines.append("1=1" if right else "1=2")
    written = "".join(f"{line}\n" for line in lines)
    return written[len(text) :] + ("7" if "1=2" not in lines else "8")


def test_process_scores_find_the_right_completion_among_n():
    found = run(worked, verifier=STEPS, method="process", samples=3)
    assert agrees(found, 1 - (1 - 0.36) ** 3)
    last = run(worked, verifier=STEPS, method="process", samples=3, combine="last")
    # Of those with a right last step (0.6), any is as likely: 0.6 of them are right.
    assert agrees(last, (1 - 0.4**3) * 0.6)


def test_beam_over_steps():
    found = run(worked, verifier=STEPS, method="beam", samples=2, width=1)
    assert agrees(found, (1 - 0.4**2) ** 2)  # the better of two at each of two steps
    assert found.tokens == 300 * (2 * 4 + 2 * 4 + 2 * 2)
    with pytest.raises(RecipeError, match="'number' gives none; give steps"):
        run(worked, verifier=NUMBER, method="beam", samples=2)


def test_looking_ahead_needs_no_steps():
    found = run(worked, verifier=NUMBER, method="beam", samples=2, width=1, lookahead=2)
    # A right first step is chosen: both right, or the first (ties go to it), or the second where
    # one of its two completions is right.
    first = 0.6**2 + 0.6 * 0.4 + 0.4 * 0.6 * (1 - 0.4**2)
    assert agrees(found, first * (1 - 0.4**2))


def thinker(context, uniform):
    """Thinks in a few letters; each wait makes the answer 0.2 more likely to be right."""
    written = context.rpartition("]")[2]
    if "</think>" not in written:
        return "xx</think>" if "<think>" in written else "<think>xx</think>"
    return "7" if uniform < 0.3 + 0.2 * written.count("Wait") else "8"


def test_waits_lengthen_thinking():
    shared = {"method": "budget", "samples": 1, "max_tokens": 80}
    none, two = run(thinker, **shared), run(thinker, waits=2, **shared)
    assert agrees(none, 0.3)
    assert agrees(two, 0.7)
    assert two.counts == {"waits": 600, "closed": 0}
    assert two.tokens == none.tokens + 600 * len("xx</think>")  # the forced words are not sampled


def test_thinking_that_spent_its_budget_is_closed_and_answers():
    def endless(context, uniform):
        written = context.rpartition("]")[2]
        return ("7" if uniform < 0.5 else "8") if "</think>" in written else "<think>" + "x" * 99

    found = run(endless, method="budget", samples=1, max_tokens=40, thinking_budget=20)
    assert found.counts == {"waits": 0, "closed": 300}
    assert agrees(found, 0.5)
    assert found.tokens == 300 * (20 + 2)


def test_several_budgets_are_measured_one_after_the_other():
    def by_length(context, uniform):
        """The answer is right more often behind longer thinking."""
        written = context.rpartition("]")[2]
        if "</think>" not in written:
            return "<think>" + "x" * 99
        return "7" if uniform < written.count("x") / 20 else "8"

    shared = {"method": "budget", "samples": 1, "max_tokens": 40}
    found = run(by_length, thinking_budget=(17, 11), **shared)
    assert [(point.budget, point.tokens) for point in found.points] == [(11, 13), (17, 19)]
    for point, exact in zip(found.points, (4 / 20, 10 / 20), strict=True):
        assert abs(point.accuracy - exact) < 4 * math.sqrt(exact * (1 - exact) / 300)
    assert found.tokens == 300 * (13 + 19)
    shown = search_chart(found)
    assert "thinking budget, tokens" in shown
    assert "samples a prompt" not in shown


def test_the_chart_has_a_point_for_every_number_of_samples():
    found = run(answer, prompts=20, method="best_of_n", samples=4)
    root = ElementTree.fromstring(search_chart(found))
    space = "{http://www.w3.org/2000/svg}"
    texts = [each.text for each in root.iter(f"{space}text")]
    assert {"samples a prompt", "tokens a prompt", "KL of the best of n, nats at most"} <= set(
        texts
    )
    lines = root.findall(f".//{space}polyline")
    assert len(lines) == 2 * 3
    heights = [float(each.split(",")[1]) for each in lines[0].get("points").split()]
    accuracies = [point.accuracy for point in found.points]
    order = sorted(range(3), key=lambda place: accuracies[place])
    assert sorted(range(3), key=lambda place: -heights[place]) == order
    verticals = [each.get("d") for each in root.iter(f"{space}path") if "V" in each.get("d")]
    assert len(verticals) == 3 * 3  # the intervals


def test_a_completion_without_thinking_is_left_alone():
    found = run(answer, method="budget", samples=1, max_tokens=40, waits=3)
    assert found.counts == {"waits": 0, "closed": 0}
    assert agrees(found, 0.4)


def test_verbalised_sampling_with_fallback():
    def reply(context, uniform):
        if not context.startswith("Give 3 different"):
            return answer(context, uniform)
        if uniform > 0.7:
            return "cannot"
        rows = (("7", 0.6), ("8", 0.5), ("9", "nan"))
        return "".join(
            f"<response><text>{a}</text><probability>{p}</probability></response>" for a, p in rows
        )

    found = run(reply, method="verbalized", samples=3, max_tokens=100)
    assert agrees(found, 0.7 * 0.6 / 1.1 + 0.3 * 0.4)
    assert found.counts["fallback"] == pytest.approx(90, abs=32)
    assert found.counts["dropped"] == 300 - found.counts["fallback"]
    assert found.diversity.keys() == {"verbalized", "plain"}
    assert found.counts["plain_tokens"] == 2 * 900


def test_no_prompts_are_refused():
    with pytest.raises(RecipeError, match="no prompts to search"):
        run(answer, prompts=0, method="majority")


@pytest.mark.parametrize(
    "scorer",
    [
        load_verifier("reward_model", model="someone/scorer"),
        load_verifier("local_judge", model="someone/scorer"),
        load_verifier(
            "rubric",
            criteria=[{"name": "a", "text": "b"}],
            judge={"name": "local_judge", "model": "someone/scorer"},
        ),
    ],
    ids=lambda each: each.name,
)
def test_a_scorer_that_is_not_there_is_refused_before_anything_is_sampled(scorer):
    asked = []
    with pytest.raises(RecipeError, match="'someone/scorer'"):
        run(lambda *given: asked.append(given), verifier=scorer, method="best_of_n", samples=2)
    assert asked == []


def test_steps_are_scored_by_the_policy_where_no_verifier_is_given():
    text, logprobs = "1=1\n7", (-0.1, -0.2, -0.3, -0.2, -1.0, -3.0)
    draft = Draft((*TEMPLATE.encode(text), 1), logprobs, text, "stop")
    assert step_likelihoods(TEMPLATE, draft, "\n") == pytest.approx(
        [math.exp(-0.2), math.exp(-2.0)]
    )
    forced = Draft(draft.ids, (*logprobs[:4], None, None), text, "stop")
    assert step_likelihoods(TEMPLATE, forced, "\n") == pytest.approx([math.exp(-0.2)])


def test_a_completion_does_not_depend_on_the_other_prompts():
    one = DrawnSampler(answer)
    shared = {"correct_by": NUMBER, "sampler": one, "template": TEMPLATE}
    rows = [Prompt(f"p{i}", text=f"[{i}]", answer="7") for i in range(9)]
    settings = SearchSettings(method="majority", samples=2)
    search(None, rows, settings, **shared)
    keys = {(r.prompt_ids, r.key) for r in one.requests}
    one.requests.clear()
    search(None, rows[5:], settings, **shared)
    assert {(r.prompt_ids, r.key) for r in one.requests} < keys
    assert len({key for _, key in keys}) == 18


def test_a_scorer_of_steps_reranks():
    """As a process reward model: it has `step_values`, and its own value is not read."""

    class StepScorer(Verifier):
        name = "step_scorer"

        def step_values(self, cases):
            return [[float(line != "1=2") for line in case.text.splitlines()] for case in cases]

    found = run(worked, verifier=StepScorer(), method="process", samples=3)
    assert agrees(found, 1 - (1 - 0.36) ** 3)
    assert (found.scorer, found.unscored) == ("step_scorer", 0)
