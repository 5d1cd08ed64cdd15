"""Altered token circuits: the walk rejects them, or what it says is still true of the altered weights, on every sequence."""

from collections import Counter
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import provenformer as pf
from provenformer.base.errors import Rejected
from provenformer.checker.tokens.walk import token_bound
from provenformer.compiler.programs import ProgramCircuit
from provenformer.networks.circuit import CircuitBlock, CircuitNetwork, Claim, Head
from provenformer.storage import program_spec, save

CASES = [
    ("histogram", 3, 4), ("reverse", 3, 4), ("sort", 3, 4), ("sort-by-rank", 3, 4), ("running-count", 3, 4), ("parity", 3, 4),
    ("most-frequent", 3, 4), ("induction", 3, 4), ("dyck-1", 3, 4), ("addition", 3, 4), ("shift", 3, 4), ("unique-sort", 3, 4),
    ("dyck-2", 4, 4), ("pattern-match", 3, 4), ("induction", 28, 2),  # the last compares by two digits
]  # fmt: skip
PER_CASE = 100


def made(name: str, size: int, n: int) -> ProgramCircuit:
    found = pf.compile_tokens(pf.programs.get(name, size, n)).made
    assert isinstance(found, ProgramCircuit)
    return found


def every(size: int, n: int) -> np.ndarray:
    return np.array(list(product(range(size), repeat=n)))


def altered_number(value: float, rng: np.random.Generator) -> float:
    ways = [
        0.0,
        -value,
        value * (1 + 1e-3),
        value * (1 - 1e-6),
        value + 1e-4,
        value + 1.0,
        value - 0.25,
        value * 2,
        value / 2,
        rng.normal(),
    ]
    return float(ways[rng.integers(len(ways))])


def altered_weight(network: CircuitNetwork, rng: np.random.Generator) -> CircuitNetwork:
    """One number of one array, preferably one that is not 0."""
    tensors = {**network.tensors(), "positions": network.positions}
    arrays = {k: v.copy() for k, v in tensors.items() if v.size}
    name = list(arrays)[rng.integers(len(arrays))]
    array = arrays[name]
    places = np.argwhere(array != 0) if array.any() and rng.random() < 0.7 else np.argwhere(array == array)
    place = tuple(places[rng.integers(len(places))])
    array[place] = altered_number(float(array[place]), rng)
    blocks = []
    for b, block in enumerate(network.circuit_blocks):
        heads = tuple(
            Head(**{k: arrays.get(f"blocks.{b}.heads.{h}.{k}", v) for k, v in head.weights().items()})
            for h, head in enumerate(block.heads)
        )
        blocks.append(CircuitBlock(heads, **{k: arrays.get(f"blocks.{b}.{k}", v) for k, v in block.weights().items()}))
    return replace(
        network,
        circuit_blocks=tuple(blocks),
        positions=arrays["positions"],
        W_out=arrays["W_out"],
        b_out=arrays["b_out"],
    )


def altered_witness(network: CircuitNetwork, rng: np.random.Generator) -> CircuitNetwork:
    """A claim moved, dropped, doubled, or about another atom."""
    claims = list(network.witness)
    i, k = rng.integers(len(claims), size=2)
    way = rng.integers(5)
    if way == 0:
        claims[i] = Claim(claims[i].channel, claims[i].layers, claims[k].atom)
    elif way == 1:
        claims[i] = Claim(claims[k].channel, claims[i].layers, claims[i].atom)
    elif way == 2:
        claims[i] = Claim(claims[i].channel, claims[k].layers, claims[i].atom)
    elif way == 3:
        del claims[i]
    else:
        claims.append(claims[i])
    return replace(network, witness=tuple(claims))


def altered_shape(network: CircuitNetwork, rng: np.random.Generator) -> CircuitNetwork:
    """Two blocks exchanged, or one doubled, or the units of one gone."""
    blocks = list(network.circuit_blocks)
    i, k = rng.integers(len(blocks), size=2)
    way = rng.integers(3)
    if way == 0:
        blocks[i], blocks[k] = blocks[k], blocks[i]
    elif way == 1:
        blocks.append(blocks[i])
    else:
        size = network.model_dim
        blocks[i] = CircuitBlock(blocks[i].heads, np.zeros((0, size)), np.zeros(0), np.zeros((size, 0)), np.zeros(size))
    return replace(network, circuit_blocks=tuple(blocks))


@pytest.mark.parametrize(("name", "size", "n"), CASES)
def test_no_alteration_is_believed(name: str, size: int, n: int) -> None:
    circuit = made(name, size, n)
    graph, output = circuit.traced.graph, circuit.traced.output
    x = every(size, n)
    wanted, rng, seen = circuit.program(x), np.random.default_rng(len(name) + size), Counter[str]()
    for i in range(PER_CASE):
        alter = altered_witness if i % 10 == 8 else altered_shape if i % 10 == 9 else altered_weight
        network = alter(circuit.network, rng)
        try:
            bound = token_bound(network, graph, output)
        except Rejected:
            seen["rejected"] += 1
            continue
        with np.errstate(all="ignore"):
            errors = {
                dtype: float(np.abs(network.run(x[:, None, :].astype(float), dtype)[:, 0] - wanted).max())
                for dtype in ("float64", "float32")
            }
        for dtype, error in errors.items():
            assert not error > getattr(bound, dtype), (i, dtype, error, bound)
        seen["exact still" if bound.float64 < 0.5 else "a larger bound"] += 1
    assert seen["rejected"] > PER_CASE / 10, seen


def test_a_saved_circuit_is_checked_from_its_weights(tmp_path: Path) -> None:
    circuit = made("induction", 3, 4)
    folder, rng = tmp_path / "net", np.random.default_rng(0)
    circuit.save(folder)
    assert pf.verify(folder)
    x, wanted = every(3, 4), circuit.program(every(3, 4))
    verdicts = Counter[bool]()
    for _ in range(40):
        network = altered_weight(circuit.network, rng)
        save(folder, network, circuit.certificate, {"construction": "tokens", "target": program_spec(circuit.program)})
        report = pf.verify(folder)
        verdicts[report.ok] += 1
        if report:
            assert np.abs(network(x[:, None, :].astype(float))[:, 0] - wanted).max() <= report.claimed
    assert verdicts[False] > 10


@pytest.mark.parametrize(
    "change",
    [
        {"margin": 0.6},
        {"vocab_size": 4},
        {"seq_len": 5},
        {"step": 0.5},
        {"bounds": {"float64": 1e-30}},
        {"bounds": {"float16": 1.0}},
    ],
)
def test_a_false_statement_is_found(tmp_path: Path, change: dict[str, object]) -> None:
    circuit = made("sort", 3, 4)
    certificate = replace(circuit.certificate, details={**circuit.certificate.details, **change})
    save(
        tmp_path / "net",
        circuit.network,
        certificate,
        {"construction": "tokens", "target": program_spec(circuit.program)},
    )
    assert not pf.verify(tmp_path / "net")


def test_another_program_is_not_what_it_computes(tmp_path: Path) -> None:
    made("sort", 3, 4).save(tmp_path / "net")
    assert not pf.verify(tmp_path / "net", pf.programs.get("reverse", 3, 4))
    assert not pf.verify(tmp_path / "net", pf.programs.get("sort", 4, 4))  # a larger alphabet than was promised
    with pytest.raises(pf.ProvenformerError, match="give a provenformer"):
        pf.verify(tmp_path / "net", pf.targets.get("sort", 1, 4))
