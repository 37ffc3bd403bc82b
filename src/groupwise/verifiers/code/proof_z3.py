"""What the z3 checker runs inside the sandbox: trusted source, untrusted terms and values.

Values of a model are read by sort, never as SMT-LIB; a term is accepted only as one balanced
expression, so that it cannot bring a command of its own.
"""

from __future__ import annotations

SOURCE = r'''
import re
import z3

LINE = re.compile(r"([^\s=:()]+)\s*(?:==?|:=?|\s)\s*(\S.*)")
BETWEEN = re.compile(r"\n|(?:[,;]|\band\b)\s*(?=[^\s=:(),;]+\s*[=:])")
MARKS = re.compile(r"\A(?:[-*+]|\d+[.)])\s+")
DEFINED = re.compile(
    r"\(\s*define-fun\s+([^\s()]+)\s*\(\s*\)\s*(?:\([^()]*\)|[^\s()]+)\s+"
    r"((?:[^\s()]+|\((?:[^()]|\([^()]*\))*\)))\s*\)"
)

def check(goal, statement, gold, given):
    """("right" | "wrong" | "no_answer" | "bad", why)."""
    if goal == "satisfies":
        return satisfies(statement, given)
    return equivalent(statement, gold, given)

def parsed(text):
    try:
        return z3.parse_smt2_string(text), None
    except z3.Z3Exception as error:
        cause = error.args[0] if error.args else error
        return None, (cause.decode() if isinstance(cause, bytes) else str(cause)).strip()

def satisfies(statement, given):
    assertions, cause = parsed(statement)
    if cause is not None:
        return ["bad", cause]
    if not assertions:
        return ["bad", "the statement asserts nothing"]
    wanted = {}
    for each in assertions:
        collect(each, wanted)
    values = {name: text for name, text in DEFINED.findall(given) if name in wanted}
    for line in BETWEEN.split(given):
        line = MARKS.sub("", line.strip(), 1).strip("*$` \t").rstrip(",;.").strip()
        if line.startswith("(") and line.endswith(")"):
            line = line[1:-1].strip()
        match = LINE.fullmatch(line)
        if match and match[1] in wanted:
            values[match[1]] = match[2]
    missing = sorted(set(wanted) - set(values))
    if missing:
        return ["no_answer", "no value for " + ", ".join(missing)]
    pairs = []
    for name, constant in wanted.items():
        value = as_value(values[name], constant.sort())
        if value is None:
            return ["no_answer", f"{name} = {values[name]} is not a value of {constant.sort()}"]
        pairs.append((constant, value))
    for each in assertions:
        ground = z3.simplify(z3.substitute(each, *pairs))
        if not (z3.is_true(ground) or always(ground)):
            return ["wrong", f"does not hold: {each.sexpr()[:150]}"]
    return ["right", f"all {len(assertions)} assertions hold"]

def always(claim):
    solver = z3.Solver()
    solver.add(z3.Not(claim))
    return solver.check() == z3.unsat

def collect(expression, found):
    waiting, seen = [expression], set()
    while waiting:
        each = waiting.pop()
        if each.get_id() in seen:
            continue
        seen.add(each.get_id())
        if z3.is_const(each) and each.decl().kind() == z3.Z3_OP_UNINTERPRETED:
            found[each.decl().name()] = each
        waiting.extend(each.children())

def as_value(text, sort):
    text = " ".join(text.split())
    negative = re.fullmatch(r"\( ?- ?(.+)\)", text)
    text = negative[1].strip() if negative else text
    quotient = re.fullmatch(r"\( ?/ ?(\d+)(?:\.0)? (\d+)(?:\.0)? ?\)", text)
    text = f"{quotient[1]}/{quotient[2]}" if quotient else re.sub(r" ?/ ?", "/", text)
    text = "-" + text[2:] if text.startswith("- ") else text
    text = "-" + text if negative else text
    if sort == z3.BoolSort():
        return {"true": z3.BoolVal(True), "false": z3.BoolVal(False)}.get(text.lower())
    if sort == z3.IntSort():
        return z3.IntVal(int(text)) if re.fullmatch(r"-?\d{1,1000}", text) else None
    if sort == z3.RealSort():
        plain = re.fullmatch(r"-?\d{1,1000}(\.\d{1,1000})?(/0*[1-9]\d{0,999})?", text)
        return z3.RealVal(text) if plain else None
    if z3.is_bv_sort(sort):
        return as_bits(text, sort)
    return None

def as_bits(text, sort):
    """A bit vector written to its width, or a number that fits into it, signed or not."""
    size = sort.size()
    for pattern, base, bits in ((r"#x[0-9a-fA-F]{1,1000}", 16, 4), (r"#b[01]{1,1000}", 2, 1)):
        if re.fullmatch(pattern, text):
            whole = bits * (len(text) - 2) == size
            return z3.BitVecVal(int(text[2:], base), sort) if whole else None
    if not re.fullmatch(r"-?\d{1,1000}", text):
        return None
    return z3.BitVecVal(int(text), sort) if -(1 << size - 1) <= int(text) < 1 << size else None

def equivalent(statement, gold, given):
    given = given.strip()
    if not one_term(given):
        return ["no_answer", "not one balanced SMT-LIB term"]
    _, cause = parsed(f"{statement}\n(assert (= {gold} {gold}))")
    if cause is not None:
        return ["bad", cause]
    claim, cause = parsed(f"{statement}\n(assert (not (= {gold} {given})))")
    if cause is not None:
        return ["no_answer", cause]
    solver = z3.Solver()
    solver.add(claim)
    result = solver.check()
    if result == z3.unsat:
        given_alone = z3.Solver()
        given_alone.set("timeout", 1000)
        given_alone.add(z3.parse_smt2_string(statement))
        if given_alone.check() == z3.unsat:
            return ["bad", "the statement contradicts itself: every term is equivalent"]
        return ["right", "equivalent to the gold term"]
    if result == z3.sat:
        return ["wrong", f"differs where {str(solver.model())[:150]}"]
    return ["wrong", f"z3 cannot tell: {solver.reason_unknown()[:100]}"]

def one_term(text):
    """One symbol or one balanced pair of parentheses; no comments, strings or quoted symbols."""
    if not text or len(text) > 20000 or re.search(r'[;"|]', text):
        return False
    if not text.startswith("("):
        return not re.search(r"[\s()]", text)
    depth = 0
    for place, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth > 500 or depth < 0:
            return False
        if depth == 0:
            return place == len(text) - 1
    return False
'''
