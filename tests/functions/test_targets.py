"""Targets: Lipschitz constants in every p-norm, equivariance, supports, and functions that misbehave."""

from dataclasses import replace
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import provenformer as pf
from provenformer.functions.targets import RANK_WIDTH, is_built_in

EQUIVARIANT = ["scaled-mean", "softmax-mean", "centered", "relative-max", "rank"]
POSITIONAL = ["reverse", "sort", "cumulative-mean", "shift", "running-max"]
NAMES = EQUIVARIANT + POSITIONAL
SIZES = [(1, 2), (1, 3), (1, 6), (2, 3), (3, 2)]
every_target = pytest.mark.parametrize("name", NAMES)
every_size = pytest.mark.parametrize("size", SIZES, ids=str)

# The formulas again, one sequence and one entry at a time.
FORMULAS: dict[str, Any] = {
    "scaled-mean": lambda x, i, j: x[i][j] * sum(x[i]) / len(x[i]),
    "centered": lambda x, i, j: x[i][j] - sum(x[i]) / len(x[i]),
    "relative-max": lambda x, i, j: x[i][j] - max(x[i]),
    "rank": lambda x, i, j: (
        sum(min(1.0, max(0.0, (x[i][j] - v) / RANK_WIDTH + 0.5)) for k, v in enumerate(x[i]) if k != j)
        / (len(x[i]) - 1)
    ),
    "reverse": lambda x, i, j: x[i][-1 - j],
    "sort": lambda x, i, j: sorted(x[i])[j],
    "cumulative-mean": lambda x, i, j: sum(x[i][: j + 1]) / (j + 1),
    "shift": lambda x, i, j: x[i][j - 1] if j else 0.0,
    "running-max": lambda x, i, j: max(x[i][: j + 1]),
}


def softmax_mean(x: list[list[float]], i: int, j: int) -> float:
    tokens = list(zip(*x, strict=True))
    weights = [np.exp(sum(a * b for a, b in zip(tokens[j], other, strict=True)) / len(x)) for other in tokens]
    return float(sum(w * v for w, v in zip(weights, x[i], strict=True)) / sum(weights))


FORMULAS["softmax-mean"] = softmax_mean


def test_all_built_in_targets_are_here() -> None:
    """The design's list, equivariant ones first; each has a one-line description."""
    assert list(pf.targets.names()) == NAMES
    for name in NAMES:
        assert pf.targets.get(name).equivariant == (name in EQUIVARIANT)
        assert pf.targets.get(name).name == name
        assert "\n" not in pf.targets.describe(name)


@every_target
@every_size
def test_formula(name: str, size: tuple[int, int]) -> None:
    """The vectorised function against the formula, entry by entry."""
    t = pf.targets.get(name, *size)
    x = adversarial_points(t)[:40]
    wanted = [
        [[FORMULAS[name](one, i, j) for j in range(size[1])] for i in range(size[0])] for one in x.tolist()
    ]  # fmt: skip
    np.testing.assert_allclose(t(x), wanted, rtol=1e-13, atol=1e-13)


@every_target
@every_size
def test_equivariance(name: str, size: tuple[int, int]) -> None:
    """f(XP) = f(X)P for every permutation, for the five equivariant targets and only for them."""
    t = pf.targets.get(name, *size)
    x = t.sample(50)
    y = t(x)
    broken = any(
        not np.allclose(t(x[..., list(order)]), y[..., list(order)], rtol=1e-12, atol=1e-12)
        for order in permutations(range(size[1]))
    )
    needs_positions = name in POSITIONAL and (name, size[1]) != ("reverse", 2)  # to swap two tokens needs none
    assert broken == needs_positions
    found = t.equivariance_counterexample()
    assert (found is not None) == needs_positions
    if found:
        point, order = found
        assert not np.allclose(t(point[:, order]), t(point)[:, order])


