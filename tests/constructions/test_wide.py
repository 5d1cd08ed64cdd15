"""Width for depth: merged value layers, wide networks, and the exports that ordinary tools read."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import provenformer as pf
from provenformer.compiler.tables import Compiled
from provenformer.networks.wide import WideNetwork
from provenformer.storage import save

CASES = [
    ("scaled-mean", 1, 3, 8),
    ("softmax-mean", 1, 2, 6),
    ("sort", 1, 3, 4),
    ("scaled-mean", 2, 2, 3),
    ("reverse", 2, 2, 2),
]


def compiled(case: tuple[str, int, int, int], construction: str = "wide", **options: Any) -> Compiled:
    name, token_dim, seq_len, cells = case
    return pf.compile(
        pf.targets.get(name, token_dim, seq_len), cells_per_axis=cells, construction=construction, **options
    )


@pytest.fixture(scope="module", params=CASES, ids=str)
def wide(request: pytest.FixtureRequest) -> Compiled:
    return compiled(request.param)


def test_wide_blocks_compute_the_table(wide: Compiled) -> None:
    assert isinstance(wide.network, WideNetwork)
    assert wide.network.blocks == (3 if wide.target.token_dim == 1 else 4) == wide.plan.blocks
    assert wide.network.model_dim == 2 * wide.target.token_dim + 3
    assert wide.network.parameters == wide.plan.parameters
    assert wide.network.stages == wide.plan.stages
    assert tuple(wide.network.hidden_units.values()) == wide.plan.hidden_units
    x = wide.target.sample(400)
    np.testing.assert_allclose(wide.network(x), wide.piecewise(x), rtol=0, atol=1e-9)


def test_wide_certificate_is_checked_and_true(wide: Compiled, tmp_path: Path) -> None:
    wide.save(tmp_path / "net")
    report = pf.verify(tmp_path / "net")
    assert report, report.reason
    f = wide.target
    measured = pf.distance(f, wide.network, token_dim=f.token_dim, seq_len=f.seq_len, samples=4096)
    assert measured.value - 4 * measured.error <= wide.certificate.bound <= 1.5 * measured.value
    x = f.sample(20)
    np.testing.assert_array_equal(pf.load(tmp_path / "net").network(x), wide.network(x))


def test_altered_wide_weights_are_rejected_or_rebounded(tmp_path: Path) -> None:
    """One weight of every kind in every block, by 1 %: rejected, or the derived bound holds for the altered network."""
    c = compiled(("scaled-mean", 1, 2, 4))
    assert isinstance(c.network, WideNetwork)
    rng = np.random.default_rng(0)
    facts = {"construction": "wide", "cells_per_axis": 4, "target": {**_spec(c)}}
    rejected = 0
    for i, block in enumerate(c.network.wide_blocks):
        for name in ("W_O", "W_V", "W_K", "W_Q", "b_Q", "W_1", "b_1", "W_2", "b_2"):
            weights = getattr(block, name).copy()
            at = tuple(rng.integers(size) for size in weights.shape)
            nonzero = np.argwhere(weights)
            if len(nonzero):
                at = tuple(nonzero[rng.integers(len(nonzero))])
            weights[at] = weights[at] * 1.01 if weights[at] else 0.5
            blocks = list(c.network.wide_blocks)
            blocks[i] = replace(block, **{name: weights})
            altered = replace(c.network, wide_blocks=tuple(blocks))
            save(tmp_path / "net", altered, c.certificate, facts)
            report = pf.verify(tmp_path / "net")
            measured = pf.distance(c.target, altered, token_dim=1, seq_len=2, samples=1024)
            if report.derived is None:
                rejected += 1
            else:
                assert measured.value - 4 * measured.error <= report.derived, (i, name)
            if report.ok:
                assert measured.value - 4 * measured.error <= c.certificate.bound, (i, name)
    assert rejected > 5


def _spec(c: Compiled) -> dict[str, object]:
    from provenformer.storage import target_spec

    return target_spec(c.target)


@pytest.mark.parametrize("construction", ["sum", "paper"])
@pytest.mark.parametrize("hidden", [8, 16, 64])
def test_merged_layers(construction: str, hidden: int, tmp_path: Path) -> None:
    """Fewer blocks, the same table, a certificate with the larger rounding, checked."""
    narrow, merged = (compiled(("scaled-mean", 1, 2, 6), construction, hidden_dim=r) for r in (4, hidden))
    assert merged.network.shape == (2, 1, hidden)
    assert merged.network.blocks < narrow.network.blocks
    x = merged.target.sample(300)
    np.testing.assert_allclose(merged.network(x), narrow.network(x), rtol=0, atol=1e-6)
    assert merged.certificate.terms["rounding"] >= narrow.certificate.terms["rounding"]
    merged.save(tmp_path / "net")
    assert pf.verify(tmp_path / "net")


@pytest.mark.parametrize("hidden", [0, 3, 6, 4.0])
def test_hidden_dim_must_be_a_multiple_of_four(hidden: float) -> None:
    with pytest.raises(pf.ProvenformerError, match=r"hidden_dim=.*(multiple of 4|not a whole number)"):
        pf.compile(pf.targets.get("sort"), cells_per_axis=2, hidden_dim=hidden)  # type: ignore[call-overload]


def test_rounding_that_breaks_the_tolerance_is_refused() -> None:
    with pytest.raises(pf.ProvenformerError, match="hidden_dim=512 float64 rounding brings the bound to"):
        pf.compile(pf.targets.get("scaled-mean"), tolerance=0.05, hidden_dim=512)


def test_torch_module_of_a_wide_network(wide: Compiled) -> None:
    module = wide.to_torch()
    x = wide.target.sample(50)
    y = module(torch.from_numpy(x))
    room = 2 * wide.certificate.terms["rounding"] + 1e-12
    np.testing.assert_allclose(y.detach().numpy(), wide.network(x), rtol=0, atol=room)
    y.sum().backward()
    assert all(p.grad is not None for p in module.parameters())


def test_torch_compile_accepts_a_wide_network() -> None:
    c = compiled(("scaled-mean", 1, 2, 4))
    module = torch.compile(c.to_torch(), backend="eager", fullgraph=True)
    x = c.target.sample(5)
    np.testing.assert_allclose(module(torch.from_numpy(x)).detach().numpy(), c.network(x), rtol=0, atol=1e-9)


@pytest.mark.parametrize("construction", ["wide", "sum", "paper"])
@pytest.mark.parametrize("case", [("scaled-mean", 1, 3, 4), ("sort", 1, 2, 3), ("scaled-mean", 2, 2, 2)], ids=str)
def test_onnxruntime_agrees(case: tuple[str, int, int, int], construction: str, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="the extra `onnx` is not installed")
    c = compiled(case, construction)
    c.network.to_onnx(tmp_path / "net.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "net.onnx"), providers=["CPUExecutionProvider"])
    x = c.target.sample(64)
    (y,) = session.run(None, {"x": x})
    room = 2 * c.certificate.terms["rounding"] + 1e-12
    np.testing.assert_allclose(y, c.network(x), rtol=0, atol=room)
