"""Functions of pairs of tokens: by nodes, by gathering, and what the checker makes of networks that are not quite right."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import provenformer as pf
from provenformer.base.errors import Rejected
from provenformer.checker.circuit.walk import circuit_bound
from provenformer.constructions.circuit.build import build
from provenformer.constructions.circuit.nodes import kinks
from provenformer.constructions.circuit.parts import lower
from provenformer.networks import program
from provenformer.networks.circuit import CircuitNetwork
from provenformer.symbols.formula import VARIABLE, Formula, apply, constant
from provenformer.symbols.trace import samples, trace

Function = Callable[[Any], Any]


def differences(x: Any) -> Any:
    return x[..., :, None] - x[..., None, :]


def local_regression(x: Any) -> Any:
    """Nadaraya and Watson, first the sums, then the quotient."""
    kernel = np.exp(-(differences(x) ** 2) / 0.3)
    return np.einsum("...jk,...k->...j", kernel, x) / np.sum(kernel, axis=-1)


def shrunk_regression(x: Any) -> Any:
    kernel = np.exp(-(differences(x) ** 2) / 0.5)
    return np.sum(kernel * x[..., None, :], axis=-1) / (np.sum(kernel, axis=-1) + 1.0)


def repulsion(x: Any) -> Any:
    """Without the token itself."""
    d = differences(x)
    return np.mean(np.where(np.eye(x.shape[-1], dtype=bool), 0.0, d / (0.1 + d**2)), axis=-1) / 5


def distances(x: Any) -> Any:
    """Of points in the plane: every row of the result is the mean of a function of the distance."""
    far = np.sum(differences(x) ** 2, axis=-3, keepdims=True)
    return 0 * x + np.mean(1 / np.sqrt(far + 0.5), axis=-1)


KERNELS: dict[str, tuple[Function, int]] = {
    "soft rank": (lambda x: np.mean(1 / (1 + np.exp(-differences(x) / 0.1)), axis=-1), 1),
    "tanh": (lambda x: np.mean(np.tanh(3 * differences(x)), axis=-1), 2),
    "log of distances": (lambda x: np.sum(np.log(0.1 + np.abs(differences(x))), axis=-1) / 9, 1),
    "energy distance": (lambda x: np.mean(np.abs(differences(x)), axis=-2), 1),
    "laplace kernel": (lambda x: np.mean(np.exp(-np.abs(differences(x)) / 0.3), axis=-1), 1),
    "phases": (lambda x: np.mean(np.sin(6 * differences(x)), axis=-1), 1),
    "nearest": (lambda x: np.min(np.abs(differences(x)) + np.eye(x.shape[-1]), axis=-1), 1),
    "local regression": (local_regression, 1),
    "shrunk regression": (shrunk_regression, 1),
    "repulsion": (repulsion, 1),
    "distances": (distances, 2),
    "causal": (lambda x: np.sum(np.tri(x.shape[-1]) * np.tanh(differences(x)), axis=-1) / x.shape[-1], 1),
    "soft top two": (lambda x: x * np.clip(2.5 - np.sum(np.clip(differences(-x) * 4 + 0.5, 0, 1), axis=-1), 0, 1), 1),
    "rows and columns": (lambda x: np.mean(np.tanh(2 * x[..., :, None] + x[..., None, :] ** 2), axis=-1), 1),
}


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_of_users(name: str) -> None:
    fn, d = KERNELS[name]
    f = pf.Target(fn, d, 6, equivariant=False, name="kernel")
    c = pf.compile(f, tolerance=1e-2, norm_order=np.inf, construction="circuit")
    x = samples(f, 64, seed=9)
    assert np.abs(c.network(x) - f(x)).max() <= c.certificate.bound <= 1e-2
    single = np.abs(c.network.run(x, np.float32) - f(x)).max()
    assert single <= c.certificate.details["bounds"].get("float32", np.inf)


@pytest.mark.parametrize("n", [3, 16, 64])
def test_the_smoothed_rank_is_gathered(n: int) -> None:
    f = pf.targets.get("rank", seq_len=n)
    c = pf.compile(f, tolerance=1e-4, norm_order=np.inf, construction="circuit")
    assert c.network.blocks <= 2
    assert sum(c.network.hidden_units.values()) <= 3 * n
    assert c.network.heads == (1 if n > 4 else n)
    assert c.certificate.bound < 1e-11
    assert c.certificate.details["bounds"]["float32"] < 1e-3


def test_the_smoothed_rank_by_nodes_does_not_grow_with_n() -> None:
    f = pf.targets.get("rank", seq_len=512)
    c = pf.compile(f, tolerance=1e-2, norm_order=np.inf, construction="circuit")
    assert (c.network.blocks, c.network.heads) == (2, 1)
    assert sum(c.network.hidden_units.values()) <= 181
    x = samples(f, 4)
    assert 0.5 * c.certificate.bound < np.abs(c.network(x) - f(x)).max() <= c.certificate.bound


def test_it_is_saved_and_verified(tmp_path: Any) -> None:
    for tolerance in (1e-1, 1e-4):
        f = pf.targets.get("rank", seq_len=24)
        c = pf.compile(f, tolerance=tolerance, norm_order=np.inf, construction="circuit")
        assert bool(any(c.network.kernel_steps)) == (tolerance == 1e-1)
        c.save(tmp_path / str(tolerance))
        again = pf.load(tmp_path / str(tolerance))
        assert isinstance(again.network, CircuitNetwork)
        assert again.network.kernel_steps == c.network.kernel_steps
        assert pf.verify(tmp_path / str(tolerance)).ok
        x = f.sample(5)
        assert np.array_equal(again.network(x), c.network(x))


RAMP = apply("maximum", apply("add", VARIABLE, constant(0.5)), constant(0.0))
TENT = apply("add", constant(1.0), apply("multiply", constant(-2.0), apply("absolute", VARIABLE)))
KERNELS_OF_ONE: dict[str, tuple[Formula, list[float]]] = {
    "clip": (apply("minimum", RAMP, constant(1.0)), [-0.5, 0.5]),
    "hat": (apply("maximum", TENT, constant(0.0)), [0.0]),
    "tanh": (apply("tanh", VARIABLE), []),
}


@pytest.mark.parametrize("name", KERNELS_OF_ONE)
def test_kinks_are_found(name: str) -> None:
    kernel, wanted = KERNELS_OF_ONE[name]
    assert set(wanted) <= set(kinks(kernel))


def by_nodes(fn: Function, n: int, step: float) -> tuple[pf.Target, Any, Any]:
    f = pf.Target(fn, 1, n, equivariant=True, name="kernel")
    traced = trace(f, (step,))
    return f, traced, build(lower(traced.graph, traced.outputs), 1.0, 10**5)


def hard_inputs(n: int) -> Any:
    """Few values at many distances: where a mean of kernels bends most between nodes."""
    rng = np.random.default_rng(0)
    x = rng.random((400, 1, 3))[np.arange(400)[:, None, None], 0, rng.integers(0, 3, (400, 1, n))]
    return np.concatenate([x, rng.random((200, 1, n)), np.tile(np.linspace(0, 1, 200)[:, None, None], (1, 1, n))])


@pytest.mark.parametrize("kernel", ["rank", "tanh", "abs", "gauss", "sine"])
def test_lemma_12_nodes(kernel: str) -> None:
    """Builder and checker both bound what happens at hard inputs, and not by much more."""
    functions: dict[str, Function] = {
        "rank": lambda x: np.mean(np.clip(differences(x) * 2 + 0.5, 0, 1), axis=-1),
        "tanh": lambda x: np.mean(np.tanh(4 * differences(x)), axis=-1),
        "abs": lambda x: np.mean(np.abs(differences(x)), axis=-1),
        "gauss": lambda x: np.mean(np.exp(-(differences(x) ** 2) * 8), axis=-1),
        "sine": lambda x: np.mean(np.sin(5 * differences(x)), axis=-1),
    }
    f, traced, built = by_nodes(functions[kernel], 6, 0.125)
    checked = circuit_bound(built.network, traced.graph, traced.outputs, f.low, f.high)
    x = hard_inputs(6)
    measured = np.abs(built.network(x) - f(x)).max()
    assert measured <= min(built.bounds["float64"], checked.float64)
    assert max(built.bounds["float64"], checked.float64) <= 4 * measured
    assert np.abs(built.network.run(x, np.float32) - f(x)).max() <= min(built.bounds["float32"], checked.float32)


def altered(network: Any, rng: np.random.Generator) -> Any:
    """One weight of one block, changed by much or little."""
    b = int(rng.integers(len(network.circuit_blocks)))
    block = network.circuit_blocks[b]
    name = str(rng.choice(["W_1", "b_1", "W_2", "b_2"]))
    values = getattr(block, name).copy()
    at = np.flatnonzero(values) if rng.random() < 0.8 and values.any() else np.arange(values.size)
    index = int(rng.choice(at))
    values.flat[index] += rng.choice([-1, 1]) * 10.0 ** rng.uniform(-4, 0)
    blocks = list(network.circuit_blocks)
    blocks[b] = replace(block, **{name: values})
    return replace(network, circuit_blocks=tuple(blocks))


@pytest.mark.parametrize("step", [0.0, 0.25])
def test_an_altered_network_is_rejected_or_bounded(step: float) -> None:
    n, rng = 6, np.random.default_rng(int(step * 4))
    f, traced, built = by_nodes(lambda x: np.mean(np.clip(differences(x) * 2 + 0.5, 0, 1), axis=-1), n, step)
    x = hard_inputs(n)
    wanted, rejected = f(x), 0
    for _ in range(60):
        network = altered(built.network, rng)
        try:
            found = circuit_bound(network, traced.graph, traced.outputs, f.low, f.high)
        except Rejected:
            rejected += 1
            continue
        assert np.abs(network(x) - wanted).max() <= found.float64
    assert rejected < 60


def test_altered_positions_open_no_gate_unseen() -> None:
    """A gate that is open at a second token adds that token's value."""
    n = 6
    f, traced, built = by_nodes(lambda x: np.mean(np.clip(differences(x) * 2 + 0.5, 0, 1), axis=-1), n, 0.0)
    x, rng = hard_inputs(n), np.random.default_rng(2)
    for _ in range(30):
        positions = built.network.positions.copy()
        at = rng.choice(np.flatnonzero(positions))
        positions.flat[at] *= rng.choice([0.0, 0.5, 0.9, 1.1])
        network = replace(built.network, positions=positions)
        try:
            found = circuit_bound(network, traced.graph, traced.outputs, f.low, f.high)
        except Rejected:
            continue
        assert np.abs(network(x) - f(x)).max() <= found.float64


def test_zeros_left_out_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every token gathered: matrices with few entries that are not 0."""
    f = pf.targets.get("rank", 1, 160)
    c = pf.compile(f, tolerance=1e-4, norm_order=np.inf, construction="circuit")
    x = f.sample(3)
    lean = c.network(x)
    monkeypatch.setattr(program, "LARGE", np.inf)
    whole = program.Program.of(c.network, np.dtype(np.float64)).run(x)
    assert any(b.W_1.size >= 1 << 16 and np.count_nonzero(b.W_1) < b.W_1.size / 32 for b in c.network.circuit_blocks)
    np.testing.assert_allclose(lean, whole, rtol=0, atol=1e-14)
