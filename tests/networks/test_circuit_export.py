"""Circuits in torch (float64 and float32) and onnxruntime: within the certified rounding of numpy and of each other."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hand_circuits import CASES, Case, probes

from provenformer.checker.circuit.walk import circuit_bound

torch = pytest.importorskip("torch")


def run(module: Any, x: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return np.asarray(module(torch.from_numpy(x)).numpy(), dtype=np.float64)


def rounding(case: Case) -> tuple[float, float]:
    """How far float64 and float32, in any order, may be from the function, less what the weights themselves are off."""
    bound = circuit_bound(case.network, case.graph, case.outputs, case.low, case.high)
    return bound.float64 - bound.exact, bound.float32 - bound.exact


@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_torch_agrees_within_the_certified_rounding(make: Callable[[], Case]) -> None:
    case = make()
    x = probes(case, 100)
    double, single = rounding(case)
    reference = case.network(x)
    module = case.network.to_torch()
    assert np.abs(run(module, x) - reference).max() <= 2 * double
    assert np.abs(run(module.float(), x) - reference).max() <= double + single
    assert np.abs(case.network.run(x, np.float32) - reference).max() <= double + single


@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_onnxruntime_agrees_within_the_certified_rounding(make: Callable[[], Case], tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    case = make()
    x = probes(case, 100)
    case.network.to_onnx(tmp_path / "net.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "net.onnx", providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"x": x})
    assert np.abs(found - case.network(x)).max() <= 2 * rounding(case)[0]


def test_autograd_sees_the_slope_of_the_table() -> None:
    """Where the function is smooth and the table fine, the network's slope is near the function's."""
    case = CASES[0](knots=2001)
    x = torch.tensor([[[0.1, 0.3, -0.2]]], dtype=torch.float64, requires_grad=True)
    case.network.to_torch()(x).sum().backward()
    slope = 2 * (1 - np.tanh(2 * x.detach().numpy() + 0.25) ** 2)
    assert np.abs(x.grad.numpy() - slope).max() < 5e-3


def test_every_parameter_gets_a_gradient() -> None:
    case = CASES[-1]()
    module = case.network.to_torch()
    module(torch.from_numpy(probes(case, 4))).square().sum().backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in module.parameters())


def test_torch_compile_gives_the_same() -> None:
    case = CASES[4]()
    x = torch.from_numpy(probes(case, 20))
    module = case.network.to_torch()
    with torch.no_grad():
        compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
        assert (compiled(x) - module(x)).abs().max() <= 2 * rounding(case)[0]


def test_another_shape_is_refused() -> None:
    with pytest.raises(ValueError, match="X has shape"):
        CASES[0]().network.to_torch()(torch.zeros(1, 1, 4))
