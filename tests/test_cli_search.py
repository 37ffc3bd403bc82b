"""`groupwise search` from the command line: results, and bad input."""

import json

import pytest

from groupwise.cli.app import run


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("search") / "sums.jsonl"
    rows = [{"prompt": f"{a}+{b}=", "answer": str(a + b)} for a in (1, 2, 3) for b in (4, 5)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def searched(capsys, data, *options):
    command = ["search", "tiny", "--data", str(data), "--json", "--max-tokens", "6", *options]
    assert run(command) == 0
    return json.loads(capsys.readouterr().out)


def test_majority_has_accuracy_with_an_interval_and_tokens(capsys, data):
    found = searched(capsys, data, "--method", "majority", "--samples", "4")
    low, high = found["accuracy_interval"]
    assert 0 <= low <= found["accuracy"] <= high <= 1
    assert found["tokens"] >= 6 * 4
    assert [point["samples"] for point in found["points"]] == [1, 2, 4]
    assert found == searched(capsys, data, "--samples", "4") | {"seconds": found["seconds"]}


def test_every_method_answers_with_the_options_of_the_command_alone(capsys, data):
    for method in ("best_of_n", "weighted", "process", "beam", "verbalized", "budget"):
        found = searched(capsys, data, "--method", method, "--samples", "2")
        assert found["method"] == method
        assert found["prompts"] == 6
        assert found["tokens"] > 0
        assert found["accuracy_interval"][0] <= found["accuracy"] <= found["accuracy_interval"][1]
        if method == "verbalized":  # `tiny` reads sums and nothing else
            assert found["counts"]["fallback"] == 6


def test_the_curves_are_written(capsys, data, tmp_path):
    target = tmp_path / "curve.svg"
    found = searched(capsys, data, "--samples", "2", "--plot", str(target))
    assert len(found["points"]) == 2
    assert target.read_text(encoding="utf-8").startswith("<svg ")
    budgets = ["--method", "budget", "--samples", "1", "--thinking-budget", "2,4"]
    assert [each["budget"] for each in searched(capsys, data, *budgets)["points"]] == [2, 4]


def test_the_separator_is_read_with_its_escapes_and_budgets_are_told_apart(capsys, data):
    found = searched(capsys, data, "--method", "process", "--samples", "1", "--separator", "\\t")
    assert found["notes"] == ["separator '\\t' is in no completion: each was one step"]
    command = ["search", "tiny", "--data", str(data), "--max-tokens", "6", "--samples", "1"]
    assert run([*command, "--method", "budget", "--thinking-budget", "2,4"]) == 0
    rows = capsys.readouterr().out.splitlines()[1:4]
    assert [row.split()[0] for row in rows] == ["budget", "2", "4"]


def test_the_scorer_and_the_columns_are_checked_before_sampling(capsys, data, tmp_path):
    from groupwise.policies import load_policy, save_pretrained

    save_pretrained(load_policy("tiny"), tmp_path / "policy")
    arguments = f"model = '{tmp_path / 'policy'}'"
    options = ["--method", "best_of_n", "--verifier", "reward_model", "--arguments", arguments]
    assert run(["search", "no-such-model", "--data", str(data), *options]) == 2
    assert "is not a sequence classifier" in capsys.readouterr().err
    other = tmp_path / "rows.jsonl"
    other.write_text('{"prompt": "1+1="}\n', encoding="utf-8")
    assert run(["search", "tiny", "--data", str(other)]) == 2
    assert "--data needs the column 'answer'" in capsys.readouterr().err


def test_the_table_names_the_scorer(capsys, data):
    options = ["--method", "best_of_n", "--samples", "2", "--verifier", "number"]
    assert run(["search", "tiny", "--data", str(data), "--max-tokens", "6", *options]) == 0
    shown = capsys.readouterr().out
    assert "best_of_n, scored by number: 6 prompts" in shown
    assert "reads the gold answer" in shown


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--method", "best_of"], "did you mean 'best_of_n'"),
        (["--samples", "0"], "samples = 0: must be at least 1"),
        (["--plot", "curve.png"], "give a file that ends in .svg"),
        (["--thinking-budget", "many"], "thinking_budget.0 = 'many'"),
        (["--data", "nowhere.jsonl"], "no such file; give rows with prompt and answer"),
        (["--method", "process", "--verifier", "number"], "gives none; give steps"),
        (["--verifier", "nubmer"], "did you mean 'number'"),
        (["--arguments", "kind = 1"], "give --verifier with them"),
        (["--combine", "product"], "combine is for process and beam, not for majority"),
        (["--verifier", "number"], "reads no scores, and verifier 'number' gives them"),
        (["--max-token", "9"], "did you mean 'max-tokens'"),
        (["--max-tokens"], "--max-tokens has no value"),
        (["--max-tokens", "many"], "expected a whole number"),
    ],
)
def test_bad_input_is_one_message_and_exit_code_2(capsys, data, options, words):
    """The model does not exist: nothing of it is looked at before the options are right."""
    given = [] if "--data" in options else ["--data", str(data)]
    assert run(["search", "no-such-model", *given, *options]) == 2
    shown = capsys.readouterr()
    assert words in shown.err
    assert shown.err.count("\n") == 1
    assert shown.out == ""


def test_a_file_without_rows_is_refused(capsys, tmp_path):
    empty = tmp_path / "empty.jsonl"
    empty.write_text("", encoding="utf-8")
    assert run(["search", "tiny", "--data", str(empty)]) == 2
    assert "empty.jsonl" in capsys.readouterr().err
