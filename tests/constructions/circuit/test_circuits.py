"""Circuits for the built-in targets and for functions as users write them: measured <= certified, saved, loaded, verified."""

from pathlib import Path

import numpy as np
import pytest
from circuit_cases import COMPILES, target, transformer_block

import provenformer as pf
from provenformer.constructions.circuit.build import build
from provenformer.constructions.circuit.parts import lower
from provenformer.networks.circuit import CircuitNetwork
from provenformer.symbols.trace import samples, trace

WITHOUT_PAIRS = [name for name in pf.targets.names() if name != "rank"]


def measured(c: pf.CompiledCircuit, dtype: type = np.float64, seed: int = 11) -> float:
    """The largest error on random, corner, few-valued, nearly constant, ramped and sorted sequences."""
    x = samples(c.target, 40 if c.target.seq_len < 100 else 2, seed=seed)
    return float(np.abs(c.network.run(x, dtype) - c.target(x)).max())


def require_true(c: pf.CompiledCircuit, tolerance: float) -> None:
    certificate = c.certificate
    assert certificate.kind == "rigorous"
    assert certificate.bound <= tolerance
    assert measured(c) <= certificate.bound + 1e-12  # f itself is computed in float64
    assert sum(certificate.terms.values()) == pytest.approx(certificate.bound)
    if "float32" in certificate.bounds:
        assert measured(c, np.float32) <= certificate.bounds["float32"] + 1e-12


