"""A slow reference of every method: plain Python floats and loops, from the written formulas.

Nothing of the package is imported. A method is a function from `Case` to `Result`: advantages, the
loss, and its gradient with respect to each live log-probability in closed form (no automatic
differentiation: for a policy term it is -w A phi, with phi from the method's own formula).

Legend: i, j rows; t tokens; lp live, old, mu (sampler), ref log-probabilities of sampled tokens.
"""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

Row = list[float]


@dataclass
class Case:
    """One step that is one optimiser update. Everything is ragged: one list a row."""

    rewards: list[float]
    groups: list[int]
    lp: list[Row]
    old: list[Row]
    mu: list[Row]
    ref: list[Row]
    entropy: list[Row]
    components: list[Row]
    step_rewards: list[Row]
    step_ends: list[list[int]]
    truncated: list[bool]
    greedy: dict[int, float]
    values: list[Row]
    top_lp: list[list[Row]]
    top_mu: list[list[Row]]
    max_tokens: int
    teacher: list[Row]
    earlier: dict[int, list[Row]] = field(default_factory=dict)


@dataclass
class Result:
    """`advantages`: a number a row, or a list a row. Rows that do not train have gradient 0."""

    advantages: list[float] | list[Row]
    loss: float
    grad: list[Row]


# populations


def members(case: Case, i: int) -> list[int]:
    """Scored rows of row i's group, i included if it is scored."""
    return [j for j in scored_rows(case) if case.groups[j] == case.groups[i]]


def scored_rows(case: Case) -> list[int]:
    return [i for i, r in enumerate(case.rewards) if not math.isnan(r)]


def mean(xs: list[float]) -> float:
    return math.fsum(xs) / len(xs)


def std(xs: list[float]) -> float:
    m = mean(xs)
    return math.sqrt(math.fsum((x - m) ** 2 for x in xs) / len(xs))


def equal(xs: list[float]) -> bool:
    """All equal by their spread, with the tolerance that the package documents."""
    if len(xs) < 2:
        return True
    return max(xs) - min(xs) <= 1e-6 * max(abs(x) for x in xs) + 1e-7


def per_row(case: Case, f: Callable[[int], float]) -> list[float]:
    """f(i) for scored rows, 0 for the others."""
    scored = set(scored_rows(case))
    return [f(i) if i in scored else 0.0 for i in range(len(case.rewards))]


# advantages


def group_z(case: Case) -> list[float]:
    def f(i: int) -> float:
        xs = [case.rewards[j] for j in members(case, i)]
        return 0.0 if equal(xs) else (case.rewards[i] - mean(xs)) / std(xs)

    return per_row(case, f)


def group_centred(case: Case) -> list[float]:
    def f(i: int) -> float:
        xs = [case.rewards[j] for j in members(case, i)]
        return 0.0 if equal(xs) else case.rewards[i] - mean(xs)

    return per_row(case, f)


def batch_rows(case: Case, drop_uniform: bool) -> list[int]:
    if not drop_uniform:
        return scored_rows(case)
    return [i for i in scored_rows(case) if not equal([case.rewards[j] for j in members(case, i)])]


def over_batch_std(case: Case, centred: list[float], population: list[float]) -> list[float]:
    if equal(population):
        return [0.0] * len(centred)
    return per_row(case, lambda i: centred[i] / std(population))


def leave_one_out(case: Case, rewards: list[float]) -> list[float]:
    def f(i: int) -> float:
        rows = members(case, i)
        others = [rewards[j] for j in rows if j != i]
        if equal([rewards[j] for j in rows]):
            return 0.0
        return rewards[i] - mean(others)

    return per_row(case, f)


def rewards_minus_sequence_kl(case: Case, coef: float) -> list[float]:
    return [
        r - coef * math.fsum(o - q for o, q in zip(case.old[i], case.ref[i], strict=True))
        for i, r in enumerate(case.rewards)
    ]


def ranks(case: Case) -> list[float]:
    def f(i: int) -> float:
        rows = members(case, i)
        xs = [case.rewards[j] for j in rows]
        if equal(xs):
            return 0.0
        near = 1e-6 * max(abs(x) for x in xs) + 1e-7
        ties = [j for j in rows if abs(case.rewards[j] - case.rewards[i]) <= near]
        better = [j for j in rows if case.rewards[j] - case.rewards[i] > near]
        rank = len(better) + (1 + len(ties)) / 2
        return 2 - 4 * (rank - 1) / (len(rows) - 1)

    return per_row(case, f)


