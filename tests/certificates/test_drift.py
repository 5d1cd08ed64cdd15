"""Circuits in disguise: what rotation, compression and noise add is bounded, for the weights that are made and for any others."""

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

import provenformer as pf
from provenformer.certificates.drift import _through, drift
from provenformer.compiler.disguise import bounded, channel_sizes
from provenformer.instances.families import layer_norm, transformer_block
from provenformer.networks.circuit import CircuitBlock
from provenformer.networks.disguise import Disguised, with_noise

torch = pytest.importorskip("torch")
CASES = ["sort", "layer norm", "block", "softmax-mean", "relative-max", "rank"]
DTYPES = (np.float64, np.float32)


@lru_cache
def compiled(name: str) -> Any:
    own: dict[str, tuple[Any, int]] = {"layer norm": (layer_norm, 1), "block": (transformer_block, 2)}
    if name in own:
        fn, d = own[name]
        target = pf.Target(fn, token_dim=d, seq_len=4, name=name)
    else:
        target = pf.targets.get(name, 1, 6)
    return pf.compile(target, tolerance=1e-2, norm_order=np.inf, construction="circuit")


def inputs(c: Any) -> np.ndarray:
    """Random ones, corners, nearly constant ones."""
    rng, shape = np.random.default_rng(0), (60, c.target.token_dim, c.target.seq_len)
    close = np.clip(rng.random((60, 1, 1)) + 1e-3 * rng.normal(size=shape), 0, 1)
    return np.concatenate([rng.random(shape), rng.integers(0, 2, size=shape).astype(float), close])