@pytest.mark.parametrize("name", WITHOUT_PAIRS)
@pytest.mark.parametrize("n", [3, 16, 64])
def test_built_in_targets(name: str, n: int) -> None:
    f = pf.targets.get(name, token_dim=1, seq_len=n)
    for tolerance in (1e-2, 1e-4):
        require_true(pf.compile(f, tolerance=tolerance, norm_order=np.inf, construction="circuit"), tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("name", WITHOUT_PAIRS)
def test_built_in_targets_of_512_tokens(name: str) -> None:
    f = pf.targets.get(name, token_dim=1, seq_len=512)
    require_true(pf.compile(f, tolerance=1e-4, norm_order=np.inf, construction="circuit"), 1e-4)


@pytest.mark.parametrize("name", ["scaled-mean", "softmax-mean", "shift", "sort"])
def test_tokens_of_four_numbers_on_another_box(name: str) -> None:
    f = pf.targets.get(name, token_dim=4, seq_len=6, support=(-1.0, 2.0))
    require_true(pf.compile(f, tolerance=1e-2, norm_order=np.inf, construction="circuit"), 1e-2)


@pytest.mark.parametrize("name", COMPILES)
def test_functions_as_users_write_them(name: str) -> None:
    require_true(pf.compile(target(COMPILES[name]), tolerance=1e-2, norm_order=np.inf, construction="circuit"), 1e-2)


def test_a_transformer_block_becomes_one() -> None:
    f = target(transformer_block(2), d=2, n=6)
    c = pf.compile(f, tolerance=1e-2, norm_order=np.inf, construction="circuit")
    require_true(c, 1e-2)
    assert c.network.heads == 1  # its softmax is a softmax


def test_sizes_do_not_grow_with_the_sequence() -> None:
    """What the formula needs, not what a table of the box would: the spec's numbers."""
    sizes = {}
    for n in (3, 64):
        c = pf.compile(
            pf.targets.get("scaled-mean", seq_len=n), tolerance=1e-4, norm_order=np.inf, construction="circuit"
        )
        sizes[n] = c.network.parameters
        assert c.certificate.bound / measured(c) < 1.1
    assert sizes[3] == sizes[64] <= 740


def test_the_distance_in_other_norms_follows() -> None:
    f = pf.targets.get("scaled-mean", seq_len=4, support=(0.0, 2.0))
    c = pf.compile(f, tolerance=0.05, norm_order=2, construction="circuit")
    assert c.certificate.norm_order == 2
    assert c.certificate.bound <= 0.05
    assert c.certificate.bound == pytest.approx(c.certificate.details["sup"] * (4 * 2.0**4) ** 0.5)
    found = pf.distance(f, c.network, token_dim=1, seq_len=4, norm_order=2, support=(0.0, 2.0))
    assert found.value <= c.certificate.bound


@pytest.mark.parametrize("name", ["scaled-mean", "sort", "shift", "softmax-mean"])
def test_saved_and_loaded_it_is_the_same_network(name: str, tmp_path: Path) -> None:
    f = pf.targets.get(name, seq_len=5)
    c = pf.compile(f, tolerance=1e-2, norm_order=np.inf, construction="circuit")
    c.save(tmp_path / "net")
    loaded = pf.load(tmp_path / "net")
    assert isinstance(loaded.network, CircuitNetwork)
    x = f.sample(7)
    assert np.array_equal(loaded.network(x), c.network(x))
    assert loaded.certificate == c.certificate
    assert [claim.atom for claim in loaded.network.witness] == [claim.atom for claim in c.network.witness]
    assert pf.verify(tmp_path / "net")


def test_an_altered_weight_is_seen(tmp_path: Path) -> None:
    c = pf.compile(pf.targets.get("scaled-mean", seq_len=4), tolerance=1e-2, norm_order=np.inf, construction="circuit")
    c.network.circuit_blocks[0].W_2[-1, 0] *= 3.0
    c.save(tmp_path / "net")
    assert not pf.verify(tmp_path / "net")


def test_states_end_in_the_output_and_can_be_continued() -> None:
    c = pf.compile(pf.targets.get("sort", seq_len=4), tolerance=1e-2, norm_order=np.inf, construction="circuit")
    x = c.target.sample(3)
    states = list(c.network.states(x))
    assert [s.stage for s in states][1:] == list(c.network.stages)
    for before, stage in zip(states, list(c.network.stages), strict=False):
        assert np.array_equal(c.network.continued(stage, before.values), c.network(x))


def test_reprs_are_one_line() -> None:
    c = pf.compile(pf.targets.get("scaled-mean", seq_len=4), tolerance=1e-2, norm_order=np.inf, construction="circuit")
    for shown in (c, c.network, c.certificate):
        assert "\n" not in repr(shown)
        assert len(repr(shown)) < 140
    assert str(c.traced).count("product(") == 1


@pytest.mark.parametrize("name", [*COMPILES, "scaled-mean", "relative-max", "sort"])
def test_the_builders_own_bound_holds(name: str) -> None:
    """Without the checker, whose bound the certificate takes when it is the larger one."""
    f = target(COMPILES[name]) if name in COMPILES else pf.targets.get(name, seq_len=6)
    traced = trace(f)
    built = build(lower(traced.graph, traced.outputs), 1e-3, 20_000)
    x = samples(f, 60, seed=13)
    for precision, bound in built.bounds.items():
        assert np.abs(built.network.run(x, precision) - f(x)).max() <= bound + 1e-13


PLACES, FACTORS = np.array([0.2, 0.9, 0.5]), np.array([1.0, 0.0, 2.0])
ALIKE = {
    "a number by position": lambda x: x - np.maximum(x, PLACES),
    "a number beyond the box": lambda x: x - np.minimum(x, np.array([-1.0, 0.5, 2.0])),
    "multiples by position": lambda x: np.maximum(x * PLACES, x * FACTORS) - x,
    "sorted multiples": lambda x: np.sort(x * FACTORS, axis=-1),
    "one value at all tokens": lambda x: np.sort(np.mean(x, axis=-1, keepdims=True) + 0 * x, axis=-1) - x,
    "one value and a number by position": lambda x: np.maximum.accumulate(
        np.mean(x, axis=-1, keepdims=True) + PLACES, axis=-1
    ),
}


@pytest.mark.parametrize("name", ALIKE)
def test_what_is_compared_may_be_alike(name: str) -> None:
    """Arguments that differ by numbers, or are multiples of each other, at every token: the checker accepts what is built."""
    f = pf.Target(ALIKE[name], 1, 3, equivariant=False)
    require_true(pf.compile(f, tolerance=1e-2, norm_order=np.inf, construction="circuit"), 1e-10)
