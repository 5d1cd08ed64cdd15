"""Narrow networks: a checker reads every unit of a layer, however many there are, and its allowances follow from their number.

Each class of forgery here was once accepted: units beyond those that a constructed layer has were not looked at.
"""

from pathlib import Path

import numpy as np
import pytest
from forging import forge, with_run

import provenformer as pf
from provenformer.networks import engine
from provenformer.networks.base import FloatNetwork
from provenformer.networks.thin import Network, ReluRun


def thin(network: FloatNetwork) -> Network:
    assert isinstance(network, Network)
    return network


def saved(folder: Path, f: pf.Target) -> pf.Compiled:
    c = pf.compile(f, cells_per_axis=4)
    c.save(folder)
    assert pf.verify(folder, f)
    return c


@pytest.mark.parametrize("unit", [0, 1, 2, 3])
def test_a_unit_that_writes_nothing_may_not_overflow(tmp_path: Path, unit: int) -> None:
    """A step down far above every valid id; one of its units reads 1e308 / id: infinite on ramps, and 0 times that is nan."""
    f = pf.targets.get("scaled-mean", 1, 2)
    c = saved(tmp_path / "net", f)
    at = next(i for i, run in enumerate(thin(c.network).runs) if run.attends) + 1
    bits = c.certificate.details["id_bits"]
    far, W_1 = 2.0 ** (bits + 6), np.ones((1, 4, 1))
    W_1[0, unit] = 1e308 / 2.0**bits
    W_2 = np.array([[[-64.0, 64.0, 0.0, 0.0]]]) if unit > 1 else np.array([[[0.0, 0.0, -64.0, 64.0]]])
    b_1 = np.array([[-far, -far - 1.0, -far, -far - 1.0]])
    b_1[0, unit] = 0.0
    down = ReluRun("values", W_1, b_1, W_2, np.zeros((1, 1)))
    forge(tmp_path / "net", Network(1, 2, (*thin(c.network).runs[:at], down, *thin(c.network).runs[at:])))
    assert "overflow" in pf.verify(tmp_path / "net").reason


def hat(x: np.ndarray) -> np.ndarray:
    u = 4.0 * x * (1.0 - x)
    return u * u[..., ::-1]


def raising(c: pf.Compiled, at: int, height: float) -> Network:
    """Units 4 to 7 of one more recoding layer raise a token on its first ramp."""
    rec = thin(c.network).runs[at]
    assert isinstance(rec, ReluRun)
    layers = len(rec)
    W_1, b_1, W_2 = np.ones((layers + 1, 8, 1)), np.zeros((layers + 1, 8)), np.zeros((layers + 1, 1, 8))
    b_1[1:, :4], W_2[1:, :, :4], b_1[1:, 4:] = rec.b_1, rec.W_2, [-10, -11, -12, -13]
    b_1[0] = [1.0, 0.75, 0.5, 0.25, -0.25, -0.5, -0.75, -1.0]
    W_2[0, 0, 4:] = np.array([1, -1, -1, 1]) * height / 0.25
    return with_run(c.network, at, W_1=W_1, b_1=b_1, W_2=W_2, b_2=np.zeros((layers + 1, 1)))


def test_units_beyond_the_fourth_may_not_raise_a_token(tmp_path: Path) -> None:
    """A claim over the whole space: x_1 just left of the box, x_2 on a ramp, raised so high that the sum looks valid."""
    f = pf.Target(hat, 1, 2, vanishes_outside=True, name="hat")
    c = saved(tmp_path / "net", f)
    assert c.certificate.domain == "space"
    at = next(i for i, run in enumerate(thin(c.network).runs) if run.stage == "recode")
    x = np.stack([np.full(20_000, -1e-3), (1 - c.certificate.ramp * np.linspace(0, 1, 20_000)) / 4], axis=1)[:, None]
    lost = [height for height in 2.0 ** np.arange(4, 20) if (raising(c, at, height)(x) != 0).any()]
    assert lost  # the forgery does what it says
    assert (c.network(x) == 0).all()
    forge(tmp_path / "net", raising(c, at, lost[0]))
    assert not pf.verify(tmp_path / "net", f)


@pytest.mark.parametrize("many", [64, 1024])
def test_rounding_follows_from_the_number_of_units(tmp_path: Path, many: int) -> None:
    """Tiny constant units between 2^20 and -2^20: executed they are lost, in real numbers they add up. Both must be covered."""
    f = pf.targets.get("scaled-mean", 1, 2)
    c = saved(tmp_path / "net", f)
    at = next(i for i, run in enumerate(thin(c.network).runs) if run.stage == "quantise" and len(run) == 4)
    genuine = thin(c.network).runs[at]
    assert isinstance(genuine, ReluRun)
    tiny = 2.0**-34
    total, r = many * tiny, many + 2

    def layer() -> tuple[np.ndarray, ...]:
        return np.zeros((1, r, 1)), np.zeros((1, r)), np.zeros((1, 1, r)), np.zeros((1, 1))

    def padded(i: int) -> tuple[np.ndarray, ...]:
        W_1, b_1, W_2, b_2 = layer()
        W_1[0, :4], b_1[0, :4], W_2[0, :, :4] = genuine.W_1[i], genuine.b_1[i], genuine.W_2[i]
        return W_1, b_1, W_2, b_2

    sums, branch = layer(), layer()
    sums[1][0], sums[2][0, 0] = 1.0, tiny
    sums[2][0, 0, 0], sums[2][0, 0, -1] = 2.0**20, -(2.0**20)
    branch[0][0, :4] = 1.0
    branch[1][0, :4] = -2.5, -2.75, -3 - total / 4, -3 - total / 2
    branch[2][0, 0, :4] = 16, -16, -16 / total, 16 / total
    branch[3][0, 0] = 0.25
    layers = [*(padded(i) for i in range(4)), sums, branch, *(padded(i) for i in range(4))]
    parts = {k: np.concatenate([part[j] for part in layers]) for j, k in enumerate(("W_1", "b_1", "W_2", "b_2"))}
    network = with_run(c.network, at, **parts)
    x = f.sample(2000, seed=1)
    wrong = np.abs(engine.evaluate(network, x) - f(x)).max()
    assert wrong > 0.5 or many < 1024
    forge(tmp_path / "net", network)
    assert pf.verify(tmp_path / "net").derived is None


def test_recoding_with_huge_weights_may_not_raise_a_token_by_rounding(tmp_path: Path) -> None:
    """A claim over the whole space: a bump with slopes of 2^50 is flat beyond, but not as executed."""
    f = pf.Target(hat, 1, 2, vanishes_outside=True, name="hat")
    c = saved(tmp_path / "net", f)
    at = next(i for i, run in enumerate(thin(c.network).runs) if run.stage == "recode")
    rec = thin(c.network).runs[at]
    assert isinstance(rec, ReluRun)
    ramp, size = 2.0**-40, 2.0**50
    b_1 = np.array([[0.5, 0.5 - ramp, 0.25, 0.25 - ramp]])
    W_2 = np.array([[[-size, size, size, -size]]])
    parts = {"W_1": np.ones((1, 4, 1)), "b_1": b_1, "W_2": W_2, "b_2": np.zeros((1, 1))}
    network = with_run(c.network, at, **{k: np.concatenate([getattr(rec, k), v]) for k, v in parts.items()})
    forge(tmp_path / "net", network, certificate={"bound": 100.0})
    assert "rounding beyond" in pf.verify(tmp_path / "net", f).reason