def gdpo_advantages(case: Case) -> list[float]:
    def z(i: int, n: int) -> float:
        xs = [case.components[j][n] for j in members(case, i)]
        return 0.0 if equal(xs) else (case.components[i][n] - mean(xs)) / std(xs)

    num = len(case.components[0])
    summed = per_row(case, lambda i: math.fsum(z(i, n) for n in range(num)))
    if num == 1:
        return summed
    population = [summed[i] for i in scored_rows(case)]
    if equal(population):
        return [0.0] * len(summed)
    m, s = mean(population), std(population)
    return per_row(case, lambda i: (summed[i] - m) / s)


def process_advantages(case: Case) -> list[Row]:
    out = []
    scored = set(scored_rows(case))
    for i in range(len(case.rewards)):
        pool = [x for j in members(case, i) for x in case.step_rewards[j]]
        row = [0.0] * len(case.lp[i])
        if i in scored and not equal(pool):
            m, s = mean(pool), std(pool)
            for t in range(len(row)):
                row[t] = math.fsum(
                    (x - m) / s
                    for x, end in zip(case.step_rewards[i], case.step_ends[i], strict=True)
                    if end >= t
                )
        out.append(row)
    return out


def entropy_shaped_tokens(case: Case, within_set: bool) -> list[Row]:
    """GTPO: O+ and O- by outcome; each set z-scored over all the group's tokens, or over itself."""
    out = []
    for i in range(len(case.rewards)):
        rows = [j for j in members(case, i) if case.lp[j]]
        plus = [j for j in rows if case.rewards[j] >= 0.5]
        minus = [j for j in rows if case.rewards[j] < 0.5]
        row = [0.0] * len(case.lp[i])
        if i in rows and plus and minus:
            mine, won = (plus, True) if i in plus else (minus, False)

            def shaped(j: int, t: int, mine: list[int] = mine, won: bool = won) -> float:
                alive = [k for k in mine if len(case.lp[k]) > t]
                if won:
                    share = case.entropy[j][t] / math.fsum(case.entropy[k][t] for k in alive)
                    return 1.0 + 0.1 * len(alive) * share
                total = math.fsum(1 / case.entropy[k][t] for k in alive)
                return -1.0 - 0.1 * len(alive) * (1 / case.entropy[j][t]) / total

            population = []
            for j in rows:
                for t in range(len(case.lp[j])):
                    if j in mine:
                        population.append(shaped(j, t))
                    elif not within_set:
                        population.append(0.0)
            if not equal(population):
                m, s = mean(population), std(population)
                row = [(shaped(i, t) - m) / s for t in range(len(row))]
        out.append(row)
    return out


def entropy_shaped_rows(case: Case) -> list[float]:
    """GRPO-S, sign-preserving: mean entropy a row; each set z-scored with zeros of the other."""
    h = [mean(row) if row else 0.0 for row in case.entropy]

    def f(i: int) -> float:
        rows = [j for j in members(case, i) if case.lp[j]]
        plus = [j for j in rows if case.rewards[j] >= 0.5]
        minus = [j for j in rows if case.rewards[j] < 0.5]
        if i not in rows or not plus or not minus:
            return 0.0
        mine = plus if i in plus else minus

        def shaped(j: int) -> float:
            if mine is plus:
                return 1.0 + 0.1 * len(plus) * h[j] / math.fsum(h[k] for k in plus)
            return -1.0 - 0.1 * len(minus) * (1 / h[j]) / math.fsum(1 / h[k] for k in minus)

        population = [shaped(j) if j in mine else 0.0 for j in rows]
        return 0.0 if equal(population) else (shaped(i) - mean(population)) / std(population)

    return per_row(case, f)


def dcpo_advantages(case: Case) -> list[float]:
    def z(x: float, pool: list[float]) -> float:
        return 0.0 if equal(pool) else (x - mean(pool)) / std(pool)

    def f(i: int) -> float:
        now = [case.rewards[j] for j in members(case, i)]
        earlier = case.earlier.get(case.groups[i], [])
        visit = len(earlier) + 1
        pool = [x for rewards in earlier for x in rewards] + now
        new, total = z(case.rewards[i], now), z(case.rewards[i], pool)
        smooth_new = ((visit - 1) * new + total) / visit
        smooth_total = (new + (visit - 1) * total) / visit
        return smooth_new if abs(smooth_new) <= abs(smooth_total) else smooth_total

    return per_row(case, f)


