"""to_torch(): the same function, bit for bit while numbers are whole, else within the certified rounding; a real module."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cases import thin

import provenformer as pf
from provenformer.networks.thin import Network, ReluRun, SoftmaxRun

torch = pytest.importorskip("torch")

Case = tuple[str, int, int, int, str]
CASES: list[Case] = [
    ("scaled-mean", 1, 3, 6, "sum"),
    ("scaled-mean", 1, 4, 5, "sum"),
    ("centered", 2, 2, 3, "sum"),
    ("scaled-mean", 1, 3, 8, "paper"),
    ("centered", 2, 2, 3, "paper"),
    ("sort", 1, 3, 4, "sum"),
    ("sort", 1, 2, 4, "paper"),
]


def compiled(case: Case) -> pf.Compiled:
    name, d, n, cells, construction = case
    return pf.compile(pf.targets.get(name, d, n), cells_per_axis=cells, construction=construction, kind="lipschitz")


def run(module: Any, x: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return module(torch.from_numpy(x)).numpy()


def off_ramps(c: pf.Compiled, count: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    cells = c.grid.cells_per_axis
    shape = (count, c.target.token_dim, c.target.seq_len)
    return (rng.integers(0, cells, size=shape) + rng.uniform(1e-9, 1 - c.certificate.ramp - 1e-9, size=shape)) / cells


@pytest.mark.parametrize("case", CASES, ids=str)
def test_equal_within_the_certified_rounding(case: Case) -> None:
    c = compiled(case)
    x = off_ramps(c, 400)
    entries = x.shape[1] * x.shape[2]
    rounding = c.certificate.terms["rounding"] / entries**0.5  # of one entry: the box has volume 1
    assert np.abs(run(c.to_torch(), x) - c.network(x)).max() <= 2 * rounding


@pytest.mark.parametrize("case", CASES, ids=str)
def test_bit_for_bit_while_numbers_are_whole(case: Case) -> None:
    """Quantised and recoded tokens are whole numbers: whatever the order of the sums, they are the same."""
    c = compiled(case)
    last = next(i for i, r in enumerate(thin(c.network).runs) if not isinstance(r, ReluRun))
    part = Network(c.network.token_dim, c.network.seq_len, thin(c.network).runs[:last], c.network.positions)
    x = off_ramps(c, 400, seed=1)
    before = part(x)
    assert (before % 1 == 0).all()
    np.testing.assert_array_equal(run(part.to_torch(), x), before)


def test_bit_for_bit_through_attention_when_the_mean_is_exact() -> None:
    """n = 2 and n = 4: halves and quarters of whole numbers. The paper's sweep has whole numbers throughout."""
    for case in (CASES[1], CASES[2], CASES[3]):
        c = compiled(case)
        last = max(i for i, r in enumerate(thin(c.network).runs) if not isinstance(r, ReluRun))
        part = replace(thin(c.network), runs=thin(c.network).runs[: last + 1])
        x = off_ramps(c, 200, seed=2)
        if case[4] == "paper":  # cubes without repeated tokens: no tie of three
            ids = np.floor(x * case[3])
            x = x[[len({tuple(col) for col in seq.T}) == case[2] for seq in ids]]
        np.testing.assert_array_equal(run(part.to_torch(), x), part(x))


def test_outside_is_exactly_zero_in_torch_too() -> None:
    c = compiled(CASES[0])
    rng = np.random.default_rng(3)
    x = rng.random((500, 1, 3))
    x[np.arange(500), 0, rng.integers(3, size=500)] = rng.choice([-1e100, -1e9, -2.0, 1.5, 1e6, 1e50, 1e100], size=500)
    assert (run(c.to_torch(), x) == 0.0).all()


def test_batches_of_any_shape() -> None:
    c = compiled(CASES[2])
    module = c.to_torch()
    x = off_ramps(c, 24)
    y = run(module, x)
    np.testing.assert_allclose(run(module, x.reshape(2, 3, 4, 2, 2)), y.reshape(2, 3, 4, 2, 2), atol=1e-9)
    np.testing.assert_allclose(run(module, x[0]), y[0], atol=1e-9)
    with pytest.raises(ValueError, match="shape"):
        module(torch.zeros(3, 5))


def test_state_dict_round_trip() -> None:
    c, other = compiled(CASES[0]), compiled(("centered", 1, 3, 6, "sum"))
    module, target = c.to_torch(), other.to_torch()
    x = off_ramps(c, 50)
    assert not np.allclose(run(module, x), run(target, x))
    target.load_state_dict(module.state_dict())
    np.testing.assert_array_equal(run(target, x), run(module, x))
    assert all(v.dtype == torch.float64 for v in module.state_dict().values())


