"""An independent check of a saved network: reads the weights and the target, re-derives the bound, trusts nothing else.

It shares no code with the construction. It knows only what a layer of the class computes, and follows *all* good inputs
(those on no ramp) through the layers at once:

1. Coordinates. Each cell of each row is an interval of inputs. Feed-forward layers that read and write one row map it by a
   piecewise linear function; the interval must never straddle a break that matters, and must end as a single number.
2. Points. Now there are finitely many tokens. A short run is applied to all of them. A long run is read back as windows:
   layer i must be 0 up to its start s_i, the starts must decrease, and a token hit by one layer must end below every
   later start. Then each token is hit exactly once and one binary search finds where: linear in the number of layers.
3. Contexts. Attention must be uniform, or decided so clearly that the other columns weigh less than the smallest float64.
4. The outputs form a table, context -> value, whatever the weights were meant to be. The distance between the target and
   this table is bounded as in docs/certificates.md, with ramps bounded by the final clip.

Float64 rounding is carried along as a radius around every number; sums of short dyadic numbers are recognised as exact.
So an altered weight either breaks one of the rules above, and the layer is named, or changes the table, and the bound
that comes out is true of the altered network.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from provenformer.errors import ProvenformerError, Rejected
from provenformer.grid import Grid
from provenformer.growth import first_overflow
from provenformer.integrals import KINDS, NORM_LIMIT, Cells, IntegralBound, Kind, bound_integral, p_sum
from provenformer.network import Network, ReluRun, SoftmaxRun
from provenformer.storage import Saved, load
from provenformer.targets import FloatArray, Target, is_built_in
from provenformer.wide import WideNetwork
from provenformer.wide_check import follow, slack_in_cells

U = 2.0**-53
TINY = 2.0**-1000  # covers what underflow can lose, however many products
SHORT_RUN = 64  # up to this many layers, a run is applied to every point
LARGEST_INPUT = 1e100  # claims over the whole space are about inputs up to this, as executed
CERTAIN = 746.0  # exp(-746) is below the smallest float64


@dataclass(frozen=True)
class Report:
    """What verify found. `ok` is true when the claimed bound follows from the weights and the target."""

    ok: bool
    claimed: float
    derived: float | None  # the bound re-derived from the weights; None when a rule was broken
    reason: str
    terms: dict[str, float]

    def __bool__(self) -> bool:
        return self.ok


def verify(path: str | Path, target: Target | None = None) -> Report:
    """Check a saved folder. Hashes are not trusted: the bound is derived again from the weights.

    `target` is needed when the folder was made from a function without an import path.
    """
    saved = load(path, check_hashes=False)
    claimed = float(saved.certificate.bound)
    try:
        if saved.certificate.domain == "data":
            terms = {"data": _error_on_data(saved)}
            derived = terms["data"]
        else:
            derived, terms = _derive(saved, target or saved.target)
    except Rejected as verdict:
        return Report(False, claimed, None, str(verdict), {})
    if not derived <= claimed * (1 + 1e-9):
        reason = f"the weights give {derived:.6g}, more than the claimed bound {claimed:.6g}"
        return Report(False, claimed, derived, reason, terms)
    return Report(True, claimed, derived, f"the bound {claimed:.6g} holds for these weights", terms)


def executed_rounding(network: Network, target: Target, grid: Grid, ramp: float) -> float:
    """How far float64, summing in any order, may be from the network's table: entry-wise, on good inputs."""
    return _Walk(network, target, grid, ramp).outputs()[1]


def _error_on_data(saved: Saved) -> float:
    """A memorised data set: the largest error over all pairs, by running the network."""
    inputs, outputs = saved.data.get("inputs"), saved.data.get("outputs")
    if inputs is None or outputs is None or inputs.shape != outputs.shape or inputs.ndim != 3:
        raise Rejected("the certificate is about a data set, but the folder has no inputs and outputs of one shape")
    got = saved.network(inputs)
    if not np.isfinite(got).all():
        raise Rejected("the network gives a value that is not finite on its data")
    return float(np.abs(got - outputs).max(initial=0.0))


def _derive(saved: Saved, target: Target | None) -> tuple[float, dict[str, float]]:
    network, claim = saved.network, saved.certificate
    if target is None:
        raise ProvenformerError("the target of this network has no import path; pass it: verify(path, target=...).")
    target.require_pointwise()
    target.require_equivariance()
    grid = _grid(saved, target)
    positional = network.positions is not None
    if target.equivariant == positional:
        raise Rejected("positions are given exactly when the target is not equivariant")
    ramp, p, kind = float(claim.ramp), float(claim.norm_order or 0.0), claim.kind
    if not (0 < ramp < 0.5 and 1 <= p <= NORM_LIMIT and kind in KINDS):
        raise Rejected("the certificate's ramp, norm or kind is outside its range")
    if isinstance(network, WideNetwork):
        contexts = grid.contexts("sequences" if positional else "multisets")
        wide = follow(network, target, grid, ramp, contexts)
        if claim.domain != "box":
            raise Rejected("a wide network is checked over the box only")
        table, radius, low, high = wide.values, wide.radius, wide.low, wide.high
        share = ramp + 2 * slack_in_cells(target, grid)
    else:
        _require_finite(network, target, claim.domain)
        walk = _Walk(network, target, grid, ramp)
        contexts, share = walk.contexts, walk.lost_share
        table, radius = walk.outputs()
        low, high = _clip_range(network.runs)
        if claim.domain == "space":
            walk.require_zero_outside()
    if not np.isfinite(table).all() or not np.isfinite(radius):
        raise Rejected("the network gives a value that is not finite")
    cells = Cells.of(grid, contexts, table, positional, is_built_in(target))
    integral = bound_integral(target, cells, p, _claimed_kind(kind))
    if not np.isfinite(integral.upper):
        raise Rejected("the target has no finite bound on a cube")
    return _combine(target, grid, p, integral, radius, low, high, share, claim.domain)