def token_rewards(case: Case, coef: float) -> list[Row]:
    """-coef (old - ref) a token, plus the reward at the last one; 0 in unscored rows."""
    out = []
    for i, row in enumerate(case.lp):
        if math.isnan(case.rewards[i]):
            out.append([0.0] * len(row))
            continue
        tokens = [-coef * (case.old[i][t] - case.ref[i][t]) for t in range(len(row))]
        if tokens:
            tokens[-1] += case.rewards[i]
        out.append(tokens)
    return out


def whiten_tokens(case: Case, advantages: list[Row]) -> list[Row]:
    scored = set(scored_rows(case))
    pool = [a for i, row in enumerate(advantages) if i in scored for a in row]
    if equal(pool):
        return [[0.0] * len(row) for row in advantages]
    m, s = mean(pool), std(pool)
    return [
        [(a - m) / s for a in row] if i in scored else [0.0] * len(row)
        for i, row in enumerate(advantages)
    ]


# which rows train, and how they share the loss


def training_rows(case: Case, *drops: Callable[[Case, int], bool]) -> list[int]:
    """Scored rows with a token that no filter takes: B."""
    return [i for i in scored_rows(case) if case.lp[i] and not any(drop(case, i) for drop in drops)]


def uniform_group(case: Case, i: int) -> bool:
    return equal([case.rewards[j] for j in members(case, i)])


def cut(case: Case, i: int) -> bool:
    return case.truncated[i]


def failed(case: Case, i: int) -> bool:
    return case.rewards[i] < 0.5


Weight = Callable[[Case, list[int], int], float]


def token_mean(case: Case, rows: list[int], i: int) -> float:
    return 1 / sum(len(case.lp[j]) for j in rows)


def sequence_mean(case: Case, rows: list[int], i: int) -> float:
    return 1 / (len(rows) * len(case.lp[i]))


def sequence_sum(case: Case, rows: list[int], i: int) -> float:
    return 1 / len(rows)


def constant(case: Case, rows: list[int], i: int) -> float:
    return 1 / (len(rows) * case.max_tokens)


def prompt_mean(case: Case, rows: list[int], i: int) -> float:
    prompts = {case.groups[j] for j in rows}
    tokens = sum(len(case.lp[j]) for j in rows if case.groups[j] == case.groups[i])
    return 1 / (len(prompts) * tokens)


# the loss, token by token

Shape = Callable[[float, float, float, float], tuple[float, float]]
"""(ratio, A, lp, anchor) -> (objective f, phi with d f/d lp = A phi)."""


def clip(low: float, high: float) -> Shape:
    def f(r: float, a: float, lp: float, anchor: float) -> tuple[float, float]:
        value = min(r * a, min(max(r, 1 - low), 1 + high) * a)
        silenced = (a > 0 and r > 1 + high) or (a < 0 and r < 1 - low)
        return value, 0.0 if silenced else r

    return f


def dynamic_clip(r: float, a: float, lp: float, anchor: float) -> tuple[float, float]:
    q = math.exp(anchor)
    low = 0.5 + 0.5 * math.sqrt(max(1 - 4 * 0.16 / q, 0.0))
    high = min(0.5 + 0.5 * math.sqrt(1 + 4 * 0.2 / q), 10.0)
    return clip(1 - low, high - 1)(r, a, lp, anchor)


def plain_logp(r: float, a: float, lp: float, anchor: float) -> tuple[float, float]:
    return a * lp, 1.0


def unclipped(r: float, a: float, lp: float, anchor: float) -> tuple[float, float]:
    return r * a, r


def cispo(r: float, a: float, lp: float, anchor: float) -> tuple[float, float]:
    phi = min(r, 5.0)
    return phi * a * lp, phi


def soft_gate(r: float, a: float, lp: float, anchor: float) -> tuple[float, float]:
    tau = 1.0 if a > 0 else 1.05
    s = 1 / (1 + math.exp(-tau * (r - 1)))
    return 4 / tau * s * a, 4 * s * (1 - s) * r


def gamma_kernel(w: float, a: float, lp: float, anchor: float) -> tuple[float, float]:
    k, lam = (2.0, 3.0) if a >= 0 else (3.0, 2.0)
    phi = w**k * math.exp(lam * (1 - w))
    return phi * a * lp, phi


def divergence_mask(measure: Callable[[float, float], float], delta: float) -> Shape:
    def f(r: float, a: float, lp: float, anchor: float) -> tuple[float, float]:
        pi, mu = math.exp(lp), math.exp(anchor)
        d = measure(pi, mu)
        dropped = (a > 0 and pi > mu and d > delta) or (a <= 0 and pi < mu and d > delta)
        phi = 0.0 if dropped else min(r, 20.0)
        return phi * a * lp, phi

    return f


