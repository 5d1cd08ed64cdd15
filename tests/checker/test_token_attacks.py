"""Forged token circuits that would fool a checker which forgets one thing: what it says is true as executed, or not said."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from forging import forge

import provenformer as pf
from provenformer.base.arrays import FloatArray
from provenformer.base.errors import BadFolder, Rejected
from provenformer.checker.tokens.walk import TokenBound, token_bound
from provenformer.compiler.programs import ProgramCircuit
from provenformer.networks.circuit import CircuitBlock, CircuitNetwork, Claim, Head
from provenformer.symbols.tokens.graph import Units

MANY = 257  # times 2^120 is beyond float32


@pytest.fixture(scope="module")
def circuit() -> ProgramCircuit:
    made = pf.compile_tokens(pf.programs.get("histogram", 3, 4)).made
    assert isinstance(made, ProgramCircuit)
    return made


def widened(network: CircuitNetwork, positions: FloatArray) -> CircuitNetwork:
    """More channels, that nothing reads or writes, with these positions."""
    more = len(positions)

    def wide(array: FloatArray, axis: int) -> FloatArray:
        return np.pad(array, [(0, more if a == axis else 0) for a in range(array.ndim)])

    blocks = tuple(
        CircuitBlock(
            tuple(Head(wide(h.W_Q, 1), h.b_Q, wide(h.W_K, 1), wide(h.W_V, 1), wide(h.W_O, 0)) for h in block.heads),
            wide(block.W_1, 1), block.b_1, wide(block.W_2, 0), wide(block.b_2, 0),
        )
        for block in network.circuit_blocks
    )  # fmt: skip
    return replace(
        network, circuit_blocks=blocks, positions=np.concatenate([network.positions, positions]),
        W_out=wide(network.W_out, 1), channel_names=(*network.channel_names, *("more",) * more),
    )  # fmt: skip


def with_block(network: CircuitNetwork, index: int, block: CircuitBlock) -> CircuitNetwork:
    blocks = network.circuit_blocks
    return replace(network, circuit_blocks=(*blocks[:index], block, *blocks[index + 1 :]))


def units_overflow(circuit: ProgramCircuit, read: float) -> CircuitNetwork:
    """A channel that is written with MANY times 2^120, under a claim that proves an error of that size; and read, or not."""
    network = widened(circuit.network, np.array([[1.0] * 4, [0.0] * 4]))
    one, written, block = network.model_dim - 2, network.model_dim - 1, network.circuit_blocks[0]
    W_1, W_2 = np.zeros((MANY, network.model_dim)), np.zeros((network.model_dim, MANY))
    W_1[:, one] = W_2[written] = 2.0**60
    block = CircuitBlock(
        block.heads, np.concatenate([block.W_1, W_1]), np.concatenate([block.b_1, np.zeros(MANY)]),
        np.concatenate([block.W_2, W_2], axis=1), block.b_2,
    )  # fmt: skip
    W_out = network.W_out.copy()
    W_out[0, written] = read
    atom = next(i for i, a in enumerate(circuit.traced.graph.atoms) if isinstance(a.operation, Units))
    return replace(with_block(network, 0, block), W_out=W_out, witness=(*network.witness, Claim(written, 2, atom)))


def idle_head(circuit: ProgramCircuit, scores: int, values: float) -> CircuitNetwork:
    """A head that writes nothing, whose scores or values are beyond float32: nothing times infinity is not a number."""
    network = widened(circuit.network, np.repeat([[0.0, 0.0, 2.0**60, 2.0**60]], MANY, axis=0))
    start, size, block = circuit.network.model_dim, network.model_dim, network.circuit_blocks[0]
    W_K = np.eye(scores, size, start)
    W_V = np.zeros((1, size))
    W_V[:, start:] = values
    head = Head(np.zeros_like(W_K), np.full(scores, 2.0**60), W_K, W_V, np.zeros((size, 1)))
    return with_block(network, 0, replace(block, heads=(*block.heads, head)))


ATTACKS: dict[str, Callable[[ProgramCircuit], CircuitNetwork]] = {
    "a channel that nothing reads": lambda c: units_overflow(c, 0.0),
    "a channel that is hardly read": lambda c: units_overflow(c, 2.0**-140),
    "scores of a head that writes nothing": lambda c: idle_head(c, MANY, 0.0),
    "values of a head that writes nothing": lambda c: idle_head(c, 0, 2.0**60),
}


def claimed(circuit: ProgramCircuit, network: CircuitNetwork) -> TokenBound:
    try:
        return token_bound(network, circuit.traced.graph, circuit.traced.output)
    except Rejected:
        return TokenBound(np.inf, np.inf)


@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_what_overflows_has_no_bound(circuit: ProgramCircuit, name: str) -> None:
    network = ATTACKS[name](circuit)
    x = np.array([[[0.0, 1.0, 2.0, 2.0]]])
    with torch.no_grad():  # every product is executed there, also those with 0
        got = network.to_torch().float()(torch.tensor(x, dtype=torch.float32)).numpy()
    assert not np.isfinite(got).all()  # else this is no attack
    assert claimed(circuit, network).float32 == np.inf


def test_products_too_small_for_an_arithmetic_have_no_bound(circuit: ProgramCircuit) -> None:
    """0.3 times three of the smallest numbers of float32 is one of them there, a third of it more than the product."""
    network = widened(circuit.network, np.full((1, 4), 0.3))
    network = replace(network, W_out=np.zeros_like(network.W_out), b_out=np.zeros(1))
    network.W_out[0, -1] = 3 * 2.0**-149
    nothing = pf.compile_tokens(lambda x: 0 * x, vocab=3, seq_len=4).made
    assert isinstance(nothing, ProgramCircuit)
    network = replace(network, circuit_blocks=(), witness=())
    bound = claimed(nothing, network)
    assert np.abs(network.run(np.zeros((1, 1, 4)), np.float32)).max() <= bound.float32


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"details": {"margin": 0.5}}, "margin"),  # above the true one by 4e-13
        ({"details": {"units": 6}}, "5 units, not 6"),
        ({"terms": {"rounding": 1e-3, "luck": 0.0}}, "its terms"),
        ({"terms": {"rounding": 1e-3}}, "its terms"),  # more than the bound
        ({"kind": "lipschitz"}, "rigorous"),
        ({"norm_order": 2.0}, "largest entry"),
    ],
)
def test_every_statement_is_checked(
    tmp_path: Path, circuit: ProgramCircuit, change: dict[str, object], words: str
) -> None:
    circuit.save(tmp_path / "net")
    details = change.get("details")
    if isinstance(details, dict):
        change = {"details": {**circuit.certificate.details, **details}}
    report = pf.verify(forge(tmp_path / "net", certificate=change))
    assert not report
    assert words in report.reason


@pytest.mark.parametrize(
    "details", [{"bounds": 5}, {"bounds": {"float64": "small"}}, {"margin": "wide"}, {"step": True}]
)
def test_details_that_are_read_again_are_numbers(
    tmp_path: Path, circuit: ProgramCircuit, details: dict[str, object]
) -> None:
    circuit.save(tmp_path / "net")
    forge(tmp_path / "net", certificate={"details": {**circuit.certificate.details, **details}})
    with pytest.raises(BadFolder, match=f"details: {next(iter(details))}"):
        pf.verify(tmp_path / "net")


@pytest.mark.parametrize("given", [{"pad": 0}, {"pad": 2}])
def test_a_program_with_other_arguments_is_not_the_built_in_one(tmp_path: Path, given: dict[str, int]) -> None:
    program = pf.TokenProgram(partial(pf.programs.histogram, **given), 3, 4, "histogram")
    pf.compile_tokens(program).save(tmp_path / "net")
    report = pf.verify(tmp_path / "net", program)
    assert report.claim.whose == "the function you gave"
    padded = pf.programs.get("histogram", 3, 4, pad=True)
    assert pf.verify(tmp_path / "net", padded).ok == (given["pad"] == 2)
    assert "built in" in pf.verify(tmp_path / "net", padded).claim.whose
