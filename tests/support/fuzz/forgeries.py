"""Does `verify` accept a lie? Random and directed changes of weights, shape, certificate, manifest and bytes of a folder.

A forged folder may be rejected, or accepted when what it claims is true of the network that it holds, by measurement.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from circuit_forgeries import ADDED
from circuit_mutations import KINDS, Mutation
from forging import forge, off_ramp_points, ramp_points

import provenformer as pf
from fuzz.circuits import CircuitCase, above_its_bounds
from fuzz.outcome import Built, program_circuit, target_of
from fuzz.programs import untrue
from fuzz.table_forgeries import altered
from provenformer import storage
from provenformer.checker.circuit.derive import derive_circuit, in_norm
from provenformer.checker.tokens.derive import derive_program
from provenformer.compiler import circuit as compiler
from provenformer.compiler.circuit import CompiledCircuit
from provenformer.networks.base import FloatNetwork
from provenformer.networks.circuit import CircuitNetwork

Rng = np.random.Generator
FORGE_CIRCUITS: tuple[Callable[[CircuitNetwork, Rng], Mutation], ...] = (*KINDS, *ADDED)
SIZES: tuple[tuple[str, int, int, int, str, int], ...] = (
    ("scaled-mean", 1, 2, 3, "sum", 4), ("scaled-mean", 1, 3, 3, "sum", 4), ("centered", 1, 2, 4, "paper", 4),
    ("reverse", 1, 2, 3, "sum", 4), ("sort", 1, 2, 2, "paper", 4), ("centered", 2, 2, 2, "sum", 4),
    ("scaled-mean", 1, 2, 4, "sum", 8), ("rank", 1, 3, 3, "sum", 16), ("scaled-mean", 1, 2, 9, "sum", 4),
    ("scaled-mean", 1, 2, 4, "wide", 4), ("softmax-mean", 1, 3, 3, "wide", 4), ("sort", 1, 2, 3, "wide", 4),
    ("centered", 2, 2, 2, "wide", 4), ("scaled-mean", 1, 4, 0, "circuit", 0), ("softmax-mean", 1, 4, 0, "circuit", 0),
    ("running-max", 1, 5, 0, "circuit", 0), ("sort", 1, 4, 0, "circuit", 0), ("shift", 2, 3, 0, "circuit", 0),
)  # fmt: skip
FORMULAS = (  # made into circuits of three tokens: every kind of layer that a circuit can have
    "attention(u, u, np.tanh(u))", "np.tanh(u) * np.mean(u, axis=-1, keepdims=True)", "normed(u, 0.5, -1)", "pairwise(u, u, 0)",
    "causal(u, u, np.square(u))", "np.sort(np.tanh(u), axis=-1)", "u - np.max(u, axis=-1, keepdims=True)", "np.exp(u)",
    "u / (1.5 + np.roll(u, 1, axis=-1))", "u * np.roll(u, 1, axis=-1)",
)  # fmt: skip
PROGRAMS = (  # on tokens: every kind of layer that a program can need
    ("histogram", 3, 4), ("reverse", 2, 5), ("sort", 3, 4), ("sort-by-rank", 3, 3), ("running-count", 3, 4), ("induction", 3, 3),
    ("dyck-1", 3, 4), ("most-frequent", 2, 4), ("addition", 3, 4), ("unique-sort", 3, 3),
)  # fmt: skip
LOOSENED = 1e6  # a forger who claims a large bound: whatever is accepted must still be below it
MOST_POINTS = 1500
MOST_FORGERIES = 3000  # that may be needed to see a mistake


@dataclass(frozen=True)
class Verdict:
    """What `verify` said of a forgery; `wrong` is empty, or says why it should not have."""

    change: str
    accepted: bool
    wrong: str = ""


def ours(kind: str) -> list[int]:
    """Which of them are made by a construction, or from a formula that has this text in it, or from programs on tokens."""
    if kind == "tokens":
        return [len(SIZES) + len(FORMULAS) + k for k in range(len(PROGRAMS))]
    own = [index for index, size in enumerate(SIZES) if size[4] == kind]
    return own + [len(SIZES) + k for k, formula in enumerate(FORMULAS) if kind == "circuit" or kind in formula]


@cache
def genuine(index: int) -> Built:
    """One of the networks that are altered."""
    if index >= len(SIZES) + len(FORMULAS):
        return pf.compile_tokens(pf.programs.get(*PROGRAMS[index - len(SIZES) - len(FORMULAS)]))
    if index >= len(SIZES):
        formula = FORMULAS[index - len(SIZES)]
        # sums over pairs by nodes: with as few tokens as these they would be gathered
        with patch.object(compiler, "choose_steps", lambda graph, *_: (0.25,) * len(graph.kernels)):
            depth = 3 if formula.startswith("u * ") else 0
            return CircuitCase(formula, 1.0, (-1.0, 1.0), 1, 3, 0.1, np.inf, depth).compiled()
    name, d, n, cells, construction, hidden = SIZES[index]
    f = pf.targets.get(name, d, n)
    if construction == "circuit":
        return pf.compile(f, tolerance=0.05, norm_order=np.inf, construction="circuit")
    return pf.compile(f, cells_per_axis=cells, construction=construction, hidden_dim=hidden)


def try_forgery(seed: tuple[int, ...], built: Built | None = None) -> Verdict:
    """Alter the folder of a genuine network, the given one or one of ours, as the seed says; verify it; measure if accepted."""
    rng = np.random.default_rng(seed)
    c = genuine(int(rng.integers(len(SIZES) + len(FORMULAS)))) if built is None else built
    network, changes = c.network, list[str]()
    for _ in range(int(rng.choice([0, 1, 1, 1, 2, 3]))):
        network, what = _altered_weights(rng, network, c)
        changes.append(what)
    claim = _altered_claim(rng, c, changes)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net"
        try:
            c.save(path)
            forge(path, network=network, certificate=claim, manifest=_altered_manifest(rng, path, changes))
        except (pf.ProvenformerError, ValueError) as error:  # cannot even be written; a genuine network always can
            return Verdict("; ".join(changes), False, "" if changes else f"cannot be saved: {error}")
        flipped = _flipped(rng, path, changes)
        try:
            report = pf.verify(path, target_of(c))
            held = pf.load(path, check_hashes=False) if report else None
        except pf.ProvenformerError:
            return Verdict("; ".join(changes), False)
        if flipped and _loads(path):
            return Verdict("; ".join(changes), True, "load does not notice an altered byte")
    wrong = "" if held is None else _untrue(c, held.network, _derived(c, held, report.derived), rng)
    return Verdict("; ".join(changes), held is not None, wrong)


def _altered_weights(rng: Rng, network: FloatNetwork, c: Built) -> tuple[FloatNetwork, str]:
    if isinstance(network, CircuitNetwork):
        what, circuit = FORGE_CIRCUITS[int(rng.integers(len(FORGE_CIRCUITS)))](network, rng)
        return circuit, what
    if not isinstance(c, pf.Compiled):
        raise TypeError(f"no forgeries of {type(network).__name__}")
    return altered(rng, network, c)


def _altered_claim(rng: Rng, c: Built, changes: list[str]) -> dict[str, Any]:
    """Mostly a loosened bound, so that the altered weights are judged; sometimes a lie in one field."""
    loosened = float(rng.choice([1, 2, 10, LOOSENED]))
    own, d = c.certificate, c.network.token_dim
    claim: dict[str, Any] = {
        "bound": own.bound * loosened,
        "terms": {name: value * loosened for name, value in own.terms.items()},
    }
    stated: dict[str, Any] = {"bounds": {"float64": own.bound, "float32": own.bound * 1e-3}}
    if not isinstance(c, pf.Compiled):
        bounds = {name: value * loosened for name, value in own.bounds.items()}
        claim["details"] = {**own.details, "bounds": bounds}
    if isinstance(c, pf.CompiledTokens):
        step = own.details["step"]
        claim["details"]["margin"] = step / 2 - claim["bound"]
        stated = {"margin": step / 2, "step": step / 2, "vocab_size": 2, "seq_len": 3, "units": 1, **stated}
        stated = {**own.details, **dict([list(stated.items())[rng.integers(len(stated))]])}
    if rng.random() < 0.3:
        lies: dict[str, Any] = {
            "bound": own.bound * float(rng.choice([0.5, 0.9, 0.999])), "norm_order": float(rng.choice([1.0, 2.0, 64.0])),
            "ramp": (own.ramp or 1.0) * float(rng.choice([2, 64, 1e-6])),
            "kind": str(rng.choice(["rigorous", "lipschitz", "statistical"])), "domain": str(rng.choice(["space", "data"])),
            "clip_low": [0.0] * d, "clip_high": [1e9] * d,
            "terms": dict.fromkeys(own.terms, 0.0), "details": stated,
        }  # fmt: skip
        name = str(rng.choice(list(lies)))
        claim[name] = lies[name]
        changes.append(f"certificate.{name} = {lies[name]}")
    return claim


def _altered_manifest(rng: Rng, path: Path, changes: list[str]) -> dict[str, Any]:
    """Sometimes a lie in one field of the manifest, at any depth; the hashes fit."""
    if rng.random() > 0.15:
        return {}
    manifest = json.loads((path / storage.MANIFEST).read_text())
    name = str(rng.choice([key for key in manifest if "sha256" not in key]))
    holder: Any = manifest
    key: Any = name
    while isinstance(holder[key], dict | list) and holder[key]:
        holder = holder[key]
        key = list(holder)[rng.integers(len(holder))] if isinstance(holder, dict) else int(rng.integers(len(holder)))
    value = holder[key]
    others: list[Any] = [None, 0, 1, -1, True, "", "sum", 1e308, 2.5, [], {}]
    if isinstance(value, int | float):
        others += [value + 1, value - 1, 2 * value, -value, float(value)]
    holder[key] = others[rng.integers(len(others))]
    changes.append(f"manifest.{name} .. {key} = {holder[key]!r:.20}")
    return {name: manifest[name]}


def _flipped(rng: Rng, path: Path, changes: list[str]) -> bool:
    """Sometimes one bit of a file, as a disk or a forger without patience would; the hashes do not fit."""
    if rng.random() > 0.08:
        return False
    file = path / str(rng.choice([storage.NETWORK, storage.CERTIFICATE, storage.MANIFEST]))
    data = bytearray(file.read_bytes())
    at, bit = int(rng.integers(len(data))), int(rng.integers(8))
    data[at] ^= 1 << bit
    file.write_bytes(data)
    changes.append(f"{file.name} byte {at} bit {bit}")
    return True


def _loads(path: Path) -> bool:
    try:
        pf.load(path)
    except pf.ProvenformerError:
        return False
    return True


def _derived(c: Built, held: storage.Saved, bound: float | None) -> pf.Certificate:
    """The smallest claim that would have been accepted: a forger who knows what `verify` derives states just that."""
    claim = held.certificate
    claim = replace(claim, bound=min(claim.bound, np.inf if bound is None else bound))
    if not isinstance(held.network, CircuitNetwork):
        return claim
    if isinstance(c, pf.CompiledTokens):
        bound_of = vars(derive_program(held.network, program_circuit(c).program)[0])
        bounds = {name: min(stated, bound_of[name]) for name, stated in claim.bounds.items()}
        return replace(claim, details={**claim.details, "bounds": bounds})
    found = derive_circuit(held.network, c.target)
    derived = {name: in_norm(getattr(found, name), c.target, claim.norm_order) for name in ("float64", "float32")}
    bounds = {name: min(stated, derived[name]) for name, stated in claim.bounds.items()}
    bound = min(claim.bound, derived["float64"], sum(claim.terms.values(), 0.0) * (1 + 1e-9))
    return replace(claim, bound=bound, details={**claim.details, "bounds": bounds})


def _untrue(c: Built, network: FloatNetwork, claim: pf.Certificate, rng: Rng) -> str:
    """Measured against what an accepted claim says; empty when it is true."""
    if isinstance(c, pf.CompiledTokens):
        if not isinstance(network, CircuitNetwork) or claim.domain != "tokens":
            return "not a circuit of a program any more"
        return untrue(program_circuit(c).program, network, claim)
    f = c.target
    if claim.domain == "data":
        return "a claim about stored pairs of a network that was made from a function"
    if isinstance(c, CompiledCircuit):
        return (
            above_its_bounds(f, network, claim, rng)[0]
            if isinstance(network, CircuitNetwork)
            else "not a circuit any more"
        )
    cells, ramp, p = c.grid.cells_per_axis, c.certificate.ramp, float(claim.norm_order or 2.0)
    volume = float(np.prod(f.high - f.low) ** f.seq_len)
    inside = off_ramp_points(f, cells, ramp, rng, each=max(2, MOST_POINTS // cells ** (f.token_dim * f.seq_len)))
    edge = np.clip(ramp_points(f, cells, ramp, rng, MOST_POINTS), f.low[:, None], f.high[:, None])
    with np.errstate(all="ignore"):
        on_cells, on_ramps = (np.abs(network(x) - f(x)) for x in (inside, edge))
        if not (np.isfinite(on_cells).all() and np.isfinite(on_ramps).all()):
            return "an output is not finite"
        largest = float(max(on_cells.max(), on_ramps.max())) or 1.0  # powers of what is tiny or huge are out of range
        powers = ((on_cells / largest) ** p).sum(axis=(1, 2))
        least = max(float(powers.mean() - 4 * powers.std() / len(powers) ** 0.5), 0.0)
        ramps = float(((on_ramps / largest) ** p).sum(axis=(1, 2)).mean()) * f.token_dim * f.seq_len * ramp
        measured = largest * ((least + 0.5 * ramps) * volume) ** (1 / p)
    return f"measured {measured:.6g}, accepted claim {claim.bound:.6g}" if measured > claim.bound else ""


def assert_shown(kind: str, mistake: Callable[[pytest.MonkeyPatch], None], patch: pytest.MonkeyPatch) -> None:
    """A mistake in the library must be seen by forgeries of our networks of a kind, made before it."""
    networks = [genuine(index) for index in ours(kind)]
    mistake(patch)
    for seed in range(MOST_FORGERIES):
        if wrong := try_forgery((1, seed), networks[seed % len(networks)]).wrong:
            print(f"{mistake.__name__}: forgery {seed}: {wrong}")
            return
    pytest.fail(f"{MOST_FORGERIES:,} forgeries did not show it")