def tv(pi: float, mu: float) -> float:
    return abs(pi - mu)


def two_event_kl(pi: float, mu: float) -> float:
    return mu * math.log(mu / pi) + (1 - mu) * math.log((1 - mu) / (1 - pi))


def symmetric_mask(r: float, a: float, lp: float, anchor: float) -> tuple[float, float]:
    keep = abs(math.exp(lp) - math.exp(anchor)) <= 0.15
    return (r * a, r) if keep else (0.0, 0.0)


def token_loss(
    case: Case,
    advantages: list[float] | list[Row],
    rows: list[int],
    weight: Weight,
    shape: Shape,
    anchor: list[Row] | None,
    factor: Callable[[int, int], float] = lambda i, t: 1.0,
    kl: tuple[str, float] | None = None,
) -> Result:
    """sum w (-f + coef kl) with a ratio a token (or none)."""
    loss, grad = 0.0, [[0.0] * len(row) for row in case.lp]
    for i in rows:
        w = weight(case, rows, i)
        for t, lp in enumerate(case.lp[i]):
            a = at(advantages, i, t)
            base = lp if anchor is None else anchor[i][t]
            value, phi = shape(math.exp(lp - base), a, lp, base)
            loss -= w * factor(i, t) * value
            grad[i][t] -= w * factor(i, t) * a * phi
            if kl is not None:
                penalty, slope = kl_term(kl[0], lp, case.ref[i][t], case.old[i][t])
                loss += w * kl[1] * penalty
                grad[i][t] += w * kl[1] * slope
    return Result(advantages, loss, grad)


def kl_term(name: str, lp: float, ref: float, old: float) -> tuple[float, float]:
    """(value, slope in lp) of an estimator at d = lp - ref."""
    d = lp - ref
    k3, slope3 = math.exp(-d) + d - 1, 1 - math.exp(-d)
    if name == "k1":
        return d, 1.0
    if name == "k2":
        return d * d / 2, d
    if name == "k3":
        return k3, slope3
    if name == "k3+":
        return k3, d
    r = math.exp(lp - old)
    return r * k3, r * k3 + r * slope3


def at(advantages: list[float] | list[Row], i: int, t: int) -> float:
    a = advantages[i]
    return a[t] if isinstance(a, list) else a


def sequence_loss(
    case: Case,
    advantages: list[float],
    rows: list[int],
    level: str,
    low: float,
    high: float,
    row_weight: Callable[[int], float],
) -> Result:
    """One clipped term a row, on a ratio that the row shares: sum_i row_weight (-min(..))."""
    loss, grad = 0.0, [[0.0] * len(row) for row in case.lp]
    for i in rows:
        logs = [lp - o for lp, o in zip(case.lp[i], case.old[i], strict=True)]
        n = len(logs)
        if level == "geometric":
            s = math.exp(math.fsum(logs) / n)
            slopes = [s / n] * n
        elif level == "product":
            s = math.exp(min(max(math.fsum(logs), -20.0), 20.0))
            slopes = [s if abs(math.fsum(logs)) <= 20 else 0.0] * n
        else:
            s = mean([math.exp(x) for x in logs])
            slopes = [math.exp(x) / n for x in logs]
        value, phi = clip(low, high)(s, advantages[i], 0.0, 0.0)
        loss -= row_weight(i) * value
        for t in range(n):
            grad[i][t] -= row_weight(i) * (advantages[i] * slopes[t] if phi else 0.0)
    return Result(advantages, loss, grad)


# the methods


def reinforce(case: Case) -> Result:
    xs = [case.rewards[i] for i in scored_rows(case)]
    centred = per_row(case, lambda i: 0.0 if equal(xs) else case.rewards[i] - mean(xs))
    return token_loss(case, centred, training_rows(case), sequence_sum, plain_logp, None)


def reinforce_pp(case: Case) -> Result:
    to_go = [[math.fsum(row[t:]) for t in range(len(row))] for row in token_rewards(case, 0.01)]
    advantages = whiten_tokens(case, to_go)
    return token_loss(case, advantages, training_rows(case), token_mean, clip(0.2, 0.2), case.old)


def reinforce_pp_baseline(case: Case) -> Result:
    """Whitened over tokens: a completion counts once for each of its tokens."""
    centred = group_centred(case)
    scored = scored_rows(case)
    tokens = [centred[i] for i in scored for _ in case.lp[i]]
    advantages = (
        [0.0] * len(centred)
        if equal(tokens)
        else per_row(case, lambda i: (centred[i] - mean(tokens)) / std(tokens))
    )
    return token_loss(
        case, advantages, training_rows(case), token_mean, clip(0.2, 0.2), case.old,
        kl=("k2", 0.01),
    )  # fmt: skip


