"""Known faults of the installed packages (pip-audit) and secrets in the checkout (detect-secrets).

    python tests/audit.py

Secrets are looked for here, without a network. Where no index answers within its time, pip-audit
says so and fails nothing. A line that only looks like a secret ends with
`pragma: allowlist secret`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SECONDS = 180
SKIPPED = (".svg", ".png", ".jsonl", ".parquet", ".safetensors")
BY_ENTROPY = ("HexHighEntropyString", "Base64HighEntropyString")
"""What takes every hash for a secret."""


def output_of(module: str, *arguments: str) -> Any:
    """What a tool writes as JSON; None where it does not within its time."""
    command = [sys.executable, "-m", module, *arguments]
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False
        )
        return json.loads(done.stdout)
    except (subprocess.TimeoutExpired, ValueError):
        return None


def secrets() -> list[str]:
    """`file:line: kind` of what looks like a secret among the files of the repository."""
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    files = [name for name in listed.stdout.splitlines() if not name.endswith(SKIPPED)]
    without = [part for plugin in BY_ENTROPY for part in ("--disable-plugin", plugin)]
    found = output_of("detect_secrets", "scan", "--no-verify", *without, *files)
    if found is None:
        return ["detect-secrets gave no result; run it by hand"]
    return [
        f"{name}:{each['line_number']}: {each['type']}"
        for name, entries in found["results"].items()
        for each in entries
    ]


def known_faults() -> list[str] | None:
    """`package version: id` of published vulnerabilities; None where no index has advisories."""
    found = output_of("pip_audit", "--local", "--format", "json", "--progress-spinner", "off")
    checked = [each for each in (found or {}).get("dependencies", ()) if "vulns" in each]
    if not checked:  # a mirror without advisories skips every package
        return None
    return [
        f"{package['name']} {package['version']}: {fault['id']}"
        for package in checked
        for fault in package["vulns"]
    ]


def main() -> int:
    hidden, faults = secrets(), known_faults()
    if faults is None:
        print("pip-audit: no index with advisories answered, so the packages were not checked")
    for line in (*hidden, *(faults or ())):
        print(line)
    return int(bool(hidden or faults))


if __name__ == "__main__":
    sys.exit(main())
