"""Circuits that compile() made, run by numpy, torch and onnxruntime: all within the certified rounding of each other."""

import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from circuit_cases import COMPILES, target, transformer_block

import provenformer as pf
from provenformer.symbols.trace import samples

torch = pytest.importorskip("torch")

TARGETS: dict[str, pf.Target] = {name: pf.targets.get(name, 1, 16) for name in pf.targets.names()} | {
    "softmax-mean of three numbers": pf.targets.get("softmax-mean", 3, 5, (-1.0, 2.0)),
    "layer norm": target(COMPILES["layer norm"]),
    "causal attention": target(COMPILES["causal attention"]),
    "recurrent": target(COMPILES["recurrent"]),
    "a Transformer block": target(transformer_block(2), d=2, n=6),
}


@cache
def made(name: str) -> pf.CompiledCircuit:
    return pf.compile(TARGETS[name], tolerance=1e-2, norm_order=np.inf, construction="circuit")


def run(module: Any, x: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return np.asarray(module(torch.from_numpy(x)).numpy(), dtype=np.float64)


def in_onnxruntime(c: pf.CompiledCircuit, x: np.ndarray, folder: Path) -> np.ndarray:
    onnxruntime = pytest.importorskip("onnxruntime")
    c.network.to_onnx(folder / "net.onnx")
    session = onnxruntime.InferenceSession(folder / "net.onnx", providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"x": x})
    return np.asarray(found)


@pytest.mark.parametrize("name", TARGETS)
def test_all_agree_within_the_certified_rounding(name: str, tmp_path: Path) -> None:
    c = made(name)
    x, certificate = samples(c.target, 12, seed=3), c.certificate
    double = certificate.terms["rounding"]
    found = {
        "numpy": c.network(x),
        "torch": run(c.to_torch(), x),
        "onnxruntime": in_onnxruntime(c, x, tmp_path),
    }
    for a in found.values():
        for b in found.values():
            assert np.abs(a - b).max() <= 2 * double
    if "float32" not in certificate.bounds:
        return
    single = certificate.bounds["float32"] - (certificate.bound - double)
    found32 = {"numpy": c.network.run(x, np.float32), "torch": run(c.to_torch().float(), x)}
    assert np.abs(found32["numpy"] - found32["torch"]).max() <= 2 * single
    for a in found32.values():
        assert np.abs(a - c.target(x)).max() <= certificate.bounds["float32"] + 1e-12
        for b in found.values():
            assert np.abs(a - b).max() <= single + double


@pytest.mark.parametrize("name", ["softmax-mean", "running-max", "a Transformer block"])
def test_torch_compile_agrees_as_well(name: str) -> None:
    c = made(name)
    x = samples(c.target, 12, seed=3)
    torch._dynamo.reset()
    compiled = torch.compile(c.to_torch(), fullgraph=True, backend="aot_eager")
    assert np.abs(run(compiled, x) - c.network(x)).max() <= 2 * c.certificate.terms["rounding"]


@pytest.mark.parametrize("name", ["softmax-mean", "sort", "cumulative-mean", "a Transformer block"])
def test_gradients_are_those_of_what_is_run(name: str) -> None:
    """Central differences of the numpy network; ReLUs and comparisons have their corners elsewhere."""
    c = made(name)
    x = c.target.sample(1, seed=8)
    at = torch.from_numpy(x).requires_grad_()
    weight = np.random.default_rng(0).normal(size=x.shape)
    (c.to_torch()(at) * torch.from_numpy(weight)).sum().backward()
    step = 1e-7
    for index in np.ndindex(*x.shape[1:]):
        moved = np.zeros_like(x)
        moved[(0, *index)] = step
        slope = ((c.network(x + moved) - c.network(x - moved)) * weight).sum() / (2 * step)
        assert at.grad is not None
        assert float(at.grad[(0, *index)]) == pytest.approx(slope, abs=1e-5, rel=1e-5)


def test_batches_of_any_shape_and_size_agree() -> None:
    """What is run at once is chosen by memory: it may not matter."""
    c = made("a Transformer block")
    x = c.target.sample(64, seed=2)
    whole = c.network(x)
    assert np.array_equal(c.network(x.reshape(4, 16, *x.shape[1:])), whole.reshape(4, 16, *x.shape[1:]))
    one_by_one = np.concatenate([c.network(one[None]) for one in x])
    assert np.abs(one_by_one - whole).max() <= 2 * c.certificate.terms["rounding"]
    assert c.network(x[:0]).shape == (0, *x.shape[1:])


def test_a_batch_in_parts_on_several_threads_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    from provenformer.networks import program

    c = pf.compile(pf.targets.get("softmax-mean", 1, 32), tolerance=1e-2, norm_order=np.inf, construction="circuit")
    x = c.target.sample(50, seed=4)
    whole = c.network(x)
    monkeypatch.setattr(program, "MEMORY", 32 * 32 * 7)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    again = pf.compile(c.target, tolerance=1e-2, norm_order=np.inf, construction="circuit")
    assert again.network._program(np.float64).at_once == 7
    assert np.abs(again.network(x) - whole).max() <= 2 * c.certificate.terms["rounding"]