def _require_finite(network: Network, target: Target, domain: str) -> None:
    """Nothing may overflow on a ramp, where only the clip bounds the output."""
    largest = float(np.maximum(np.abs(target.low), np.abs(target.high)).max()) + 1.0
    if network.positions is not None:
        largest += float(np.abs(network.positions).max())
    found = first_overflow(network, max(largest, LARGEST_INPUT) if domain == "space" else largest)
    if found:
        run, layer = found
        where = _Where(run, network.runs[run].stage)
        raise Rejected(f"{where.layer(layer)}: a number might overflow on a ramp, where the output is only clipped")


def _claimed_kind(kind: str) -> Kind:
    return next(k for k in KINDS if k == kind)


def _grid(saved: Saved, target: Target) -> Grid:
    cells = saved.manifest.get("cells_per_axis")
    if (target.token_dim, target.seq_len) != (saved.network.token_dim, saved.network.seq_len):
        raise Rejected("the target's token_dim and seq_len are not those of the network")
    return Grid(target.token_dim, target.seq_len, cells)  # type: ignore[arg-type]


def _combine(
    target: Target,
    grid: Grid,
    p: float,
    integral: IntegralBound,
    radius: float,
    clip_low: FloatArray,
    clip_high: FloatArray,
    ramp_share: float,
    domain: str,
) -> tuple[float, dict[str, float]]:
    """Good inputs: table and rounding. Inputs on a ramp: at most the clip range (doubled, see certify.py) against f."""
    volume = float(np.prod(target.high - target.low) ** grid.seq_len)
    axes = grid.token_dim * grid.seq_len
    low, high = np.minimum(integral.low, 0.0), np.maximum(integral.high, 0.0)
    worst = np.maximum(high - 2 * clip_low, 2 * clip_high - low)
    measure = axes * ramp_share
    if domain == "space":
        if not target.vanishes_outside:
            raise Rejected("the claim is about the whole space, but the target does not vanish outside its box")
        measure += (1 + 2 * ramp_share / grid.cells_per_axis) ** axes - 1
    elif domain != "box":
        raise Rejected(f"the certificate's domain '{domain}' is unknown")
    ramps = float((volume * measure * grid.seq_len) ** (1 / p) * p_sum(worst, p))
    table, rounding = integral.upper ** (1 / p), radius * (axes * volume) ** (1 / p)
    bound = p_sum((table + rounding, ramps), p)
    return float(bound), {"table": float(table), "rounding": float(rounding), "ramps": ramps}


def _clip_range(runs: Sequence[Any]) -> tuple[FloatArray, FloatArray]:
    """The last d layers must be x + ReLU(low - x) - ReLU(x - high), one per row, with 0 in [low, high]."""
    last = runs[-1] if runs else None
    if not isinstance(last, ReluRun) or last.W_2.shape[1:] != (len(last), 4):
        raise Rejected("the last run is not one clipping layer per row")
    d = len(last)
    low, high = np.zeros(d), np.zeros(d)
    for row in range(d):
        W_1, W_2 = np.zeros((4, d)), np.zeros((d, 4))
        W_1[:2, row] = -1.0, 1.0
        W_2[row, :2] = 1.0, -1.0
        if (
            (last.W_1[row] != W_1).any()
            or (last.W_2[row] != W_2).any()
            or last.b_2[row].any()
            or last.b_1[row, 2:].any()
        ):
            raise Rejected(f"layer {row} of the last run does not clip row {row} of the output")
        low[row], high[row] = last.b_1[row, 0], -last.b_1[row, 1]
        if not low[row] <= 0 <= high[row]:
            raise Rejected(f"layer {row} of the last run clips to a range without 0")
    return low, high


@dataclass(frozen=True)
class _Where:
    """A place in the network, for messages."""

    run: int
    stage: str

    def layer(self, i: int) -> str:
        return f"layer {i} of run {self.run} ({self.stage})"


