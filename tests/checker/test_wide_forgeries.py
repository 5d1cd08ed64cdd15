"""Forgeries of wide networks, by class: what the abstract interpretation does not read, it cannot bound.

Each was once accepted, or is a neighbour of one that was. A forgery may be rejected, or bounded truly.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forging import forge, measured, off_ramp_points, ramp_points
from fuzz.table_forgeries import altered

import provenformer as pf
from provenformer.base.errors import Rejected
from provenformer.checker.derive import derive
from provenformer.checker.wide import wide_table
from provenformer.networks.wide import WideBlock, WideNetwork

CELLS = 4
OUT, ID, CODE, SUM = 4, 1, 2, 3  # channels of a network with d = 1


@pytest.fixture(scope="module")
def genuine() -> pf.Compiled:
    return pf.compile(pf.targets.get("scaled-mean", 1, 2), cells_per_axis=CELLS, construction="wide")


def wide(c: pf.Compiled) -> WideNetwork:
    assert isinstance(c.network, WideNetwork)
    return c.network


def with_block(network: WideNetwork, index: int, **changes: Any) -> WideNetwork:
    blocks = list(network.wide_blocks)
    blocks[index] = replace(blocks[index], **changes)
    return replace(network, wide_blocks=tuple(blocks))


def with_units(network: WideNetwork, index: int, units: list[tuple[int | None, float, int, float]]) -> WideNetwork:
    """More hidden units (channel read or None, b_1, channel written, W_2) in a block."""
    block, size = network.wide_blocks[index], network.model_dim
    W_1, b_1, W_2 = np.zeros((len(units), size)), np.zeros(len(units)), np.zeros((size, len(units)))
    for i, (reads, bias, writes, weight) in enumerate(units):
        if reads is not None:
            W_1[i, reads] = 1.0
        b_1[i], W_2[writes, i] = bias, weight
    return with_block(
        network, index, W_1=np.vstack([block.W_1, W_1]), b_1=np.append(block.b_1, b_1),
        W_2=np.hstack([block.W_2, W_2]),
    )  # fmt: skip


def step(
    reads: int, start: float, end: float, writes: int, height: float
) -> list[tuple[int | None, float, int, float]]:
    """A staircase with one step."""
    return [(reads, -start, writes, height / (end - start)), (reads, -end, writes, -height / (end - start))]


def with_attention(network: WideNetwork, index: int, reads: int, writes: int, gain: float) -> WideNetwork:
    """One more block before block `index` whose attention averages a channel."""
    size = network.model_dim
    W_O, W_V, row = np.zeros((size, 1)), np.zeros((1, size)), np.zeros((1, size))
    W_O[writes], W_V[0, reads] = gain, 1.0
    empty = (np.zeros((2, size)), np.zeros(2), np.zeros((size, 2)), np.zeros(size))
    block = WideBlock("values", W_O, W_V, row, row, np.zeros(1), *empty)
    blocks = network.wide_blocks
    return replace(network, wide_blocks=(*blocks[:index], block, *blocks[index:]))


def with_channel(network: WideNetwork) -> WideNetwork:
    """One more channel, just before the output's: number 4 of now 6."""
    axes = {"W_O": 0, "W_V": 1, "W_K": 1, "W_Q": 1, "W_1": 1, "W_2": 0, "b_2": 0}
    return replace(
        network,
        wide_blocks=tuple(
            replace(b, **{name: np.insert(getattr(b, name), OUT, 0.0, axis=axis) for name, axis in axes.items()})
            for b in network.wide_blocks
        ),
    )


def rejected_or_true(folder: Path, c: pf.Compiled, network: WideNetwork, bound: float | None = None) -> pf.Report:
    c.save(folder)
    forge(folder, network, certificate={"bound": bound or c.certificate.bound})
    report = pf.verify(folder)
    if report.derived is not None:
        found = measured(c.target, network, 2, CELLS)
        assert found.value - 4 * found.error <= report.derived
        edges = ramp_points(c.target, CELLS, c.certificate.ramp, np.random.default_rng(0), 2000)
        powers = (np.abs(network(edges) - c.target(edges)) ** 2).sum(axis=(1, 2)).mean()
        assert 0.25 * c.certificate.ramp * powers <= report.derived**2
    return report


@pytest.mark.parametrize("block", [0, 1, 2])
@pytest.mark.parametrize("height", [100.0, -1e-3])
def test_a_constant_unit_is_read(genuine: pf.Compiled, tmp_path: Path, block: int, height: float) -> None:
    """W_1 = 0, b_1 = 1: it writes the same to every input, in whichever block."""
    network = with_units(wide(genuine), block, [(None, 1.0, OUT, height)])
    report = rejected_or_true(tmp_path / "net", genuine, network)
    assert not report
    assert report.derived is not None
    assert report.derived >= abs(height)


def test_a_constant_unit_that_is_off_changes_nothing(genuine: pf.Compiled, tmp_path: Path) -> None:
    assert rejected_or_true(tmp_path / "net", genuine, with_units(wide(genuine), 1, [(None, -1.0, OUT, 100.0)]))


