"""The certificate of exact resume of every shipped recipe, at its small size.

    python experiments/certificates.py                  # a JSON line a recipe, as they end
    python experiments/certificates.py tiny_arithmetic  # some of them, again
    python experiments/certificates.py --table          # the table of docs/reliability.md

Each is `groupwise verify-resume NAME --small --kills 2` in a process of its own, which is ended
after `--limit` seconds. A recipe whose line is there is left out, so this can be interrupted.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "runs" / "certificates.jsonl"


def certificate(recipe: Path, kills: int, limit: float) -> dict[str, Any]:
    """One recipe's line: the certificate, or why there is none."""
    began = time.perf_counter()
    command = [
        *(sys.executable, "-m", "groupwise", "verify-resume", str(recipe), "--small"),
        *("--kills", str(kills), "--json"),
    ]
    run = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    line = {"recipe": recipe.stem, "kills_asked": kills}
    try:
        output, errors = run.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(run.pid, signal.SIGKILL)
        run.communicate()
        return {**line, "gave_up": limit}
    if not output:
        last = (errors.strip().splitlines() or ["no message"])[-1]
        return {**line, "error": last, "seconds": round(time.perf_counter() - began)}
    return {**line, **json.loads(output), "recipe": recipe.stem}


def lines() -> dict[str, dict[str, Any]]:
    """The newest line of each recipe."""
    texts = RESULTS.read_text("utf-8").splitlines() if RESULTS.exists() else []
    return {each["recipe"]: each for each in map(json.loads, texts)}


def row(line: dict[str, Any]) -> str:
    """A recipe's row of the table."""
    name = f"| `{line['recipe']}` |"
    if "gave_up" in line:
        return f"{name} not within {line['gave_up'] / 60:.0f} minutes | | | | |"
    if "error" in line:
        return f"{name} {line['error']} | | | | {line['seconds']} |"
    said = "equal" if line["equal"] else f"**not equal**: {line['first_difference']}"
    kinds = ", ".join(sorted(line["instants"]))
    files, bits = line["files"], f"{line['bits_compared']:,}"
    return f"{name} {said} | {line['kills']} ({kinds}) | {files} | {bits} | {line['seconds']:.0f} |"


def table() -> str:
    head = (
        "| recipe | result | killed | files | bits compared | seconds |\n|---|---|---|---|---|---|"
    )
    return "\n".join([head, *(row(line) for _, line in sorted(lines().items()))])


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipes", nargs="*", help="names of recipes; every one without a line")
    parser.add_argument("--kills", type=int, default=2)
    parser.add_argument("--limit", type=float, default=1800.0, help="seconds for one recipe")
    parser.add_argument("--table", action="store_true")
    chosen = parser.parse_args(given)
    if chosen.table:
        print(table())
        return 0
    RESULTS.parent.mkdir(exist_ok=True)
    names = chosen.recipes or [
        path.stem for path in sorted((ROOT / "recipes").glob("*.toml")) if path.stem not in lines()
    ]
    for name in names:
        line = certificate(ROOT / "recipes" / f"{name}.toml", chosen.kills, chosen.limit)
        with RESULTS.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        print(row(line), flush=True)
    return 0 if all(line.get("equal", True) for line in lines().values()) else 1


if __name__ == "__main__":
    sys.exit(main())
