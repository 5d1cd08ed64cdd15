"""The paper's statements as functions a user can call: each runs the real layers and returns what it found.

A `Check` is true or false, and carries the counter-example when it is false.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from provenformer.base.arrays import FloatArray
from provenformer.base.errors import ProvenformerError
from provenformer.base.exact import Array
from provenformer.constructions.paper import quantize, values
from provenformer.constructions.paper.context import Sweep
from provenformer.functions.grid import Grid
from provenformer.functions.piecewise import PiecewiseConstant
from provenformer.networks.modified import ModifiedNetwork, Run, Step
from provenformer.networks.stages import QUANTISE, RESCALE


@dataclass(frozen=True)
class Check:
    """Whether a statement holds, and if not, a case in which it fails."""

    statement: str
    holds: bool
    counterexample: str | None = None
    cases: int = 0  # how many cases were looked at

    def __bool__(self) -> bool:
        return self.holds


def is_contextual_mapping(
    q: Callable[[Any], Any] | Any, sequences: Any, *, up_to_permutation: bool = True, tolerance: float = 0.0
) -> Check:
    """Whether q is a contextual mapping on a finite set of sequences (count, d, n).

    q is a function from a (d, n) sequence to its n context ids, or those ids as an array (count, n). Definition 5.1 asks
    that all ids within and across sequences differ. No equivariant map can do that for a sequence and its own
    permutation, so by default Lemma 6's version is checked: within a sequence, ids of different columns differ; across
    two sequences that are not permutations of each other, no id is shared. `up_to_permutation=False` is Definition 5.1
    to the letter. Two ids count as equal when they are within `tolerance`.
    """
    sequences = np.asarray(sequences)
    if sequences.ndim != 3:
        raise ProvenformerError(f"sequences have shape {sequences.shape}; give (count, token_dim, seq_len).")
    ids = [q(x) for x in sequences] if callable(q) else list(q)
    ids = [np.asarray(row).ravel().tolist() for row in ids]
    if len(ids) != len(sequences) or any(len(row) != sequences.shape[2] for row in ids):
        raise ProvenformerError(
            f"q gives {len(ids)} rows of ids for {len(sequences)} sequences; it must give one id per token."
        )
    statement = "contextual mapping" + (" up to permutation" if up_to_permutation else " (Definition 5.1)")
    tokens = [[tuple(column) for column in x.T.tolist()] for x in sequences]
    entries = sorted((v, i, j) for i, row in enumerate(ids) for j, v in enumerate(row))
    bags = [sorted(t) for t in tokens]
    run: list[tuple[Any, int, int]] = []
    for value, i, j in entries:
        run = [e for e in run if value - e[0] <= tolerance]
        for _, other, k in run:
            if other == i:
                fine = up_to_permutation and tokens[i][j] == tokens[i][k]
            else:
                same = bags[i] == bags[other] and tokens[i][j] == tokens[other][k]
                fine = up_to_permutation and same
            if not fine:
                where = (
                    f"token {k} of sequence {other} {tokens[other]} and token {j} of sequence {i} {tokens[i]} "
                    f"share the id {value}"
                )
                return Check(statement, False, where, len(entries))
        run.append((value, i, j))
    return Check(statement, True, None, len(entries))


def is_permutation_equivariant(network: Callable[[FloatArray], FloatArray], x: FloatArray) -> Check:
    """Claim 1 on given inputs (batch, d, n): network(XP) == network(X)P, exactly, for every transposition of neighbours."""
    y = network(x)
    for j in range(x.shape[-1] - 1):
        order = np.arange(x.shape[-1])
        order[[j, j + 1]] = order[[j + 1, j]]
        wrong = (network(x[..., order]) != y[..., order]).any(axis=(-2, -1))
        if wrong.any():
            return Check("Claim 1", False, f"X={x[wrong][0].tolist()}, columns {j} and {j + 1} swapped", x.shape[0])
    return Check("Claim 1", True, None, x.shape[0] * (x.shape[-1] - 1))


def contextual_map_ids(sweep: Sweep, cells: Array) -> tuple[Array, Array]:
    """Run the attention layers on grid points (count, d, n) in cells; -1 is the marker.

    Returns the column ids before the last layer and at the end, in units of delta, as Python integers.
    """
    steps = _run_from_cells(sweep.grid, list(sweep.layers(sweep.grid.cell_width)), cells)
    u = np.array(sweep.grid.id_vector, dtype=object)
    before, after = (np.einsum("d,bdn->bn", u, _in_cells(steps[i], sweep.grid)) for i in (-2, -1))
    return before, after


def check_lemma_5(grid: Grid, positional: bool = False) -> Check:
    """Every cell's lower corner, middle and last point goes to its corner; outside goes to the marker (Lemma 5, C.1)."""
    delta = grid.cell_width
    runs: list[Run] = [*(quantize.positional_quantizer(grid, delta) if positional else quantize.quantizer(grid, delta))]
    span = grid.seq_len if positional else 1
    cells = range(grid.cells_per_axis * span)
    expected = {
        k * delta + part * delta: k * delta for k in cells for part in (0, Fraction(1, 2), Fraction(4095, 4096))
    }
    if not positional:
        marker = Fraction(quantize.marker(grid))
        expected |= dict.fromkeys((Fraction(-1, 4096), Fraction(-7), Fraction(1), Fraction(8), Fraction(10**6)), marker)
    points = list(expected)
    den = np.lcm.reduce([p.denominator for p in points])
    column = np.array([int(p * int(den)) for p in points], dtype=object)
    num = np.broadcast_to(column[:, None, None], (len(points), grid.token_dim, grid.seq_len)).copy()
    out = _run_exact(grid, runs, num, int(den))[-1].values()
    for point, got in zip(points, out, strict=True):
        if (got != expected[point]).any():
            return Check("Lemma 5", False, f"{point} goes to {got.ravel()[0]}, not {expected[point]}", len(points))
    return Check("Lemma 5", True, None, len(points))


