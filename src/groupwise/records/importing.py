"""Other libraries' dumps as a record: TRL's completions (Parquet), JSON lines as veRL writes."""

from __future__ import annotations

import hashlib
import json
import math
import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from groupwise.errors import RecipeError
from groupwise.records.files import file_hash
from groupwise.records.reader import Run
from groupwise.records.rows import NOT_RECORDED
from groupwise.records.totals import has_signal, population_std
from groupwise.records.writer import RunWriter
from groupwise.texts import checks_itself, from_json, repeated_share

Source = Literal["trl-completions", "jsonl"]

# Field names that the libraries write, the first that a row has counts.
_PROMPT = ("prompt", "input", "question", "problem", "query")
_TEXT = ("completion", "output", "response", "text")
_REWARD = ("reward", "score", "rewards")
_ANSWER = ("answer", "gts", "ground_truth", "solution", "target")
_ADVANTAGE = ("advantage",)
_STEP = ("step", "global_step")
_LARGEST = 1e100
"""Of a reward, so that its square and a sum of squares are finite; of a step, 2**53."""


def import_rollouts(source: Source, path: str | Path, output: str | Path) -> Run:
    """Make a record of another library's rollouts; returns the opened run.

    `trl-completions`: the Parquet files that TRL's trainers write with `log_completions` (a file,
    or their folder); every numeric column besides step and advantage is a reward function, and the
    reward is their sum. `jsonl`: one object a line with prompt, completion and reward under the
    names of veRL, OpenRLHF or TRL; a row without a step takes the number in its file's name, as
    veRL's `rollout_data_dir` has it, else 0. Rows of one step with the same prompt are a group.
    Token ids and log-probabilities are not in such files and stay empty. The record is there whole
    or not at all.

    Raises RecipeError naming the file and row that cannot be read, or where `output` holds files.
    """
    path, output = Path(path), Path(output)
    if output.exists() and not (output.is_dir() and next(output.iterdir(), None) is None):
        raise RecipeError(f"output = {str(output)!r} is there already; name a new folder")
    files = _files(path, ".parquet" if source == "trl-completions" else ".jsonl")
    rows = [row for file in files for row in _rows_of(source, file)]
    if not rows:
        raise RecipeError(f"{path} holds no rows")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=output.parent, prefix=".import-") as unfinished:
            made = Path(unfinished) / "run"
            _write(source, files, rows, made)
            made.replace(output)
    except OSError as error:
        raise RecipeError(f"output = {str(output)!r} cannot be written: {error}") from error
    return Run(output)


def _write(
    source: Source, files: Sequence[Path], rows: Sequence[dict[str, Any]], output: Path
) -> None:
    hashes = {file.name: file_hash(file) for file in files}
    recipe = f'[imported]\nsource = "{source}"\nrows = {len(rows)}\n'
    with RunWriter.create(output, recipe, {"imported": {"source": source, "files": hashes}}) as to:
        steps: dict[int, list[dict[str, Any]]] = {}
        for row in rows:
            steps.setdefault(row["step"], []).append(row)
        for step, mine in sorted(steps.items()):
            _number_groups(mine)
            to.rollouts(step, mine)
            to.metrics(step, _metrics(mine))
        to.event("imported", source=source, rows=len(rows), steps=len(steps))


def _files(path: Path, suffix: str) -> list[Path]:
    if path.is_dir():
        found = sorted(path.glob(f"*{suffix}"), key=lambda file: (_number_in(file) or 0, file.name))
        if found:
            return found
        raise RecipeError(f"{path} holds no {suffix} file")
    if not path.is_file():
        raise RecipeError(f"there is no file {str(path)!r}; give a {suffix} file or their folder")
    return [path]


def _number_in(path: Path) -> int | None:
    digits = re.findall(r"\d+", path.stem)
    return int(digits[-1]) if digits else None


def _rows_of(source: Source, path: Path) -> Iterator[dict[str, Any]]:
    read = _parquet_rows if source == "trl-completions" else _json_rows
    for number, row in enumerate(read(path), start=1):
        where = f"{path}, row {number}"
        if not isinstance(row, Mapping):
            raise RecipeError(f"{where} is a {type(row).__name__}; give objects, one a line")
        yield _recorded(source, row, _number_in(path), where)


