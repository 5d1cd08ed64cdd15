"""Sums of pieces over pairs of tokens, and the gates and heads that make every token known to all: what breaks them is seen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from circuit_mutations import with_block

import provenformer as pf
from provenformer.base.errors import Rejected
from provenformer.checker.circuit import gates, walk
from provenformer.checker.circuit.derive import derive_circuit
from provenformer.networks.circuit import CircuitBlock, CircuitNetwork
from provenformer.symbols.graph import PairSum
from provenformer.symbols.trace import samples, trace

N = 8


def crowded(x: Any) -> Any:
    """How near the others are, by tents."""
    return np.sum(np.maximum(1 - np.abs(x[..., :, None] - x[..., None, :]) / 0.7, 0.0), axis=-1) / 4


def joint(x: Any) -> Any:
    """Of two rows together."""
    z = x[..., 0, :, None] + 0.5 * x[..., 1, :, None] - x[..., 0, None, :] - 0.5 * x[..., 1, None, :]
    return np.stack([np.mean(np.abs(z - 0.25), axis=-1), np.mean(np.clip(3 * z, -1.0, 2.0), axis=-1)], axis=-2)


TARGETS = {
    "rank": pf.targets.get("rank", 1, N),
    "crowded": pf.Target(crowded, 1, N, support=(-1.0, 2.0), name="crowded"),
    "joint": pf.Target(joint, 2, N, support=((-1.0, 0.0), (1.0, 3.0)), name="joint"),
}
COMPILED = {
    name: pf.compile(f, tolerance=1e-6, norm_order=np.inf, construction="circuit") for name, f in TARGETS.items()
}


def off(network: CircuitNetwork, target: pf.Target, dtype: Any = np.float64) -> float:
    x = samples(target)
    return float(np.abs(network.run(x, dtype) - target(x)).max())


@pytest.mark.parametrize("name", TARGETS)
def test_a_sum_over_pairs_is_one_value_and_holds(name: str) -> None:
    target, c = TARGETS[name], COMPILED[name]
    sums = [a for a in trace(target, (0.0,) * 2).graph.atoms if isinstance(a.operation, PairSum)]
    assert len(sums) == (2 if name == "joint" else 1)
    found = derive_circuit(c.network, target)
    assert off(c.network, target) <= found.float64 <= 1e-11
    assert off(c.network, target, np.float32) <= found.float32 <= 1e-3


@pytest.mark.parametrize("name", TARGETS)
def test_all_at_once_is_proved_as_one_by_one(name: str) -> None:
    """Gates and heads of hundreds of tokens have rules of their own; those for a single channel find the same."""
    fast = derive_circuit(COMPILED[name].network, TARGETS[name])
    with patch.object(walk, "write_gates", lambda *_: {}), patch.object(walk, "write_gathered", lambda *_: None):
        slow = derive_circuit(COMPILED[name].network, TARGETS[name])
    for arithmetic in ("exact", "float64", "float32"):
        assert getattr(fast, arithmetic) == pytest.approx(getattr(slow, arithmetic), rel=0.5)


ROWS: dict[str, Callable[[Any], Any]] = {
    "less the first": lambda x: x - x[..., :1],
    "less the difference of two": lambda x: x + x[..., 1:2] - x[..., 2:3],
    "less the mean": lambda x: x - np.mean(x, axis=-1, keepdims=True),
    "of the other end": lambda x: x[..., ::-1],
    "times the place": lambda x: x * np.arange(N),
    "the largest": lambda x: np.max(x, axis=-1, keepdims=True) + 0 * x,
}


@pytest.mark.parametrize("name", ROWS)
def test_rows_that_know_other_tokens(name: str) -> None:
    """They are no columns: such functions are gathered one by one where they must be, and accepted."""
    row = ROWS[name]

    def fn(x: Any) -> Any:
        return np.sum(np.maximum(row(x)[..., :, None] - x[..., None, :], 0.0), axis=-1) / N

    target = pf.Target(fn, 1, N, equivariant=False, support=(-1.0, 2.0), name=name)
    c = pf.compile(target, tolerance=1e-3, norm_order=np.inf, construction="circuit")
    assert off(c.network, target) <= c.certificate.bound <= 1e-6


def test_gates_are_found() -> None:
    found: list[int] = []

    def counted(block: CircuitBlock, *rest: Any) -> Any:
        made = gates.write_gates(block, *rest)
        found.append(len(made))
        return made

    for name in TARGETS:
        with patch.object(walk, "write_gates", counted):
            derive_circuit(COMPILED[name].network, TARGETS[name])
    assert found == [N, 0, N, 0, 2 * N, 0]


# --- attacks: each is rejected, or counted --------------------------------------------------------------------------------

Attack = Callable[[CircuitNetwork], CircuitNetwork]


def gathered(network: CircuitNetwork) -> np.ndarray:
    """The channels that hold tokens known to all."""
    return np.flatnonzero(network.circuit_blocks[1].heads[0].W_O.any(axis=1))


def value(network: CircuitNetwork) -> int:
    """The channel of the sum."""
    return int(np.flatnonzero(network.circuit_blocks[-1].W_2.any(axis=1))[0])


def units(network: CircuitNetwork, change: Callable[[CircuitBlock], dict[str, np.ndarray]]) -> CircuitNetwork:
    block = network.circuit_blocks[-1]
    return with_block(network, network.blocks - 1, replace(block, **change(block)))  # type: ignore[arg-type]


def gating(network: CircuitNetwork, **arrays: np.ndarray) -> CircuitNetwork:
    return with_block(network, 0, replace(network.circuit_blocks[0], **arrays))  # type: ignore[arg-type]


def heads(network: CircuitNetwork, **arrays: np.ndarray) -> CircuitNetwork:
    block = network.circuit_blocks[1]
    return with_block(network, 1, replace(block, heads=(replace(block.heads[0], **arrays), *block.heads[1:])))


def changed(array: np.ndarray, at: Any, to: Any) -> np.ndarray:
    found = array.copy()
    found[at] = to
    return found


def instead_of(rows: np.ndarray, channel: int, other: int) -> np.ndarray:
    """Rows that read another channel."""
    return changed(changed(rows, (slice(None), other), rows[:, other] + rows[:, channel]), (slice(None), channel), 0.0)


def first_gate(network: CircuitNetwork) -> tuple[int, int]:
    """(channel, unit) of a gate."""
    W_2 = network.circuit_blocks[0].W_2
    channel = int(np.flatnonzero(W_2.any(axis=1))[0])
    return channel, int(np.flatnonzero(W_2[channel])[0])


def carrying_more(token: int, network: CircuitNetwork) -> CircuitNetwork:
    W_O = network.circuit_blocks[1].heads[0].W_O
    return heads(network, W_O=changed(W_O, gathered(network)[token], 1.01 * W_O[gathered(network)[token]]))


def moved_positions(network: CircuitNetwork, by: float) -> CircuitNetwork:
    """One gate is not quite closed at another token."""
    channel = int(np.flatnonzero(network.positions.any(axis=1))[0])
    shut = int(np.argmin(network.positions[channel]))
    return replace(network, positions=changed(network.positions, (channel, shut), by))


ATTACKS: dict[str, Attack] = {
    "another token": lambda g: units(
        g, lambda b: {"W_1": changed(b.W_1, (0, gathered(g)), np.roll(b.W_1[0, gathered(g)], 1))}
    ),
    "a token twice": lambda g: units(g, lambda b: {"W_1": instead_of(b.W_1, gathered(g)[1], gathered(g)[0])}),
    "two tokens": lambda g: units(
        g, lambda b: {"W_1": changed(b.W_1, (0, gathered(g)), b.W_1[0, gathered(g)] + np.roll(b.W_1[0, gathered(g)], 1))}
    ),
    "more of a token": lambda g: units(
        g, lambda b: {"W_1": changed(b.W_1, (0, gathered(g)), 1.1 * b.W_1[0, gathered(g)])}
    ),
    "two tokens that cancel in sum": lambda g: units(
        g, lambda b: {"W_1": changed(b.W_1, (0, gathered(g)[-2:]), b.W_1[0, gathered(g)[-2:]] + np.array([0.5, -0.5]))}
    ),
    "no units for a token": lambda g: units(
        g, lambda b: {"W_2": b.W_2 * (b.W_1[:, gathered(g)[0]] == 0)}
    ),
    "no token": lambda g: units(g, lambda b: {"W_1": changed(b.W_1, (0, gathered(g)), 0.0)}),
    "more of the row": lambda g: units(g, lambda b: {"W_1": changed(b.W_1, (slice(None), 0), 1.01 * b.W_1[:, 0])}),
    "no row in one": lambda g: units(g, lambda b: {"W_1": changed(b.W_1, (0, 0), 0.0)}),
    "another knot": lambda g: units(g, lambda b: {"b_1": changed(b.b_1, 0, b.b_1[0] + 0.01)}),
    "another knot everywhere": lambda g: units(g, lambda b: {"b_1": b.b_1 + 1e-3}),
    "another weight": lambda g: units(g, lambda b: {"W_2": changed(b.W_2, (value(g), 1), 1.01 * b.W_2[value(g), 1])}),
    "a unit gone": lambda g: units(g, lambda b: {"W_2": changed(b.W_2, (value(g), 0), 0.0)}),
    "a bias": lambda g: units(g, lambda b: {"b_2": changed(b.b_2, value(g), b.b_2[value(g)] + 0.01)}),
    "a stray channel": lambda g: units(g, lambda b: {"W_1": changed(b.W_1, (3, first_gate(g)[0]), 0.5)}),
    "an open gate": lambda g: moved_positions(g, 0.0),
    "a gate ajar": lambda g: moved_positions(g, -0.5),
    "a gate that adds": lambda g: gating(g, b_1=changed(g.circuit_blocks[0].b_1, first_gate(g)[1], 0.01)),
    "a gate that scales": lambda g: gating(g, W_2=1.01 * g.circuit_blocks[0].W_2),
    "a gate that scales twice": lambda g: gating(
        g, W_2=1.1 * g.circuit_blocks[0].W_2,
        W_1=changed(g.circuit_blocks[0].W_1, (slice(None), 0), 1.1 * g.circuit_blocks[0].W_1[:, 0]),
    ),
    "a gate that reads more": lambda g: gating(
        g, W_1=changed(g.circuit_blocks[0].W_1, (first_gate(g)[1], 0), 1.01 * g.circuit_blocks[0].W_1[first_gate(g)[1], 0])
    ),
    "a gate with a bias": lambda g: gating(g, b_2=changed(g.circuit_blocks[0].b_2, first_gate(g)[0], 0.01)),
    "a gate on another's channel": lambda g: gating(g, W_2=np.roll(g.circuit_blocks[0].W_2, 1, axis=1)),
    "a gate's channel that starts at 1": lambda g: replace(
        g, positions=changed(g.positions, first_gate(g)[0], 1.0)
    ),
    **{f"a head that carries more of token {k}": partial(carrying_more, k) for k in (0, 5)},
    "a head that carries another token": lambda g: heads(
        g, W_V=np.roll(g.circuit_blocks[1].heads[0].W_V, 1, axis=0)
    ),
    "a head that carries one token more": lambda g: heads(
        g, W_V=changed(
            g.circuit_blocks[1].heads[0].W_V, 0,
            g.circuit_blocks[1].heads[0].W_V[0] + g.circuit_blocks[1].heads[0].W_V[1],
        )
    ),
    "a known token that starts at 1": lambda g: replace(g, positions=changed(g.positions, gathered(g)[2], 1.0)),
    "claims of tokens exchanged": lambda g: replace(
        g, witness=tuple(
            replace(c, rows=np.roll(c.rows, 1, axis=-1)) if c.rows is not None and c.layers == 3 else c for c in g.witness
        )
    ),
    "claims of gates exchanged": lambda g: replace(
        g, witness=tuple(
            replace(c, rows=np.roll(c.rows, 1)) if c.rows is not None and c.layers == 2 else c for c in g.witness
        )
    ),
}  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("name", ["rank", "joint"])
def test_what_is_altered_is_rejected_or_counted(name: str, attack: str) -> None:
    target, network = TARGETS[name], ATTACKS[attack](COMPILED[name].network)
    try:
        found = derive_circuit(network, target)
    except Rejected:
        return
    assert off(network, target) <= found.float64
    assert off(network, target, np.float32) <= found.float32


def test_attacks_change_what_the_network_computes() -> None:
    """Else they would prove nothing; where tokens are only exchanged, the sum is the same."""
    harmless = [
        (name, attack) for name in TARGETS for attack in ATTACKS
        if not off(ATTACKS[attack](COMPILED[name].network), TARGETS[name]) > 1e-5 and "another" not in attack
    ]  # fmt: skip
    assert all("claims" in attack for _, attack in harmless), harmless


def nearest_below(share: float) -> pf.Target:
    """How far every token is above each of the others, of all but the first and a share of the next; tokens are read singly."""

    def fn(x: Any) -> Any:
        parts = [
            np.maximum(x - x[..., k : k + 1] - (k > 0) * share * x[..., (k + 1) % N : (k + 1) % N + 1], 0.0)
            for k in range(N)
        ]
        return sum(parts) / N

    return pf.Target(fn, 1, N, equivariant=False, support=(-1.0, 2.0), name="nearest below")


def test_a_head_cannot_claim_a_token_that_its_gate_does_not_let_through() -> None:
    """The network has no share of the next token; claims, all but the first, make it look like the function that has."""
    network = pf.compile(nearest_below(0.0), tolerance=1e-6, norm_order=np.inf, construction="circuit").network
    forged = tuple(
        replace(c, rows=c.rows + 0.5 * np.roll(c.rows, 1, axis=-1))
        if c.rows is not None and c.layers == 3 and not c.rows[0, 0]
        else c
        for c in network.witness
    )
    target = nearest_below(0.5)
    assert off(network, target) > 0.25
    try:
        found = derive_circuit(replace(network, witness=forged), target)
    except Rejected:
        return
    assert off(network, target) <= found.float64
