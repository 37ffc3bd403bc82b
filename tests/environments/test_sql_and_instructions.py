"""Questions on tables, and rules to follow: what each prompt promises holds."""

import sqlite3

import pytest

from groupwise.environments import load_environment
from groupwise.environments.instruction_tasks import RULES
from groupwise.environments.sql_tasks import FORMS, THEMES
from groupwise.randomness import generator
from groupwise.verifiers.text.instruction_checks import CHECKS
from groupwise.verifiers.text.instructions import checked

LEVELS = ("easy", "medium", "hard")


def rows(script, query):
    with sqlite3.connect(":memory:") as connection:
        connection.executescript(script)
        return connection.execute(query).fetchall()


@pytest.mark.parametrize("level", LEVELS)
def test_gold_queries_give_rows_that_differ_between_the_databases(level):
    environment = load_environment("sql", level=level, num_train=20, num_heldout=5)
    for prompt in environment.prompts(split="all"):
        first, second = (rows(script, prompt.answer) for script in prompt.columns["setup"])
        assert first
        assert second
        assert first != second
        assert all(column in prompt.last_text for column in ("id INTEGER PRIMARY KEY", "name TEXT"))


def test_every_form_is_asked_of_every_theme():
    seen = {level: set() for level in LEVELS}
    for level in LEVELS:
        environment = load_environment("sql", level=level, num_train=40, num_heldout=0)
        for prompt in environment.prompts():
            theme = next(t.items for t in THEMES if f"TABLE {t.items} " in prompt.last_text)
            words = prompt.last_text.split("Wanted: ")[1].split()[:2]
            seen[level].add((theme, tuple(words)))
    assert [len(FORMS[level]) for level in LEVELS] == [4, 3, 4]
    assert all(len({theme for theme, _ in found}) == len(THEMES) for found in seen.values())


def test_a_bound_that_is_off_by_one_is_wrong():
    environment = load_environment("sql", level="easy", num_train=60, num_heldout=0)
    asked = [p for p in environment.prompts() if "how many" in p.last_text]
    assert len(asked) > 6
    for prompt in asked:
        head, bound = prompt.answer.rsplit(" ", 1)
        off = f"```sql\n{head} {int(bound) + 1}\n```"
        assert environment.verify(prompt, off).value == 0


@pytest.mark.parametrize("level", LEVELS)
def test_the_example_follows_all_rules_and_texts_without_content_do_not(level):
    environment = load_environment("instructions", level=level, num_train=60, num_heldout=0)
    for prompt in environment.prompts():
        assert environment.verify(prompt, prompt.columns["example"]).outcome == "correct"
        for text in ("", "I do not know.", prompt.last_text, "<answer></answer>", "Yes"):
            assert environment.verify(prompt, text).value == 0


def test_every_check_has_a_rule_whose_words_and_arguments_fit():
    rules = [(rule, rule.values(generator(0, "data", n))) for n, rule in enumerate(RULES)]
    assert {rule.id for rule, _ in rules} == set(CHECKS)
    begun = "We think about this for a while and then we write down what we see."
    for rule, values in rules:
        arguments = rule.arguments(values)
        assert checked([rule.id], [arguments])
        assert CHECKS[rule.id](rule.follow(begun, values), **arguments), rule
        for value in arguments.values():
            if isinstance(value, int):
                assert str(value) in rule.words(values)


def test_share_gives_a_part():
    environment = load_environment(
        "instructions", level="hard", num_train=20, num_heldout=0, count="share"
    )
    values = [
        environment.verify(prompt, "I do not know.").value for prompt in environment.prompts()
    ]
    assert max(values) > 0
    assert max(values) < 1