def opo(case: Case) -> Result:
    def f(i: int) -> float:
        rows = members(case, i)
        if equal([case.rewards[j] for j in rows]):
            return 0.0
        lengths = [len(case.lp[j]) for j in rows]
        products = [n * case.rewards[j] for n, j in zip(lengths, rows, strict=True)]
        return case.rewards[i] - math.fsum(products) / max(sum(lengths), 1)

    return token_loss(case, per_row(case, f), training_rows(case), sequence_sum, plain_logp, None)


def gpg(case: Case) -> Result:
    groups = {g: [i for i, other in enumerate(case.groups) if other == g] for g in case.groups}
    alive = 0
    for rows in groups.values():
        alive += not equal([case.rewards[i] for i in rows if i in scored_rows(case)])
    scale = len(groups) / max(alive, 1)
    advantages = [scale * a for a in group_centred(case)]
    return token_loss(case, advantages, training_rows(case), token_mean, plain_logp, None)


def pass_at_k(case: Case, k: int = 4) -> Result:
    """By counting subsets: a completion's mean reward over the k-subsets that it is in, against the
    mean over all of them, in units of their deviation."""

    def f(i: int) -> float:
        rows = members(case, i)
        if len(rows) < k:
            return 0.0
        best = {
            subset: float(any(case.rewards[j] >= 0.5 for j in subset))
            for subset in itertools.combinations(rows, k)
        }
        everything = list(best.values())
        if equal(everything):
            return 0.0
        own = [value for subset, value in best.items() if i in subset]
        return (mean(own) - mean(everything)) / std(everything)

    return token_loss(
        case, per_row(case, f), training_rows(case), sequence_mean, clip(0.2, 0.2), case.old
    )


def gmpo(case: Case) -> Result:
    a, rows = group_z(case), training_rows(case)
    loss, grad = 0.0, [[0.0] * len(row) for row in case.lp]
    for i in rows:
        n = len(case.lp[i])
        logs = [lp - o for lp, o in zip(case.lp[i], case.old[i], strict=True)]
        kept = [min(x, 0.4) if a[i] > 0 else max(x, -0.4) for x in logs]
        ratio = math.exp(mean(kept))
        loss -= ratio * a[i] / len(rows)
        for t in range(n):
            grad[i][t] -= ratio * a[i] / (n * len(rows)) if kept[t] == logs[t] else 0.0
    return Result(a, loss, grad)


def covariances(case: Case, a: list[float], rows: list[int]) -> dict[tuple[int, int], float]:
    """(row, token) -> (lp - mean lp)(A - mean A) over the update's tokens, at its start."""
    places = [(i, t) for i in rows for t in range(len(case.lp[i]))]
    if not places:
        return {}
    mean_lp = mean([case.old[i][t] for i, t in places])
    mean_a = mean([a[i] for i, _ in places])
    return {(i, t): (case.old[i][t] - mean_lp) * (a[i] - mean_a) for i, t in places}


def mixed(*numbers: float) -> int:
    """63 bits from the bits of floats, by the mixing of splitmix64, with the seed 0."""
    state = 0
    for x in numbers:
        state ^= int.from_bytes(struct.pack("<d", x), "little")
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            state = (state ^ (state >> shift)) * factor % 2**64
    return state % 2**63


def clip_cov(case: Case, share: float = 2e-4, low: float = 1.0, high: float = 5.0) -> Result:
    a, rows = group_z(case), training_rows(case)
    cov = covariances(case, a, rows)
    drawn = sorted(
        (place for place, c in cov.items() if low < c < high),
        key=lambda place: mixed(case.old[place[0]][place[1]], a[place[0]]),
    )[: max(1, int(share * len(cov)))]
    return token_loss(
        case, a, rows, token_mean, clip(0.2, 0.2), case.old,
        factor=lambda i, t: 0.0 if (i, t) in drawn else 1.0,
    )  # fmt: skip


def kl_cov(case: Case, share: float = 2e-4, coef: float = 1.0) -> Result:
    a, rows = group_z(case), training_rows(case)
    cov = covariances(case, a, rows)
    held = sorted(cov, key=lambda place: -cov[place])[: max(1, int(share * len(cov)))]
    made = token_loss(case, a, rows, token_mean, lambda r, a, lp, anchor: (r * a, r), case.old)
    loss = made.loss
    for i, t in held:
        x = case.lp[i][t] - case.old[i][t]
        loss += coef * abs(x) / len(cov)
        made.grad[i][t] += coef * ((x > 0) - (x < 0)) / len(cov)
    return Result(a, loss, made.grad)


