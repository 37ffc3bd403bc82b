"""What the z3 checker runs inside the sandbox: trusted source, untrusted terms and values.

Values of a model are read by sort, never as SMT-LIB; a term is accepted only as one balanced
expression, so that it cannot bring a command of its own.
"""

from __future__ import annotations

SOURCE = r'''
import re
import z3

LINE = re.compile(r"([^\s=:()]+)\s*(?:=|:|\s)\s*(\S.*)")

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
    values = {}
    for line in given.splitlines():
        line = line.strip().rstrip(",;").strip()
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
            return ["no_answer", f"{name} = {values[name]} is no {constant.sort()}"]
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
    text = text.strip().replace(" ", "")
    negative = re.fullmatch(r"\(-(.+)\)", text)
    text = "-" + negative[1] if negative else text
    if sort == z3.BoolSort():
        return {"true": z3.BoolVal(True), "false": z3.BoolVal(False)}.get(text.lower())
    if sort == z3.IntSort():
        return z3.IntVal(int(text)) if re.fullmatch(r"-?\d{1,1000}", text) else None
    if sort == z3.RealSort():
        plain = re.fullmatch(r"-?\d{1,1000}(\.\d{1,1000})?(/0*[1-9]\d{0,999})?", text)
        return z3.RealVal(text) if plain else None
    if z3.is_bv_sort(sort):
        if re.fullmatch(r"#x[0-9a-fA-F]{1,1000}", text):
            return z3.BitVecVal(int(text[2:], 16), sort)
        if re.fullmatch(r"#b[01]{1,1000}", text):
            return z3.BitVecVal(int(text[2:], 2), sort)
        return z3.BitVecVal(int(text), sort) if re.fullmatch(r"-?\d{1,1000}", text) else None
    return None

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
