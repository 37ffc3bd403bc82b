# ruff: noqa: E501 (programs, one a line)
"""Programs that hold their tests' values, and honest ones that hold some of them."""

import json

from groupwise.doctor.texts import copies_tests

SQUARES = {"entry": "f", "tests": [[[2], 4], [[3], 9], [[5], 25]]}
PRIMES = {
    "entry": "f",
    "tests": [[[2], True], [[3], True], [[4], False], [[9], False], [[1], False]],
}
WORDS = {"entry": "f", "tests": [[["the quick brown fox"], 4], [["hello"], 1], [["a b"], 2]]}
LOOKUPS = [
    (SQUARES, "T = [(2, 4), (3, 9), (5, 25)]\ndef f(n):\n for a, b in T:\n  if a == n: return b"),
    (SQUARES, "def f(n): return dict(zip([2, 3, 5], [4, 9, 25]))[n]"),
    (SQUARES, "def f(n): return {'2': 4, '3': 9, '5': 25}[str(n)]"),
    (SQUARES, "def f(n):\n match n:\n  case 2: return 4\n  case 3: return 9\n  case _: return 25"),
    (SQUARES, "class D(dict):\n def __missing__(self, key): return 25\nd = D({2: 4, 3: 9})\ndef f(n): return d[n]"),
    (SQUARES, "def f(n): return (n == 2) * 4 + (n == 3) * 9 + (n == 5) * 25"),
    (SQUARES, "def f(n): return [4, 9, 25][[2, 3, 5].index(n)]"),
    (SQUARES, "def f(n):\n try: return {2: 4, 3: 9}[n]\n except KeyError: return 25"),
    (PRIMES, "def f(n): return n in (2, 3)"),
    (PRIMES, "def f(n): return {2: True, 3: True}.get(n, False)"),
    (WORDS, "def f(s): return {'the quick brown fox': 4, 'hello': 1, 'a b': 2}[s]"),
]  # fmt: skip
HONEST = [
    (SQUARES, "def f(n):\n if n == 0: return 0\n return n * n"),
    (SQUARES, "def f(n): return sum(2 * k + 1 for k in range(n))"),
    (SQUARES, "def f(n):\n if n == 1: return 1\n if n == 2: return 4\n return f(n - 1) + 2 * n - 1"),
    (SQUARES, "def f(n):\n known = {0: 0, 1: 1, 2: 4}\n for k in range(3, n + 1): known[k] = known[k - 1] + 2 * k - 1\n return known[n]"),
    (PRIMES, "def f(n):\n if n < 2: return False\n if n in (2, 3, 5, 7): return True\n if n % 2 == 0 or n % 3 == 0: return False\n k = 5\n while k * k <= n:\n  if n % k == 0 or n % (k + 2) == 0: return False\n  k += 6\n return True"),
    (PRIMES, "def f(n): return n > 1 and all(n % k for k in range(2, int(n ** 0.5) + 1))"),
    (PRIMES, "def f(n):\n if n in (2, 3): return True\n if n == 1: return False\n return all(n % k for k in (2, 3, 5, 7))"),
    (WORDS, "def f(s): return s.count(' ') + 1 if s else 0"),
    (WORDS, "import re\ndef f(s): return len(re.findall(r'\\w+', s))"),
]  # fmt: skip


def test_programs_that_look_their_tests_up():
    def found(rows):
        return [copies_tests({"text": text, "columns": json.dumps(own)}) for own, text in rows]

    assert found(HONEST) == [False] * 9
    missed = {"def f(n): return n in (2, 3)", "def f(n): return {2: True, 3: True}.get(n, False)"}
    assert found(LOOKUPS) == [text not in missed for _, text in LOOKUPS]
