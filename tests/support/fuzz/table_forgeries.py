"""One change of a table network (narrow or wide): a weight, a unit, a layer, a channel, the order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np

import provenformer as pf
from provenformer.base.arrays import FloatArray
from provenformer.networks.base import FloatNetwork
from provenformer.networks.thin import Network, ReluRun, SoftmaxRun
from provenformer.networks.wide import WideBlock, WideNetwork

Rng = np.random.Generator
Change = Callable[[Rng, Any, pf.Compiled], tuple[FloatNetwork, str]]


def altered(rng: Rng, network: FloatNetwork, c: pf.Compiled) -> tuple[FloatNetwork, str]:
    """One change of a network, and what it was."""
    if isinstance(network, WideNetwork):
        change: Change = rng.choice(
            np.array([_wide_weight, _wide_weight, _wide_unit, _wide_order, _wide_channel, _wide_overflowing, _position])
        )
        return change(rng, network, c)
    if isinstance(network, Network):
        options: list[Change] = [
            _weight,
            _weight,
            _weight,
            _layers,
            _runs,
            _layer,
            _unit,
            _overflowing,
            _scaled,
            _position,
        ]
        return options[rng.integers(len(options))](rng, network, c)
    raise TypeError(f"no forgeries of {type(network).__name__}")


def _nudged(rng: Rng, value: float) -> float:
    choices: list[Callable[[], float]] = [
        lambda: value * (1 + float(rng.choice([1e-12, 1e-6, 1e-2])) * rng.standard_normal()),
        lambda: value * float(rng.choice([2.0, 0.5, -1.0, 3.0, 1e3, 1e-3])),
        lambda: 0.0,
        lambda: value + float(rng.choice([1.0, -1.0, 0.25, -0.25, 0.5, 1e-9, 1e6])),
        lambda: float(rng.choice([5e-324, -5e-324, 1e-308, -0.0, 1e-200])),
        lambda: float(rng.choice([1e300, -1e300, 1e150, 1e100, -1e30, 1e20, 1e16])),
        lambda: float(np.nextafter(value, rng.choice([-np.inf, np.inf]))),
        lambda: float(rng.standard_normal()),
        lambda: value * 2.0 ** float(rng.integers(-60, 60)),
        lambda: value + 2.0 ** float(rng.integers(-50, 3)) * float(rng.choice([-1, 1])),
    ]
    return choices[rng.integers(len(choices))]()


def _one_entry(rng: Rng, value: FloatArray) -> tuple[FloatArray, str]:
    """A copy with one entry nudged: mostly one that is not 0."""
    out = np.array(value)
    if not out.size:
        return out, "nothing"
    places = np.argwhere(out) if rng.random() < 0.7 and out.any() else np.argwhere(np.ones_like(out))
    at = tuple(int(i) for i in places[rng.integers(len(places))])
    out[at] = _nudged(rng, float(out[at]))
    return out, f"{at} = {out[at]!r}"


def _arrays(holder: Any) -> list[str]:
    return [field.name for field in fields(holder) if isinstance(getattr(holder, field.name), np.ndarray)]


def _with_run(network: Network, i: int, run: Any) -> Network:
    return replace(network, runs=(*network.runs[:i], run, *network.runs[i + 1 :]))


def _weight(rng: Rng, network: Network, c: pf.Compiled) -> tuple[FloatNetwork, str]:  # noqa: ARG001
    i = int(rng.integers(len(network.runs)))
    name = str(rng.choice(_arrays(network.runs[i])))
    value, what = _one_entry(rng, getattr(network.runs[i], name))
    changed: dict[str, Any] = {name: value}
    return _with_run(network, i, replace(network.runs[i], **changed)), f"run {i} {name}{what}"


def _layers(rng: Rng, network: Network, c: pf.Compiled) -> tuple[FloatNetwork, str]:  # noqa: ARG001
    """Two layers of a run exchanged, or one dropped or doubled."""
    i = int(
        rng.choice([k for k, run in enumerate(network.runs) if len(run)])
    )  # an earlier change may have left it empty
    run = network.runs[i]
    order = np.arange(len(run))
    a, b = rng.integers(len(run), size=2)
    kind = int(rng.integers(3))
    if kind == 0:
        order[[a, b]] = order[[b, a]]
    else:
        order = np.delete(order, a) if kind == 1 else np.insert(order, a, b)
    changed: dict[str, Any] = {name: np.array(getattr(run, name))[order] for name in _arrays(run)}
    return _with_run(network, i, replace(run, **changed)), f"run {i}: layers {['swap', 'drop', 'double'][kind]} {a} {b}"


def _runs(rng: Rng, network: Network, c: pf.Compiled) -> tuple[FloatNetwork, str]:  # noqa: ARG001
    runs = list(network.runs)
    i, j = (int(k) for k in rng.integers(len(runs), size=2))
    if rng.random() < 0.5:
        runs[i], runs[j] = runs[j], runs[i]
        return replace(network, runs=tuple(runs)), f"runs {i}, {j} exchanged"
    runs.insert(j, runs[i])
    return replace(network, runs=tuple(runs)), f"run {i} again before {j}"


def _layer(rng: Rng, network: Network, c: pf.Compiled) -> tuple[FloatNetwork, str]:
    """A feed-forward layer that nobody asked for."""
    d = network.token_dim
    W_1 = np.zeros((1, 4, d))
    W_1[0, :, rng.integers(d)] = rng.choice([0.0, 1.0, -1.0, 2.0, 0.3], size=4)
    offsets = rng.choice([0, 0.5, 0.25, 1e-9, c.certificate.ramp / 2], size=(1, 4))
    b_1 = -rng.integers(-3, 12, size=(1, 4)) + offsets
    W_2, b_2 = np.zeros((1, d, 4)), np.zeros((1, d))
    W_2[0, rng.integers(d)] = rng.choice([0.0, 0.0, 1.0, -1.0, 1e3, -1e9, 0.1], size=4)
    b_2[0, rng.integers(d)] = rng.choice([0.0, 0.0, 1.0, -0.3])
    at = int(rng.integers(len(network.runs)))
    runs = (*network.runs[:at], ReluRun("values", W_1, b_1, W_2, b_2), *network.runs[at:])
    return replace(network, runs=runs), f"a layer before run {at}"


def _unit(rng: Rng, network: Network, c: pf.Compiled) -> tuple[FloatNetwork, str]:
    """One more hidden unit in a run: constant, or on for rare inputs."""
    places = [i for i, run in enumerate(network.runs) if isinstance(run, ReluRun) and len(run)]
    i = places[rng.integers(len(places))]
    run = network.runs[i]
    if not isinstance(run, ReluRun):
        raise TypeError("feed-forward runs only")
    layers, d, layer = len(run), network.token_dim, rng.integers(len(run))
    W_1, b_1, W_2 = np.zeros((layers, 1, d)), np.zeros((layers, 1)), np.zeros((layers, d, 1))
    W_1[layer, 0, rng.integers(d)] = rng.choice([0.0, 1.0, -1.0])
    b_1[layer, 0] = rng.choice([1.0, 0.0, -0.5, -c.grid.cells_per_axis + c.certificate.ramp / 2])
    W_2[layer, rng.integers(d), 0] = rng.choice([1.0, -1.0, 1e6, 0.1])
    wider = replace(
        run, W_1=np.concatenate([run.W_1, W_1], 1), b_1=np.concatenate([run.b_1, b_1], 1),
        W_2=np.concatenate([run.W_2, W_2], 2),
    )  # fmt: skip
    return _with_run(network, i, wider), f"run {i}: one more unit in layer {layer}"


def _overflowing(rng: Rng, network: Network, c: pf.Compiled) -> tuple[FloatNetwork, str]:
    """A layer after attention that only ids of ramps reach, which are above all others: there inf - inf, or 0 times inf."""
    after = [i for i, run in enumerate(network.runs) if isinstance(run, SoftmaxRun)]
    at, d = after[rng.integers(len(after))] + 1, network.token_dim
    big = 2.0 ** (int(c.certificate.details.get("id_bits", 8)) + int(rng.integers(-1, 6)))
    W_1, b_1, W_2 = np.zeros((1, 4, d)), np.zeros((1, 4)), np.zeros((1, d, 4))
    W_1[0, :, 0] = 1.0
    b_1[0] = -big, -big - 1.0, -big, -big
    W_2[0, 0, :2] = -1e308, 1e308
    if rng.random() < 0.3:  # units that write nothing
        W_1[0, 2:, 0], b_1[0, 2:], W_2[0, 0, :2] = 1e308 / big, 0.0, (-64.0, 64.0)
    runs = (*network.runs[:at], ReluRun("values", W_1, b_1, W_2, np.zeros((1, d))), *network.runs[at:])
    return replace(network, runs=runs), f"an overflow after run {at - 1} above {big:g}"


def _scaled(rng: Rng, network: Network, c: pf.Compiled) -> tuple[FloatNetwork, str]:  # noqa: ARG001
    """A whole array of an attention run scaled."""
    places = [i for i, run in enumerate(network.runs) if isinstance(run, SoftmaxRun)]
    i = places[rng.integers(len(places))]
    name, factor = str(rng.choice(_arrays(network.runs[i]))), float(rng.choice([0.0, 2.0, -1.0, 0.001]))
    changed: dict[str, Any] = {name: np.array(getattr(network.runs[i], name)) * factor}
    return _with_run(network, i, replace(network.runs[i], **changed)), f"run {i} {name} * {factor}"


def _position(rng: Rng, network: Any, c: pf.Compiled) -> tuple[FloatNetwork, str]:  # noqa: ARG001
    if network.positions is None:
        return network, "nothing"
    value, what = _one_entry(rng, network.positions)
    return replace(network, positions=value), f"positions{what}"


def _with_block(network: WideNetwork, i: int, block: WideBlock) -> WideNetwork:
    return replace(network, wide_blocks=(*network.wide_blocks[:i], block, *network.wide_blocks[i + 1 :]))


def _wide_weight(rng: Rng, network: WideNetwork, c: pf.Compiled) -> tuple[FloatNetwork, str]:  # noqa: ARG001
    i = int(rng.integers(network.blocks))
    name = str(rng.choice(_arrays(network.wide_blocks[i])))
    value, what = _one_entry(rng, getattr(network.wide_blocks[i], name))
    changed: dict[str, Any] = {name: value}
    return _with_block(network, i, replace(network.wide_blocks[i], **changed)), f"block {i} {name}{what}"


def _wide_unit(rng: Rng, network: WideNetwork, c: pf.Compiled) -> tuple[FloatNetwork, str]:
    """One more unit in a block: constant, on for rare inputs, or reading any channel and writing any other."""
    i, size = int(rng.integers(network.blocks)), network.model_dim
    block = network.wide_blocks[i]
    W_1, b_1, W_2 = np.zeros((1, size)), np.zeros(1), np.zeros((size, 1))
    W_1[0, rng.integers(size)] = rng.choice([0.0, 1.0, -1.0, 2.0**24])
    b_1[0] = rng.choice([1.0, 0.0, -0.5, -1 + c.certificate.ramp / (2 * c.grid.cells_per_axis)])
    W_2[rng.integers(size), 0] = rng.choice([1.0, -1.0, 1e9, 0.1])
    wider = replace(
        block, W_1=np.concatenate([block.W_1, W_1]), b_1=np.concatenate([block.b_1, b_1]),
        W_2=np.concatenate([block.W_2, W_2], axis=1),
    )  # fmt: skip
    return _with_block(network, i, wider), f"block {i}: one more unit"


def _wide_overflowing(rng: Rng, network: WideNetwork, c: pf.Compiled) -> tuple[FloatNetwork, str]:
    """Two more channels that nothing reads: one is large on the last ramp of the first row, the other a multiple of it."""
    at, size = network.model_dim - network.token_dim, network.model_dim + 2
    axes = {"W_O": 0, "W_V": 1, "W_K": 1, "W_Q": 1, "W_1": 1, "W_2": 0, "b_2": 0}
    blocks = []
    for block in network.wide_blocks:
        grown: dict[str, Any] = {
            name: np.insert(getattr(block, name), [at, at], 0.0, axis=k) for name, k in axes.items()
        }
        blocks.append(replace(block, **grown))
    low, high = float(c.target.low[0]), float(c.target.high[0])
    width = c.certificate.ramp * (high - low) / c.grid.cells_per_axis
    start, end = high - 0.75 * width, high - 0.5 * width
    W_1, W_2 = np.zeros((2, size)), np.zeros((size, 2))
    W_1[:, 0] = 1.0
    W_2[at] = np.array([1.0, -1.0]) * 10.0 ** rng.uniform(130, 160) / (end - start)
    first = blocks[0]
    blocks[0] = replace(
        first, W_1=np.vstack([first.W_1, W_1]), b_1=np.append(first.b_1, [-start, -end]), W_2=np.hstack([first.W_2, W_2])
    )  # fmt: skip
    W_O, W_V, none = np.zeros((size, 1)), np.zeros((1, size)), np.zeros((1, size))
    W_O[at + 1], W_V[0, at] = 1.0, 10.0 ** rng.uniform(130, 200)
    off = replace(blocks[-1], W_1=W_1, b_1=np.array([-high - 5.0, -high - 6.0]), W_2=0 * W_2, b_2=np.zeros(size))
    blocks.insert(-1, replace(off, W_O=W_O, W_V=W_V, W_K=none, W_Q=none, b_Q=np.zeros(1)))
    return replace(network, wide_blocks=tuple(blocks)), "two channels that overflow on the last ramp"


def _wide_order(rng: Rng, network: WideNetwork, c: pf.Compiled) -> tuple[FloatNetwork, str]:  # noqa: ARG001
    blocks = list(network.wide_blocks)
    i, j = (int(k) for k in rng.integers(len(blocks), size=2))
    if rng.random() < 0.5:
        blocks[i], blocks[j] = blocks[j], blocks[i]
    else:
        blocks.insert(j, blocks[i])
    return replace(network, wide_blocks=tuple(blocks)), f"blocks {i}, {j} exchanged or doubled"


def _wide_channel(rng: Rng, network: WideNetwork, c: pf.Compiled) -> tuple[FloatNetwork, str]:  # noqa: ARG001
    """One more channel, between the names and the output, that units may write to and read from."""
    at = network.model_dim - network.token_dim
    blocks = []
    for block in network.wide_blocks:
        grown = {"W_O": 0, "W_V": 1, "W_K": 1, "W_Q": 1, "W_1": 1, "W_2": 0, "b_2": 0}
        changed: dict[str, Any] = {
            name: np.insert(getattr(block, name), at, float(rng.choice([0.0, 0.0, 1.0])), axis=axis)
            for name, axis in grown.items()
        }
        blocks.append(replace(block, **changed))
    return replace(network, wide_blocks=tuple(blocks)), f"one more channel at {at}"