@pytest.mark.parametrize("index", [1, 2])
def test_attention_that_reads_the_raw_input(genuine: pf.Compiled, tmp_path: Path, index: int) -> None:
    """The input is any number of its cell, not 0: its mean, times 1000, is added to the output of every input."""
    report = rejected_or_true(tmp_path / "net", genuine, with_attention(wide(genuine), index, 0, OUT, 1000.0))
    assert not report
    assert report.derived is not None
    assert report.derived > 500


@pytest.mark.parametrize("block", [1, 2])
def test_a_unit_that_reads_the_raw_input_in_a_later_block(genuine: pf.Compiled, tmp_path: Path, block: int) -> None:
    within = with_units(wide(genuine), block, step(0, 0.3, 0.4, OUT, 5.0))
    assert rejected_or_true(tmp_path / "net", genuine, within, 100.0).derived is None  # inside a cell
    edge = with_units(wide(genuine), block, step(0, 0.5 - genuine.certificate.ramp / 8, 0.5, OUT, 5.0))
    report = rejected_or_true(tmp_path / "net", genuine, edge)
    assert not report
    assert report.derived is None or report.derived > 1


def test_a_channel_that_carries_the_input_past_everything(genuine: pf.Compiled, tmp_path: Path) -> None:
    """An added channel holds 50 times the mean of the inputs; a last attention writes it to the output."""
    network = with_attention(with_channel(wide(genuine)), 1, 0, OUT, 50.0)
    network = with_attention(network, network.blocks, OUT, OUT + 1, 1.0)
    report = rejected_or_true(tmp_path / "net", genuine, network)
    assert not report
    assert report.derived is not None
    assert report.derived > 25


@pytest.mark.parametrize(("height", "gain"), [(1e11, 1.0), (1e3, 1e6), (1e160, 1e160), (1e300, 1e300)])
def test_a_spike_on_a_ramp(genuine: pf.Compiled, tmp_path: Path, height: float, gain: float) -> None:
    """On the last ramp alone the output is huge, or not a number."""
    width = genuine.certificate.ramp / CELLS
    spike = step(0, 1 - 0.75 * width, 1 - 0.5 * width, OUT, height)
    network = with_attention(with_units(with_channel(wide(genuine)), 0, spike), 2, OUT, OUT + 1, gain)
    with np.errstate(all="ignore"):
        y = network(np.array([[[1 - 0.1 * width, 0.3]]]))
    assert not (np.abs(y) < 1e8).all()
    report = rejected_or_true(tmp_path / "net", genuine, network)
    assert not report
    if height * gain > 1e200:
        assert "overflow" in report.reason


@pytest.mark.parametrize("field", ["W_K", "W_Q", "W_V", "W_O"])
def test_overflow_in_an_attention_layer(genuine: pf.Compiled, tmp_path: Path, field: str) -> None:
    value = np.array(getattr(wide(genuine).wide_blocks[1], field))
    value.ravel()[0] = 1e305
    network = with_block(wide(genuine), 1, **{field: value})
    assert not rejected_or_true(tmp_path / "net", genuine, network, 1e300)


def test_units_that_write_nothing_must_not_overflow_either(genuine: pf.Compiled, tmp_path: Path) -> None:
    """0 times infinity is not a number."""
    for units in (step(0, 1e307, 1.1e307, OUT, 0.0), step(ID, -1.7e308, -1e308, OUT, 0.0)):
        report = rejected_or_true(tmp_path / "net", genuine, with_units(wide(genuine), 2, units))
        assert "overflow" in report.reason


@pytest.mark.parametrize("first", [0, 1])
def test_output_written_by_an_earlier_block(genuine: pf.Compiled, tmp_path: Path, first: int) -> None:
    b_2 = np.array(wide(genuine).wide_blocks[first].b_2)
    b_2[OUT] = 0.5
    report = rejected_or_true(tmp_path / "net", genuine, with_block(wide(genuine), first, b_2=b_2))
    assert not report
    assert report.derived is not None
    assert report.derived > 0.5


@pytest.mark.parametrize("key", [1e-3, 1.0, 1e3])
def test_attention_that_is_not_uniform(genuine: pf.Compiled, tmp_path: Path, key: float) -> None:
    row = np.zeros((1, 5))
    row[0, CODE] = key
    block = wide(genuine).wide_blocks[1]
    for changes in ({"W_K": row, "W_Q": row}, {"W_K": row, "b_Q": np.ones(1)}):
        network = with_block(wide(genuine), 1, **changes)
        assert "uniform" in rejected_or_true(tmp_path / "net", genuine, network, 1.0).reason
    alone = with_block(wide(genuine), 1, W_K=block.W_K + row)  # keys without queries: still uniform
    assert rejected_or_true(tmp_path / "net", genuine, alone)


