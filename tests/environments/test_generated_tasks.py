"""Generated tasks against solvers written here: right gold answers, unique solutions."""

import ast
import datetime
import itertools
import re

import pytest

from groupwise.environments import load_environment
from groupwise.environments.calendar import clock, duration
from groupwise.environments.generated import is_heldout
from groupwise.environments.knights import Statement, solutions, structure
from groupwise.environments.multiple_choice import LETTERS
from groupwise.environments.sudoku import grids, num_solutions

LEVELS = ("easy", "medium", "hard")


def prompts(name, level, num=200, **arguments):
    environment = load_environment(name, level=level, num_train=num, num_heldout=20, **arguments)
    return environment.prompts()


@pytest.mark.parametrize("level", LEVELS)
def test_countdown_solutions_keep_the_rules(level):
    for prompt in prompts("countdown", level):
        numbers, target = list(prompt.columns["numbers"]), prompt.columns["target"]
        tree = ast.parse(prompt.answer, mode="eval")
        allowed = (ast.Expression, ast.BinOp, ast.Constant, ast.operator)
        assert all(isinstance(node, allowed) for node in ast.walk(tree))
        assert eval(prompt.answer) == target  # our own text, seen to be arithmetic
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant):
                numbers.remove(node.value)
        assert len(numbers) <= 1
        assert target not in prompt.columns["numbers"]
        assert set(re.findall(r"[-+*/]", prompt.answer)) <= set(prompt.columns["operations"])


def test_countdown_with_all_numbers_and_partial_credit():
    environment = load_environment("countdown", use_all=True, legal=0.1, num_train=30)
    for prompt in environment.prompts():
        assert sorted(map(int, re.findall(r"\d+", prompt.answer))) == sorted(
            prompt.columns["numbers"]
        )
        assert "exactly once" in prompt.last_text
        numbers = " + ".join(map(str, prompt.columns["numbers"]))
        value = environment.verify(prompt, f"<answer>{numbers}</answer>").value
        assert value == (1 if sum(prompt.columns["numbers"]) == prompt.columns["target"] else 0.1)


