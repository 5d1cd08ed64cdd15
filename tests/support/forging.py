"""Altered networks with consistent hashes, as a forger would write them, and the truth about them by measurement."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from cases import thin

import provenformer as pf
from provenformer import storage
from provenformer.networks.base import FloatNetwork
from provenformer.networks.thin import Network


def fields(network: FloatNetwork) -> Iterator[tuple[int, str, np.ndarray]]:
    """Every array of weights: run, name, value."""
    for index, run in enumerate(thin(network).runs):
        for name, value in vars(run).items():
            if isinstance(value, np.ndarray):
                yield index, name, value


def with_run(network: FloatNetwork, index: int, **changes: Any) -> Network:
    """The network with fields of one run replaced."""
    runs = list(thin(network).runs)
    runs[index] = replace(runs[index], **changes)
    return replace(thin(network), runs=tuple(runs))


def with_weight(network: FloatNetwork, run: int, name: str, at: tuple[int, ...], value: float) -> Network:
    """The network with a single weight replaced."""
    if name == "positions":
        positions = np.array(network.positions)
        positions[at] = value
        return replace(thin(network), positions=positions)
    array = np.array(getattr(thin(network).runs[run], name))
    array[at] = value
    return with_run(network, run, **{name: array})


def forge(
    folder: Path,
    network: FloatNetwork | None = None,
    certificate: dict[str, Any] | None = None,
    manifest: dict[str, Any] | None = None,
) -> Path:
    """Write parts of a folder anew, with hashes that fit."""
    if network is not None:
        saved = storage.load(folder, check_hashes=False)
        facts: dict[str, Any] = {
            k: saved.manifest[k] for k in ("construction", "target", "cells_per_axis") if k in saved.manifest
        }
        shutil.rmtree(folder)
        storage.save(folder, network, saved.certificate, facts, saved.data)
    if certificate:
        path = folder / storage.CERTIFICATE
        path.write_text(json.dumps({**json.loads(path.read_text()), **certificate}))
    path = folder / storage.MANIFEST
    parts = {**json.loads(path.read_text()), **(manifest or {})}
    parts["sha256"] = {name: storage.file_hash(folder / name) for name in (storage.NETWORK, storage.CERTIFICATE)}
    parts["manifest_sha256"] = storage.manifest_hash(parts)
    path.write_text(json.dumps(parts))
    return folder


def off_ramp_points(target: pf.Target, cells: int, ramp: float, rng: np.random.Generator, each: int = 1) -> np.ndarray:
    """`each` random points of every cube, on no ramp (and not within rounding of an edge)."""
    axes = target.token_dim * target.seq_len
    corner = np.stack(np.unravel_index(np.arange(cells**axes), (cells,) * axes), axis=1).astype(float)
    inside = rng.uniform(1e-9, 1 - ramp - 1e-9, size=(each, *corner.shape))
    unit = ((corner + inside) / cells).reshape(-1, target.token_dim, target.seq_len)
    return target.low[:, None] + unit * (target.high - target.low)[:, None]


def measured(target: pf.Target, network: FloatNetwork, p: float, cells: int, samples: int = 1 << 11) -> pf.Distance:
    """d_p by stratified sampling; a network that is not finite somewhere is infinitely far."""
    try:
        return pf.distance(
            target, network, token_dim=target.token_dim, seq_len=target.seq_len, norm_order=p, support=target.support,
            samples=max(samples, 16 * cells ** (target.token_dim * target.seq_len)), cells_per_axis=cells,
        )  # fmt: skip
    except pf.ProvenformerError:
        return pf.Distance(float("inf"), 0.0, 0)


def ramp_points(target: pf.Target, cells: int, ramp: float, rng: np.random.Generator, count: int) -> np.ndarray:
    """Random points with at least one coordinate on a ramp, many of them on several."""
    shape = (count, target.token_dim, target.seq_len)
    cell = rng.integers(0, cells, size=shape)
    on = rng.random(shape) < 0.5
    inside = np.where(on, 1 - ramp * rng.random(shape), rng.random(shape))
    return target.low[:, None] + (cell + inside) / cells * (target.high - target.low)[:, None]
