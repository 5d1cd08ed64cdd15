"""Circuits that were made to fool the checker: each is rejected, or its bound is true; the reason names block and channel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import hand_circuits as hand
import numpy as np
import pytest
from circuit_mutations import with_array, with_block
from hand_circuits import Case, Draft, lin, mean_row, new_graph, probes

from provenformer.base.errors import Rejected
from provenformer.checker.circuit.walk import CircuitBound, circuit_bound
from provenformer.networks.circuit import CircuitNetwork, Claim
from provenformer.symbols.graph import Attend


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
