"""Circuits that were made to fool the checker: each is rejected, or its bound is true; the reason names block and channel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import hand_circuits as hand
import numpy as np
import pytest
from circuit_mutations import with_array, with_block
from hand_circuits import Case, Draft, lin, mean_row, new_graph, probes

import provenformer as pf
from provenformer.base.errors import Rejected
from provenformer.checker.circuit.derive import in_norm
from provenformer.checker.circuit.ranges import lin_range, ranges_of
from provenformer.checker.circuit.walk import CircuitBound, circuit_bound
from provenformer.networks.circuit import CircuitNetwork, Claim
from provenformer.symbols.formula import SQUARE, VARIABLE, apply, constant
from provenformer.symbols.graph import Apply, Attend, Compare, Product
from provenformer.symbols.trace import samples, trace


def bound(case: Case, network: CircuitNetwork | None = None) -> CircuitBound:
    return circuit_bound(network or case.network, case.graph, case.outputs, case.low, case.high)


def error(case: Case, network: CircuitNetwork) -> float:
    x = probes(case, 2000)
    return float(np.abs(network(x) - case.fn(x)).max())


def test_a_value_that_is_claimed_to_be_nothing_is_not_a_position() -> None:
    """A channel that truly holds x, claimed as 0 times x, then used as a key: scores would look positional."""
    n = 4
    g = new_graph(n, 0.0, 1.0)
    draft = Draft(n)
    liar, mean = draft.channel(), draft.channel()
    draft.block()
    draft.head([], [], [({0: 1.0}, liar, 1.0)])
    draft.claim(liar, 1, 0, np.zeros((1, n)))
    draft.block()
    draft.head([({}, 8.0)], [{liar: 1.0, 0: 1.0}], [({0: 1.0}, mean, 1.0)])
    draft.claim(mean, 3, 0, mean_row(n))
    case = Case("liar", lambda x: x.mean(-1, keepdims=True) + 0 * x, draft.network({mean: 1.0}), g,
                [lin(1, None, {0: mean_row(n)})], *hand._box(0.0, 1.0))  # fmt: skip
    with pytest.raises(Rejected, match="block 1, channel 2"):
        bound(case)
    only_liar = with_array(case.network, (1, 0, "W_K"), np.array([[0.0, 1.0, 0.0]]))
    with pytest.raises(Rejected, match="block 1, channel 2"):
        bound(case, only_liar)


def with_idle_unit(network: CircuitNetwork, position: float, weight: float) -> CircuitNetwork:
    """One channel more, and a unit that reads it and writes nothing."""
    block = network.circuit_blocks[0]
    more = replace(
        block,
        W_1=np.block(
            [[block.W_1, np.zeros((len(block.W_1), 1))], [np.zeros((1, network.model_dim)), np.array([[weight]])]]
        ),
        b_1=np.append(block.b_1, 0.0),
        W_2=np.pad(block.W_2, ((0, 1), (0, 1))),
        b_2=np.append(block.b_2, 0.0),
    )
    return replace(
        network, circuit_blocks=(more,), positions=np.vstack([network.positions, np.full(network.seq_len, position)]),
        W_out=np.pad(network.W_out, ((0, 0), (0, 1))), channel_names=(*network.channel_names, "idle"),
    )  # fmt: skip


def test_a_unit_that_nothing_reads_may_not_overflow() -> None:
    """0 times infinity is not a number: a huge number counts though no channel is written by its unit."""
    case = hand.table()
    with pytest.raises(Rejected, match=r"blocks.0.W_1 has a number of 1e\+300"):
        bound(case, with_idle_unit(case.network, 1.0, 1e300))
    fits = with_idle_unit(case.network, 1e10, 1e10)
    assert bound(case, fits).float32 < 1
    large = with_idle_unit(case.network, 1e20, 1e25)
    assert bound(case, large).float32 == np.inf
    with np.errstate(all="ignore"):
        assert np.isnan(large.run(probes(case, 1), np.float32)).all()
    assert error(case, large) <= bound(case, large).float64 < 1


def test_a_dent_between_samples_raises_the_bound() -> None:
    """Three units make a dent of depth 1/2 that is 1e-9 wide: no sampling would see it."""
    case = hand.table()
    block, size = case.network.circuit_blocks[0], case.network.model_dim
    at, width, depth = 0.123456789, 1e-9, 0.5
    rows = np.zeros((3, size))
    rows[:, 0] = 1.0
    out = np.zeros((size, 3))
    out[1] = np.array([1.0, -2.0, 1.0]) * depth / width
    biases = -np.array([at, at + width, at + 2 * width])
    more = replace(
        block, W_1=np.vstack([block.W_1, rows]), b_1=np.append(block.b_1, biases), W_2=np.hstack([block.W_2, out])
    )
    altered = with_block(case.network, 0, more)
    found = bound(case, altered)
    assert found.exact >= depth - 0.01
    x = np.full((1, 1, 3), at + width)
    assert np.abs(altered(x) - case.fn(x)).max() <= found.float64


def test_units_beyond_the_range_do_not_matter_and_just_inside_do() -> None:
    case = hand.table()
    block, size = case.network.circuit_blocks[0], case.network.model_dim
    before = bound(case).exact

    def with_unit(knot: float) -> CircuitNetwork:
        row, out = np.zeros((1, size)), np.zeros((size, 1))
        row[0, 0], out[1, 0] = 1.0, 100.0
        more = replace(
            block, W_1=np.vstack([block.W_1, row]), b_1=np.append(block.b_1, -knot), W_2=np.hstack([block.W_2, out])
        )
        return with_block(case.network, 0, more)

    assert bound(case, with_unit(2.001)).exact == pytest.approx(before, rel=1e-9)
    inside = with_unit(1.99)
    assert bound(case, inside).exact >= 0.9
    assert error(case, inside) <= bound(case, inside).float64


def test_a_unit_that_also_reads_another_channel_is_charged_for_it() -> None:
    """One unit of a table of the variance reads the token, too: its function is no longer one of the variance."""
    case = hand.normalised()
    for weight in (1e-3, 0.5):
        W_1 = case.network.circuit_blocks[1].W_1.copy()
        W_1[1, 0] = weight
        altered = with_array(case.network, (1, -1, "W_1"), W_1)
        off = error(case, altered)
        assert off > 2 * error(case, case.network)
        assert off <= bound(case, altered).float64


def test_what_a_channel_held_before_is_charged() -> None:
    """The product is written onto the channel that holds the mean, and claimed to be all that is there."""
    case = hand.product()
    block = case.network.circuit_blocks[0]
    moved = replace(block, W_2=block.W_2[[0, 2, 1]], b_2=block.b_2[[0, 2, 1]])
    claims = (case.network.witness[0], replace(case.network.witness[1], channel=1))
    altered = replace(with_block(case.network, 0, moved), witness=claims, W_out=case.network.W_out[:, [0, 2, 1]])
    assert error(case, altered) > 0.5
    assert error(case, altered) <= bound(case, altered).float64


def test_a_number_added_to_the_readout_is_found_to_the_digit() -> None:
    case = hand.centred()
    shifted = replace(case.network, b_out=case.network.b_out + 0.375)
    assert bound(case, shifted).exact == pytest.approx(0.375, abs=1e-12)


def test_a_flatter_maximum_has_a_larger_bound() -> None:
    sharp, flat = hand.largest(sharp=2e4), hand.largest(sharp=20.0)
    assert bound(flat).exact == pytest.approx(1000 * bound(sharp).exact, rel=1e-6)
    assert error(flat, flat.network) <= bound(flat).float64
    with pytest.raises(Rejected, match="keys do not grow"):
        bound(hand.largest(sharp=-5.0))


def masked(depth: float) -> Case:
    """Attention to oneself and what came before, with a mask of -1e9 in the formula and of -depth in the head."""
    n = 4
    g = new_graph(n, 0.0, 1.0)
    bias = np.where(np.tril(np.ones((n, n))) > 0, 0.0, -1e9)
    y = hand.atom(g, Attend((lin(n, {0: 1.0}),), (lin(n, {0: 1.0}),), bias, lin(n, {0: 1.0})))
    draft = Draft(n)
    eye = [draft.channel(np.eye(n)[k]) for k in range(n)]
    out = draft.channel()
    draft.block()
    later = [({eye[j]: -depth for j in range(k)}, 0.0) for k in range(n)]
    draft.head([({0: 1.0}, 0.0), *later], [{0: 1.0}, *({eye[k]: 1.0} for k in range(n))], [({0: 1.0}, out, 1.0)])
    draft.claim(out, 1, y)

    def fn(x: np.ndarray) -> np.ndarray:
        scores = x[..., :, None] * x[..., None, :] + bias
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return np.sum(weights / weights.sum(axis=-1, keepdims=True) * x[..., None, :], axis=-1)

    return Case("masked", fn, draft.network({out: 1.0}), g, [lin(n, {y: 1.0})], *hand._box(0.0, 1.0))


@pytest.mark.parametrize("depth", [80.0, 20.0, 5.0, 0.5])
def test_a_mask_is_as_good_as_it_is_deep(depth: float) -> None:
    case = masked(depth)
    found = bound(case)
    assert error(case, case.network) <= found.float64
    assert (found.exact < 1e-12) == (depth == 80.0)


def test_positions_on_input_rows_are_part_of_the_function() -> None:
    case = hand.centred()
    positions = case.network.positions.copy()
    positions[0, 2] = 0.25
    altered = replace(case.network, positions=positions)
    assert error(case, altered) <= bound(case, altered).float64
    assert bound(case, altered).exact >= 0.2


def test_a_value_is_not_read_before_it_is_there() -> None:
    """Blocks exchanged, claims exchanged with them: what a block reads is then not what the formula reads."""
    case = hand.normalised()
    order = [1, 0, 2]
    moved = {old: new for new, old in enumerate(order)}
    claims = tuple(
        replace(c, layers=2 * moved[(c.layers - 1) // 2] + (c.layers - 1) % 2 + 1) for c in case.network.witness
    )
    blocks = tuple(case.network.circuit_blocks[i] for i in order)
    altered = replace(case.network, circuit_blocks=blocks, witness=claims)
    with pytest.raises(
        Rejected, match=r"block 0, channel 3 \(c3\): the heads read nothing of the value that is claimed"
    ):
        bound(case, altered)


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        (lambda w: w[1:], "block 0, channel 1 .*heads write it, but the witness claims nothing"),
        (lambda w: (*w, w[0]), "two values for channel 1"),
        (lambda w: (*w, replace(w[0], layers=9)), "after layer 9, where the network has no layer"),
        (lambda w: (*w, replace(w[0], channel=0)), "block 0, channel 0 .*claims that heads write it, but they do not"),
        (lambda w: (*w, replace(w[0], atom=99)), "does not exist"),
        (lambda w: (replace(w[0], rows=np.ones((2, 4))), *w[1:]), "a matrix of shape"),
        (lambda w: (Claim(True, 1, 0), *w[1:]), "by number"),
        (lambda w: (replace(w[0], layers=0), *w[1:]), "does not exist"),
    ],
)
def test_malformed_claims_are_named(claims: Callable[[tuple[Claim, ...]], tuple[Claim, ...]], reason: str) -> None:
    case = hand.product()
    with pytest.raises(Rejected, match=reason):
        bound(case, replace(case.network, witness=claims(case.network.witness)))


def test_reasons_name_block_channel_and_rule() -> None:
    case = hand.product()
    block = case.network.circuit_blocks[0]
    linear = with_block(case.network, 0, replace(block, b_1=np.full_like(block.b_1, 100.0)))
    with pytest.raises(
        Rejected, match=r"block 0, channel 2 \(c2\): its units add up to something linear, not to a product"
    ):
        bound(case, linear)
    one_way = with_block(case.network, 0, replace(block, W_1=block.W_1 * np.array([1.0, 0.0, 0.0])))
    with pytest.raises(Rejected, match=r"block 0, channel 2 \(c2\): its units do not read both of its arguments"):
        bound(case, one_way)
    case = hand.centred()
    two = with_array(case.network, (0, 0, "W_K"), np.array([[1.0, 0.0]]))
    two = with_array(two, (0, 0, "W_Q"), np.array([[1.0, 0.0]]))
    two = with_array(two, (0, 0, "b_Q"), np.array([0.0]))
    with pytest.raises(Rejected, match=r"block 0, channel 1 .*scores depend on the input"):
        bound(case, two)


# --- circuits whose bound once was below their error ----------------------------------------------------------------------


def with_two_rows(network: CircuitNetwork) -> CircuitNetwork:
    """Both rows of the output are the one that was drafted."""
    return replace(network, W_out=np.vstack([network.W_out] * 2), b_out=np.repeat(network.b_out, 2))


def traced(fn: Callable[[Any], Any], n: int, low: tuple[float, ...], high: tuple[float, ...]) -> pf.Target:
    return pf.Target(fn, len(low), n, False, name="attacked", support=(low, high))


def require_true_bound(target: pf.Target, network: CircuitNetwork, least: float) -> CircuitBound:
    """The network is wrong by at least `least`, and the bound says so, in float64 and in float32."""
    graph = trace(target)
    found = circuit_bound(network, graph.graph, graph.outputs, target.low, target.high)
    x = samples(target, 200)
    wanted = target(x)
    with np.errstate(all="ignore"):
        off = {str(t): float(np.abs(network.run(x, t) - wanted).max()) for t in (np.dtype("f8"), np.dtype("f4"))}
    assert max(off.values()) >= least
    assert off["float64"] <= found.float64
    assert off["float32"] <= found.float32
    return found


def test_queries_of_equal_size_and_opposite_sign_are_different_queries() -> None:
    """Scores 0 at token 0 and 2u at tokens 1 and 2: uniform there, a hard pick here; |q| is 1 everywhere."""
    n = 3
    draft = Draft(n)
    one, turning = draft.channel(1.0), draft.channel(np.array([1.0, -1.0, -1.0]))
    up, down, out = draft.channel(np.array([40.0, 0, 0])), draft.channel(np.array([-40.0, 0, 0])), draft.channel()
    draft.block()
    draft.head([({one: 1.0}, 0.0), ({turning: 1.0}, 0.0)], [{up: 1.0}, {down: 1.0}], [({0: 1.0}, out, 1.0)])
    draft.claim(out, 1, 0, mean_row(n))
    target = pf.targets.get("centered", 1, n)
    require_true_bound(target, draft.network({0: 1.0, out: -1.0}), 0.6)


def test_units_that_carry_are_compared_where_the_overwritten_channel_is() -> None:
    """The channel holds E - x/2, claimed -x/2; the unit that carries x - own is off for small x."""

    def fn(x: Any) -> Any:
        top = np.maximum(x[..., 0:1, :], x[..., 1:2, :])
        return np.concatenate([top, top], axis=-2)

    n = 2
    target = traced(fn, n, (0.0, 0.0), (1.0, 1.0))
    graph = trace(target).graph
    number, operation = next((a.number, a.operation) for a in graph.atoms if isinstance(a.operation, Compare))
    first, second = (next(iter(one.terms)) for one in (operation.first, operation.second))
    draft = Draft(n, d=2)
    out = draft.channel()
    draft.block()
    draft.unit({first: 1.0}, 0.0, {out: -0.5})
    draft.bias(out, 0.5)
    draft.claim(out, 2, first, -0.5 * np.eye(n))
    draft.block()
    draft.unit({first: 1.0, out: -1.0}, 0.0, {out: 1.0})
    draft.unit({second: 1.0, first: -1.0}, 0.0, {out: 1.0})
    draft.claim(out, 4, number)
    require_true_bound(target, with_two_rows(draft.network({out: 1.0})), 0.4)


def exponentials(x: Any, second: Callable[[Any], Any], sign: float) -> Any:
    y = np.log(np.exp(x[..., 0:1, :]) + sign * second(x[..., 1:2, :]))
    return np.concatenate([y, y], axis=-2)


def logarithm_of_two(
    target: pf.Target, second: Callable[[Any], Any], sign: float, off: float, between: str
) -> CircuitNetwork:
    """log(exp(u) + sign second(v)), both tables wrong by `off` in the direction that hurts; in between their channels move."""
    n, (u, v) = 2, zip(target.low, target.high, strict=True)
    draft = Draft(n, d=2)
    one, two, out = draft.channel(), draft.channel(), draft.channel()
    draft.block()
    at = np.linspace(*u, 60)
    draft.table({0: 1.0}, at, np.exp(at) - off, one)
    draft.claim(one, 2, 2)
    at = np.geomspace(*v, 400)
    draft.table({1: 1.0}, at, second(at) - sign * off, two)
    draft.claim(two, 2, 3)
    layers = 2
    if between == "bias":
        draft.block()
        for channel, atom, shift in ((one, 2, -6.1), (two, 3, 6.1)):
            draft.bias(channel, shift)
            draft.claim(channel, 4, atom)
        layers = 4
    if between == "heads":
        query, key = draft.channel(np.array([1.2, -0.8])), draft.channel(np.array([1.0, -1.0]))
        moved = draft.channel(-6.1), draft.channel(6.1)
        draft.block()
        values = [({one: 1.0}, moved[0], 1.0), ({two: 1.0}, moved[1], 1.0)]
        draft.head([({query: 25.0}, 0.0)], [{key: 2.0}], values)
        for channel, atom in zip(moved, (2, 3), strict=True):
            draft.claim(channel, 3, atom, np.eye(n))
        (one, two), layers = moved, 4
    draft.block()
    ends = np.sort(sign * second(np.array(v)))
    at = np.geomspace(np.exp(u[0]) + ends[0] - 2.2 * off, np.exp(u[1]) + ends[1] + 2.2 * off, 1500)
    draft.table({one: 1.0, two: sign}, at, np.log(at), out)
    draft.claim(out, layers + 2, 4)
    return with_two_rows(draft.network({out: 1.0}))


def test_relative_errors_of_a_difference_are_not_relative_to_it() -> None:
    target = traced(lambda x: exponentials(x, np.exp, -1.0), 2, (1.82, 1.0), (1.95, 1.8))
    require_true_bound(target, logarithm_of_two(target, np.exp, -1.0, 0.005, "nothing"), 0.08)


@pytest.mark.parametrize("between", ["nothing", "bias", "heads"])
def test_relative_errors_are_relative_to_what_was_there_before_a_known_number_was_added(between: str) -> None:
    """6.2 and -6.0 have no common sign; moved by -6.1 and 6.1 they have, and their errors did not become smaller."""
    low, high = (1.82, float(np.exp(-6.05))), (1.95, float(np.exp(-2.7)))
    target = traced(lambda x: exponentials(x, np.log, 1.0), 2, low, high)
    require_true_bound(target, logarithm_of_two(target, np.log, 1.0, 0.005, between), 0.08)


def test_an_error_relative_to_what_is_read_is_not_one_relative_to_what_is_wanted() -> None:
    """Two values, four times too large, are read with weights 1.99 and 0.01 for 1 and 1: the gap is four times too large, too."""

    def fn(x: Any) -> Any:
        y = np.tanh(np.exp(x[..., 0:1, :]) + np.exp(x[..., 1:2, :]))
        return np.concatenate([y, y], axis=-2)

    target = traced(fn, 2, (-7.0, -13.0), (-6.0, -12.0))
    draft = Draft(2, d=2)
    one, two, out = (draft.channel() for _ in range(3))
    draft.block()
    for row, channel in enumerate((one, two)):
        at = np.linspace(float(target.low[row]), float(target.high[row]), 200)
        draft.table({row: 1.0}, at, 4 * np.exp(at), channel)
        draft.claim(channel, 2, 2 + row)
    draft.block()
    draft.unit({one: 1.99, two: 0.01}, 0.0, {out: 1.0})
    draft.claim(out, 4, 4)
    require_true_bound(target, with_two_rows(draft.network({out: 1.0})), 0.017)


def test_units_that_read_nothing_are_rounded_though_they_cancel() -> None:
    """2^43 is added before the others and taken away after them: in between every small term loses its last digits."""
    n, many, large = 2, 2000, 2.0**43
    target = pf.Target(lambda x: x * 1.0, 1, n, True, name="identity")
    draft = Draft(n)
    out = draft.channel()
    draft.block()
    draft.unit({}, 1.0, {out: large})
    for _ in range(many):
        draft.unit({0: 1.0}, 0.0, {out: 1.0 / many})
    draft.unit({}, 1.0, {out: -large})
    draft.claim(out, 2, 0, np.eye(n))
    network = draft.network({out: 1.0})
    found = require_true_bound(target, network, 0.0)
    assert found.float64 >= 2.0**-53 * 2 * large  # one rounding of a sum with the large number


def test_a_weight_that_float32_cannot_hold_makes_no_claim_there() -> None:
    """1e-46 becomes 0, and what it meets is 1e36."""
    n = 2
    target = pf.Target(lambda x: x * 1e-6, 1, n, True, name="scaled", support=(0.0, 1e6))
    draft = Draft(n)
    large, out = draft.channel(), draft.channel()
    draft.block()
    draft.unit({0: 1.0}, 0.0, {large: 1e30})
    draft.claim(large, 2, 0, 1e30 * np.eye(n))
    draft.block()
    draft.unit({large: 1e-46}, 0.0, {out: 1e10})
    draft.claim(out, 4, 0, 1e-6 * np.eye(n))
    found = require_true_bound(target, draft.network({out: 1.0}), 0.9)
    assert found.float32 == np.inf
    assert found.float64 < 1e-12


def test_a_weight_that_underflows_does_not_hide_the_error_of_its_score() -> None:
    """A score of -1000 that is a difference of numbers of 1e12: 0 in float32, and the head looks at both keys."""
    n, large = 2, 1e12
    target = pf.Target(lambda x: np.stack([x[..., 0], x[..., 0]], axis=-1), 1, n, False, name="first")
    draft = Draft(n)
    out = draft.channel()
    one, two = draft.channel(np.array([0.0, large])), draft.channel(np.array([0.0, large * (1 + 1e-9)]))
    draft.block()
    draft.head([({}, 1.0)], [{one: 1.0, two: -1.0}], [({0: 1.0}, out, 1.0)])
    draft.claim(out, 1, 0, np.array([[1.0, 0.0]]))
    found = require_true_bound(target, draft.network({out: 1.0}), 0.4)
    assert found.float64 < 1e-12


def test_scores_that_look_equal_only_because_they_were_rounded_are_not_equal() -> None:
    """1e17 + 7 and 1e17 are one number in float64, not as numbers: the exact head picks the first key."""
    n = 2
    target = pf.targets.get("centered", 1, n)
    draft = Draft(n)
    out, large, small = draft.channel(), draft.channel(1e17), draft.channel(np.array([7.0, 0.0]))
    draft.block()
    draft.head([({}, 1.0)], [{large: 1.0, small: 1.0}], [({0: 1.0}, out, 1.0)])
    draft.claim(out, 1, 0, mean_row(n))
    graph = trace(target)
    network = draft.network({0: 1.0, out: -1.0})
    assert circuit_bound(network, graph.graph, graph.outputs, target.low, target.high).exact >= 0.49


def test_a_small_box_has_a_volume_though_float64_cannot_hold_it() -> None:
    """1e-3 to the power 110 is 0 in float64; its 64th root is 7e-6."""
    n, width, p = 110, 1e-3, 64.0
    target = pf.targets.get("centered", 1, n, ((0.0,), (width,)))
    true = float(np.exp((np.log(n) + n * np.log(width)) / p))
    assert true <= in_norm(1.0, target, p) <= true * (1 + 1e-6)
    far = pf.targets.get("centered", 1, 4000, ((0.0,), (width,)))
    assert in_norm(1.0, far, 1.0) > 0


def lost_below_zero(x: Any) -> Any:
    """tanh(1e6 (x - 2^-15) + 15), which goes from -1 to 1 near 0; adding 2^40 loses the 2^-15."""
    return np.tanh(1e6 * (((x + 2.0**40) - 2.0**-15) - 2.0**40) + 15)


def test_a_combination_is_not_above_0_because_the_one_that_is_stored_is() -> None:
    """Coefficients from which rounding took a negative part are stored as x >= 0: the real argument may lie below 0."""
    traced = trace(pf.Target(lost_below_zero, 1, 3))
    (y,) = traced.outputs[0].terms
    draft = Draft(3)
    out = draft.channel()
    draft.block()
    draft.table({0: 1e6}, np.array([0.0, 1e6, 2e6]), np.array([1.0, 1.0, 1.0 + 1e-9]), out)
    draft.claim(out, 2, y)
    case = Case("one", lost_below_zero, draft.network({out: 1.0}), traced.graph, traced.outputs, *hand._box(0.0, 1.0))
    real = np.tanh(1e6 * (np.zeros((1, 1, 3)) - 2.0**-15) + 15)
    off = float(np.abs(case.network(np.zeros((1, 1, 3))) - real).max())
    assert off > 1.99
    assert bound(case).exact >= off


def test_squares_that_are_off_are_no_squares() -> None:
    """Popoviciu's cap and the bound of a normalised value are about squares, not about what is within 100 of one."""
    for slack, largest in ((0.0, 0.26), (100.0, 100.0)):
        graph = new_graph(4, 0.0, 1.0)
        centred = lin(4, {0: 1.0}, {0: -mean_row(4)})
        square = hand.atom(graph, Apply(SQUARE, centred, slack))
        whole = apply("sqrt", apply("add", VARIABLE, constant(1e-3 + slack)))
        root = hand.atom(graph, Apply(apply("divide", constant(1.0), whole), lin(4, {square: 1.0})))
        product = hand.atom(graph, Product(centred, lin(4, {root: 1.0})))
        ranges = ranges_of(graph, *hand._box(0.0, 1.0))
        assert lin_range(graph, lin(4, None, {square: mean_row(4)}), ranges)[1] >= largest - 0.01
        assert (product in ranges.balls) == (slack == 0)