def check_lemma_6(grid: Grid) -> tuple[Check, Check, Check, Check]:
    """The four properties of Lemma 6 over the whole extended grid, with the real attention layers."""
    sweep, cells = Sweep(grid), grid.extended_points()
    ids = _column_ids(grid, cells)
    _, q = contextual_map_ids(sweep, cells)
    inside = (cells >= 0).all(axis=(1, 2))
    distinct = np.array([len(set(row)) == len(row) for row in ids.tolist()])
    valid = inside & distinct

    def first(wrong: Array) -> str | None:
        return None if not wrong.any() else f"L={cells[wrong][0].tolist()} (cells), q={q[wrong][0].tolist()}"

    repeated = np.array([len(set(row)) != len(row) for row in q.tolist()]) & valid
    owner: dict[int, tuple[int, ...]] = {}
    shared = None
    for row, context in zip(q[valid].tolist(), np.sort(ids[valid], axis=1).tolist(), strict=True):
        for value in row:
            if owner.setdefault(value, tuple(context)) != tuple(context):
                shared = f"contexts {owner[value]} and {tuple(context)} share the id {value}"
    in_range = (q >= sweep.id_low) & (q < sweep.id_high)
    low, stray = valid & ~in_range.all(axis=1), ~valid & in_range.any(axis=1)
    count = len(cells)
    return (
        Check("Lemma 6.1: ids of distinct columns differ", not repeated.any(), first(repeated), count),
        Check("Lemma 6.2: different contexts share no id", shared is None, shared, count),
        Check("Lemma 6.3: ids lie in [t_l, t_r)", not low.any(), first(low), count),
        Check("Lemma 6.4: all others lie outside", not stray.any(), first(stray), count),
    )


def check_lemma_10(grid: Grid) -> Check:
    """Before the last layer the largest id is within the bounds, and names the set of ids."""
    k, n = grid.column_count, grid.seq_len
    sweep, contexts = Sweep(grid), grid.contexts("sets")
    cells = np.swapaxes(grid.columns(contexts), 1, 2)
    before, _ = contextual_map_ids(sweep, cells)
    largest = before.max(axis=1)
    low, high = k ** (n - 1) * (k - 1), k**n * (k - 1) - (k - 1) ** 2
    wrong = (largest < low) | (largest > high)
    if wrong.any():
        return Check("Lemma 10", False, f"{contexts[wrong][0].tolist()}: {largest[wrong][0]} not in [{low}, {high}]")
    if len(set(largest.tolist())) != len(largest):
        return Check("Lemma 10", False, "two sets of ids share the largest id", len(contexts))
    return Check("Lemma 10", True, None, len(contexts))


