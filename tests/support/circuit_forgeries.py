"""Circuits with something added or moved on purpose: heads, blocks, channels, units that hide, values in each other's place."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from circuit_mutations import Mutation, weight, with_block

from provenformer.networks.circuit import CircuitBlock, CircuitNetwork, Claim, Head


def new_head(network: CircuitNetwork, rng: np.random.Generator) -> Mutation:
    """A head that nobody asked for: uniform, or of two random channels; it writes any channel."""
    if not network.circuit_blocks:
        return weight(network, rng)
    b, size = int(rng.integers(network.blocks)), network.model_dim
    block, m = network.circuit_blocks[b], int(rng.integers(2))
    read, write = np.zeros((1, size)), np.zeros((size, 1))
    read[0, rng.integers(size)] = rng.normal()
    write[rng.integers(size), 0] = rng.normal() * 10.0 ** rng.uniform(-12, 1)
    head = Head(
        rng.normal(size=(m, size)) * (rng.random((m, size)) < 0.5), rng.normal(size=m), rng.normal(size=(m, size)), read, write
    )  # fmt: skip
    return f"block {b} one more head", with_block(network, b, replace(block, heads=(*block.heads, head)))


def new_block(network: CircuitNetwork, rng: np.random.Generator) -> Mutation:
    """A block of one unit that nobody asked for; claims as they were, or moved past it."""
    b, size = int(rng.integers(network.blocks + 1)), network.model_dim
    row, out = np.zeros((1, size)), np.zeros((size, 1))
    row[0, rng.integers(size)], out[rng.integers(size), 0] = rng.normal(), rng.normal() * 10.0 ** rng.uniform(-12, 1)
    blocks = list(network.circuit_blocks)
    blocks.insert(b, CircuitBlock((), row, rng.normal(size=1), out, np.zeros(size)))
    moved = int(rng.choice([0, 2]))
    witness = tuple(replace(c, layers=c.layers + moved * (c.layers > 2 * b)) for c in network.witness)
    return f"a block before {b}", replace(network, circuit_blocks=tuple(blocks), witness=witness)


def new_channel(network: CircuitNetwork, rng: np.random.Generator) -> Mutation:
    """One more channel, with positions of its own, that some unit or head may write and the output may read."""
    at = network.model_dim
    grown: list[CircuitBlock] = []
    for block in network.circuit_blocks:
        wider = [
            replace(h, **{name: _more(v, int(name != "W_O"), rng) for name, v in h.weights().items() if name != "b_Q"})
            for h in block.heads
        ]  # fmt: skip
        parts = {name: _more(getattr(block, name), axis, rng) for name, axis in (("W_1", 1), ("W_2", 0), ("b_2", 0))}
        grown.append(replace(block, heads=tuple(wider), **parts))
    positions = np.vstack([network.positions, rng.choice([0.0, 1.0, 1e30]) * rng.normal(size=network.seq_len)])
    extra = (Claim(at, int(rng.integers(1, 2 * network.blocks + 2)), 0, None),) if rng.random() < 0.3 else ()
    return f"channel {at} added", replace(
        network, circuit_blocks=tuple(grown), positions=positions, W_out=_more(network.W_out, 1, rng),
        channel_names=(*network.channel_names, "one more"), witness=(*network.witness, *extra),
    )  # fmt: skip


def rare_unit(network: CircuitNetwork, rng: np.random.Generator) -> Mutation:
    """A unit that is off for nearly all inputs: a copy of one with its knot near, or beyond, the last one of its channel."""
    places = [b for b, block in enumerate(network.circuit_blocks) if len(block.b_1) > 1]
    if not places:
        return weight(network, rng)
    b = int(rng.choice(places))
    block = network.circuit_blocks[b]
    u = int(rng.integers(len(block.b_1)))
    alike = (block.W_1[u] == block.W_1).all(axis=1)
    ends, side = block.b_1[alike], float(rng.choice([1.0, -1.0]))
    wide = max(float(np.ptp(ends)), 1e-3)
    edge = (ends.min() if side > 0 else -ends.max()) - wide * rng.uniform(-0.1, 0.1)
    out = np.zeros((network.model_dim, 1))
    out[np.argmax(np.abs(block.W_2[:, u])), 0] = rng.choice([-1, 1]) * 10.0 ** rng.uniform(-3, 4)
    new = replace(
        block, W_1=np.vstack([block.W_1, side * block.W_1[u]]), b_1=np.append(block.b_1, edge), W_2=np.hstack([block.W_2, out])
    )  # fmt: skip
    return f"block {b}: a unit that is rarely on", with_block(network, b, new)


def rescaled(network: CircuitNetwork, rng: np.random.Generator) -> Mutation:
    """The same function in exact arithmetic: a power of two moved within a unit or a head; float32 may not hold it."""
    places = [b for b, block in enumerate(network.circuit_blocks) if len(block.b_1) or block.heads]
    if not places:
        return weight(network, rng)
    b = int(rng.choice(places))
    block = network.circuit_blocks[b]
    power = int(rng.choice([-1, 1]) * rng.choice([1, 20, 60, 99, 120, 140]))
    up, down = 2.0**power, 2.0**-power
    if len(block.b_1) and (not block.heads or rng.random() < 0.5):
        size = np.where(rng.random(len(block.b_1)) < 0.5, up, 1.0)
        new = replace(block, W_1=block.W_1 * size[:, None], b_1=block.b_1 * size, W_2=block.W_2 / size)
        return f"block {b} units times 2^{power}", with_block(network, b, new)
    some = list(block.heads)
    i = int(rng.integers(len(some)))
    h = some[i]
    some[i] = (
        replace(h, W_V=h.W_V * up, W_O=h.W_O * down)
        if rng.random() < 0.5
        else replace(h, W_Q=h.W_Q * up, b_Q=h.b_Q * up, W_K=h.W_K * down)
    )
    return f"block {b} head {i} times 2^{power}", with_block(network, b, replace(block, heads=tuple(some)))


def swapped_channels(network: CircuitNetwork, rng: np.random.Generator) -> Mutation:
    """From some block on, two channels are read in each other's place."""
    if network.model_dim < 2:
        return weight(network, rng)
    i, j = rng.choice(network.model_dim, 2, replace=False)
    order = np.arange(network.model_dim)
    order[[i, j]] = order[[j, i]]
    first = int(rng.integers(network.blocks + 1))
    blocks = [
        block if b < first else replace(
            block, W_1=block.W_1[:, order],
            heads=tuple(replace(h, W_Q=h.W_Q[:, order], W_K=h.W_K[:, order], W_V=h.W_V[:, order]) for h in block.heads),
        )
        for b, block in enumerate(network.circuit_blocks)
    ]  # fmt: skip
    return f"channels {i}, {j} exchanged from block {first} on", replace(
        network, circuit_blocks=tuple(blocks), W_out=network.W_out[:, order]
    )