def adversarial_points(t: pf.Target) -> np.ndarray:
    """Random points, all corners, the middle, increasing and decreasing rows, near-ties, one token apart."""
    rng = np.random.default_rng(0)
    entries = t.token_dim * t.seq_len
    corners = (np.arange(2 ** min(entries, 8))[:, None] >> np.arange(entries)) % 2
    ramp = np.linspace(0.05, 0.95, t.seq_len) * np.ones((t.token_dim, 1))
    ties = 0.5 + rng.uniform(-1e-3, 1e-3, size=(20, t.token_dim, t.seq_len))
    units: list[np.ndarray] = [rng.random((40, t.token_dim, t.seq_len)), ties, 0.999 + 0.001 * ties]
    units += [corners.reshape(-1, t.token_dim, t.seq_len), np.stack([ramp, ramp[:, ::-1], 0.9 + 0.05 * ramp])]
    for j in range(t.seq_len):
        for low, high in ((0.1, 0.9), (0.9, 0.1)):
            one = np.full((1, t.token_dim, t.seq_len), low)
            one[..., j] = high
            units.append(one)
    x = np.concatenate(units)
    return np.asarray(t.low[:, None] + x * (t.high - t.low)[:, None])


def jacobians(t: pf.Target, x: np.ndarray) -> np.ndarray:
    """Central differences, (points, outputs, inputs), moved inside the box and off the kinks (ties)."""
    step = 1e-7 * (t.high - t.low).min()
    middle = ((t.low + t.high) / 2)[:, None]
    x = middle + (1 - 1e-4) * (x - middle) + np.random.default_rng(3).uniform(-200, 200, x.shape) * step
    entries = t.token_dim * t.seq_len
    out = np.empty((len(x), entries, entries))
    for k in range(entries):
        move = np.zeros((t.token_dim, t.seq_len))
        move.flat[k] = step
        out[:, :, k] = ((t(x + move) - t(x - move)) / (2 * step)).reshape(len(x), entries)
    return out


@every_target
@every_size
@pytest.mark.parametrize("support", [(0.0, 1.0), (-1.0, 3.0), (0.2, 0.3)], ids=str)
def test_lipschitz_constant_holds_for_every_p(name: str, size: tuple[int, int], support: tuple[float, float]) -> None:
    """Jacobians at adversarial points in the 1-, 2-, 4- and inf-norm, and pairs of points far and near."""
    t = pf.targets.get(name, *size, support)
    assert t.lipschitz is not None
    limit = t.lipschitz * (1 + 1e-5)
    x = adversarial_points(t)
    matrices = jacobians(t, x)
    assert np.linalg.norm(matrices, 1, axis=(1, 2)).max() <= limit
    assert np.linalg.norm(matrices, np.inf, axis=(1, 2)).max() <= limit
    assert np.linalg.norm(matrices, 2, axis=(1, 2)).max() <= limit
    directions = np.random.default_rng(1).standard_normal((matrices.shape[2], 50))
    for _ in range(4):  # a few steps towards the direction that the matrix stretches most in the 4-norm
        stretched = matrices[-10:] @ directions
        ratio = np.linalg.norm(stretched, 4, axis=1) / np.linalg.norm(directions, 4, axis=0)
        assert ratio.max() <= limit
        pulled = np.swapaxes(matrices[-10:], 1, 2) @ (np.sign(stretched) * np.abs(stretched) ** 3)
        directions = (np.sign(pulled) * np.abs(pulled) ** (1 / 3))[int(ratio.max(axis=1).argmax())] + 1e-12
    rng = np.random.default_rng(2)
    y = np.concatenate([rng.permutation(x), np.clip(x + 1e-3 * rng.standard_normal(x.shape), t.low[0], t.high[0])])
    x = np.concatenate([x, x])
    for p in (1, 2, 4, np.inf):
        run, rise = (np.linalg.norm(v.reshape(len(x), -1), p, axis=1) for v in (x - y, t(x) - t(y)))
        assert (rise <= limit * run + 1e-12).all()
        assert t.lipschitz_counterexample(p) is None