def _parquet_rows(path: Path) -> Iterable[Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        rows: list[Any] = pq.read_table(path).to_pylist()
    except (OSError, pa.ArrowException) as error:
        raise RecipeError(f"{path} is not a Parquet file: {error}") from error
    return rows


def _json_rows(path: Path) -> Iterator[Any]:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            where = f"{path}, line {number}"
            if number == 1 and line.lstrip().startswith(b"["):
                raise RecipeError(f"{where} begins a JSON array; give one object a line")
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
                if text.strip():
                    value = from_json(text)
                    if "\\ud" in text.lower():  # half of a surrogate pair is no text
                        json.dumps(value, ensure_ascii=False).encode()
                    yield value
            except UnicodeError as error:
                raise RecipeError(f"{where} is not UTF-8: {error}") from error
            except ValueError as error:
                raise RecipeError(f"{where} is not JSON: {error}") from error


def _recorded(
    source: Source, row: Mapping[str, Any], file_number: int | None, where: str
) -> dict[str, Any]:
    """A row of the record."""
    prompt, text = (_first(row, names, where) for names in (_PROMPT, _TEXT))
    if source == "trl-completions":
        rewards = {
            name: _number(value, f"{where}: {name}")
            for name, value in row.items()
            if _is_number(value) and name not in (*_STEP, *_ADVANTAGE)
        }
        given = [value for value in rewards.values() if value is not None]
        reward = math.fsum(given) if given else None
    else:
        reward = _number(_first(row, _REWARD, where), f"{where}: reward")
        rewards = {"reward": reward}
    step = _first(row, _STEP, "") if any(name in row for name in _STEP) else file_number or 0
    prompt_text, answer = _as_text(prompt), next((row[n] for n in _ANSWER if n in row), None)
    advantage = row.get("advantage")
    return {
        "step": _step(step, where),
        "version": 0,
        "kind": "training",
        "prompt_id": hashlib.sha256(prompt_text.encode("utf-8", "replace")).hexdigest()[:16],
        "visit": 0,
        "group_index": 0,
        "prompt": prompt_text,
        "answer": None if answer is None else _as_text(answer),
        "prompt_ids": [],
        "completion_ids": [],
        "mask": [],
        "sampler_logprobs": [],
        "text": _written(text),
        "finish_reason": str(row.get("finish_reason") or NOT_RECORDED),
        "reward": reward,
        "rewards": rewards,
        "outcome": _outcome(reward),
        "reason": str(row.get("reason") or ("no reward in the file" if reward is None else "")),
        "advantage": _number(advantage, f"{where}: advantage"),
    }


def _first(row: Mapping[str, Any], names: Sequence[str], where: str) -> Any:
    found = next((name for name in names if name in row), None)
    if found is None:
        raise RecipeError(f"{where} has none of {', '.join(names)}; it has {', '.join(row)}")
    return row[found]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(value: Any, where: str) -> float | None:
    if isinstance(value, bool | str):
        try:
            value = float(value)
        except ValueError as error:
            raise RecipeError(f"{where} = {value!r:.60} is not a number") from error
    if value is None or (_is_number(value) and math.isnan(value)):
        return None
    if not _is_number(value):
        raise RecipeError(f"{where} = {value!r:.60} is not a number")
    if not abs(value) <= _LARGEST:
        raise RecipeError(f"{where} = {value!r:.60}; give a number of at most {_LARGEST:g}")
    return float(value)


def _step(value: Any, where: str) -> int:
    number = _number(value, f"{where}: step") or 0.0
    if not (0 <= number < 2**53 and number.is_integer()):
        raise RecipeError(f"{where}: step = {value!r:.60}; give a whole number from 0 on, as 12")
    return int(number)


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _written(value: Any) -> str:
    """What the policy wrote: a text, or a chat's assistant messages."""
    if isinstance(value, list) and all(isinstance(each, Mapping) for each in value):
        mine = [each for each in value if each.get("role", "assistant") == "assistant"]
        return "\n".join(str(each.get("content") or "") for each in mine)
    return _as_text(value)


def _outcome(reward: float | None) -> str:
    """By the reward alone: what lies between 0 and 1 is partial, above it has no verdict."""
    if reward is None:
        return "not_applicable"
    if reward <= 0:
        return "incorrect"
    return "correct" if reward == 1 else "partial" if reward < 1 else "no_verdict"


def _number_groups(rows: Sequence[dict[str, Any]]) -> None:
    seen: Counter[str] = Counter()
    for row in rows:
        row["group_index"] = seen[row["prompt_id"]]
        seen[row["prompt_id"]] += 1


def _metrics(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    groups: dict[str, list[float | None]] = {}
    for row in rows:
        groups.setdefault(row["prompt_id"], []).append(row["reward"])
    scored = [row["reward"] for row in rows if row["reward"] is not None]
    known = [[r for r in group if r is not None] for group in groups.values()]
    spreads = [population_std(kept) for kept in known if len(kept) > 1]
    names = dict.fromkeys(name for row in rows for name in row["rewards"])
    verifiers = {
        f"verifier/{name}": _mean([row["rewards"].get(name) for row in rows]) for name in names
    }
    outcomes = Counter(row["outcome"] for row in rows)
    ends = [row["finish_reason"] for row in rows if row["finish_reason"] != NOT_RECORDED]
    return {
        "reward": _mean(scored),
        "reward_std": _mean(spreads),
        "groups/count": len(groups),
        "groups/no_signal": _mean([float(not has_signal(group)) for group in groups.values()]),
        "unscored": len(rows) - len(scored),
        "completions/count": len(rows),
        "completions/truncated": _mean([float(end != "stop") for end in ends]),
        "completions/repetition": _mean([repeated_share(row["text"].split()) for row in rows]),
        "completions/self_checks": _mean([float(checks_itself(row["text"])) for row in rows]),
        **{f"outcomes/{name}": number for name, number in outcomes.items()},
        **verifiers,
    }


def _mean(values: Iterable[float | None]) -> float | None:
    kept = [value for value in values if value is not None and not math.isnan(value)]
    return math.fsum(kept) / len(kept) if kept else None