def remax(case: Case) -> Result:
    advantages = per_row(case, lambda i: case.rewards[i] - case.greedy[case.groups[i]])
    return token_loss(case, advantages, training_rows(case), sequence_sum, plain_logp, None)


def rloo(case: Case) -> Result:
    advantages = leave_one_out(case, rewards_minus_sequence_kl(case, 0.05))
    return token_loss(case, advantages, training_rows(case), sequence_sum, plain_logp, None)


def rloo_clipped(case: Case) -> Result:
    advantages = leave_one_out(case, rewards_minus_sequence_kl(case, 0.05))
    rows = training_rows(case)
    return sequence_loss(case, advantages, rows, "product", 0.2, 0.2, lambda i: 1 / len(rows))


def grpo(case: Case) -> Result:
    return token_loss(
        case, group_z(case), training_rows(case), sequence_mean, clip(0.2, 0.2), case.old,
        kl=("k3", 0.04),
    )  # fmt: skip


def grpo_process(case: Case) -> Result:
    return token_loss(
        case, process_advantages(case), training_rows(case), sequence_mean, clip(0.2, 0.2),
        case.old, kl=("k3", 0.04),
    )  # fmt: skip


def lite_ppo(case: Case) -> Result:
    rewards = [case.rewards[i] for i in scored_rows(case)]
    advantages = over_batch_std(case, group_centred(case), rewards)
    return token_loss(case, advantages, training_rows(case), token_mean, clip(0.2, 0.2), case.old)


def max_rl(case: Case) -> Result:
    centred = group_centred(case)

    def f(i: int) -> float:
        m = mean([case.rewards[j] for j in members(case, i)])
        return 0.0 if abs(m) < 1e-6 else centred[i] / m

    return token_loss(
        case, per_row(case, f), training_rows(case), token_mean, clip(0.2, 0.2), case.old
    )


def dr_grpo(case: Case) -> Result:
    return token_loss(
        case, group_centred(case), training_rows(case), constant, clip(0.2, 0.2), case.old
    )


def soft_overlong(case: Case) -> Case:
    """DAPO's length shaping with a cache of a fifth of the budget."""
    width = 0.2 * case.max_tokens
    shaped = []
    for i, r in enumerate(case.rewards):
        n = len(case.lp[i])
        if n <= case.max_tokens - width:
            amount = 0.0
        elif n <= case.max_tokens:
            amount = (case.max_tokens - width - n) / width
        else:
            amount = -1.0
        shaped.append(r + amount)
    return Case(**{**case.__dict__, "rewards": shaped})


def dapo_rows(case: Case) -> list[int]:
    """By accuracy (the rewards before the shaping): uniform groups out; truncated rows out."""
    return training_rows(case, uniform_group, cut)


def dapo(case: Case) -> Result:
    advantages = group_z(soft_overlong(case))
    return token_loss(case, advantages, dapo_rows(case), token_mean, clip(0.2, 0.28), case.old)


def dapo_per_prompt(case: Case) -> Result:
    advantages = group_z(soft_overlong(case))
    return token_loss(case, advantages, dapo_rows(case), prompt_mean, clip(0.2, 0.28), case.old)


def gspo(case: Case) -> Result:
    rows = training_rows(case)
    return sequence_loss(
        case, group_z(case), rows, "geometric", 3e-4, 4e-4, lambda i: 1 / len(rows)
    )


def gspo_token(case: Case) -> Result:
    """The sequence's value with each token's own gradient; one advantage a row."""
    a, rows = group_z(case), training_rows(case)
    loss, grad = 0.0, [[0.0] * len(row) for row in case.lp]
    for i in rows:
        n = len(case.lp[i])
        s = math.exp(mean([lp - o for lp, o in zip(case.lp[i], case.old[i], strict=True)]))
        value, phi = clip(3e-4, 4e-4)(s, a[i], 0.0, 0.0)
        for t in range(n):
            loss -= value / (len(rows) * n)
            grad[i][t] -= a[i] * phi / (len(rows) * n)
    return Result(a, loss, grad)


def gspo_length_weighted(case: Case) -> Result:
    rows = training_rows(case)
    total = sum(len(case.lp[i]) for i in rows)
    return sequence_loss(
        case, group_z(case), rows, "geometric", 3e-4, 4e-4, lambda i: len(case.lp[i]) / total
    )


def two_grpo(case: Case) -> Result:
    return token_loss(
        case, group_z(case), training_rows(case), sequence_mean, clip(0.2, 0.2), case.old
    )