@pytest.mark.parametrize("n", [2, 3, 7, 50])
def test_lipschitz_constants_are_those_of_the_docs(n: int) -> None:
    """The table of docs/targets.md."""
    documented = {
        "scaled-mean": 2.0,
        "softmax-mean": max(1.75, 2 * n * np.e / (np.e + n - 1) + 0.25),
        "centered": 2 * (n - 1) / n,
        "relative-max": max(2.0, n - 1.0),
        "rank": 4.0,
        "reverse": 1.0,
        "sort": 1.0,
        "cumulative-mean": sum(1 / j for j in range(1, n + 1)),
        "shift": 1.0,
        "running-max": float(n),
    }
    assert {name: pf.targets.get(name, 1, n).lipschitz for name in NAMES} == pytest.approx(documented)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "softmax-mean"])
@every_size
def test_lipschitz_constant_is_sharp(name: str, size: tuple[int, int]) -> None:
    """All but softmax-mean reach their constant in the 1- or the inf-norm: no smaller one is right for every p."""
    t = pf.targets.get(name, *size)
    assert t.lipschitz is not None
    matrices = jacobians(t, adversarial_points(t))
    reached = max(np.linalg.norm(matrices, p, axis=(1, 2)).max() for p in (1, np.inf))
    assert reached >= 0.99 * t.lipschitz


@every_target
def test_a_wrong_lipschitz_constant_is_found(name: str) -> None:
    """Half the constant is refuted (for softmax-mean, whose bound is not sharp, a quarter)."""
    t = pf.targets.get(name, 1, 3)
    assert t.lipschitz is not None
    wrong = replace(t, lipschitz=t.lipschitz / (4 if name == "softmax-mean" else 2.05))
    found = [pair for p in (1, 2, 50) if (pair := wrong.lipschitz_counterexample(p, samples=4096))]
    assert found
    x, y = found[0]
    assert x.shape == y.shape == (1, 3)


@every_target
def test_other_supports_are_the_same_formula_in_unit_coordinates(name: str) -> None:
    """Scalars, per row, as lists or arrays; the Lipschitz constant grows with the steepest row."""
    unit = pf.targets.get(name, 2, 3)
    low, high = np.array([-2.0, 0.5]), np.array([2.0, 1.0])
    for support in ((low, high), (low.tolist(), high.tolist()), (tuple(low), tuple(high))):
        t = pf.targets.get(name, 2, 3, support)
        assert t.support == ((-2.0, 0.5), (2.0, 1.0))
        assert unit.lipschitz is not None
        assert t.lipschitz == pytest.approx(2 * unit.lipschitz)
        x = unit.sample(20)
        np.testing.assert_allclose(t(low[:, None] + x * (high - low)[:, None]), unit(x), atol=1e-12)
        inside = t.sample(200)
        assert ((inside >= low[:, None]) & (inside <= high[:, None])).all()


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 5), st.integers(0, 10**6))
def test_a_target_that_is_almost_equivariant_is_found_out(n: int, seed: int) -> None:
    """A tiny term that only the first column has."""
    t = pf.Target(lambda x: x + 1e-6 * (np.arange(x.shape[-1]) == 0) * x, 1, n)
    found = t.equivariance_counterexample(seed=seed)
    assert found is not None
    x, order = found
    assert not np.allclose(t(x[:, order]), t(x)[:, order], rtol=0, atol=1e-9)
    with pytest.raises(pf.ProvenformerError, match="declared equivariant"):
        t.require_equivariance()


def test_numpy_integers_are_sizes_too() -> None:
    """Sizes from numpy arrays behave as Python integers: no overflow in the counts."""
    grid = pf.Grid(np.int64(4), np.int64(9), np.int64(1000))  # type: ignore[arg-type]
    assert grid.count("sequences") == 1000**36
    assert pf.Target(lambda x: x, np.int64(1), np.int64(2)).sample(3).shape == (3, 1, 2)  # type: ignore[arg-type]


def in_place_square(x: Any) -> Any:
    x *= x
    return x


def in_place_sort(x: Any) -> Any:
    x.sort(axis=-1)
    return x


