"""Why all tokens of the highest score of a pick have one value: what the graph says, proved from its combinations and ranges."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from provenformer.base.arrays import FloatArray
from provenformer.base.errors import Rejected
from provenformer.checker.tokens.ranges import Ranges, part_values, primitive
from provenformer.symbols.tokens.graph import Lin, Pick, TokenGraph, Units


def require_one_value(graph: TokenGraph, pick: Pick, ranges: Ranges) -> None:
    """Raise Rejected unless the reason that the graph gives holds. Scores are whole numbers, so others lie at least 1 lower."""
    whole = all(lin.den == 1 for lin in (*pick.queries, *pick.keys, pick.value))
    if not whole or not pick.queries or len(pick.queries) != len(pick.keys):
        raise Rejected("a head compares numbers that are not whole")
    rule = RULES.get(pick.because)
    if rule is None or not rule(graph, pick, ranges):
        raise Rejected(f"two tokens may have the highest score of a head ({pick.because})")


def _by_position(graph: TokenGraph, pick: Pick, ranges: Ranges) -> bool:
    """sum_r 2 i_r k_r - k_r^2 is highest where all digits k_r are i_r: at one token, if the digits i are those of one token."""
    if not all(key.known for key in pick.keys) or any((key.constant % 2).any() for key in pick.keys):
        return False
    digits = np.stack([key.constant // 2 for key in pick.keys])
    tokens = set(map(tuple, digits.T.tolist()))
    if len(tokens) < graph.seq_len or (pick.bias != -(digits**2).sum(axis=0)).any():
        return False
    if len(pick.queries) == 1:  # then every whole number in its range must be a token
        low, high = ranges.reach(pick.queries[0])
        return all((int(v),) in tokens for v in np.arange(low.min(), high.max() + 1))
    found = _together(graph, pick.queries, ranges)
    return found is not None and all(pair in tokens for pair in map(tuple, found[1].T.tolist()))


def _by_rank(graph: TokenGraph, pick: Pick, ranges: Ranges) -> bool:
    """The same with digits of ranks as keys: highest where it is j. That ranks are 0 .. n-1, each once, is the graph's word."""
    n = graph.seq_len
    *places, last = pick.queries
    *keys, squares = pick.keys
    if (
        not places
        or pick.bias.any()
        or not last.known
        or (last.constant != -1).any()
        or not all(p.known for p in places)
    ):
        return False
    found = _together(graph, (*keys, squares), ranges)
    if found is None:
        return False
    ranks, values = found
    digits = values[:-1] / 2
    own = np.stack([place.constant for place in places])
    chosen = [int(np.flatnonzero(ranks == j)[0]) if (ranks == j).any() else -1 for j in range(n)]
    return (
        bool((values[-1] == (digits**2).sum(axis=0)).all())
        and len(set(map(tuple, own.T.tolist()))) == n
        and min(chosen) >= 0
        and bool((digits[:, chosen] == own).all())
    )


def _by_order(graph: TokenGraph, pick: Pick, ranges: Ranges) -> bool:  # noqa: ARG001
    """Products are multiples of n, and biases differ modulo n: no two scores of a query are equal."""
    n = graph.seq_len
    multiples = all(_multiple(q, n) or _multiple(k, n) for q, k in zip(pick.queries, pick.keys, strict=True))
    return multiples and all(len(set((row % n).tolist())) == n for row in pick.bias)


def _by_value(graph: TokenGraph, pick: Pick, ranges: Ranges) -> bool:  # noqa: ARG001
    """The score is the value, or minus it, up to a constant."""
    query, key, value = pick.queries[0], pick.keys[0], pick.value
    if len(pick.queries) != 1 or not query.known or (query.constant != 1).any() or pick.bias.any():
        return False
    for sign in (1, -1):
        if tuple((a, sign * c) for a, c in value.terms) == key.terms and not np.ptp(
            key.constant - sign * value.constant
        ):
            return True
    return False


Rule = Callable[[TokenGraph, Pick, Ranges], bool]
RULES: dict[str, Rule] = {"position": _by_position, "order": _by_order, "largest": _by_value, "rank": _by_rank}


def _multiple(lin: Lin, n: int) -> bool:
    return all(c % n == 0 for _, c in lin.terms) and not (lin.constant % n).any()


def _together(graph: TokenGraph, lins: tuple[Lin, ...], ranges: Ranges) -> tuple[FloatArray, FloatArray] | None:
    """(values of one whole number, the combinations at each of them), if they all are functions of one number."""
    for candidate in _arguments(graph, lins):
        low, high = ranges.reach(candidate)
        points = np.arange(low.min(), high.max() + 1)
        found = [_along(graph, lin, candidate, points) for lin in lins]
        if all(v is not None for v in found):
            return points, np.stack([v for v in found if v is not None])
    return None


def _arguments(graph: TokenGraph, lins: tuple[Lin, ...]) -> list[Lin]:
    """Numbers that atoms of the combinations are functions of, and the atoms' arguments' own."""
    found, seen = [], set()
    stack = list(lins)
    while stack:
        lin = stack.pop(0)
        if lin.key not in seen:
            seen.add(lin.key)
            if lin.terms:
                found.append(primitive(lin)[0])
            for atom, _ in lin.terms:
                operation = graph.atoms[atom].operation
                if isinstance(operation, Units) and len(operation.parts) == 1:
                    stack.append(operation.parts[0].of)
    return found


def _along(graph: TokenGraph, lin: Lin, z: Lin, points: FloatArray) -> FloatArray | None:
    """A combination as a function of z, or None."""
    if lin.known:
        return None if np.ptp(lin.constant) else np.full(len(points), float(lin.constant[0]))
    of_z = {atom for atom, _ in z.terms}
    total = np.zeros(len(points))
    rest = Lin(lin.constant, tuple((a, c) for a, c in lin.terms if a in of_z))
    if rest.terms:
        plain, factor, start = primitive(rest)
        if plain.key != z.key:
            return None
        total += factor * points + start
    elif np.ptp(lin.constant):
        return None
    else:
        total += float(lin.constant[0])
    for atom, c in lin.terms:
        if atom not in of_z:
            operation = graph.atoms[atom].operation
            if not isinstance(operation, Units) or len(operation.parts) != 1:
                return None
            part = operation.parts[0]
            inner = _along(graph, part.of, z, points)
            if inner is None:
                return None
            total += c * part_values(part, inner)
    return total
