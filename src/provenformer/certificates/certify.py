"""The certificate: d_p(f, g) <= bound, split into its causes. docs/certificates.md has the argument.

Let the *good* inputs be those of the box that lie on no ramp. There the network's output is A_L up to rounding, so

    d_p(f, g) <= ((piecewise^p + lost^p)^(1/p) + softmax + rounding)^p + ramps^p )^(1/p)

- piecewise: f against its value at the cube's centre; lost: the cubes the paper's construction maps to 0 (integrals.py).
- ramps: the share of inputs within a ramp (or its rounding) of a cell edge, times the largest difference between f and the
  clipped output.
- softmax: weight of wrong columns, below the smallest float64 (relax.py); 0 for the sum construction.
- rounding: float64 as executed, for any order of the sums (fused or not).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from provenformer.base.arrays import FloatArray
from provenformer.base.errors import TooLarge
from provenformer.base.exact import INT64_LIMIT
from provenformer.bounds.cells import Cells
from provenformer.bounds.integrals import SAMPLES, IntegralBound, Kind, bound_integral, p_sum
from provenformer.certificates.certificate import BASIS, Certificate, Domain
from provenformer.functions.piecewise import PiecewiseConstant
from provenformer.functions.targets import Target, one_order_suffices

ROUND = 2.0**-53
# Largest id that float64 still separates from its neighbours by 1/8, so that windows, ramps and sums are exact.
ID_BITS_LIMIT = 49
CHECKER_ROOM = 2.0**-20  # verify.py bounds the same things by other formulas; its last digits may differ
RAMP_SHARE = 0.05  # how much of the piecewise error the ramps may cost
WIDEST_RAMP = 10  # bits: no ramp is wider than 2^-10 of a cell


@dataclass(frozen=True)
class Budget:
    """What certify() needs to know of a network besides f: all of it follows from the construction."""

    id_high: int  # largest id, in cells
    output_scale: int  # the values were divided by this inside the network
    attention_rounding: float  # relative error of an id from attention: 0 where sums are exact
    softmax: float  # error of an output entry from softmax in place of hardmax, in real arithmetic
    far_below: int  # where a coordinate outside is sent, in cells (sum); 0 without that
    ramp_bits: int = 40  # no ramp is narrower than 2^-ramp_bits of a cell


def require_float64(bits: int, way_out: str = "") -> None:
    """Ids must fit float64 with three bits to spare for windows and ramps; `way_out` is what else one may try."""
    if bits > ID_BITS_LIMIT:
        raise TooLarge(
            f"ids need {bits} bits, but float64 separates only {ID_BITS_LIMIT} here; "
            f"use fewer cells per axis, fewer tokens, a larger tolerance{way_out}."
        )


def certify(
    piecewise: PiecewiseConstant, norm_order: float, kind: Kind, budget: Budget, tolerance: float | None = None
) -> Certificate:
    """Bound every term; the ramp follows from the tolerance (or, without one, from the piecewise error)."""
    target, grid, p = piecewise.target, piecewise.grid, float(norm_order)
    require_float64(budget.id_high.bit_length())
    kept, lost = split_cells(piecewise)
    kept_bound, lost_bound = (bound_integral(target, cells, p, kind) for cells in (kept, lost))
    low, high = function_range(kept_bound, lost_bound, len(lost.ids) > 0)
    flat = piecewise.values.reshape(-1, grid.token_dim)
    clip_low, clip_high = flat.min(axis=0, initial=0.0), flat.max(axis=0, initial=0.0)
    domain: Domain = "space" if target.vanishes_outside and target.equivariant and budget.far_below else "box"

    piece, gone = kept_bound.upper ** (1 / p), lost_bound.upper ** (1 / p)
    whole = per_entry(target, p)
    rounding = rounding_error(budget, flat, grid.seq_len) * whole
    softmax = budget.softmax * whole
    # Executed on huge numbers, the clip rounds its ends to a coarse grid through 0: at most twice as far from 0.
    worst = np.maximum(np.maximum(high, 0.0) - 2 * clip_low, 2 * clip_high - np.minimum(low, 0.0))
    aim = RAMP_SHARE * (tolerance if tolerance is not None else p_sum((piece, gone), p))

    def ramp_term(bits: int) -> float:
        return ramp_cost(target, grid.cells_per_axis, grid.seq_len, 2.0**-bits, worst, p, domain)

    most = min(budget.ramp_bits, 50 - max(1, budget.far_below).bit_length())
    bits = next((b for b in range(WIDEST_RAMP, most) if ramp_term(b) <= aim), most)
    ramps = ramp_term(bits)
    terms = {"piecewise": piece, "lost cubes": gone, "ramps": ramps, "softmax": softmax, "rounding": rounding}
    details = {
        "estimate": (kept_bound.estimate + lost_bound.estimate) ** (1 / p),
        "boxes": kept_bound.boxes + lost_bound.boxes,
        "id_bits": budget.id_high.bit_length(),
        "cells_per_axis": grid.cells_per_axis,
    }
    if kind == "statistical":
        details["samples"] = SAMPLES
    if tolerance is not None:
        details["tolerance"] = float(tolerance)  # what was asked for, for the record
    clips = (tuple(clip_low.tolist()), tuple(clip_high.tolist()))
    norm_order = norm_order.item() if isinstance(norm_order, np.generic) else norm_order  # numpy's integers are no JSON
    return Certificate(total(terms, p), terms, kind, norm_order, domain, BASIS[kind], 2.0**-bits, *clips, details)


def total(terms: dict[str, float], p: float) -> float:
    """The bound that the terms add up to: Minkowski on good inputs, p-th powers over disjoint sets of inputs.

    The piecewise term is at least 2^-1000 (a power counts as 2^-900 at least, a cube's volume is above 2^-100), so what
    the small terms lose by underflow, 2^-1074 each, is covered by the room for the checker.
    """
    good = p_sum((terms["piecewise"], terms["lost cubes"]), p) + terms["softmax"] + terms["rounding"]
    return float(p_sum((good, terms["ramps"]), p) * (1 + CHECKER_ROOM))


def with_terms(certificate: Certificate, **changed: float) -> Certificate:
    """The same certificate with other terms."""
    terms = {**certificate.terms, **changed}
    return replace(certificate, terms=terms, bound=total(terms, float(certificate.norm_order or 1)))


def per_entry(target: Target, p: float) -> float:
    """What an error of 1 in every entry costs."""
    return float((target.token_dim * target.seq_len * box_volume(target)) ** (1 / p))


def split_cells(piecewise: PiecewiseConstant) -> tuple[Cells, Cells]:
    """The cubes that carry their own value, and those that the network maps to 0 (repeated tokens, paper only)."""
    grid, positional = piecewise.grid, piecewise.kind == "sequences"
    trusted = one_order_suffices(piecewise.target)
    kept = Cells.of(grid, piecewise.contexts, piecewise.values, positional, trusted)
    everything = grid.contexts("multisets") if piecewise.kind == "sets" else piecewise.contexts[:0]
    repeated = everything[(np.diff(everything, axis=1) == 0).any(axis=1)]
    return kept, Cells.of(grid, repeated, np.zeros((*repeated.shape, grid.token_dim)), positional, trusted)


def function_range(kept: IntegralBound, lost: IntegralBound, has_lost: bool) -> tuple[FloatArray, FloatArray]:
    """Bounds of f per row over the whole box."""
    if not has_lost:
        return kept.low, kept.high
    return np.minimum(kept.low, lost.low), np.maximum(kept.high, lost.high)


def box_volume(target: Target) -> float:
    """Volume of the box of sequences."""
    return float(np.prod(target.high - target.low) ** target.seq_len)


def edge_rounding(target: Target, cells_per_axis: int, seq_len: int) -> float:
    """How far (in cells) float64 may move a coordinate on its way to cell units: positions, shift and scaling.

    x + E, then x + (s - 1) ReLU(x - low) - low with s = N / width: rounded operations on numbers up to 2 (ends + 1) (1 + s),
    of which 32 units of rounding take care; 64 leave verify, which counts the same in another way, room for its own.
    """
    width = target.high - target.low
    ends = np.abs(target.low) + np.abs(target.high) + seq_len * width
    size = float(((ends + 1) * (1 + cells_per_axis / width)).max())
    return 64 * ROUND * (size + seq_len * cells_per_axis)


def ramp_cost(
    target: Target, cells_per_axis: int, seq_len: int, ramp: float, worst: FloatArray, p: float, domain: Domain
) -> float:
    """(measure of inputs on a ramp)^(1/p) times the largest difference there, over all entries.

    A coordinate is on a ramp in a share (ramp + 2 roundings) of each cell; some coordinate is, in at most d n times that.
    Over the whole space the strip of that width just outside the box comes on top.
    """
    share = ramp + 2 * edge_rounding(target, cells_per_axis, seq_len)
    axes = target.token_dim * seq_len
    measure = axes * share
    if domain == "space":
        measure += (1 + 2 * share / cells_per_axis) ** axes - 1
    return float((box_volume(target) * measure * seq_len) ** (1 / p) * p_sum(worst, p))


def rounding_error(budget: Budget, values: FloatArray, seq_len: int) -> float:
    """An entry-wise bound on |executed output - A| for good inputs, for any order of the sums.

    An id is a whole number below 2^49, wrong by at most attention_rounding * id. Its own bump adds w/ramp (h_1 - h_2) with
    w = A - id rounded and h_1, h_2 <= 1: a handful of rounded terms of size at most 4 |w|, of which 64 units of rounding
    take care generously; every other bump adds exact zeros.
    """
    largest = float(np.abs(values).max(initial=0.0))
    size = float(budget.id_high) + largest / budget.output_scale
    inner = size * (budget.attention_rounding + 64 * ROUND)
    return budget.output_scale * inner + 8 * ROUND * largest * (1 + 1 / seq_len)


def softmax_error(id_high: int, gain: int, final_gain: int, layers: int, seq_len: int) -> float:
    """Paper's construction, real arithmetic: each layer's wrong columns weigh < n 2^-1074 and are multiplied on the way out.

    A crude bound is enough: ids stay below 2^50 and at most `seq_len` shifts act on a column.
    """
    weight = Fraction(seq_len, 2**1074)
    error = weight * id_high * layers * 2 * gain * (1 + 2 * gain) ** seq_len * (1 + final_gain)
    return max(float(error), 5e-324) if id_high < INT64_LIMIT else float("inf")