@pytest.mark.parametrize("order", [(1, 0, 2), (0, 2, 1), (2, 1, 0), (0, 1, 1, 2), (0, 0, 1, 2), (0, 1, 2, 2), (0, 2)])
def test_blocks_in_another_order(genuine: pf.Compiled, tmp_path: Path, order: tuple[int, ...]) -> None:
    network = replace(wide(genuine), wide_blocks=tuple(wide(genuine).wide_blocks[i] for i in order))
    assert not rejected_or_true(tmp_path / "net", genuine, network)


@pytest.mark.parametrize("change", ["two channels", "weight 2", "unpaired", "unequal", "equal breaks"])
def test_units_that_are_no_staircase(genuine: pf.Compiled, tmp_path: Path, change: str) -> None:
    network = with_units(wide(genuine), 2, step(SUM, 1000.0, 1001.0, OUT, 1.0))
    block = network.wide_blocks[2]
    W_1, b_1, W_2 = np.array(block.W_1), np.array(block.b_1), np.array(block.W_2)
    if change == "two channels":
        W_1[-1, ID] = 1.0
    elif change == "weight 2":
        W_1[-1, SUM] = 2.0
    elif change == "unpaired":
        W_1, b_1, W_2 = W_1[:-1], b_1[:-1], W_2[:, :-1]
    elif change == "unequal":
        W_2[OUT, -1] *= 1.5
    else:
        b_1[-1] = b_1[-2]
    assert (
        rejected_or_true(tmp_path / "net", genuine, with_block(network, 2, W_1=W_1, b_1=b_1, W_2=W_2)).derived is None
    )


CASES = [("scaled-mean", 1, 2, 4), ("softmax-mean", 1, 3, 3), ("sort", 1, 2, 3), ("centered", 2, 2, 2)]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_what_is_known_of_altered_networks_is_true(case: tuple[str, int, int, int]) -> None:
    """Random changes: wherever the walk goes through, every execution is within its radius, and within its range on ramps."""
    name, d, n, cells = case
    c = pf.compile(pf.targets.get(name, d, n), cells_per_axis=cells, construction="wide")
    rng, walked = np.random.default_rng(7), 0
    good = off_ramp_points(c.target, cells, c.certificate.ramp, rng, each=3)
    edges = ramp_points(c.target, cells, c.certificate.ramp, rng, 500)
    for _ in range(150):
        network = c.network
        for _ in range(int(rng.integers(1, 3))):
            network, _ = altered(rng, network, c)
        if not isinstance(network, WideNetwork):
            raise TypeError("a wide network was altered")
        try:
            table = wide_table(network, c.target, c.grid, c.certificate.ramp, "box")
        except Rejected:
            continue
        walked += 1
        meant = replace(c.piecewise, contexts=table.contexts, values=table.values)(good)
        for executed in (network, backwards(network)):
            assert (np.abs(executed(good) - meant) <= table.radius).all()
            y = executed(edges)
            assert ((y >= table.low[:, None]) & (y <= table.high[:, None])).all()
    assert walked > 20


def backwards(network: WideNetwork) -> WideNetwork:
    """The same network with the hidden units of every block in the opposite order: other sums."""
    blocks = [
        replace(b, W_1=b.W_1[::-1].copy(), b_1=b.b_1[::-1].copy(), W_2=b.W_2[:, ::-1].copy())
        for b in network.wide_blocks
    ]
    return replace(network, wide_blocks=tuple(blocks))


def test_an_output_that_keeps_away_from_0_and_dips_on_ramps() -> None:
    """Doubling a range bounds it only with 0 in it: f peaks on the ramps, where the network, never below 1/2, falls."""

    def peaks(x: Any) -> Any:
        def peak(low: float, high: float) -> Any:
            return np.clip(4000.0 * ((high - low) / 2 - np.abs(x - (low + high) / 2)), 0.0, 1.0)

        return 1.0 + 2.0 * (peak(0.2603, 0.4994) + peak(0.7603, 0.9994))

    steps = [(0.2601, -0.5), (0.4996, 0.5), (0.7601, -0.5), (0.9996, 0.5)]
    width = 2.0**-14
    b_1 = np.array([-at - part for at, _ in steps for part in (0.0, width)])
    W_2 = np.zeros((2, len(b_1)))
    W_2[1] = [sign * height / width for _, height in steps for sign in (1.0, -1.0)]
    W_1 = np.zeros((len(b_1), 2))
    W_1[:, 0] = 1.0
    write, read = np.zeros((2, 1)), np.zeros((1, 2))
    block = WideBlock("values", write, read, read, read, np.zeros(1), W_1, b_1, W_2, np.array([0.0, 1.0]))
    network = WideNetwork(1, 2, (block,))
    f = pf.Target(peaks, 1, 2, name="peaks")
    terms = dict.fromkeys(("piecewise", "lost cubes", "ramps", "softmax", "rounding"), 0.0)
    claim = pf.Certificate(1.0, terms, "rigorous", 64.0, "box", "", 0.48, (0.0,), (1.0,))
    x = f.sample(20_000)
    truth = (2 * np.mean(np.abs(network(x) - f(x)) ** 64)) ** (1 / 64)
    assert derive(network, f, pf.Grid(1, 2, 2), claim).bound >= truth
