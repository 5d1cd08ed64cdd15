"""Symbolic arrays: run an ordinary numpy function (..., d, n) on them and get the graph of its formula.

Every axis has a role, feature, token or batch, given when it is made and carried along: a token axis is one along which
entries come from different tokens, wherever numpy moves them, and never one that happens to have length n. Entries along
feature axes are cells of their own; along a token axis one cell (a Lin) stands for all. The batch axis, the first of the input,
is that of the sequences: one cell stands for all there too, and nothing may look at, reduce or mix it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from provenformer.base.arrays import FloatArray
from provenformer.base.errors import Untraceable
from provenformer.bounds.numpy_calls import AbstractArray
from provenformer.bounds.numpy_calls import constant as require_constant_array
from provenformer.symbols import atoms, pairs, signs, trees
from provenformer.symbols.formula import UNARY, VARIABLE, Formula
from provenformer.symbols.formula import apply as formula_of
from provenformer.symbols.formula import constant as number_formula
from provenformer.symbols.graph import Graph, Lin
from provenformer.symbols.linear import add, constant, mix, of_atom, scale
from provenformer.symbols.moves import moved, one_of_batch
from provenformer.symbols.pairs import Pair, Waiting, expanded
from provenformer.symbols.quotients import softmax_quotient
from provenformer.symbols.ranges import hull
from provenformer.symbols.signs import Sign
from provenformer.symbols.softmax import logaddexp, logsumexp, softmax

Cells = NDArray[np.object_]
REMEDY = "count axes from the end, axis=-1 for tokens and axis=-2 for features"


class Symbol(AbstractArray):
    """cells: token and batch axes have length 1 there. A constant has `values` instead, and takes the roles of what it
    meets. Only what is computed from constants alone has no batch axis."""

    __slots__ = ("batch", "cells", "graph", "length", "tokens", "values")
    plural: ClassVar[str] = "symbols"
    own_rules: ClassVar[Mapping[str, Callable[..., Any]]] = {
        "softmax": softmax,
        "logsumexp": logsumexp,
        "logaddexp": logaddexp,
    }

    def __init__(
        self, graph: Graph, shape: tuple[int, ...], tokens: tuple[int, ...], cells: Cells, batch: int | None = None
    ) -> None:
        self.graph, self.length, self.tokens, self.cells, self.batch = graph, shape, tokens, cells, batch
        self.values: FloatArray | None = None

    @classmethod
    def constant(cls, graph: Graph, values: FloatArray) -> Symbol:
        """Numbers."""
        found = cls(graph, values.shape, (), np.empty(0, dtype=object))
        found.values = values
        return found

    @property
    def shape(self) -> tuple[int, ...]:
        return self.length

    def lift(self, value: Any) -> Symbol:
        if isinstance(value, Symbol):
            if value.graph is not self.graph:
                raise Untraceable("a value was kept from an earlier call; compute everything from X anew.")
            return value
        return Symbol.constant(self.graph, require_constant_array(value, self.plural))

    def elementwise(self, name: str, *operands: Any) -> Symbol:
        if len(operands) == 1:
            return _unary(name, operands[0])
        return _binary(name, *operands)

    def whole_power(self, exponent: int) -> Symbol:
        if exponent == 1:
            return self
        power = VARIABLE
        for bit in f"{exponent:b}"[1:]:
            power = formula_of("square", power)
            power = formula_of("multiply", power, VARIABLE) if bit == "1" else power
        return _mapped(self, lambda cell: _function(self.graph, power, cell))

    def along(self, name: str, axis: int) -> Symbol:
        if self.values is not None:
            return Symbol.constant(self.graph, _numpy_along(name, self.values, axis))
        axis += self.ndim
        if axis == self.batch:
            raise Untraceable(f"np.{name} over the batch mixes sequences; {REMEDY}.")
        if axis in self.tokens:
            return _along_tokens(self, name, axis)
        return _along_features(self, name, axis)

    def extent(self) -> tuple[float, float]:
        if self.values is not None:
            return float(self.values.min()), float(self.values.max())
        lows, highs = zip(*(_extent(self.graph, cell) for cell in self.cells.ravel()), strict=True)
        return min(lows), max(highs)

    def rearranged(self, parts: Sequence[Any], move: Callable[..., Any]) -> Symbol:
        if all(part.values is not None for part in parts):
            return Symbol.constant(self.graph, np.asarray(move(*(part.values for part in parts)), dtype=np.float64))
        return Symbol(self.graph, *moved(self.graph, parts, move))


def inputs(graph: Graph, batch: int) -> Symbol:
    """X: (batch, d, n), of two sequences or more: what mixes them is seen."""
    cells = np.empty((1, graph.token_dim, 1), dtype=object)
    for row in range(graph.token_dim):
        cells[0, row, 0] = of_atom(graph, graph.atoms[row])
    return Symbol(graph, (batch, graph.token_dim, graph.seq_len), (2,), cells, 0)


def _each(function: Callable[..., Any], *cells: Cells) -> Cells:
    aligned = np.broadcast_arrays(*cells)
    out = np.empty(aligned[0].shape, dtype=object)
    for index in np.ndindex(out.shape):
        out[index] = function(*(each[index] for each in aligned))
    return out


def _mapped(x: Symbol, function: Callable[[Any], Any]) -> Symbol:
    if x.values is not None:
        found = _each(lambda v: function(constant(v)), x.values.astype(object))
        return Symbol(x.graph, x.shape, (), found)
    return Symbol(x.graph, x.shape, x.tokens, _each(function, x.cells), x.batch)


# Element by element.


def _unary(name: str, x: Symbol) -> Symbol:
    graph = x.graph
    if name == "negative":
        if x.values is not None:
            return Symbol.constant(graph, -x.values)
        minus_one = Symbol.constant(graph, np.array(-1.0))
        return _binary("multiply", x, minus_one)
    if name not in (*UNARY, "absolute", "sign"):
        raise Untraceable(f"numpy.{name} is not available in circuits; there are {', '.join(UNARY)}.")
    return _mapped(x, lambda cell: _function(graph, formula_of(name, VARIABLE), cell))


def _function(graph: Graph, formula: Formula, cell: Any) -> Any:
    if isinstance(cell, Pair):
        return pairs.function(graph, formula, cell)
    if formula.operation == "sign":
        return Sign(_known(graph, cell))
    if formula.operation == "absolute":
        return atoms.absolute(graph, _known(graph, cell))
    return atoms.apply(graph, formula, _known(graph, cell))


def _binary(name: str, a: Symbol, b: Symbol) -> Symbol:
    graph, shape = a.graph, np.broadcast_shapes(a.shape, b.shape)
    if a.values is not None and b.values is not None:
        return Symbol.constant(graph, np.asarray(getattr(np, name)(a.values, b.values), dtype=np.float64))
    batches = {x.batch + len(shape) - x.ndim for x in (a, b) if x.batch is not None}
    if len(batches) > 1:
        raise Untraceable(f"the batch meets another axis; {REMEDY}.")
    batch = min(batches, default=None)
    if batch is not None:
        a, b = (per_sequence(x, batch - len(shape) + x.ndim) for x in (a, b))
    tokens = tuple(sorted({axis + len(shape) - x.ndim for x in (a, b) for axis in x.tokens}))
    if len(tokens) > 2:
        raise Untraceable("a value of three tokens is not available in circuits; pairs of tokens are the limit.")
    left, right = (_on_axes(x, shape, tokens) for x in (a, b))
    if name == "divide" and b.values is not None and (b.values == 0).any():
        raise Untraceable("division by a constant that is 0; give another.")
    rule = _pair_rule if len(tokens) == 2 else _single_rule
    return Symbol(graph, shape, tokens, _each(lambda x, y: rule(graph, name, x, y), left, right), batch)


def per_sequence(x: Symbol, axis: int) -> Symbol:
    """x where it meets the batch at that axis: what has no batch of its own must be the same for every sequence."""
    if x.batch is not None or axis < 0 or x.shape[axis] == 1:
        return x
    if x.values is not None:
        return Symbol.constant(x.graph, one_of_batch(x.values, x.values, axis))
    if axis in x.tokens:
        raise Untraceable(f"the batch meets another axis; {REMEDY}.")
    keys = _each(lambda cell: _known(x.graph, cell).key, x.cells)
    return Symbol(x.graph, _with(x.shape, axis, 1), x.tokens, one_of_batch(x.cells, keys, axis))


def _extent(graph: Graph, cell: Any) -> tuple[float, float]:
    return (-np.inf, np.inf) if isinstance(cell, Pair) else hull(graph, _known(graph, cell))


def _single_rule(graph: Graph, name: str, x: Any, y: Any) -> Any:
    if isinstance(x, Sign) or isinstance(y, Sign):
        return signs.combined(graph, name, *(v if isinstance(v, Sign) else _known(graph, v) for v in (x, y)))
    if isinstance(x, Waiting) and name in ("multiply", "divide"):
        found = pairs.softmax_mean(graph, x, y) if isinstance(y, Waiting) and name == "divide" else None
        if found is not None:
            return found
        if isinstance(y, Lin) and y.is_constant and len(y.constant) == 1 and not y.slack:
            number = float(y.constant[0])
            first = name == "multiply" and abs(x.factor) == 1
            if first or np.abs(np.frexp(number)[0]) == 0.5:  # as a power of two: nothing is rounded
                return replace(x, factor=x.factor * number if name == "multiply" else x.factor / number, _found=[])
    x, y = _known(graph, x), _known(graph, y)
    found = softmax_quotient(graph, x, y) if name == "divide" else None
    return trees.combined(graph, name, x, y) if found is None else found


def _known(graph: Graph, cell: Any) -> Lin:
    """A combination; what waited to complete a softmax is computed."""
    if isinstance(cell, Waiting | Sign):
        return cell.value(graph)
    if not isinstance(cell, Lin):
        raise Untraceable("a value of two tokens where one of one token is needed; reduce it with np.sum or np.max.")
    return cell


def _pair_rule(graph: Graph, name: str, x: Any, y: Any) -> Any:
    (a, _), (b, waiting) = x, y
    return pairs.combined(graph, name, a, b, waiting)


def _on_axes(x: Symbol, shape: tuple[int, ...], tokens: tuple[int, ...]) -> Cells:
    """The cells of an operand on the axes of the result; pairs when there are two token axes."""
    if x.values is not None:
        return _constant_cells(x.values, shape, tokens)
    x = _with_token_axes(x, [axis - len(shape) + x.ndim for axis in tokens])
    before = len(shape) - x.ndim
    cells = x.cells.reshape((1,) * before + x.cells.shape)
    mine = [axis + before for axis in x.tokens]
    if len(tokens) == 2:
        axis = pairs.COLUMN if mine == [tokens[1]] else pairs.ROW
        cells = _each(lambda cell: _as_pair(x.graph, cell, axis), cells)
    return cells


def _as_pair(graph: Graph, cell: Any, axis: int) -> Any:
    """A value of two tokens, and what waits for a softmax, where it stands along the axis that it was not taken over."""
    if isinstance(cell, Pair):
        return cell, None
    if isinstance(cell, Waiting):
        return pairs.in_place(graph, cell, axis), cell if cell.axis != axis else None
    return pairs.lifted(_known(graph, cell), axis), None


def _constant_cells(values: FloatArray, shape: tuple[int, ...], tokens: tuple[int, ...]) -> Cells:
    """A plain array takes the roles of the axes that it meets; along a token axis it is a constant per token."""
    values = values.reshape((1,) * (len(shape) - values.ndim) + values.shape)
    long = [axis for axis in tokens if values.shape[axis] > 1]
    features = tuple(1 if axis in tokens else size for axis, size in enumerate(values.shape))
    lines = np.moveaxis(values, tokens, range(-len(tokens), 0)) if tokens else values
    kept = tuple(size for axis, size in enumerate(values.shape) if axis not in tokens)
    flat = lines.reshape(kept + lines.shape[lines.ndim - len(tokens) :])
    cells = np.empty(features, dtype=object)
    for index in np.ndindex(features):
        here = flat[tuple(i for axis, i in enumerate(index) if axis not in tokens)]
        if len(tokens) < 2:
            cells[index] = constant(np.ravel(here))
        elif len(long) == 2:
            cells[index] = pairs.of_matrix(np.ascontiguousarray(here)), None
        else:
            axis = pairs.COLUMN if long == [tokens[1]] else pairs.ROW
            cells[index] = pairs.lifted(constant(np.ravel(here)), axis), None
    return cells


def _with_token_axes(x: Symbol, axes: Sequence[int]) -> Symbol:
    """A feature axis that meets a token axis is read as tokens: its cells are the values at token 0, 1, ..."""
    for axis in axes:
        if axis < 0 or axis in x.tokens or x.shape[axis] == 1:
            continue
        if x.tokens:
            raise Untraceable(
                "an axis of features meets an axis of tokens in a product of both; give each its own axis."
            )
        size = x.shape[axis]
        lines = np.moveaxis(x.cells, axis, -1)
        joined = np.empty(lines.shape[:-1], dtype=object)
        for index in np.ndindex(joined.shape):
            joined[index] = stacked(x.graph, [_known(x.graph, cell) for cell in lines[index]])
        x = Symbol(x.graph, x.shape, (axis,), np.expand_dims(joined, axis), x.batch)
        if size > x.graph.seq_len:
            raise Untraceable(f"an axis of {size} tokens is longer than the sequence ({x.graph.seq_len}).")
    return x


def stacked(graph: Graph, cells: Sequence[Lin]) -> Lin:
    """Values that are the same at every token, as one combination: cells[j] at token j."""
    if all(cell is cells[0] for cell in cells):
        return expanded(cells[0], len(cells))
    total = constant(np.zeros(len(cells)))
    for j, cell in enumerate(cells):
        column = np.zeros((len(cells), 1))
        column[j, 0] = 1.0
        total = add(graph, total, mix(graph, cell, column))
    return replace(total, rows=len(cells))


# Along an axis.


def _along_tokens(x: Symbol, name: str, axis: int) -> Symbol:
    graph, length = x.graph, x.shape[axis]
    if len(x.tokens) == 2:
        which = x.tokens.index(axis)
        return _along_pairs(x, name, axis, which)
    rules: dict[str, Callable[[Lin], Lin]] = {
        "sum": lambda v: mix(graph, v, np.ones((1, length))),
        "max": lambda v: atoms.largest(graph, v),
        "min": lambda v: scale(graph, atoms.largest(graph, scale(graph, v, -1.0)), -1.0),
        "sort": lambda v: atoms.sort(graph, v),
        "cumsum": lambda v: mix(graph, v, np.tril(np.ones((length, length)))),
        "cummax": lambda v: atoms.running_max(graph, v),
        "cummin": lambda v: scale(graph, atoms.running_max(graph, scale(graph, v, -1.0)), -1.0),
    }
    cells = _each(lambda cell: rules[name](expanded(_known(graph, cell), length)), x.cells)
    if name in ("sum", "max", "min"):
        return Symbol(graph, _with(x.shape, axis, 1), (), cells, x.batch)
    return Symbol(graph, x.shape, x.tokens, cells, x.batch)


def _along_pairs(x: Symbol, name: str, axis: int, which: int) -> Symbol:
    rest, length = tuple(other for other in x.tokens if other != axis), x.shape[axis]
    if name == "sum":
        cells = _each(lambda cell: pairs.summed(x.graph, cell, which, length), x.cells)
    elif name == "max":
        cells = _each(lambda cell: Waiting("max", cell, which, length), x.cells)
    elif name == "min":
        minus = formula_of("multiply", number_formula(-1.0), VARIABLE)
        negated = _each(lambda cell: pairs.function(x.graph, minus, cell), x.cells)
        cells = _each(lambda cell: Waiting("max", cell, which, length, -1.0), negated)
    else:
        raise Untraceable(
            f"np.{name} along an axis of pairs of tokens is not available; there are np.sum, np.mean, np.max and np.min."
        )
    return Symbol(x.graph, _with(x.shape, axis, 1), rest, cells, x.batch)


def _along_features(x: Symbol, name: str, axis: int) -> Symbol:
    graph = x.graph
    slices = [np.take(x.cells, [i], axis=axis) for i in range(x.shape[axis])]

    def two(graph: Graph, name: str, u: Any, v: Any) -> Any:
        return pairs.combined(graph, name, u, v, None) if isinstance(u, Pair) else _single_rule(graph, name, u, v)

    join = {"sum": "add", "max": "maximum", "min": "minimum", "cumsum": "add", "cummax": "maximum", "cummin": "minimum"}
    if name == "sort":
        for stage in atoms.merge_exchange(len(slices)):
            for i, j in stage:
                low = _each(lambda u, v: two(graph, "minimum", u, v), slices[i], slices[j])
                slices[j] = _each(lambda u, v: two(graph, "maximum", u, v), slices[i], slices[j])
                slices[i] = low
        return Symbol(graph, x.shape, x.tokens, np.concatenate(slices, axis=axis), x.batch)
    running = slices[:1]
    for one in slices[1:]:
        running.append(_each(lambda u, v: two(graph, join[name], u, v), running[-1], one))
    if name.startswith("cum"):
        return Symbol(graph, x.shape, x.tokens, np.concatenate(running, axis=axis), x.batch)
    return Symbol(graph, _with(x.shape, axis, 1), x.tokens, running[-1], x.batch)


def _numpy_along(name: str, values: FloatArray, axis: int) -> FloatArray:
    if name in ("sum", "max", "min"):
        return np.asarray(getattr(np, name)(values, axis=axis, keepdims=True))
    if name in ("sort", "cumsum"):
        return np.asarray(getattr(np, name)(values, axis=axis))
    return np.asarray((np.maximum if name == "cummax" else np.minimum).accumulate(values, axis=axis))


def _with(shape: tuple[int, ...], axis: int, size: int) -> tuple[int, ...]:
    return (*shape[:axis], size, *shape[axis + 1 :])
