"""Circuits with something altered: weights, positions, claims, order, units added or taken away."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from provenformer.networks.circuit import CircuitBlock, CircuitNetwork, Claim, Head

Mutation = tuple[str, CircuitNetwork]
Place = tuple[int, int, str]  # block or -1, head or -1, name


def arrays(network: CircuitNetwork) -> dict[Place, np.ndarray]:
    """Every array of weights, by (block, head or -1, name)."""
    found: dict[Place, np.ndarray] = {
        (-1, -1, name): getattr(network, name) for name in ("positions", "W_out", "b_out")
    }
    for b, block in enumerate(network.circuit_blocks):
        found |= {(b, -1, name): v for name, v in block.weights().items()}
        for h, head in enumerate(block.heads):
            found |= {(b, h, name): v for name, v in head.weights().items()}
    return {place: v for place, v in found.items() if v.size}


def with_array(network: CircuitNetwork, place: Place, value: np.ndarray) -> CircuitNetwork:
    """The network with one array replaced."""
    b, h, name = place
    if b < 0:
        parts: dict[str, Any] = {name: value}
        return replace(network, **parts)
    block = network.circuit_blocks[b]
    if h < 0:
        own: dict[str, Any] = {name: value}
        return with_block(network, b, replace(block, **own))
    heads = list(block.heads)
    heads[h] = replace(heads[h], **{name: value})
    return with_block(network, b, replace(block, heads=tuple(heads)))


def with_block(network: CircuitNetwork, b: int, block: CircuitBlock) -> CircuitNetwork:
    blocks = list(network.circuit_blocks)
    blocks[b] = block
    return replace(network, circuit_blocks=tuple(blocks))


def altered_number(value: float, rng: np.random.Generator) -> tuple[str, float]:
    kinds: dict[str, float] = {
        "1 %": value * 1.01, "1e-6": value * (1 + 1e-6), "sign": -value, "zero": 0.0, "plus 1": value + 1,
        "plus 1e-3": value + 1e-3, "minus 1e-9": value - 1e-9, "next float": float(np.nextafter(value, np.inf)),
        "huge": 1e300, "large": 1e30, "minus large": -1e30, "double": 2 * value, "tiny": 1e-300,
        "random": float(rng.normal()),
    }  # fmt: skip
    kind = str(rng.choice([k for k, v in kinds.items() if v != value]))
    return kind, kinds[kind]


def weight(network: CircuitNetwork, rng: np.random.Generator) -> Mutation:
    """One number, one that is used in two cases of three."""
    places = arrays(network)
    place = list(places)[rng.integers(len(places))]
    array = places[place].copy()
    at = tuple(int(rng.integers(s)) for s in array.shape)
    if rng.random() < 0.67 and array.any():
        at = tuple(int(i) for i in rng.choice(np.argwhere(array)))
    kind, array[at] = altered_number(float(array[at]), rng)
    return f"{place} {at} {kind}", with_array(network, place, array)


def several_weights(network: CircuitNetwork, rng: np.random.Generator) -> Mutation:
    what = []
    for _ in range(int(rng.integers(2, 6))):
        one, network = weight(network, rng)
        what.append(one)
    return "; ".join(what), network


def noise(network: CircuitNetwork, rng: np.random.Generator) -> Mutation:
    """A whole array, a little."""
    places = arrays(network)
    place = list(places)[rng.integers(len(places))]
    size = 10.0 ** rng.uniform(-12, -1)
    noisy = places[place] * (1 + size * rng.normal(size=places[place].shape))
    return f"{place} noise {size:.1g}", with_array(network, place, noisy)


def swapped_rows(network: CircuitNetwork, rng: np.random.Generator) -> Mutation:
    places = {p: v for p, v in arrays(network).items() if len(v) > 1}
    if not places:
        return weight(network, rng)
    place = list(places)[rng.integers(len(places))]
    array = places[place].copy()
    i, j = rng.choice(len(array), 2, replace=False)
    array[[i, j]] = array[[j, i]]
    return f"{place} rows {i}, {j} swapped", with_array(network, place, array)


def claims(network: CircuitNetwork, rng: np.random.Generator) -> Mutation:
    """A claim about another channel, layer, atom or matrix, one too many or one too few."""
    witness = list(network.witness)
    if not witness:
        return weight(network, rng)
    i = int(rng.integers(len(witness)))
    claim = witness[i]
    atoms = max(c.atom for c in witness) + 2
    n = network.seq_len
    options: list[Callable[[], list[Claim]]] = [
        lambda: [replace(claim, channel=int(rng.integers(-1, network.model_dim + 1)))],
        lambda: [replace(claim, layers=int(rng.integers(0, 2 * network.blocks + 2)))],
        lambda: [replace(claim, atom=int(rng.integers(0, atoms)))],
        lambda: [replace(claim, rows=np.full((1, n), 1.0 / n) if claim.rows is None else None)],
        lambda: [replace(claim, rows=np.eye(n)[rng.permutation(n)])],
        lambda: [],
        lambda: [claim, claim],
    ]
    if claim.rows is not None:
        noisy = claim.rows + rng.normal(0, 10.0 ** rng.uniform(-9, 0), claim.rows.shape)
        options.append(lambda: [replace(claim, rows=noisy)])
    k = int(rng.integers(len(options)))
    witness[i : i + 1] = options[k]()
    return f"claim {i} altered ({k})", replace(network, witness=tuple(witness))


def swapped_blocks(network: CircuitNetwork, rng: np.random.Generator) -> Mutation:
    """Blocks in another order, twice, or missing; claims as they were."""
    if not network.circuit_blocks:
        return weight(network, rng)
    blocks = list(network.circuit_blocks)
    kind = int(rng.integers(3))
    i = int(rng.integers(len(blocks)))
    if kind == 0 and len(blocks) > 1:
        j = int(rng.choice([k for k in range(len(blocks)) if k != i]))
        blocks[i], blocks[j] = blocks[j], blocks[i]
    elif kind == 1 and len(blocks) > 1:
        del blocks[i]
    else:
        blocks.insert(i, blocks[i])
    return f"block {i} moved ({kind})", replace(network, circuit_blocks=tuple(blocks))


def heads(network: CircuitNetwork, rng: np.random.Generator) -> Mutation:
    """A head twice, missing, moved to another block, or with the parts of another."""
    if not network.circuit_blocks:
        return weight(network, rng)
    b = int(rng.integers(network.blocks))
    block = network.circuit_blocks[b]
    if not block.heads:
        return noise(network, rng)
    some = list(block.heads)
    i = int(rng.integers(len(some)))
    kind = int(rng.integers(4))
    if kind == 0:
        some.append(some[i])
    elif kind == 1:
        del some[i]
    elif kind == 2:
        h = some[i]
        some[i] = Head(h.W_K, h.b_Q, h.W_Q, h.W_V, h.W_O)
    else:
        h = some[i]
        every = [one for each in network.circuit_blocks for one in each.heads]
        other = every[int(rng.integers(len(every)))]
        some[i] = Head(other.W_Q, other.b_Q, other.W_K, h.W_V, h.W_O)
    return f"block {b} head {i} ({kind})", with_block(network, b, replace(block, heads=tuple(some)))


def units(network: CircuitNetwork, rng: np.random.Generator) -> Mutation:
    """A unit more, one less, one twice, two with their weights out exchanged."""
    if not network.circuit_blocks:
        return weight(network, rng)
    b = int(rng.integers(network.blocks))
    block = network.circuit_blocks[b]
    size, r = network.model_dim, len(block.b_1)
    kind = int(rng.integers(4)) if r > 1 else 0
    if kind == 0:
        row = rng.normal(size=(1, size)) * (rng.random((1, size)) < 0.5)
        out = np.zeros((size, 1))
        out[int(rng.integers(size)), 0] = rng.normal() * 10.0 ** rng.uniform(-9, 0)
        W_1, b_1 = np.vstack([block.W_1, row]), np.append(block.b_1, rng.normal())
        new = replace(block, W_1=W_1, b_1=b_1, W_2=np.hstack([block.W_2, out]))
    elif kind == 1:
        keep = np.arange(r) != rng.integers(r)
        new = replace(block, W_1=block.W_1[keep], b_1=block.b_1[keep], W_2=block.W_2[:, keep])
    elif kind == 2:
        pick = np.append(np.arange(r), rng.integers(r))
        new = replace(block, W_1=block.W_1[pick], b_1=block.b_1[pick], W_2=block.W_2[:, pick])
    else:
        i, j = rng.choice(r, 2, replace=False)
        order = np.arange(r)
        order[[i, j]] = order[[j, i]]
        new = replace(block, W_2=block.W_2[:, order])
    return f"block {b} units ({kind})", with_block(network, b, new)


def harmless(network: CircuitNetwork, rng: np.random.Generator) -> Mutation:
    """The same function: units in another order, a unit split in two, channels renumbered."""
    if not network.circuit_blocks:
        return weight(network, rng)
    b = int(rng.integers(network.blocks))
    block = network.circuit_blocks[b]
    order = rng.permutation(len(block.b_1))
    new = replace(block, W_1=block.W_1[order], b_1=block.b_1[order], W_2=block.W_2[:, order])
    return f"block {b} units permuted", with_block(network, b, new)


KINDS = (
    weight,
    weight,
    weight,
    several_weights,
    noise,
    swapped_rows,
    claims,
    claims,
    swapped_blocks,
    heads,
    units,
    harmless,
)


def mutations(network: CircuitNetwork, rng: np.random.Generator, count: int) -> Iterator[Mutation]:
    """`count` of them, every kind in turn."""
    for i in range(count):
        yield KINDS[i % len(KINDS)](network, rng)