def online_pair_logistic(case: Case) -> Result:
    """-log sigmoid(.1 (margin of the winner - margin of the loser)), the mean over pairs' rows."""
    a, rows = group_z(case), training_rows(case)
    loss, grad = 0.0, [[0.0] * len(row) for row in case.lp]
    for i in rows:
        partner = [j for j in rows if case.groups[j] == case.groups[i] and j != i]
        if a[i] <= 0 or len(partner) != 1 or a[partner[0]] >= 0:
            continue
        j = partner[0]
        margin = math.fsum(case.lp[i]) - math.fsum(case.old[i])
        margin -= math.fsum(case.lp[j]) - math.fsum(case.old[j])
        p = 1 / (1 + math.exp(-0.1 * margin))
        loss -= 2 / len(rows) * math.log(p)
        for row, sign in ((i, -1.0), (j, 1.0)):
            for t in range(len(case.lp[row])):
                grad[row][t] += 2 / len(rows) * sign * 0.1 * (1 - p)
    return Result(a, loss, grad)


def sapo(case: Case) -> Result:
    return token_loss(case, group_z(case), training_rows(case), sequence_mean, soft_gate, case.old)


def cispo_method(case: Case) -> Result:
    return token_loss(case, group_z(case), training_rows(case), token_mean, cispo, case.old)


def scale_rl(case: Case) -> Result:
    centred = group_centred(case)
    population = [centred[i] for i in batch_rows(case, drop_uniform=True)]
    advantages = over_batch_std(case, centred, population)
    rows = training_rows(case, uniform_group)
    return token_loss(case, advantages, rows, prompt_mean, cispo, case.mu)


def vespo(case: Case) -> Result:
    rows = training_rows(case)
    a = group_z(case)
    whole = {
        i: math.exp(math.fsum(lp - m for lp, m in zip(case.lp[i], case.mu[i], strict=True)))
        for i in rows
    }
    loss, grad = 0.0, [[0.0] * len(row) for row in case.lp]
    for i in rows:
        for t, lp in enumerate(case.lp[i]):
            value, phi = gamma_kernel(whole[i], a[i], lp, 0.0)
            loss -= token_mean(case, rows, i) * value
            grad[i][t] -= token_mean(case, rows, i) * a[i] * phi
    return Result(a, loss, grad)


def dppo_binary_tv(case: Case) -> Result:
    shape = divergence_mask(tv, 0.15)
    return token_loss(case, group_z(case), training_rows(case), token_mean, shape, case.mu)


def dppo_binary_kl(case: Case) -> Result:
    shape = divergence_mask(two_event_kl, 0.05)
    return token_loss(case, group_z(case), training_rows(case), token_mean, shape, case.mu)


def dppo_top_k(case: Case, kind: str, delta: float) -> Result:
    """Buckets: the sampler's top K, the sampled token if it is not among them, and the rest."""
    a, rows = group_z(case), training_rows(case)
    loss, grad = 0.0, [[0.0] * len(row) for row in case.lp]
    for i in rows:
        for t, lp in enumerate(case.lp[i]):
            pis = [math.exp(x) for x in case.top_lp[i][t]]
            mus = [math.exp(x) for x in case.top_mu[i][t]]
            if case.mu[i][t] not in case.top_mu[i][t]:
                pis.append(math.exp(lp))
                mus.append(math.exp(case.mu[i][t]))
            pis.append(max(1 - math.fsum(pis), 1e-12))
            mus.append(max(1 - math.fsum(mus), 1e-12))
            if kind == "tv":
                d = 0.5 * math.fsum(abs(p - m) for p, m in zip(pis, mus, strict=True))
            else:
                d = math.fsum(m * math.log(m / p) for p, m in zip(pis, mus, strict=True))
            shape = divergence_mask(lambda pi, mu, d=d: d, delta)  # type: ignore[misc]
            value, phi = shape(math.exp(lp - case.mu[i][t]), a[i], lp, case.mu[i][t])
            loss -= token_mean(case, rows, i) * value
            grad[i][t] -= token_mean(case, rows, i) * a[i] * phi
    return Result(a, loss, grad)


def symmetric_tv_mask(case: Case) -> Result:
    return token_loss(case, group_z(case), training_rows(case), token_mean, symmetric_mask, case.mu)


def gdpo(case: Case) -> Result:
    return token_loss(
        case, gdpo_advantages(case), training_rows(case), sequence_mean, clip(0.2, 0.2), case.old,
        kl=("k3", 0.04),
    )  # fmt: skip


