"""Token circuits in disguise are exact on all sequences by their bounds, which hold for any weights whatever; and hook names."""

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

import provenformer as pf
from provenformer.certificates.drift import Walk
from provenformer.checker.tokens.disguised import disguised_bound
from provenformer.checker.tokens.ranges import ranges_of
from provenformer.compiler.programs import ProgramCircuit
from provenformer.networks.circuit import CircuitNetwork
from provenformer.networks.disguise import Disguised, with_noise

torch = pytest.importorskip("torch")
SIZE, N = 4, 4
CASES = ["histogram", "sort", "sort-by-rank", "induction", "dyck-2", "running-count", "most-frequent", "addition"]


@lru_cache
def compiled(name: str) -> pf.CompiledTokens:
    return pf.compile_tokens(pf.programs.get(name, SIZE, N))


def circuit(name: str) -> ProgramCircuit:
    made = compiled(name).made
    assert isinstance(made, ProgramCircuit)
    return made


@lru_cache
def sequences() -> np.ndarray:
    return np.indices((SIZE,) * N).reshape(N, -1).T


def measured(name: str, disguised: Disguised, precision: str) -> float:
    """The largest error over all sequences."""
    dtype = getattr(torch, precision)
    x = sequences()
    with torch.no_grad():
        y = disguised.to_torch().to(dtype)(torch.tensor(x[:, None, :], dtype=dtype)).double().numpy()[:, 0]
    return float(np.abs(y - pf.programs.get(name, SIZE, N)(x)).max())


def limits(name: str, disguised: Disguised) -> dict[str, float]:
    c = circuit(name)
    graph, output = c.traced.graph, c.traced.output
    return vars(disguised_bound(c.network, disguised, graph, output, ranges_of(graph)))


def altered(plain: Disguised, count: int, seed: int) -> list[Disguised]:
    """A weight is altered after the fact, much or little, or all are, or the way back is a wrong one."""
    rng = np.random.default_rng(seed)
    sizes: list[int] = []
    plain.mapped(lambda weight: sizes.append(weight.size) or weight)  # type: ignore[func-returns-value]
    found = [with_noise(plain, noise, seed) for noise in (1e-9, 1e-6, 1e-4, 1e-2)]
    found += [replace(plain, encode=plain.encode * 1.0001), replace(plain, encode=plain.encode[:, ::-1].copy())]
    for _ in range(count):
        at = int(rng.choice(np.repeat(np.arange(len(sizes)), sizes)))
        factor, shift = rng.choice([0.0, 0.9999, 1.001, 2.0, -1.0]), rng.choice([0.0, 1e-6, 1e-3])
        seen = iter(range(len(sizes)))

        def change(
            weight: np.ndarray, at: int = at, factor: float = factor, shift: float = shift, seen: Any = seen
        ) -> np.ndarray:
            if next(seen) != at:
                return weight
            flat = weight.ravel().copy()
            flat[rng.integers(len(flat))] *= factor
            flat[rng.integers(len(flat))] += shift
            return flat.reshape(weight.shape)

        found.append(plain.mapped(change))
    return found


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("options", [{}, {"compress": True}, {"rotate": False, "seed": 3}, {"within": 0.3}], ids=str)
def test_disguised_programs_are_exact(name: str, options: dict[str, Any]) -> None:
    c = compiled(name)
    disguised = c.disguised(**options)
    assert "float64" in disguised.bounds
    for precision, bound in disguised.bounds.items():
        assert measured(name, disguised, precision) <= bound < 0.5
    assert disguised.model_dim <= circuit(name).network.model_dim
    if "within" in options:
        assert disguised.noise > 0
        assert measured(name, disguised, "float64") > 1e-9
    else:
        assert disguised.bounds["float64"] < 1e-6


@pytest.mark.parametrize("name", CASES)
def test_the_bound_holds_for_any_weights(name: str) -> None:
    plain = compiled(name).disguised(compress=True)
    moved = 0
    for disguised in altered(plain, 24, 7):
        for precision, bound in limits(name, disguised).items():
            found = measured(name, disguised, precision)
            assert found <= bound
            moved += 1e-9 < found < bound < 0.5
    assert moved  # noise that is felt, and bounded all the same


@pytest.mark.parametrize("rule", ["read", "written"])
def test_leaving_out_a_rule_is_found(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What weights that read, or that write, are off: without it a bound is too low."""
    plain, read = compiled("sort").disguised(compress=True), Walk.read
    if rule == "read":
        monkeypatch.setattr(Walk, "read", lambda *given: replace(made := read(*given), fresh=0 * made.fresh))
        changed = replace(plain, W_out=plain.W_out * 1.0001)
    else:
        monkeypatch.setattr(Walk, "written", lambda _self, _columns, disguised: 0 * disguised)
        blocks = tuple(replace(block, W_2=block.W_2 * 1.0001) for block in plain.circuit_blocks)
        changed = replace(plain, circuit_blocks=blocks)
    assert measured("sort", changed, "float64") > limits("sort", changed)["float64"]
    monkeypatch.undo()
    assert measured("sort", changed, "float64") <= limits("sort", changed)["float64"]


def test_bad_input() -> None:
    c = compiled("sort")
    with pytest.raises(pf.ProvenformerError, match=r"within=0\.5 is not below 0\.5, half the distance"):
        c.disguised(within=0.5)
    with pytest.raises(pf.ProvenformerError, match="without noise the bound is"):
        c.disguised(within=1e-16)
    with pytest.raises(pf.ProvenformerError, match="seed=-1 is negative"):
        c.disguised(seed=-1)
    table = pf.compile_tokens(lambda s: [s.count(t) for t in s], "ab", 3)
    with pytest.raises(pf.ProvenformerError, match="a table has no parts"):
        table.disguised()


@pytest.mark.parametrize("name", CASES)
def test_hook_names_say_what_is_where(name: str) -> None:
    c = compiled(name)
    network, names = c.network, c.hook_names
    assert isinstance(network, CircuitNetwork)
    assert names["blocks.0.hook_resid_pre"][0] == "x = the token"
    for b, block in enumerate(network.circuit_blocks):
        assert len(names.get(f"blocks.{b}.attn.hook_pattern", "")) == len(block.heads)
        assert all(names.get(f"blocks.{b}.attn.hook_pattern", ["padding"]))
        for unit, words in enumerate(names.get(f"blocks.{b}.mlp.hook_post", ())):
            assert bool(words) == bool(block.W_2[:, unit].any())
        held = names[f"blocks.{b}.hook_resid_post"]
        assert len(held) == network.model_dim
        for node in c.circuit.nodes:
            if node.block == b and node.channel is not None:
                assert held[node.channel] == f"{node.name} = {node.words}"