def test_what_a_gate_keeps_back_is_off_at_every_token_that_should_have_it() -> None:
    """A gate that one token opens, claimed to let all of them through: their sum is off by all the others."""
    n = 16
    draft = Draft(n)
    closed, gated, total = draft.channel(np.arange(n) > 0), draft.channel(), draft.channel()
    draft.block()
    draft.unit({0: 1.0, closed: -2.0}, 0.0, {gated: 1.0})
    draft.claim(gated, 2, 0, np.ones(n))
    draft.block()
    draft.head([], [], [({gated: 1.0}, total, float(n))])
    draft.claim(total, 3, 0, np.ones((1, n)))
    graph, outputs = new_graph(n, 0.0, 1.0), [lin(1, None, {0: np.ones((1, n))})]
    case = Case("gate", lambda x: x.sum(-1, keepdims=True) + 0 * x, draft.network({total: 1.0}), graph, outputs,
                *hand._box(0.0, 1.0))  # fmt: skip
    off = float(np.abs(case.network(np.ones((1, 1, n))) - n).max())
    assert off == n - 1
    assert bound(case).exact >= off
    own = np.zeros(n)
    own[0] = 1.0  # what it does let through
    honest = replace(case.network, witness=(Claim(gated, 2, 0, own), Claim(total, 3, 0, own[None])))
    first = replace(case, outputs=[lin(1, None, {0: own[None]})])
    assert bound(first, honest).float32 < 1e-5