def cancelling(network: CircuitNetwork, rng: np.random.Generator) -> Mutation:
    """Two copies of a unit that cancel each other, but not their rounding."""
    places = [b for b, block in enumerate(network.circuit_blocks) if len(block.b_1)]
    if not places:
        return weight(network, rng)
    b = int(rng.choice(places))
    block = network.circuit_blocks[b]
    u = int(rng.integers(len(block.b_1)))
    out = np.zeros((network.model_dim, 2))
    out[np.argmax(np.abs(block.W_2[:, u]))] = np.array([1.0, -1.0]) * 10.0 ** rng.uniform(0, 17)
    pick = np.append(np.arange(len(block.b_1)), [u, u])
    new = replace(block, W_1=block.W_1[pick], b_1=block.b_1[pick], W_2=np.hstack([block.W_2, out]))
    return f"block {b}: two units that cancel", with_block(network, b, new)


def redirected(network: CircuitNetwork, rng: np.random.Generator) -> Mutation:
    """What units compute goes to a channel that holds something else, and is read from there."""
    options = [
        (i, c) for i, c in enumerate(network.witness) if c.layers % 2 == 0 and 0 < c.layers <= 2 * network.blocks
    ]
    if not options or network.model_dim < 2:
        return weight(network, rng)
    i, claim = options[int(rng.integers(len(options)))]
    old, b = claim.channel, claim.layers // 2 - 1
    new = int(rng.choice([c for c in range(network.model_dim) if c != old]))

    def reads(rows: np.ndarray) -> np.ndarray:
        moved = rows.copy()
        moved[:, new] += moved[:, old]
        moved[:, old] = 0.0
        return moved

    blocks = list(network.circuit_blocks)
    W_2, b_2 = blocks[b].W_2.copy(), blocks[b].b_2.copy()
    W_2[new] += W_2[old]
    b_2[new] += b_2[old]
    W_2[old], b_2[old] = 0.0, 0.0
    blocks[b] = replace(blocks[b], W_2=W_2, b_2=b_2)
    for later in range(b + 1, len(blocks)):
        heads_ = tuple(replace(h, W_Q=reads(h.W_Q), W_K=reads(h.W_K), W_V=reads(h.W_V)) for h in blocks[later].heads)
        blocks[later] = replace(blocks[later], heads=heads_, W_1=reads(blocks[later].W_1))
    witness = (*network.witness[:i], replace(claim, channel=new), *network.witness[i + 1 :])
    return f"block {b}: channel {old} goes to {new}", replace(
        network, circuit_blocks=tuple(blocks), witness=witness, W_out=reads(network.W_out)
    )