def brute_force(puzzle):
    """Fillings of a 4x4 puzzle by trying every digit in every empty cell, pruned by clashes."""
    cell = puzzle.find(".")
    if cell < 0:
        return [puzzle]
    row, column = divmod(cell, 4)
    seen = {
        puzzle[other]
        for other in range(16)
        if other // 4 == row
        or other % 4 == column
        or (other // 8 == cell // 8 and other % 4 // 2 == column // 2)
    }
    found = []
    for digit in sorted(set("1234") - seen):
        found += brute_force(puzzle[:cell] + digit + puzzle[cell + 1 :])
    return found


def test_the_288_grids_are_all():
    assert len(grids()) == 288
    assert sorted(grids()) == sorted(brute_force("." * 16))
    assert num_solutions("1" + "." * 15) == 72


@pytest.mark.parametrize("level", LEVELS)
def test_sudokus_have_one_solution(level):
    for prompt in prompts("sudoku", level):
        puzzle = "".join(prompt.columns["puzzle"])
        assert puzzle.count(".") == {"easy": 5, "medium": 8, "hard": 11}[level]
        assert brute_force(puzzle) == [prompt.answer.replace("\n", "")]


def test_a_solution_is_on_one_side():
    environment = load_environment("sudoku", level="hard")
    sides = [{each.answer for each in environment.prompts(split=s)} for s in ("train", "heldout")]
    assert not sides[0] & sides[1]
    assert len(sides[1]) > 30


def test_knights():
    same, knave = Statement("same", (0, 1)), Statement("knave", (0,), (False,))
    assert solutions([Statement("knave", (1,), (False,)), same]) == [(True, False)]
    assert solutions([same, knave]) == [(False, True)]
    assert solutions([knave, same]) == []  # "I am a knave"
    # the same puzzle with the two people swapped
    swapped = [Statement("knave", (1,), (False,)), Statement("same", (1, 0))]
    assert structure([same, knave]) == structure(swapped)
    assert structure([same, same]) != structure([same, knave])


SENTENCES = [
    (r"(\w+) and (\w+) are of the same kind", lambda w, a, b: w[a] == w[b]),
    (r"(\w+) and (\w+) are of different kinds", lambda w, a, b: w[a] != w[b]),
    (r"There (?:is|are) exactly (\d) knights? among us", lambda w, n: sum(w.values()) == int(n)),
    (r"(\w+) is a (\w+) and (\w+) is a (\w+)",
     lambda w, a, x, b, y: w[a] == (x == "knight") and w[b] == (y == "knight")),
    (r"(\w+) is a (\w+) or (\w+) is a (\w+)",
     lambda w, a, x, b, y: w[a] == (x == "knight") or w[b] == (y == "knight")),
    (r"(\w+) is a (\w+)", lambda w, a, x: w[a] == (x == "knight")),
]  # fmt: skip


def holds(sentence, world):
    for pattern, true in SENTENCES:
        if match := re.fullmatch(pattern, sentence):
            return true(world, *match.groups())
    raise AssertionError(sentence)


@pytest.mark.parametrize("level", LEVELS)
def test_knights_as_they_are_worded_have_one_solution(level):
    for prompt in prompts("knights", level, 100):
        said = re.findall(r'^(\w+) says: "(.*)\."$', prompt.last_text, re.M)
        names = [name for name, _ in said]
        found = []
        for kinds in itertools.product((True, False), repeat=len(names)):
            world = dict(zip(names, kinds))
            if all(holds(sentence, world) == world[name] for name, sentence in said):
                found.append(world)
        (world,) = found
        gold = ", ".join(f"{name}: {'knight' if world[name] else 'knave'}" for name in names)
        assert prompt.answer == gold


@pytest.mark.parametrize("level", LEVELS)
def test_equations_are_solved_by_their_gold(level):
    for prompt in prompts("equations", level):
        values = {name: int(value) for name, value in re.findall(r"(\w) = (-?\d+)", prompt.answer)}
        equations = [
            line.partition(": ")[2] or line
            for line in prompt.last_text.splitlines()
            if "=" in line and "..." not in line
        ]
        assert len(equations) == len(values)
        for equation in equations:
            text = re.sub(r"(\d)([a-z(])", r"\1*\2", equation)
            left, right = (eval(side, dict(values)) for side in text.split("="))
            assert left == right, equation


@pytest.mark.parametrize("level", LEVELS)
def test_sorting(level):
    for prompt in prompts("sorting", level, 100):
        items = prompt.columns["items"]
        key = str if prompt.columns["kind"] == "words" else float
        reverse = prompt.columns["direction"] == "descending"
        assert prompt.answer.split(", ") == sorted(items, key=key, reverse=reverse) != items


@pytest.mark.parametrize(
    ("kind", "solve"),
    [
        ("reverse", lambda q: q[0][::-1]),
        ("count", lambda q: str(q[1].count(q[0]))),
        ("remove", lambda q: q[1].replace(q[0], "")),
        ("word_order", lambda q: " ".join(reversed(q[0].split()))),
        ("merge", lambda q: "".join(itertools.chain(*zip(q[0], q[1])))),
    ],
)
def test_strings(kind, solve):
    for prompt in prompts("strings", "hard", 100, kinds=[kind]):
        assert solve(re.findall(r'"([^"]+)"', prompt.last_text)) == prompt.answer


def test_string_examples():
    (first, *_) = prompts("strings", "hard", 1, kinds=["shift"])
    word, by = re.search(r'"(\w+)" by the letter (\d)', first.last_text).groups()
    assert [(ord(b) - ord(a)) % 26 for a, b in zip(word, first.answer)] == [int(by)] * len(word)
    for prompt in prompts("strings", "easy", 50, kinds=["letter"], length=[3, 3]):
        place, word = re.search(r'the (\w+) one of "(\w+)"', prompt.last_text).groups()
        assert word[["first", "second", "third"].index(place)] == prompt.answer
    for prompt in prompts("strings", "medium", 50, kinds=["initials"]):
        words = prompt.last_text.partition("word: ")[2].partition("\n")[0].split(", ")
        assert prompt.answer == "".join(word[0] for word in words)


RIGHT = {
    "largest": lambda q, options: max(options, key=int),
    "smallest": lambda q, options: min(options, key=int),
    "first in the alphabet": lambda q, options: min(options),
    r"(\d+) \+ (\d+)": lambda q, options: str(int(q[0]) + int(q[1])),
    r"(\d+) \* (\d+)": lambda q, options: str(int(q[0]) * int(q[1])),
    r"when (\d+) is divided by (\d+)": lambda q, options: str(int(q[0]) % int(q[1])),
    r"multiple of (\d+)": lambda q, options: [o for o in options if int(o) % int(q[0]) == 0],
}


@pytest.mark.parametrize("level", LEVELS)
def test_multiple_choice(level):
    counts = dict.fromkeys(LETTERS, 0)
    found = prompts("multiple_choice", level, 600)
    for prompt in found:
        options = prompt.columns["choices"]
        assert len(set(options)) == len(options) == {"easy": 3, "medium": 4, "hard": 6}[level]
        question = prompt.last_text.splitlines()[0]
        for pattern, solve in RIGHT.items():
            if match := re.search(pattern, question):
                right = solve(match.groups(), options)
                assert right in (
                    options[LETTERS.index(prompt.answer)],
                    [options[LETTERS.index(prompt.answer)]],
                )
                break
        else:
            raise AssertionError(question)
        counts[prompt.answer] += 1
    expected = len(found) / len(options)
    assert all(
        0.6 * expected < counts[letter] < 1.4 * expected for letter in LETTERS[: len(options)]
    )


def test_the_middle_of_near_options_is_no_good_guess():
    found = prompts("multiple_choice", "hard", 600, kinds=["product"])
    ranks = [0] * 6
    for prompt in found:
        options = sorted(map(int, prompt.columns["choices"]))
        right = prompt.columns["choices"][LETTERS.index(prompt.answer)]
        ranks[options.index(int(right))] += 1
    assert min(ranks) > 60, ranks


def date_of(text):
    return datetime.datetime.strptime(text, "%d %B %Y").date()


@pytest.mark.parametrize("level", LEVELS)
def test_calendar(level):
    for prompt in prompts("calendar", level):
        text, kind = prompt.last_text, prompt.columns["kind"]
        dates = [date_of(each) for each in re.findall(r"\d{1,2} [A-Z][a-z]+ \d{4}", text)]
        times = [int(h) * 60 + int(m) for h, m in re.findall(r"(\d\d):(\d\d)", text.split("\n")[0])]
        if kind == "clock":
            hours = re.search(r"(\d+) hours?", text)
            minutes = re.search(r"(\d+) minutes?", text)
            length = 60 * int(hours[1] if hours else 0) + int(minutes[1] if minutes else 0)
            wanted = clock(times[0] + (-length if "ago" in text else length))
        elif kind == "minutes":
            wanted = str(times[1] - times[0])
        elif kind == "weekday":
            names = [datetime.date(2024, 1, day).strftime("%A") for day in range(1, 8)]
            start = names.index(re.search(r"Today is (\w+)", text)[1])
            days = int(re.search(r"(\d+) days", text)[1])
            wanted = names[(start + (-days if "ago" in text else days)) % 7]
        elif kind == "date":
            days = int(re.search(r"(\d+) days", text)[1])
            delta = datetime.timedelta(days=-days if "before" in text else days)
            wanted = (dates[0] + delta).isoformat()
        elif kind == "days":
            wanted = str((dates[1] - dates[0]).days)
        else:
            wanted = dates[0].strftime("%A")
        assert prompt.answer == wanted, text


def test_clock_words():
    assert (clock(0), clock(24 * 60), duration(61)) == ("00:00", "00:00", "1 hour and 1 minute")


def test_the_side_of_a_family_depends_on_seed_environment_and_family_alone():
    held = [is_heldout(0, "countdown", str(number)) for number in range(2000)]
    assert 330 < sum(held) < 470
    assert held != [is_heldout(1, "countdown", str(number)) for number in range(2000)]
    assert held != [is_heldout(0, "sorting", str(number)) for number in range(2000)]