def check_lemma_7(piecewise: PiecewiseConstant, network: ModifiedNetwork) -> Check:
    """From the contextual map on: A_L on contexts with distinct columns, 0 on the rest of the extended grid."""
    grid = piecewise.grid
    cells = grid.extended_points()
    runs = [run for run in network.runs if run.stage not in (RESCALE, QUANTISE)]
    got = _run_from_cells(grid, runs, cells)[-1].floats()
    centers = (cells + 0.5) / grid.cells_per_axis  # the marker's -1 becomes a point outside
    low, width = piecewise.target.low[:, None], (piecewise.target.high - piecewise.target.low)[:, None]
    expected = piecewise(low + centers * width)
    wrong = (got != expected).any(axis=(1, 2))
    if wrong.any():
        at = f"L={cells[wrong][0].tolist()}: {got[wrong][0].tolist()} instead of {expected[wrong][0].tolist()}"
        return Check("Lemma 7", False, at, len(cells))
    return Check("Lemma 7", True, None, len(cells))


def check_lemma_7_condition(piecewise: PiecewiseConstant) -> Check:
    """The condition missing from Lemma 7: |u.A_L| < t_l - delta/2, or a finished column could be hit again."""
    sweep, delta = Sweep(piecewise.grid, not piecewise.target.equivariant), piecewise.grid.cell_width
    scale = values.output_scale(piecewise.grid.id_vector, piecewise.values, sweep.id_low * delta, delta)
    found = None if scale == 1 else f"values are too large by a factor up to {scale}; the output is rescaled by it"
    return Check("Lemma 7's missing condition", scale == 1, found, piecewise.values.size)


def check_appendix_c(grid: Grid, literal: bool = False) -> Check:
    """Appendix C.2 on all sequences: every column is shifted once, in order, and the ids are a contextual mapping."""
    sweep = Sweep(grid, positional=True, literal=literal)
    contexts = grid.contexts("sequences")
    cells = np.swapaxes(grid.columns(contexts), 1, 2) + np.arange(grid.seq_len) * grid.cells_per_axis
    before, after = contextual_map_ids(sweep, cells)
    expected = sweep.shifted(sweep.ids(contexts))
    twice = (before != expected).any(axis=1)
    statement = "Appendix C.2" + (" as printed" if literal else "")
    if twice.any():
        at = f"L={cells[twice][0].tolist()} (cells): {before[twice][0].tolist()}, one shift each is {expected[twice][0].tolist()}"
        return Check(statement, False, at, len(contexts))
    ordered = (np.diff(before, axis=1) > 0).all()
    different = len(set(after.ravel().tolist())) == after.size
    return Check(statement, bool(ordered and different), None, len(contexts))


def _column_ids(grid: Grid, cells: Array) -> Array:
    """u.L per column in units of delta; the marker -1 (in cells) is written out."""
    return np.asarray(np.einsum("d,bdn->bn", np.array(grid.id_vector, dtype=object), _with_marker(grid, cells)))


def _with_marker(grid: Grid, cells: Array) -> Array:
    return np.where(cells < 0, quantize.marker(grid) * grid.cells_per_axis, cells.astype(object))


def _run_from_cells(grid: Grid, runs: Sequence[Run], cells: Array) -> list[Step]:
    return _run_exact(grid, runs, _with_marker(grid, cells), grid.cells_per_axis)


def _run_exact(grid: Grid, runs: Sequence[Run], num: Array, den: int) -> list[Step]:
    """All layers of `runs` from an exact state; the last two states are kept."""
    network = ModifiedNetwork(grid.token_dim, grid.seq_len, tuple(runs))
    last: list[Step] = []
    for step in network.trace_exact(num, den, every="layer"):
        last = [*last[-1:], step]
    return last


def _in_cells(step: Step, grid: Grid) -> Array:
    """The state in units of delta, as integers."""
    return np.asarray(step.num * grid.cells_per_axis // step.den)