def shifted_inputs(network: CircuitNetwork, rng: np.random.Generator) -> Mutation:
    """Something is added to an input, at one token or at all of them."""
    positions = network.positions.copy()
    row = int(rng.integers(network.token_dim))
    token = slice(None) if rng.random() < 0.5 else int(rng.integers(network.seq_len))
    positions[row, token] += rng.normal() * 10.0 ** rng.uniform(-6, 0)
    return f"input {row} shifted", replace(network, positions=positions)


def other_scores(network: CircuitNetwork, rng: np.random.Generator) -> Mutation:
    """The queries or keys of a head, altered together."""
    places = [(b, h) for b, block in enumerate(network.circuit_blocks) for h in range(len(block.heads))]
    if not places:
        return weight(network, rng)
    b, i = places[int(rng.integers(len(places)))]
    some = list(network.circuit_blocks[b].heads)
    name, factor = str(rng.choice(["W_Q", "W_K", "b_Q"])), float(rng.choice([1.01, 1.3, 2.0, -1.0, 0.0, 0.5]))
    some[i] = replace(some[i], **{name: factor * getattr(some[i], name)})
    changed = replace(network.circuit_blocks[b], heads=tuple(some))
    return f"block {b} head {i} {name} times {factor}", with_block(network, b, changed)


def _more(value: np.ndarray, axis: int | None, rng: np.random.Generator) -> np.ndarray:
    """With one more entry along an axis, mostly of zeros."""
    return (
        value
        if axis is None
        else np.insert(value, value.shape[axis], float(rng.choice([0, 0, 0, 0, 0, 1, 1e-6])), axis)
    )


def bent_end(network: CircuitNetwork, rng: np.random.Generator) -> Mutation:
    """A unit near the end of a range, and one that undoes it beyond."""
    places = [b for b, block in enumerate(network.circuit_blocks) if len(block.b_1) > 1]
    if not places:
        return weight(network, rng)
    b = int(rng.choice(places))
    block = network.circuit_blocks[b]
    u = int(rng.integers(len(block.b_1)))
    row = block.W_1[u]
    shares = block.W_1 @ row / max(float(row @ row), 1e-300)
    alike = (shares != 0) & np.isclose(block.W_1, shares[:, None] * row).all(axis=1)
    knots = np.unique(np.append(-block.b_1[alike] / shares[alike], -block.b_1[u]))  # of row @ state
    side = float(rng.choice([1.0, -1.0]))
    ends = np.sort(side * knots)
    last, step = float(ends[-1]), float(ends[-1] - ends[-2]) if len(ends) > 1 else 1.0
    near = float(rng.uniform(0.3, 1.0))  # in steps: a checker that goes on for as long as a whole one must see both
    far = near * float(rng.uniform(1.0, 2.0))
    out = np.zeros((network.model_dim, 2))
    height = rng.choice([-1, 1]) * 10.0 ** rng.uniform(-1, 4)
    out[np.argmax(np.abs(block.W_2[:, u]))] = [height, -height * near / (2 * near - far)]
    new = replace(
        block, W_1=np.vstack([block.W_1, *[side * block.W_1[u]] * 2]), W_2=np.hstack([block.W_2, out]),
        b_1=np.append(block.b_1, [-last - near * step, -last - far * step]),
    )  # fmt: skip
    return f"block {b}: an end is bent", with_block(network, b, new)


def stray_reading(network: CircuitNetwork, rng: np.random.Generator) -> Mutation:
    """A unit reads, beside what it should, some of another channel, mostly of the input, which always holds something."""
    places = [b for b, block in enumerate(network.circuit_blocks) if len(block.b_1)]
    if not places:
        return weight(network, rng)
    b = int(rng.choice(places))
    W_1 = network.circuit_blocks[b].W_1.copy()
    u = int(rng.integers(len(W_1)))
    c = int(rng.integers(network.token_dim if rng.random() < 0.8 else network.model_dim))
    W_1[u, c] += rng.normal() * 10.0 ** rng.uniform(-3, 1)
    return f"block {b} unit {u} reads channel {c}", with_block(network, b, replace(network.circuit_blocks[b], W_1=W_1))


ADDED = (
    stray_reading, new_head, new_block, new_channel, rare_unit, bent_end, rescaled, swapped_channels, cancelling, redirected,
    shifted_inputs, other_scores,
)  # fmt: skip