def gopo(case: Case) -> Result:
    return token_loss(
        case, ranks(case), training_rows(case), sequence_mean, clip(0.2, 0.2), case.old
    )


def gtpo(case: Case) -> Result:
    advantages = entropy_shaped_tokens(case, within_set=False)
    return token_loss(case, advantages, training_rows(case), token_mean, clip(0.2, 0.28), case.old)


def grpo_s(case: Case) -> Result:
    rows = training_rows(case)
    return sequence_loss(
        case, entropy_shaped_rows(case), rows, "arithmetic", 0.2, 0.28, lambda i: 1 / len(rows)
    )


def dcpo(case: Case) -> Result:
    return token_loss(
        case, dcpo_advantages(case), training_rows(case), sequence_mean, dynamic_clip, case.old
    )


def raft(case: Case) -> Result:
    advantages = per_row(case, lambda i: 1.0 if case.rewards[i] >= 0.5 else 0.0)
    rows = training_rows(case, failed)
    return token_loss(case, advantages, rows, token_mean, plain_logp, None)


def on_policy_distillation(case: Case) -> Result:
    """A = log p_T - log p_S at the start of the step, whatever the reward."""
    scored = set(scored_rows(case))
    advantages = [
        [p - s if i in scored else 0.0 for p, s in zip(case.teacher[i], row, strict=True)]
        for i, row in enumerate(case.old)
    ]
    return token_loss(case, advantages, training_rows(case), token_mean, unclipped, case.old)


def ppo(case: Case) -> Result:
    gae = []
    for tokens, values in zip(token_rewards(case, 0.05), case.values, strict=True):
        row = [0.0] * len(tokens)
        running = 0.0
        for t in reversed(range(len(tokens))):
            after = values[t + 1] if t + 1 < len(tokens) else 0.0
            running = tokens[t] + after - values[t] + 0.95 * running
            row[t] = running
        gae.append(row)
    advantages = whiten_tokens(case, gae)
    return token_loss(case, advantages, training_rows(case), token_mean, clip(0.2, 0.2), case.old)


def batch_norm_clip_higher(case: Case) -> Result:
    xs = [case.rewards[i] for i in scored_rows(case)]

    def f(i: int) -> float:
        return 0.0 if equal(xs) else (case.rewards[i] - mean(xs)) / std(xs)

    return token_loss(
        case, per_row(case, f), training_rows(case), token_mean, clip(0.2, 0.28), case.old
    )


def ref_surprise_weight(case: Case) -> Result:
    return token_loss(
        case, group_z(case), training_rows(case), sequence_mean, clip(0.2, 0.2), case.old,
        factor=lambda i, t: 1 - math.exp(case.ref[i][t]),
    )  # fmt: skip


REFERENCE: dict[str, Callable[[Case], Result]] = {
    "reinforce": reinforce,
    "reinforce_pp": reinforce_pp,
    "reinforce_pp_baseline": reinforce_pp_baseline,
    "remax": remax,
    "opo": opo,
    "gpg": gpg,
    "pass_at_k": pass_at_k,
    "gmpo": gmpo,
    "clip_cov": clip_cov,
    "kl_cov": kl_cov,
    "rloo": rloo,
    "rloo_clipped": rloo_clipped,
    "grpo": grpo,
    "grpo_process": grpo_process,
    "lite_ppo": lite_ppo,
    "max_rl": max_rl,
    "dr_grpo": dr_grpo,
    "dapo": dapo,
    "dapo_per_prompt": dapo_per_prompt,
    "gspo": gspo,
    "gspo_token": gspo_token,
    "gspo_length_weighted": gspo_length_weighted,
    "two_grpo": two_grpo,
    "online_pair_logistic": online_pair_logistic,
    "sapo": sapo,
    "cispo": cispo_method,
    "scale_rl": scale_rl,
    "vespo": vespo,
    "dppo_binary_tv": dppo_binary_tv,
    "dppo_binary_kl": dppo_binary_kl,
    "dppo_topk_tv": lambda case: dppo_top_k(case, "tv", 0.15),
    "dppo_topk_kl": lambda case: dppo_top_k(case, "kl", 0.05),
    "symmetric_tv_mask": symmetric_tv_mask,
    "gdpo": gdpo,
    "gopo": gopo,
    "gtpo": gtpo,
    "grpo_s": grpo_s,
    "dcpo": dcpo,
    "raft": raft,
    "on_policy_distillation": on_policy_distillation,
    "ppo": ppo,
    "batch_norm_clip_higher": batch_norm_clip_higher,
    "ref_surprise_weight": ref_surprise_weight,
}
