"""What numpy programs do to tokens, written with units, totals and picks. Every identity here holds for all whole numbers.

The graph is taken on trust by builder and checker, so each rule says why it is one; docs/tokens.md has them in full.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import pairwise
from math import gcd, lcm

import numpy as np

from provenformer.base.errors import ProvenformerError
from provenformer.symbols.tokens.graph import TABLE_LIMIT, Ints, Lin, Part, Pick, TokenGraph, Total, Units

ONE_DIGIT = 24  # tokens up to which a position is one number in the scores of heads
SMALLEST_STEP = 2.0**-12  # between values of a table's argument: below, float32 does not tell them apart
Function = Callable[[Fraction], int | Fraction | bool]


# Combinations.


def add(graph: TokenGraph, *terms: tuple[int | Fraction, Lin]) -> Lin:
    """sum of factor * combination."""
    den = lcm(*(lin.den * Fraction(factor).denominator for factor, lin in terms))
    constant, found = np.zeros(graph.seq_len, np.int64), []
    for factor, lin in terms:
        scale = int(Fraction(factor) * den / lin.den)
        constant = constant + scale * lin.constant
        found += [(atom, scale * c) for atom, c in lin.terms]
    return graph.lin(constant, found, den)


def constant(graph: TokenGraph, value: int | Fraction) -> Lin:
    value = Fraction(value)
    return graph.lin(value.numerator, den=value.denominator)


def known(graph: TokenGraph, values: Sequence[Fraction]) -> Lin:
    """A number for every position."""
    den = lcm(*(Fraction(v).denominator for v in values))
    return graph.lin([int(Fraction(v) * den) for v in values], den=den)


def position(graph: TokenGraph) -> Lin:
    return graph.lin(np.arange(graph.seq_len))


def ends(graph: TokenGraph, lin: Lin) -> tuple[Fraction, Fraction]:
    """Lowest and highest value over all tokens."""
    low, high = graph.bounds(lin)
    return Fraction(int(low.min()), lin.den), Fraction(int(high.max()), lin.den)


def whole(graph: TokenGraph, lin: Lin, what: str) -> Lin:
    """The combination, if it is a whole number at every token."""
    if lin.den != 1:
        raise ProvenformerError(
            f"{what} is {graph.words(lin)}, a multiple of 1/{lin.den}, not a whole number; use // or compare it."
        )
    return lin


def boolean(graph: TokenGraph, lin: Lin) -> bool:
    low, high = ends(graph, lin)
    return lin.den == 1 and low >= 0 and high <= 1


# Functions of one combination, and of two.


def grid(graph: TokenGraph, lin: Lin) -> tuple[int, int, int]:
    """(low, step, count) of the numerators that it can have, over all tokens."""
    low, high = graph.bounds(lin)
    step = gcd(*(c for _, c in lin.terms), int(np.gcd.reduce(lin.constant - lin.constant[0]))) or 1
    count = int(high.max() - low.min()) // step + 1
    if step / lin.den < SMALLEST_STEP:
        raise ProvenformerError(
            f"values of {graph.words(lin)[:80]} lie {step / lin.den:.2g} apart, a margin of {step / lin.den / 2:.2g} (limit "
            f"{SMALLEST_STEP / 2:.2g}); compare whole numbers, such as counts in place of means."
        )
    if count > TABLE_LIMIT:
        raise ProvenformerError(
            f"{graph.words(lin)[:80]} takes {count:,} values (limit {TABLE_LIMIT:,}); use a smaller vocabulary, shorter "
            "sequences or smaller numbers."
        )
    return int(low.min()), step, count


def table(graph: TokenGraph, lin: Lin, function: Function, words: str, flat: bool = False) -> Lin:
    """function(lin) at every token; known functions and lines need no units. `flat`: all errors of `lin` end here."""
    grid(graph, lin)  # refused if values are too close or too many
    den, (lin, factor, start) = lin.den, _primitive(graph, lin)
    low, step, count = grid(graph, lin)
    values = [Fraction(function(Fraction((low + i * step) * factor + start, den))) for i in range(count)]
    if count == 1 or len(set(values)) == 1:
        return constant(graph, values[0])
    slope = (values[1] - values[0]) / step
    if all(b - a == values[1] - values[0] for a, b in pairwise(values)):
        return add(graph, (slope, lin), (1, constant(graph, values[0] - slope * low)))
    if lin.known:
        index = (lin.constant - low) // step
        return known(graph, [values[i] for i in index])
    den = lcm(*(v.denominator for v in values))
    made = part(graph, lin, np.array([v.numerator * (den // v.denominator) for v in values], dtype=np.int64), flat)
    return add(graph, (Fraction(1, den), units(graph, [made], words)))


def part(graph: TokenGraph, lin: Lin, values: Ints, flat: bool = False) -> Part:
    """These values on the grid of a combination. Errors of heads end here where that takes at most twice the units."""
    low, step, _ = grid(graph, lin)
    steps = np.diff(values)
    few = np.count_nonzero(steps) <= np.count_nonzero(np.diff(steps, prepend=0, append=0)) + 1
    return Part(lin, low, step, values, bool(flat or (few and graph.rough(lin) > 0)))


def snapped(graph: TokenGraph, lin: Lin, within: tuple[int, int] | None = None) -> Lin:
    """The same number, without the errors of sums over tokens; `within`: what else is known of its range."""
    if graph.rough(lin) < 2 and not (within and not lin.known):
        return lin
    low, step, count = grid(graph, lin)
    if within:
        values = np.clip(low + step * np.arange(count), *within)
        least, most = (np.full(graph.seq_len, v) for v in within)
        made = Units((Part(lin, low, step, values, True),))
        return graph.atom(graph.add(made, least, most, graph.uniform(lin), f"{graph.words(lin)}, rounded"))
    whole_part = Part(lin, low, step, np.arange(count), True)
    atom = units(graph, [whole_part], f"{graph.words(lin)}, rounded")
    return add(graph, (Fraction(step, lin.den), atom), (Fraction(low, lin.den), constant(graph, 1)))


def _primitive(graph: TokenGraph, lin: Lin) -> tuple[Lin, int, int]:
    """(z, factor, start): the numerator is factor * z + start, z without offset or common factor, its first coefficient
    positive. So equal readings are one.
    """
    start = int(lin.constant[0])
    factor = gcd(*(c for _, c in lin.terms), int(np.gcd.reduce(lin.constant - start))) or 1
    factor = -factor if lin.terms and lin.terms[0][1] < 0 else factor
    return graph.lin((lin.constant - start) // factor, [(atom, c // factor) for atom, c in lin.terms]), factor, start


def units(graph: TokenGraph, parts: Sequence[Part], words: str, low: object = None, high: object = None) -> Lin:
    """The sum of parts as an atom. `low` and `high`: what is known of the sum beyond the ranges of its parts."""
    least, most = np.zeros(graph.seq_len, np.int64), np.zeros(graph.seq_len, np.int64)
    for one in parts:
        a, b = ((v - one.low) // one.step for v in graph.bounds(one.of))
        for i, k in set(zip(a.tolist(), b.tolist(), strict=True)):  # most tokens have the same ends
            here, reached = (a == i) & (b == k), one.values[i : k + 1]
            least[here] += reached.min()
            most[here] += reached.max()
    if low is not None:
        least = np.maximum(least, np.asarray(low, dtype=np.int64))
    if high is not None:
        most = np.minimum(most, np.asarray(high, dtype=np.int64))
    uniform = all(graph.uniform(one.of) for one in parts)
    return graph.atom(graph.add(Units(tuple(parts)), least, most, uniform, words))


def gate_part(graph: TokenGraph, condition: Lin, value: Lin, low: int, high: int) -> Part:
    """condition * (value - low), for a whole value from low to high: max(value - low + h c - h, 0), h = high - low + 1."""
    height = high - low + 1
    z = add(graph, (1, value), (height, condition), (-low, constant(graph, 1)))
    start, step, count = grid(graph, z)
    return part(graph, z, np.maximum(start + step * np.arange(count) - height, 0))


def product(graph: TokenGraph, first: Lin, second: Lin, words: str) -> Lin:
    """first * second: a gate where one is 0 or 1, else quarter squares, floor((a+b)^2/4) - floor((a-b)^2/4) = a b."""
    for a, b in ((first, second), (second, first)):
        low, high = ends(graph, a)
        if low == high:
            return add(graph, (low, b))
    if first.known and second.known:
        values = [
            Fraction(int(a) * int(b), first.den * second.den)
            for a, b in zip(first.constant, second.constant, strict=True)
        ]
        return known(graph, values)
    scale = Fraction(1, first.den * second.den)
    first, second = (add(graph, (lin.den, lin)) for lin in (first, second))
    for a, b in ((first, second), (second, first)):
        low, high = ends(graph, a)
        step = high - low  # of a value with two possible numbers
        if grid(graph, a)[2] == 2:  # a = low + step * c, c of 0 or 1
            c = add(graph, (1 / step, a), (-low / step, constant(graph, 1)))
            return add(graph, (scale * low, b), (scale * step, gate(graph, c, b, words)))
    plus, minus = add(graph, (1, first), (1, second)), add(graph, (1, first), (-1, second))
    quarter: Function = lambda v: v * v // 4  # noqa: E731
    return add(
        graph, (scale, table(graph, plus, quarter, f"quarter square for {words}")),
        (-scale, table(graph, minus, quarter, f"quarter square for {words}")),
    )  # fmt: skip


def gate(graph: TokenGraph, condition: Lin, value: Lin, words: str) -> Lin:
    """condition * value, for a condition of 0 or 1 and a whole value."""
    low, high = map(int, ends(graph, value))
    if condition.known and (condition.constant == condition.constant[0]).all():
        return add(graph, (int(condition.constant[0]), value))
    if low == high:
        return add(graph, (low, condition))
    if low == 0 and high == 1 and condition.key == value.key:
        return condition
    made = gate_part(graph, condition, value, low, high)
    return add(graph, (1, units(graph, [made], words)), (low, condition))


def choose(graph: TokenGraph, condition: Lin, first: Lin, second: Lin, words: str) -> Lin:
    """first where the condition is 1, second where it is 0: a gate for each, of which one is open."""
    low = min(ends(graph, first)[0], ends(graph, second)[0])
    high = max(ends(graph, first)[1], ends(graph, second)[1])
    steady = all(ends(graph, lin)[0] == ends(graph, lin)[1] for lin in (first, second))
    if steady or condition.known or first.den * second.den > 1:
        difference = add(graph, (1, first), (-1, second))
        return add(graph, (1, second), (1, product(graph, condition, difference, words)))
    otherwise = add(graph, (-1, condition), (1, constant(graph, 1)))
    sides = ((condition, first), (otherwise, second))
    parts = [gate_part(graph, c, value, int(low), int(high)) for c, value in sides if ends(graph, value) != (low, low)]
    chosen = units(graph, parts, words, 0, int(high - low))
    return add(graph, (1, chosen), (low, constant(graph, 1)))


def table2(
    graph: TokenGraph, a: Lin, b: Lin, function: Callable[[Fraction, Fraction], int | Fraction | bool], words: str
) -> Lin:
    """function(a, b): of a - b where it depends on that alone, else of a * width + b."""
    if a.key == b.key:
        return table(graph, a, lambda v: function(v, v), words)
    if a.known and (a.constant == a.constant[0]).all():
        first = Fraction(int(a.constant[0]), a.den)
        return table(graph, b, lambda v: function(first, v), words)
    if b.known and (b.constant == b.constant[0]).all():
        second = Fraction(int(b.constant[0]), b.den)
        return table(graph, a, lambda v: function(v, second), words)
    (low_a, step_a, count_a), (low_b, step_b, count_b) = grid(graph, a), grid(graph, b)
    if count_a * count_b > TABLE_LIMIT:
        raise ProvenformerError(
            f"{words} is a function of two numbers of {count_a:,} and {count_b:,} values, {count_a * count_b:,} in all (limit "
            f"{TABLE_LIMIT:,}); use a smaller vocabulary or shorter sequences."
        )
    first_values = [Fraction(low_a + i * step_a, a.den) for i in range(count_a)]
    second_values = [Fraction(low_b + k * step_b, b.den) for k in range(count_b)]
    by_difference: dict[Fraction, set[object]] = {}
    for v in first_values:
        for w in second_values:
            by_difference.setdefault(v - w, set()).add(Fraction(function(v, w)))
    if all(len(outcomes) == 1 for outcomes in by_difference.values()):
        answers = {v: next(iter(outcomes)) for v, outcomes in by_difference.items()}
        return table(graph, add(graph, (1, a), (-1, b)), lambda v: answers.get(v, 0), words)  # type: ignore[arg-type,return-value]
    # i = (a - low_a) / step_a and k the same for b are whole from 0 on, so i * count_b + k names the pair
    z = add(
        graph, (Fraction(a.den * count_b, step_a), a), (Fraction(b.den, step_b), b),
        (1, constant(graph, -Fraction(low_a * count_b, step_a) - Fraction(low_b, step_b))),
    )  # fmt: skip

    def of_pair(v: Fraction) -> int | Fraction | bool:
        i, k = divmod(int(v), count_b)
        if not 0 <= i < count_a:
            return 0  # never reached: the grid of z may be wider than its values
        return function(Fraction(low_a + i * step_a, a.den), Fraction(low_b + k * step_b, b.den))

    return table(graph, z, of_pair, words)


# Sums over tokens with known weights.


def total(graph: TokenGraph, weights: Ints, lin: Lin, words: Callable[[str], str]) -> Lin:
    """sum_k weights[j, k] lin(k), for whole weights (1, n) or (n, n)."""
    if len(weights) > 1 and (weights == weights[0]).all():
        weights = weights[:1]
    if len(weights) > 1 and (weights == np.eye(len(weights), dtype=np.int64)).all():
        return lin
    found = [(Fraction(1, lin.den), graph.lin(np.broadcast_to(weights @ lin.constant, (graph.seq_len,))))]
    for atom, c in lin.terms:
        for sign, half in ((1, np.maximum(weights, 0)), (-1, np.maximum(-weights, 0))):
            if half.any():
                found.append((Fraction(sign * c, lin.den), _total(graph, half, atom, words)))
    return add(graph, *found)


def _total(graph: TokenGraph, weights: Ints, atom: int, words: Callable[[str], str]) -> Lin:
    """Of one atom. Where rows have different sums, the own token makes up for it, and is taken off again."""
    source = graph.atoms[atom]
    sums = weights.sum(axis=1)
    missing = int(sums.max()) - sums
    name = words(source.words)
    if missing.any():
        balanced = weights + np.diag(missing)
        own = product(graph, graph.lin(missing), graph.atom(atom), f"what the own token adds too often to the {name}")
        both = _total(graph, balanced, atom, lambda _: f"{name}{too_often(graph, missing)}")
        low, high = weights @ source.low, weights @ source.high
        return graph.state(add(graph, (1, both), (-1, own)), low, high, name)
    low, high = weights @ source.low, weights @ source.high
    number = graph.add(Total(weights, atom), low, high, len(weights) == 1, name)
    return graph.atom(number)


def too_often(graph: TokenGraph, missing: Ints) -> str:
    """How often the own token is counted beyond its share, where it makes up for what is missing."""
    return f", the own one {graph.words(graph.lin(missing))} times too often" if missing.any() else ""


def moved(graph: TokenGraph, lin: Lin, source: Ints, words: str) -> Lin:
    """lin at token source[j], a known token; -1: any."""
    n = graph.seq_len
    if ((source < 0) | (source == np.arange(n))).all() or (lin.known and not lin.constant.any()):
        return lin
    weights = np.zeros((n, n), np.int64)
    weights[np.arange(n), np.where(source < 0, np.arange(n), source)] = 1
    return total(graph, weights, lin, lambda name: f"{name} {words}")


# Picks: one token of highest score.


def pick(
    graph: TokenGraph, queries: Sequence[Lin], keys: Sequence[Lin], bias: Ints, value: Lin, because: str, words: str
) -> Lin:
    """A value from the token of the highest score. A constant part is the same at every token and need not be moved."""
    fixed = Fraction(int(value.constant[0]), value.den)
    scale, value = value.den, add(graph, (value.den, value), (-fixed * value.den, constant(graph, 1)))
    low, high = (int(v) for v in ends(graph, value))
    if low == high:
        return add(graph, (Fraction(1, scale), constant(graph, low)), (fixed, constant(graph, 1)))
    uniform = len(bias) == 1 and all(map(graph.uniform, queries))
    made = Pick(tuple(queries), tuple(keys), bias, value, because)
    n = graph.seq_len
    number = graph.add(made, np.full(n, low), np.full(n, high), uniform, words)
    return add(graph, (Fraction(1, scale), graph.atom(number)), (fixed, constant(graph, 1)))


def gather(graph: TokenGraph, value: Lin, index: Lin) -> Lin:
    """value(index_j): -(k - i)^2, summed over digits, is highest at k = i, by at least 1."""
    n = graph.seq_len
    index = whole(graph, index, "an index of tokens")
    low, high = ends(graph, index)
    if low < 0 or high > n - 1:
        raise ProvenformerError(
            f"an index of tokens ranges from {low} to {high}, not within 0 to {n - 1}; bound it, say np.clip(index, 0, {n - 1})."
        )
    named = graph.words(index)
    at = f"at {named}" if named.startswith("the ") else f"at place {named}"
    if index.known:
        return moved(graph, value, index.constant, at)
    own, keys = digits(graph, index), digits(graph, position(graph))
    squares = sum((key.constant * key.constant for key in keys), np.zeros(n, np.int64))
    return pick(
        graph,
        own,
        [add(graph, (2, key)) for key in keys],
        -squares[None],
        value,
        "position",
        f"{graph.words(value)} {at}",
    )


def digits(graph: TokenGraph, lin: Lin) -> list[Lin]:
    """A whole number from 0 to n as one number, or for long sequences as quotient and remainder: scores are then small."""
    n = graph.seq_len
    return [snapped(graph, lin)] if n <= ONE_DIGIT else two_digits(graph, lin, int(np.ceil(np.sqrt(n + 1))))


def two_digits(graph: TokenGraph, lin: Lin, base: int) -> list[Lin]:
    """Quotient and remainder of a whole number."""
    first = table(graph, lin, lambda v: v // base, f"{graph.words(lin)} // {base}")
    return [first, snapped(graph, add(graph, (1, lin), (-base, first)), (0, base - 1))]


def largest(graph: TokenGraph, value: Lin, sign: int) -> Lin:
    """The largest (sign 1) or smallest (-1) of all tokens: the score is the value, so those of highest score have one value."""
    value = add(graph, (1, value))
    key = add(graph, (sign * value.den, value))
    words = f"{'largest' if sign > 0 else 'smallest'} {graph.words(value)} of all tokens"
    return pick(graph, [constant(graph, 1)], [key], np.zeros((1, graph.seq_len), np.int64), value, "largest", words)


def first_largest(graph: TokenGraph, value: Lin, sign: int) -> Lin:
    """The first token of largest (smallest) value: scores n v(k) - k differ."""
    n = graph.seq_len
    key = add(graph, (sign * n * value.den, value))
    words = f"the place of the first token of {'largest' if sign > 0 else 'smallest'} {graph.words(value)}"
    return pick(graph, [constant(graph, 1)], [key], -np.arange(n)[None], position(graph), "order", words)


def inverse(graph: TokenGraph, ranks: Lin, value: Lin, words: str) -> Lin:
    """value at the token of rank j. Ranks are 0 .. n-1, each once: -(rank_k - j)^2, by digits, is highest there."""
    if ranks.known:
        return moved(graph, value, np.argsort(ranks.constant), "of a known token")
    keys, places = digits(graph, ranks), digits(graph, position(graph))
    squares = add(graph, *((1, table(graph, key, lambda v: v * v, f"square of {graph.words(key)}")) for key in keys))
    bias = np.zeros((1, graph.seq_len), np.int64)
    doubled = [add(graph, (2, key)) for key in keys]
    return pick(graph, [*places, constant(graph, -1)], [*doubled, squares], bias, value, "rank", words)


def sort(graph: TokenGraph, value: Lin) -> Lin:
    """Sorted by counting: the j-th smallest is the lowest value plus one for every c with at most j values below c."""
    low, step, count = grid(graph, value)
    name = graph.words(value)
    parts = []
    for i in range(1, count):
        at = Fraction(low + i * step, value.den)
        below = table(graph, value, lambda v, at=at: v < at, f"[{name} < {at}]")  # type: ignore[misc]
        counted = total(
            graph, np.ones((1, graph.seq_len), np.int64), below, lambda name: f"number of tokens with {name}"
        )
        free = add(graph, (1, position(graph)), (-1, counted))
        start, unit, size = grid(graph, free)
        parts.append(part(graph, free, (start + unit * np.arange(size) >= 0).astype(np.int64)))
    if not parts:
        return value
    in_steps = "" if (low, step, value.den) == (0, 1, 1) else ", in steps from the lowest value on"
    atom = units(graph, parts, f"{name}, sorted{in_steps}", 0, count - 1)
    return add(graph, (Fraction(step, value.den), atom), (Fraction(low, value.den), constant(graph, 1)))