def measured(c: Any, disguised: Disguised, dtype: Any) -> float:
    """The largest distance from the circuit: on samples, and after ascent from the worst of them."""
    module: Any = disguised.to_torch().to(getattr(torch, np.dtype(dtype).name))
    x = inputs(c)

    def distance(points: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return np.abs(module(torch.from_numpy(points)).double().numpy() - c.network(points)).max(axis=(1, 2))

    found = distance(x)
    worst = x[np.argsort(found)[-6:]]
    rng = np.random.default_rng(1)
    for scale in (0.3, 0.1, 0.03):
        nearby = np.clip(worst[:, None] + scale * rng.normal(size=(6, 8, *x.shape[1:])), 0, 1).reshape(-1, *x.shape[1:])
        worst = nearby[np.argsort(distance(nearby))[-6:]]
    return float(max(found.max(), distance(worst).max()))


def limit(c: Any, disguised: Disguised, dtype: Any) -> float:
    """The bound on that: the drift, and what the circuit itself rounds, as executed here."""
    largest = np.maximum(np.abs(c.target.low), np.abs(c.target.high))
    return drift(c.network, channel_sizes(c), disguised, largest, dtype) + rounding(c)


def rounding(c: Any) -> float:
    return 1e-12 + float(c.certificate.terms["rounding"])


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("options", [{}, {"compress": True}, {"rotate": False, "compress": True}, {"seed": 5}], ids=str)
def test_a_disguised_circuit_is_within_its_bounds(name: str, options: dict[str, Any]) -> None:
    c = compiled(name)
    disguised = c.disguised(**options)
    for dtype in DTYPES:
        added = disguised.bounds[np.dtype(dtype).name] - c.certificate.bounds["float64"]
        assert measured(c, disguised, dtype) <= added + rounding(c)
    assert disguised.bounds["float64"] <= c.certificate.bounds["float64"] + 1e-6
    assert disguised.model_dim <= c.network.model_dim
    if options.get("rotate", True):
        assert (np.abs(disguised.embedding) > 1e-9).all()  # no channel is the input's own


@pytest.mark.parametrize("name", CASES)
def test_noise_fills_what_is_allowed(name: str) -> None:
    c = compiled(name)
    within = 2 * max(c.certificate.bound, 1e-4)
    disguised = c.disguised(compress=True, within=within)
    assert within / 2 < disguised.bounds["float64"] <= within
    assert disguised.noise > 0
    for dtype in DTYPES:
        added = disguised.bounds[np.dtype(dtype).name] - c.certificate.bounds["float64"]
        assert measured(c, disguised, dtype) <= added + rounding(c)
    with pytest.raises(pf.ProvenformerError, match="without noise the bound is"):
        c.disguised(within=c.certificate.bound / 2)


@pytest.mark.parametrize("name", CASES)
def test_the_bound_holds_for_any_weights(name: str) -> None:
    """The attack: a weight is altered after the fact, much or little, or all are, or the way back is a wrong one."""
    c = compiled(name)
    plain, rng = c.disguised(compress=True), np.random.default_rng(7)
    sizes: list[int] = []
    plain.mapped(lambda weight: sizes.append(weight.size) or weight)  # type: ignore[func-returns-value]
    altered = [with_noise(plain, noise, 3) for noise in (1e-9, 1e-5, 1e-2)]
    altered += [replace(plain, encode=plain.encode * 1.001), replace(plain, encode=plain.encode[:, ::-1].copy())]
    for _ in range(24):
        at = int(rng.choice(np.repeat(np.arange(len(sizes)), sizes)))
        factor, shift, seen = (
            rng.choice([0.0, 0.999, 1.001, 2.0, -1.0]),
            rng.choice([0.0, 1e-6, 1e-2]),
            iter(range(len(sizes))),
        )

        def change(
            weight: np.ndarray, at: int = at, factor: float = factor, shift: float = shift, seen: Any = seen
        ) -> np.ndarray:
            if next(seen) != at:
                return weight
            flat = weight.ravel().copy()
            flat[rng.integers(len(flat))] *= factor
            flat[rng.integers(len(flat))] += shift
            return flat.reshape(weight.shape)

        altered.append(plain.mapped(change))
    moved = 0
    for disguised in altered:
        found = measured(c, disguised, np.float64)
        assert found <= limit(c, disguised, np.float64)
        moved += found > 1e-9
    assert moved >= 5


@pytest.mark.parametrize("seed", range(30))
def test_units_move_channels_no_more_than_their_slopes_allow(seed: int) -> None:
    """Random tables and comparisons, some of which read the same direction, against differences that are tried."""
    rng = np.random.default_rng(seed)
    channels, units = int(rng.integers(2, 5)), int(rng.integers(1, 9))
    rows = rng.normal(size=(int(rng.integers(1, 3)), channels))
    W_1 = rows[rng.integers(len(rows), size=units)] * rng.choice([-1.0, 1.0], size=(units, 1))
    W_2 = rng.normal(size=(channels, units)) * (rng.random((channels, units)) < 0.7)
    if seed % 3 == 0:  # max(a, b) in place
        W_1, W_2 = np.zeros((1, channels)), np.zeros((channels, 1))
        W_1[0, :2], W_2[0, 0] = (-1.0, 1.0), 1.0
    block = CircuitBlock((), W_1, rng.normal(size=len(W_1)), W_2, np.zeros(channels))
    moved = rng.random(channels) * (rng.random(channels) < 0.8)

    def run(s: np.ndarray) -> np.ndarray:
        return s + np.maximum(s @ W_1.T + block.b_1, 0) @ W_2.T

    s = rng.normal(size=(4000, channels)) * 2
    by = moved * np.where(
        rng.random((4000, channels)) < 0.8, np.sign(rng.normal(size=(4000, channels))), rng.uniform(-1, 1)
    )
    found, allowed = np.abs(run(s + by) - run(s)).max(axis=0), _through(block, moved)
    assert (found <= allowed + 1e-12).all()
    if seed % 3 == 0:
        assert allowed[0] <= max(moved[0], moved[1]) + 1e-12


def test_numbers_beyond_all_limits_have_no_bound() -> None:
    c = compiled("softmax-mean")
    plain = c.disguised()
    for weight in (1e200, 1e-320):
        assert limit(c, replace(plain, W_out=plain.W_out * 0 + weight), np.float64) == np.inf
    assert limit(c, replace(plain, W_out=plain.W_out * 0 + 1e-40), np.float32) == np.inf


def test_directions_that_nothing_reads_or_writes_are_left_out() -> None:
    sort, norm = compiled("sort"), compiled("layer norm")
    assert sort.disguised(compress=True).model_dim < 0.7 * sort.network.model_dim
    assert norm.disguised(compress=True).model_dim == norm.network.model_dim


def test_a_disguised_circuit_in_transformer_lens_and_in_a_folder(tmp_path: Any) -> None:
    c = compiled("sort")
    disguised = bounded(c, c.disguised(compress=True), channel_sizes(c))
    module: Any = disguised.to_torch()
    module.save_pretrained(tmp_path / "model")
    x = torch.from_numpy(inputs(c))
    assert torch.equal(pf.from_pretrained(tmp_path / "model")(x), module(x))
    pytest.importorskip("transformer_lens", reason="the extra lens is not installed")
    values = np.linspace(0, 1, 9)
    ids = np.random.default_rng(0).integers(0, 9, size=(20, 6))
    logits, cache = disguised.to_transformer_lens(values).run_with_cache(torch.from_numpy(ids))
    wanted = values[ids][:, None]
    assert np.abs(logits.numpy().transpose(0, 2, 1) - c.target(wanted)).max() <= disguised.bounds["float64"]
    for b, weights in enumerate(c.attention(wanted)):
        np.testing.assert_allclose(
            cache[f"blocks.{b}.attn.hook_pattern"].numpy()[:, : weights.shape[1]], weights, atol=1e-6
        )
    state = cache["blocks.0.hook_resid_pre"].numpy() @ disguised.decode.T
    assert np.abs(state[..., 0] - wanted[:, 0]).max() <= 1e-12