def test_it_is_made_of_genuine_blocks() -> None:
    c = compiled(CASES[0])
    state = c.to_torch().state_dict()
    blocks, d = c.network.blocks, 1
    shapes = {name: tuple(v.shape) for name, v in state.items()}
    assert shapes["W_O"] == (blocks, 2, d)
    assert shapes["W_1"] == (blocks, 4, d)
    assert shapes["W_2"] == (blocks, d, 4)
    count = sum(v.numel() for name, v in state.items() if name != "positions")
    assert count == c.network.parameters


@pytest.mark.slow
def test_permutation_equivariance() -> None:
    """Claim 1, without positions; and not with them."""
    c = compiled(CASES[0])
    module = c.to_torch()
    x = off_ramps(c, 200)
    for order in ([1, 0, 2], [2, 0, 1]):
        assert np.abs(run(module, x[..., order]) - run(module, x)[..., order]).max() <= 1e-8
    positional = compiled(("shift", 1, 3, 4, "sum"))
    y = off_ramps(positional, 200)
    assert (
        np.abs(run(positional.to_torch(), y[..., ::-1].copy()) - run(positional.to_torch(), y)[..., ::-1]).max() > 0.1
    )


def test_autograd_runs() -> None:
    """Locally constant in x, and every weight has a gradient."""
    c = compiled(CASES[0])
    module = c.to_torch()
    x = torch.from_numpy(off_ramps(c, 4)).requires_grad_()
    module(x).sum().backward()
    assert x.grad is not None
    assert float(x.grad.abs().max()) == 0.0
    assert all(p.grad is not None and bool(torch.isfinite(p.grad).all()) for p in module.parameters())
    b_2 = module.get_parameter("b_2")
    assert b_2.grad is not None
    assert float(b_2.grad.abs().max()) > 0


def test_memorised_networks_too() -> None:
    rng = np.random.default_rng(5)
    x, y = rng.normal(size=(30, 2, 4)), rng.normal(size=(30, 2, 4))
    c = pf.memorize(x, y)
    assert np.abs(run(c.to_torch(), x) - y).max() <= 1e-6


def test_a_deep_network_in_torch() -> None:
    """Thousands of blocks, all sequences at once: what does nothing is skipped, and results are those of all blocks."""
    c = pf.compile_tokens(sorted, vocab="abcd", seq_len=4)
    x, module = torch.from_numpy(c.memorized.inputs), c.to_torch()
    assert c.network.blocks > 1000
    with torch.no_grad():
        skipped = module(x)
    assert (skipped[::50] - module(x[::50]).detach()).abs().max() <= 2e-7  # with gradients, so block by block
    assert np.array_equal(skipped.numpy().round(), c.memorized.outputs)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("d", [1, 2])
def test_what_is_skipped_adds_nothing(d: int, seed: int) -> None:
    """Sweeps in one direction, up and down, layers with b_2 in their midst, layers with any weights, attention between them."""
    rng = np.random.default_rng(seed)
    direction = rng.normal(size=d)
    sweep = np.sort(rng.normal(size=(60, 4)) * 3, axis=0)
    runs: list[ReluRun | SoftmaxRun] = []
    for b_1, shift in (
        (sweep, 0.0),
        (sweep[::-1], 0.0),
        (sweep, rng.normal(size=(60, d)) * (rng.random((60, 1)) < 0.1)),
    ):
        W_1 = np.broadcast_to(direction, (60, 4, d)) if seed % 2 else rng.normal(size=(60, 4, d))
        runs.append(ReluRun("any", W_1, b_1, rng.normal(size=(60, d, 4)) / 16, np.zeros((60, d)) + shift))
        W_O, W_V, W_K, W_Q = (rng.normal(size=(2, 2, d)) for _ in range(4))
        runs.append(SoftmaxRun("any", W_O, W_V, W_K, W_Q, rng.normal(size=(2, 2))))
    module, x = Network(d, 3, tuple(runs)).to_torch(), torch.from_numpy(rng.normal(size=(40, d, 3)))
    with torch.no_grad():
        skipped = module(x)
    np.testing.assert_allclose(skipped, module(x).detach(), rtol=1e-9, atol=1e-9)
    slopes = []
    for trained in (False, True):
        module.requires_grad_(trained)
        one = x[:1].clone().requires_grad_()
        module(one).sum().backward()
        slopes.append(one.grad)
    np.testing.assert_allclose(slopes[0], slopes[1], rtol=1e-6)