@pytest.mark.parametrize("fn", [in_place_square, in_place_sort, lambda x: np.clip(x, 0.25, 0.75, out=x)])
def test_a_function_may_work_in_place(fn: Any) -> None:
    """Nobody's array is changed, and `distance` hands both functions the same points."""
    f = pf.Target(fn, 1, 2, equivariant=False)
    x = f.sample(64)
    kept = x.copy()
    y = f(x)
    np.testing.assert_array_equal(x, kept)
    np.testing.assert_array_equal(y, fn(kept.copy()))
    c = pf.compile(f, cells_per_axis=3)
    found = pf.distance(fn, c.network, token_dim=1, seq_len=2, cells_per_axis=3, samples=1 << 12)
    plain = pf.distance(lambda x: fn(x.copy()), c.network, token_dim=1, seq_len=2, cells_per_axis=3, samples=1 << 12)
    assert found == plain


def test_sizes_may_be_numpys(tmp_path: Any) -> None:
    sizes: dict[str, Any] = {
        "token_dim": np.int64(1),
        "seq_len": np.int32(2),
        "equivariant": np.bool_(True),
        "lipschitz": np.float32(2.0),
    }
    f = pf.Target(lambda x: x, **sizes)
    assert (type(f.token_dim), type(f.seq_len), type(f.equivariant), type(f.lipschitz)) == (int, int, bool, float)
    options: dict[str, Any] = {"cells_per_axis": np.int64(2), "norm_order": np.int64(2)}
    pf.compile(f, **options).save(tmp_path / "net")
    assert pf.verify(tmp_path / "net", f)


def test_a_function_of_chance_or_of_the_batch_is_refused() -> None:
    rng = np.random.default_rng(0)
    for fn in (
        lambda x: x + (rng.random(np.shape(x)) < 1e-3) * 100.0,
        lambda x: x + (0.0 if np.shape(x)[0] < 1000 else 5.0),
        lambda x: x * (1.0 if len(x) < 200 else 3.0),
    ):
        with pytest.raises(pf.ProvenformerError, match="two results"):
            pf.compile(pf.Target(fn, 1, 2), cells_per_axis=2)


def test_distance_takes_sizes_and_support_from_a_target() -> None:
    f = pf.targets.get("scaled-mean", token_dim=2, seq_len=2, support=(-1.0, 3.0))
    given = pf.distance(f, np.zeros_like, token_dim=2, seq_len=2, support=(-1.0, 3.0), samples=1 << 10)
    assert pf.distance(f, np.zeros_like, samples=1 << 10) == given
    assert pf.distance(np.zeros_like, f, samples=1 << 10) == given
    with pytest.raises(pf.ProvenformerError, match="neither function is a Target"):
        pf.distance(np.zeros_like, np.ones_like)


def test_claims_of_tiny_functions_are_checked_too() -> None:
    """What counts as rounding is a share of the largest |f|, not of 1."""
    tiny = 1e-12
    with pytest.raises(pf.ProvenformerError, match="mixes the sequences"):
        pf.Target(lambda x: tiny * (x + x.mean()), 1, 3).require_pointwise()
    with pytest.raises(pf.ProvenformerError, match="declared equivariant"):
        pf.Target(lambda x: tiny * x * np.arange(3.0), 1, 3).require_equivariance()
    with pytest.raises(pf.ProvenformerError, match="not 0 on its border"):
        pf.Target(lambda x: tiny * (1 + x), 1, 3, vanishes_outside=True).require_vanishing()
    zero = pf.Target(lambda x: x - x, 1, 3, vanishes_outside=True)
    zero.require_pointwise()
    zero.require_equivariance()
    zero.require_vanishing()


@pytest.mark.parametrize(
    "facts", [{"lipschitz": 0.5}, {"vanishes_outside": True}, {"equivariant": False}, {"support": (0.0, 2.0)}], ids=str
)
def test_what_somebody_else_says_of_a_listed_function_is_not_the_lists_word(facts: dict[str, Any]) -> None:
    listed = pf.targets.get("rank", 1, 3)
    assert is_built_in(listed)
    assert is_built_in(replace(listed, lipschitz=None))
    assert is_built_in(pf.targets.get("rank", 2, 3, ((0.0, -1.0), (1.0, 3.0))))
    assert not is_built_in(replace(listed, **facts))
    on_another_box = pf.targets.get("rank", 1, 3, (0.0, 4.0))
    assert not is_built_in(replace(on_another_box, **facts))