class _Walk:
    """All good inputs on their way through a network."""

    def __init__(self, network: Network, target: Target, grid: Grid, ramp: float) -> None:
        self.network, self.target, self.grid = network, target, grid
        positional = network.positions is not None
        self.contexts = grid.contexts("sequences" if positional else "multisets")
        # Room for the rounding of a coordinate before it is snapped: inputs this close to an edge count as ramp.
        width = target.high - target.low
        ends = np.abs(target.low) + np.abs(target.high) + grid.seq_len * width + 1
        slack = 16 * U * float((ends * (1 + grid.cells_per_axis / width)).max() + grid.seq_len * grid.cells_per_axis)
        self.slack, self.ramp = Fraction(slack), Fraction(ramp)
        self.lost_share = ramp + 2 * slack  # of each cell
        self.columns = grid.seq_len if positional else 1

    def outputs(self) -> tuple[FloatArray, float]:
        """The output table (contexts, n, d) and a bound on the executed difference from it."""
        cells, rest = self._collapse_cells()
        tokens, radius = self._tokens(cells)
        state: FloatArray | None = None
        # Equal tokens in a sequence without positions: whatever rounding does, it does to both alike.
        alike = self.contexts[:, :, None] == self.contexts[:, None, :]
        if self.columns > 1:
            alike = np.broadcast_to(np.eye(self.grid.seq_len, dtype=bool), alike.shape)
        for where, run in rest:
            if isinstance(run, ReluRun):
                if state is None:
                    tokens, radius = _feed_points(where, run, tokens, radius)
                else:
                    flat = (v.reshape(-1, v.shape[-1]) for v in (state, radius))
                    state, radius = (v.reshape(state.shape) for v in _feed_points(where, run, *flat))
            else:
                if state is None:
                    state, radius = self._sequences(tokens, radius)
                state, radius = _attend(where, run, state, radius, alike)
        if state is None:
            raise Rejected("the network has no attention layer, so it cannot tell contexts apart")
        return state, float(radius.max(initial=0.0))

    def _collapse_cells(self) -> tuple[FloatArray, list[tuple[_Where, Any]]]:
        """Every cell of every row as a single number (row, cell), and the runs that are left."""
        d, cells = self.grid.token_dim, self.grid.cells_per_axis
        low: list[list[Fraction]] = []
        high: list[list[Fraction]] = []
        for row in range(d):
            start, end = Fraction(float(self.target.low[row])), Fraction(float(self.target.high[row]))
            step = (end - start) / cells
            low.append([])
            high.append([])
            for j in range(self.columns):
                shift = (
                    Fraction(0) if self.network.positions is None else Fraction(float(self.network.positions[row, j]))
                )
                for k in range(cells):
                    rounded = 2 * Fraction(U) * (abs(start) + abs(end) + abs(shift)) if shift else Fraction(0)  # x + E
                    low[row].append(start + shift + (k + self.slack) * step - rounded)
                    high[row].append(start + shift + (k + 1 - self.ramp - self.slack) * step + rounded)
        for index, run in enumerate(self.network.runs):
            where = _Where(index, run.stage)
            if all(low == high for low, high in zip(low, high, strict=True)):
                points = np.array([[_as_float(v, where) for v in row] for row in low])
                return points, [(_Where(i, r.stage), r) for i, r in enumerate(self.network.runs) if i >= index]
            if not isinstance(run, ReluRun):
                raise Rejected(f"{where.layer(0)}: attention comes before the cells are single numbers")
            row = _single_row(where, run)
            for i in range(len(run)):
                _map_intervals(where, run, i, row, low[row], high[row])
        raise Rejected("the cells are not collapsed to single numbers by coordinate-wise layers")

    def _tokens(self, cells: FloatArray) -> tuple[FloatArray, FloatArray]:
        """All grid tokens, column by column: (columns * K, d)."""
        k, n = self.grid.column_count, self.grid.cells_per_axis
        digits = self.grid.columns(np.arange(k))  # (K, d)
        parts = [
            np.stack([cells[r, j * n + digits[:, r]] for r in range(cells.shape[0])], 1) for j in range(self.columns)
        ]
        tokens = np.concatenate(parts)
        return tokens, np.zeros(tokens.shape)

    def _sequences(self, tokens: FloatArray, radius: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Tokens arranged in all contexts: (contexts, n, d)."""
        offset = np.arange(self.grid.seq_len) * (self.grid.column_count if self.columns > 1 else 0)
        index = self.contexts + offset
        return tokens[index], radius[index]

    def require_zero_outside(self) -> None:
        """A sequence with a coordinate outside the box (by more than a ramp) must give 0, whatever the rest is."""
        if self.network.positions is not None:
            raise Rejected("claims over the whole space are not derived for networks with positions")
        _, rest = self._collapse_cells()
        if len(rest) < 3 + self.grid.token_dim:
            raise Rejected("the network has too few runs to send tokens from outside to 0")
        first = rest[0][0].run
        rows = [_coordinate_range(self, row, self.network.runs[:first]) for row in range(self.grid.token_dim)]
        reads = _require_lowering(rest, rows)
        floor = _require_lifting(rest, rows, reads, self.grid.seq_len)
        after = _require_zeroing(rest, rows, floor)
        zero = np.zeros((1, self.grid.token_dim))
        for where, run in after:
            if not isinstance(run, ReluRun):
                raise Rejected(f"run {where.run} ({where.stage}): attention after tokens from outside became 0")
            zero, radius = _feed_points(where, run, zero, np.zeros(zero.shape))
            if zero.any() or radius.any():
                raise Rejected(f"run {where.run} ({where.stage}): a zero column does not stay exactly 0")


def _single_row(where: _Where, run: ReluRun) -> int:
    """The one row that every layer of a run reads and writes."""
    reads = run.W_1.any(axis=(0, 1))
    writes = run.W_2.any(axis=(0, 2)) | run.b_2.any(axis=0)
    rows = np.flatnonzero(reads | writes)
    if len(rows) != 1:
        raise Rejected(f"run {where.run} ({where.stage}): layers before the cells are single numbers must use one row")
    return int(rows[0])


def _map_intervals(where: _Where, run: ReluRun, i: int, row: int, low: list[Fraction], high: list[Fraction]) -> None:
    """Apply one layer to intervals of one coordinate, in place and exactly, widened by float64 rounding."""
    units = [
        (Fraction(float(run.W_1[i, u, row])), Fraction(float(run.b_1[i, u])), Fraction(float(run.W_2[i, row, u])))
        for u in range(run.W_1.shape[1])
        if run.W_2[i, row, u] != 0.0
    ]
    shift = Fraction(float(run.b_2[i, row]))
    for k in range(len(low)):
        a, b = low[k], high[k]
        active = []
        for weight, bias, out in units:
            at_a, at_b = weight * a + bias, weight * b + bias
            if max(at_a, at_b) <= 0:
                continue
            if min(at_a, at_b) < 0:
                raise Rejected(f"{where.layer(i)}: a break lies inside cell {k}, outside its ramp")
            # Rounding is relative to what enters the sum, not to the sum; and a product may underflow.
            size = abs(weight) * max(abs(a), abs(b)) + abs(bias) + Fraction(TINY)
            active.append((weight, bias, out, max(at_a, at_b), size))
        if not active and not shift:
            continue
        slope = sum((weight * out for weight, _, out, _, _ in active), Fraction(1))
        constant = sum((bias * out for _, bias, out, _, _ in active), shift)
        new_a, new_b = slope * a + constant, slope * b + constant
        terms = [max(abs(a), abs(b)), abs(shift), *(abs(out) * size for _, _, out, _, size in active)]
        if not _exact_on_interval(a, b, slope, constant, active, shift) and not _exact_at_point(a, b, active, shift):
            error = 16 * Fraction(U) * sum(terms) + Fraction(TINY)
            new_a, new_b = min(new_a, new_b) - error, max(new_a, new_b) + error
        low[k], high[k] = min(new_a, new_b), max(new_a, new_b)


def _exact_on_interval(
    a: Fraction, b: Fraction, slope: Fraction, constant: Fraction, active: list[Any], shift: Fraction
) -> bool:
    """x - (x - k) with one active unit and k <= x < 2^52 - 1 close by: float64 computes it without rounding.

    x - k has no finer unit in the last place than x when k = 0 or k <= x <= k + 1 for a whole number k >= 1.
    """
    if len(active) != 1 or shift or slope != 0:
        return False
    weight, bias, out, _, _ = active[0]
    whole = constant.denominator == 1 and 0 <= constant < 2**52
    return bool(weight == 1 and out == -1 and bias == -constant and whole and a >= constant and b <= constant + 1)


def _exact_at_point(a: Fraction, b: Fraction, active: list[Any], shift: Fraction) -> bool:
    """At a point: all terms of each sum are multiples of one power of two and their sizes add up to 53 bits at most.

    Then every order of summing is exact.
    """
    if a != b:
        return False
    sums = [[weight * a, bias] for weight, bias, _, _, _ in active]
    sums.append([a, shift, *(out * top for _, _, out, top, _ in active)])
    for terms in sums:
        finest = max(v.denominator for v in terms)
        if finest & (finest - 1) or finest > 2**1000 or sum(abs(v) for v in terms) * finest >= 2**53:
            return False
    return True


def _as_float(value: Fraction, where: _Where) -> float:
    result = float(value)
    if Fraction(result) != value:
        raise Rejected(f"{where.layer(0)}: a collapsed cell is not a float64 number")
    return result


def _feed_points(where: _Where, run: ReluRun, points: FloatArray, radius: FloatArray) -> tuple[FloatArray, FloatArray]:
    """A feed-forward run on finitely many tokens (count, d), each entry known up to a radius."""
    if len(run) <= SHORT_RUN:
        for i in range(len(run)):
            every = np.full(len(points), i)
            points, radius = _apply(run, every, points, radius)
        return points, radius
    direction = run.W_1[0, 0]
    if (direction != run.W_1).any() or run.b_2.any():
        raise Rejected(f"run {where.run} ({where.stage}): a long run must read one direction and have b_2 = 0")
    # Where each layer starts: the smallest break of a unit that is used.
    used = (run.W_2 != 0).any(axis=1)  # (layers, 4)
    starts = np.where(used, -run.b_1, np.inf).min(axis=1)
    order = np.flatnonzero(np.diff(starts) >= 0)
    if len(order):
        raise Rejected(f"{where.layer(int(order[0]) + 1)}: its window does not start below the one before it")
    t, spread = _read(direction, points, radius)
    hit = np.searchsorted(-starts, -t, side="right")  # the first layer that starts below t
    _require_clear(where, starts, t, spread)
    inside = hit < len(run)
    changed, error = _apply(run, hit[inside], points[inside], radius[inside])
    after, after_spread = _read(direction, changed, error)
    again = after + after_spread > starts[-1]
    late = again & (hit[inside] < len(run) - 1)
    if late.any():
        first = int(hit[inside][np.flatnonzero(late)[0]])
        raise Rejected(f"{where.layer(first)}: a token it finishes lies above the start of a later window")
    points, radius = points.copy(), radius.copy()
    points[inside], radius[inside] = changed, error
    return points, radius


def _read(direction: FloatArray, points: FloatArray, radius: FloatArray) -> tuple[FloatArray, FloatArray]:
    """W_1 x and how far it may be off: the points' radius and, unless the sum is exact, rounding."""
    terms = points * direction
    size = np.abs(terms).sum(axis=1)
    passed = radius @ np.abs(direction)
    exact = (_quarters(points) & _quarters(direction)).all(axis=1) & (size < 2.0**48) & (passed == 0)
    return terms.sum(axis=1), passed + np.where(exact, 0.0, _rounding(len(direction)) * size + TINY)


def _quarters(values: FloatArray) -> Any:
    """Multiples of 1/4. Products of two are multiples of 1/16: sums below 2^48 are exact, in any order, fused or not."""
    return values * 4 % 1 == 0


def _rounding(terms: int) -> float:
    """Two computations of a sum of so many products, each in its own order, differ by at most this times the sizes."""
    return 2 * (terms + 4) * U


def _require_clear(where: _Where, starts: FloatArray, t: FloatArray, spread: FloatArray) -> None:
    """No token may be within its radius of a start: which layers see it must be certain."""
    increasing = starts[::-1]
    at = np.searchsorted(increasing, t)
    below = np.abs(t - increasing[np.maximum(at - 1, 0)])
    above = np.abs(t - increasing[np.minimum(at, len(increasing) - 1)])
    unclear = np.minimum(below, above) < 2 * spread
    if unclear.any():
        layer = len(starts) - 1 - int(min(at[np.flatnonzero(unclear)[0]], len(starts) - 1))
        raise Rejected(f"{where.layer(layer)}: a token lies within rounding of its start")


def _apply(run: ReluRun, layer: Any, points: FloatArray, radius: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Layer `layer[k]` on point k, in float64, with a radius that covers rounding in any order of the sums."""
    W_1, b_1, W_2, b_2 = run.W_1[layer], run.b_1[layer], run.W_2[layer], run.b_2[layer]
    reads = W_1 * points[:, None, :]  # (count, 4, d)
    read = reads.sum(axis=2)
    pre = read + b_1
    pre_size = np.abs(reads).sum(axis=2) + np.abs(b_1)
    blur = np.einsum("kus,ks->ku", np.abs(W_1), radius)  # of W_1 x
    short = (_quarters(W_1) & _quarters(points)[:, None, :]).all(axis=2) & _quarters(b_1) & (pre_size < 2.0**48)
    # Sterbenz: the difference of two floats within a factor two of each other is exact; here with room for the radius.
    single = ((W_1 != 0).sum(axis=2) == 1) & np.isin(np.abs(W_1), (0.0, 1.0)).all(axis=2)
    close = (read * b_1 <= 0) & (np.abs(b_1) <= 1.9 * np.abs(read)) & (np.abs(read) <= 1.9 * np.abs(b_1))
    pre_exact = (short & (blur == 0)) | (single & close & (blur <= 2.0**-10 * np.abs(read))) | (single & (b_1 == 0))
    fresh_pre = np.where(pre_exact, 0.0, _rounding(W_1.shape[2] + 1) * pre_size + TINY)
    pre_radius = blur + fresh_pre
    unclear = (W_2 != 0).any(axis=1) & (np.abs(pre) < pre_radius)
    on = pre > 0
    hidden = np.where(on, pre, 0.0)
    terms = W_2 * hidden[:, None, :]  # (count, d, 4)
    out = points + terms.sum(axis=2) + b_2
    size = np.abs(points) + np.abs(terms).sum(axis=2) + np.abs(b_2)
    exact = (_quarters(W_2) & _quarters(hidden)[:, None, :]).all(axis=2) & _quarters(points) & _quarters(b_2)
    exact &= (size < 2.0**48) & (pre_exact & (blur == 0)).all(axis=1)[:, None] & (radius == 0)
    # k terms: k - 1 rounded additions and a rounded product, in any order, fused or not; the same for our own sum.
    count = ((terms != 0) | (unclear[:, None, :] & (W_2 != 0))).sum(axis=2) + 1 + (b_2 != 0)
    rounded = 2.01 * count * U * (size + np.abs(W_2 * pre_radius[:, None, :]).sum(axis=2)) + TINY
    own = fresh_pre * (on | unclear)
    fresh = np.where(exact, 0.0, rounded) + (np.abs(W_2) * own[:, None, :]).sum(axis=2)
    spread = _passed_on(W_1, W_2, on, unclear, radius, pre_radius) + fresh
    untouched = ~(on | unclear).any(axis=1)[:, None] & (b_2 == 0)
    zeroed = _zeroed(W_1, b_1, W_2, b_2, on, unclear)
    out = np.where(zeroed, 0.0, out)
    return out, np.where(untouched, radius, np.where(zeroed, 0.0, spread))


def _passed_on(W_1: Any, W_2: Any, on: Any, unclear: Any, radius: FloatArray, pre_radius: FloatArray) -> FloatArray:
    """How an error of the input passes through a layer, per row.

    Through the slope of the layer where it is linear; with one unit within rounding of its break through the larger of
    the two slopes; with more, each unit's radius times |W_2| without cancellation.
    """

    def slope(active: Any) -> FloatArray:
        weights = W_2 * active[:, None, :]
        passed = np.abs(np.eye(W_1.shape[2]) + np.einsum("kru,kus->krs", weights, W_1))
        passed += 8 * U * np.einsum("kru,kus->krs", np.abs(weights), np.abs(W_1))  # its own rounding
        return np.asarray(np.einsum("krs,ks->kr", passed, radius))

    doubts = unclear.sum(axis=1)[:, None]
    either = np.maximum(slope(on), slope(on ^ unclear))
    crude = radius + (np.abs(W_2) * (pre_radius * (on | unclear))[:, None, :]).sum(axis=2)
    return np.where(doubts > 1, crude, either)


def _zeroed(W_1: Any, b_1: Any, W_2: Any, b_2: Any, on: Any, unclear: Any) -> Any:
    """Rows that a layer sets to exactly 0: x + ReLU(-x) for a clearly negative x is 0 without rounding."""
    d = W_1.shape[2]
    negation = (-np.eye(d)[:, None, None, :] == W_1).all(axis=3) & (b_1 == 0) & on & ~unclear  # (row, count, 4)
    writes = (W_2 != 0) & on[:, None, :]  # (count, row, 4)
    alone = writes.sum(axis=2) == 1
    hit = (writes & (W_2 == 1) & negation.transpose(1, 0, 2)).any(axis=2)
    return alone & hit & (b_2 == 0) & ~(unclear[:, None, :] & (W_2 != 0)).any(axis=2)


def _attend(
    where: _Where, run: SoftmaxRun, state: FloatArray, radius: FloatArray, alike: Any
) -> tuple[FloatArray, FloatArray]:
    """Attention layers on contexts (count, n, d), each entry known up to a radius; `alike` columns are equal bit by bit."""
    count, n, d = state.shape
    for i in range(len(run)):
        flat = (state.reshape(-1, d), radius.reshape(-1, d))
        change, error, size = np.zeros_like(state), np.zeros_like(state), np.abs(state)
        picks: list[FloatArray] = []
        for head in np.flatnonzero(run.W_O[i].any(axis=1)):
            key, key_radius = (v.reshape(count, n) for v in _read(run.W_K[i, head], *flat))
            query, query_radius = (v.reshape(count, n) for v in _read(run.W_Q[i, head], *flat))
            bias = run.b_Q[i, head]
            size_q = np.abs(query) + np.abs(bias)
            plain = _quarters(query) & _quarters(bias) & (size_q < 2.0**48) & (query_radius == 0)
            query_radius = query_radius + np.where(plain, 0.0, 4 * U * size_q + TINY)
            picks.append(_weights(where, i, (key, key_radius), (query + bias, query_radius), alike))
        # Opposite heads that attend alike compute the same number twice: it cancels without rounding.
        opposite = (run.W_O[i, 0] == -run.W_O[i, 1]).all() and (run.W_V[i, 0] == run.W_V[i, 1]).all()
        cancels = (picks[0] == picks[1]).all(axis=1) if opposite and len(picks) == 2 else np.zeros((count, n), bool)
        for head, pick in zip(np.flatnonzero(run.W_O[i].any(axis=1)), picks, strict=True):
            W_O, values = run.W_O[i, head], [v.reshape(count, n) for v in _read(run.W_V[i, head], *flat)]
            among = (pick != 0).astype(np.float64)
            mixed, passed = (
                np.where(cancels, 0.0, np.einsum("ck,ckj->cj", v, among) / among.sum(axis=1))[..., None] for v in values
            )
            # Weights 1, 1/2 or 1/4, whole values and gains: nothing is rounded, not even where heads cancel.
            short: Any = np.isin(pick, (0.0, 0.25, 0.5, 1.0))
            short = short.all(axis=1)[..., None] & (W_O % 1 == 0)
            weighed = np.einsum("ck,ckj->cj", np.abs(values[0]), pick)[..., None] * np.abs(W_O)
            short &= ((values[0] % 1 == 0) & (values[1] == 0)).all(axis=1)[:, None, None] & (weighed < 2.0**48)
            # A product with a power of two is exact: opposite ones cancel, fused or not.
            power_of_two = np.abs(np.frexp(W_O)[0]) == 0.5
            quiet = short | (cancels[..., None] & (power_of_two | (W_O == 0)))
            change += mixed * W_O
            # n products, n - 1 sums, the weight and the gain; our own sum of whole numbers only rounds its weights.
            ours = np.where((values[0] % 1 == 0).all(axis=1)[:, None, None], 4, n + 6)
            error += passed * np.abs(W_O) + np.where(quiet, 0.0, (n + 5 + ours) * U * weighed + TINY)
            size = size + weighed
        state = state + change
        whole = _quarters(state) & _quarters(change) & (size < 2.0**48) & (radius == 0) & (error == 0)
        radius = radius + error + np.where(whole | ((change == 0) & (error == 0)), 0.0, 8 * U * (size + radius))
    return state, radius


def _weights(
    where: _Where, i: int, keys: tuple[FloatArray, FloatArray], queries: tuple[FloatArray, FloatArray], alike: Any
) -> FloatArray:
    """Softmax weights (count, key, query): uniform where scores are all equal, else one clear winner (or equal winners)."""
    scores = keys[0][:, :, None] * queries[0][:, None, :]
    doubt = (
        keys[1][:, :, None] * np.abs(queries[0])[:, None, :]
        + np.abs(keys[0])[:, :, None] * queries[1][:, None, :]
        + keys[1][:, :, None] * queries[1][:, None, :]
        + 8 * U * np.abs(scores)
        + np.where((keys[0] == 0)[:, :, None] & (keys[1] == 0)[:, :, None], 0.0, TINY)
    )
    best = scores.max(axis=1, keepdims=True)
    # Equal keys, known exactly or equal bit by bit, give equal scores: they are tied with the winner.
    winner = scores.argmax(axis=1)[:, None]
    winner_key = np.take_along_axis(np.broadcast_to(keys[0][:, :, None], scores.shape), winner, axis=1)
    known = (keys[1] == 0).all(axis=1)[:, None, None] & (keys[0][:, :, None] == winner_key)
    same = np.take_along_axis(alike, np.broadcast_to(winner, scores.shape), axis=2)  # (count, key, query)
    tied = known | same | ((scores == 0) & (best == 0) & (doubt.max(axis=1, keepdims=True) == 0))
    behind = best - scores - 2 * doubt.max(axis=1, keepdims=True)
    if not (tied | (behind >= CERTAIN)).all():
        raise Rejected(f"{where.layer(i)}: attention is neither uniform nor decided (gap {behind[~tied].min():.3g})")
    return np.asarray(tied / tied.sum(axis=1, keepdims=True))


# The whole space (docs/certificates.md, "Outside the box"). The argument is in steps; each is checked on the weights.


@dataclass(frozen=True)
class _RowRange:
    """After the coordinate-wise layers: every number is at most `top`; one from outside is at most -`below`."""

    top: float
    below: float


def _coordinate_range(walk: _Walk, row: int, runs: Sequence[Any]) -> _RowRange:
    """Follow the whole line, and the two half-lines outside, through the coordinate-wise layers of a row."""
    start, end = Fraction(float(walk.target.low[row])), Fraction(float(walk.target.high[row]))
    step = (end - start) / walk.grid.cells_per_axis
    whole = _image(runs, row, None, None)
    left = _image(runs, row, None, start - (walk.ramp + walk.slack) * step)
    right = _image(runs, row, end + walk.slack * step, None)
    tops = [top for top in (left, right) if top is not None]
    if whole is None or len(tops) < 2 or max(tops) >= 0:
        raise Rejected(f"row {row}: a coordinate outside the box is not sent below 0")
    return _RowRange(float(whole) * (1 + 2.0**-20) + 2.0**-20, -float(max(tops)) * (1 - 2.0**-20))


def _image(runs: Sequence[Any], row: int, low: Fraction | None, high: Fraction | None) -> Fraction | None:
    """The supremum of a (half-)line after all layers that use a row; None when it is not bounded from above."""
    for run in runs:
        if not isinstance(run, ReluRun) or not (
            run.W_1[..., row].any() or run.W_2[:, row].any() or run.b_2[:, row].any()
        ):
            continue
        for i in range(len(run)):
            low, high = _layer_image(run, i, row, low, high)
    return high


def _layer_image(
    run: ReluRun, i: int, row: int, low: Fraction | None, high: Fraction | None
) -> tuple[Fraction | None, Fraction | None]:
    """The hull of a layer's image of [low, high], None standing for an infinite end, widened by rounding.

    A piecewise linear function takes its extremes at the ends and breaks; towards infinity its last slope decides. There
    rounding must be small against the slope, so that it cannot turn the sign.
    """
    units = [
        (Fraction(float(run.W_1[i, u, row])), Fraction(float(run.b_1[i, u])), Fraction(float(run.W_2[i, row, u])))
        for u in range(run.W_1.shape[1])
        if run.W_2[i, row, u] != 0.0  # a unit with W_1 = 0 is a constant, not nothing
    ]
    shift = Fraction(float(run.b_2[i, row]))
    if not units and not shift:
        return low, high

    def value(x: Fraction) -> tuple[Fraction, Fraction]:
        terms = [out * max(weight * x + bias, Fraction(0)) for weight, bias, out in units]
        active = [unit for unit in units if unit[0] * x + unit[1] > 0]
        sizes = [abs(out) * (abs(weight * x) + abs(bias) + Fraction(TINY)) for weight, bias, out in active]
        error = 16 * Fraction(U) * (abs(x) + abs(shift) + sum(sizes, Fraction(0))) + Fraction(TINY)
        return x + shift + sum(terms, Fraction(0)), error

    def slope(side: int) -> Fraction:
        active = [(weight, out) for weight, _, out in units if weight * side > 0]
        total = sum((weight * out for weight, out in active), Fraction(1))
        noise = 16 * Fraction(U) * (1 + sum((abs(weight * out) for weight, out in active), Fraction(0)))
        if 4 * noise >= abs(total):
            raise Rejected(f"layer {i} of a run before the cells are single numbers: rounding drowns its outer slope")
        return total

    breaks = [-bias / weight for weight, bias, _ in units if weight]
    inside = [b for b in breaks if (low is None or b > low) and (high is None or b < high)]
    found = [value(x) for x in (*inside, *(end for end in (low, high) if end is not None))]
    if not found:
        found = [value(Fraction(0))]
    new_low: Fraction | None = min(v - e for v, e in found)
    new_high: Fraction | None = max(v + e for v, e in found)
    for end, side in ((low, -1), (high, 1)):
        if end is None:
            if slope(side) * side > 0:
                new_high = None
            else:
                new_low = None
    return new_low, new_high


def _require_lowering(rest: Any, rows: list[_RowRange]) -> tuple[FloatArray, float, float]:
    """Feed-forward layers before attention only lower what they touch, and do not touch tokens from outside.

    Returns the direction they read, an upper bound on any read, and an upper bound (negative) on reads from outside.
    """
    where, run = rest[0]
    if not isinstance(run, ReluRun) or not isinstance(rest[1][1], SoftmaxRun):
        raise Rejected("over the whole space one feed-forward run must stand between the cells and attention")
    direction = run.W_1[0, 0]
    breaks = -run.b_1
    ramp_up, ramp_down = breaks[:, 1] - breaks[:, 0], breaks[:, 3] - breaks[:, 2]
    rise, fall = run.W_2[:, :, 0] * ramp_up[:, None], run.W_2[:, :, 2] * ramp_down[:, None]
    bump = (direction == run.W_1).all() and not run.b_2.any() and (direction > 0).all()
    bump &= bool((np.diff(breaks, axis=1) > 0).all() and (run.W_2[:, :, 1::2] == -run.W_2[:, :, ::2]).all())
    if not bump or (rise != -fall).any() or (rise > 0).any():
        raise Rejected(f"run {where.run} ({where.stage}): its layers are not bumps that lower a token")
    top = float(sum(w * max(r.top, 0.0) for w, r in zip(direction, rows, strict=True)))
    outside = max(top - w * (max(r.top, 0.0) + r.below) for w, r in zip(direction, rows, strict=True))
    if not outside < breaks.min():
        raise Rejected(f"run {where.run} ({where.stage}): it touches a token from outside the box")
    return direction, top, float(outside)


def _require_lifting(rest: Any, rows: list[_RowRange], reads: tuple[FloatArray, float, float], n: int) -> float:
    """Uniform attention adds -gain * (sum of reads) to the first row: a lower bound on it when a token is outside."""
    direction, top, outside = reads
    where, run = rest[1]
    W_O, W_V = run.W_O[0], run.W_V[0]
    uniform = not run.W_K.any() and not run.W_Q.any() and len(run) == 1 and not W_O[1].any()
    gain = -float(W_O[0, 0]) / n
    if not uniform or W_O[0, 1:].any() or (W_V[0] != direction).any() or not gain * direction[0] >= 2:
        raise Rejected(
            f"run {where.run} ({where.stage}): not one uniform head that reads what the layers before it read"
        )
    others = float(sum(w * max(r.top, 0.0) for w, r in zip(direction[1:], rows[1:], strict=True)))
    elsewhere = gain * (-outside - others - (n - 1) * top)
    in_first_row = gain * (direction[0] * rows[0].below / 2 - others - (n - 1) * top)
    return float(min(elsewhere, in_first_row) * (1 - 2.0**-20))


def _require_zeroing(rest: Any, rows: list[_RowRange], floor: float) -> Any:
    """A first row above all valid ids makes every row negative; then x + ReLU(-x) makes them 0. Returns the other runs."""
    d = len(rows)
    where, run = rest[2]
    if not all(isinstance(r, ReluRun) for _, r in rest[2 : 3 + d]):
        raise Rejected(f"run {where.run} ({where.stage}): a second attention layer before tokens from outside become 0")
    breaks = -run.b_1[0]
    e1 = np.eye(d)[0]
    used = (run.W_2[0] != 0).any(axis=0)
    clear = len(run) == 1 and (run.W_1[0] == e1).all() and not run.b_2.any() and (breaks[used] < floor).all()
    slope = run.W_2[0].sum(axis=1)
    at_floor = (run.W_2[0] * np.maximum(floor - breaks, 0.0)).sum(axis=1)
    noise = 64 * U * np.abs(run.W_2[0]).sum()
    worst = np.array([floor, *(max(r.top, 0.0) for r in rows[1:])])
    if not clear or not (slope <= -1.5).all() or noise > 0.1 or not (worst + at_floor < -noise * floor).all():
        raise Rejected(f"run {where.run} ({where.stage}): ids of sequences with a token outside do not become negative")
    for row in range(d):
        where, run = rest[3 + row]
        pattern = len(run) == 1 and not run.b_2.any() and not run.b_1.any()
        used = (run.W_2[0] != 0).any(axis=0)
        reads_row = (run.W_1[0][used] == -np.eye(d)[row]).all()
        if not pattern or used.sum() != 1 or not reads_row or (run.W_2[0][:, used].ravel() != np.eye(d)[row]).any():
            raise Rejected(f"run {where.run} ({where.stage}): it is not x + ReLU(-x) on row {row}")
    return rest[3 + d :]
