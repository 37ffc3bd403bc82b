"""Every relative link of every Markdown file points at a file, and at a heading where it names one.

Addresses outside the checkout are not asked: a check must pass without a network.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)")
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)


def slug(heading: str) -> str:
    text = re.sub(r"[`*_]", "", heading.strip().lower())
    return re.sub(r"[\s]+", "-", re.sub(r"[^\w\s-]", "", text)).strip("-")


def headings(path: Path) -> set[str]:
    text = FENCE.sub("", path.read_text(encoding="utf-8"))
    return {slug(match) for match in re.findall(r"^#+\s+(.*)$", text, re.MULTILINE)}


def broken(path: Path) -> list[str]:
    found = []
    text = re.sub(r"`[^`\n]*`", "", FENCE.sub("", path.read_text(encoding="utf-8")))
    for target in LINK.findall(text):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        aim = (path.parent / name).resolve() if name else path
        if "generated/" in target:
            continue  # made by docs/render.py; mkdocs --strict checks these
        if not aim.exists():
            found.append(f"{path.relative_to(ROOT)}: {target} does not exist")
        elif anchor and aim.suffix == ".md" and slug(anchor) not in headings(aim):
            found.append(f"{path.relative_to(ROOT)}: {target} names no heading")
    return found


def main() -> int:
    listed = subprocess.run(
        ["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    problems = [line for name in listed for line in broken(ROOT / name)]
    print("\n".join(problems) if problems else f"links of {len(listed)} files: all there")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
