"""exp(a) / (exp(a) + exp(b) + ..) over features, by hand: exp(a - logsumexp) needs neither large numbers nor reciprocals."""

from __future__ import annotations

from provenformer.symbols import atoms
from provenformer.symbols.formula import VARIABLE, Formula, apply
from provenformer.symbols.graph import Apply, Graph, Lin
from provenformer.symbols.linear import add, constant, gamma, off_by, scale

SOFT_STEP = apply("log1p", apply("exp", VARIABLE))


def softmax_quotient(graph: Graph, top: Lin, bottom: Lin) -> Lin | None:
    """c exp(a) / sum of exp(a_k) with a among the a_k; None where it is not written like that."""
    if len(top.terms) != 1 or len(bottom.terms) < 2 or any(lin.constant.any() or lin.slack for lin in (top, bottom)):
        return None
    ((atom, term),) = top.terms.items()
    weights = {each.own for each in bottom.terms.values()}
    if term.mix is not None or atom not in bottom.terms or len(weights) != 1 or min(weights) <= 0:
        return None
    exponents = {i: _exponent(graph, i) for i in bottom.terms if bottom.terms[i].mix is None}
    if len(exponents) != len(bottom.terms):
        return None
    known = [lin for lin in exponents.values() if lin is not None]
    own = exponents[atom]
    if len(known) != len(exponents) or own is None or len({lin.rows for lin in known}) != 1:
        return None
    off = add(graph, own, _logsumexp(graph, known), -1.0)
    below = atoms.pieces(graph, [0.0], [1.0, 0.0], 0.0, off)  # it is <= 0, which intervals do not see
    share = term.own / min(weights)
    found = scale(graph, atoms.apply(graph, apply("exp", VARIABLE), below), share)
    return off_by(graph, found, gamma(1) * abs(share), "quotient", top.key, bottom.key)


def _exponent(graph: Graph, number: int) -> Lin | None:
    """a of an atom exp(a) without slack."""
    operation = graph.atoms[number].operation
    if not isinstance(operation, Apply) or operation.formula.operation != "exp" or operation.slack:
        return None
    (inner,) = operation.formula.parts
    if inner == VARIABLE:
        return operation.of
    shift = _shift(inner)
    if shift is not None:
        return add(graph, operation.of, constant(shift))
    return atoms.apply(graph, inner, operation.of)


def _shift(formula: Formula) -> float | None:
    """c of z + c."""
    if formula.operation != "add" or {part.operation for part in formula.parts} != {"variable", "constant"}:
        return None
    return float(next(part.value for part in formula.parts if part.operation == "constant"))


def _logsumexp(graph: Graph, lins: list[Lin]) -> Lin:
    """log(exp a + exp b) = b + log(1 + exp(a - b)), pair by pair."""
    while len(lins) > 1:
        pairs = list(zip(lins[::2], lins[1::2], strict=False))
        joined = [add(graph, b, atoms.apply(graph, SOFT_STEP, add(graph, a, b, -1.0))) for a, b in pairs]
        lins = joined + lins[2 * len(pairs) :]
    return lins[0]
