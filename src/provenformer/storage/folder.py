"""Writing and reading the folder of a network.

Writes are atomic (base/files.py): everything goes to a temporary folder beside the destination, which then takes its place; only
a folder that is wholly one of ours is ever replaced. Loading is strict (hashes, schema, shapes, names) and never runs code.
"""

from __future__ import annotations

import hashlib
import json
import platform
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from provenformer.base.arrays import FloatArray
from provenformer.base.errors import BadFolder, ProvenformerError, TargetError, one_line
from provenformer.base.files import atomic_path, file_digest, json_text, parse_json, read_json, read_steadily
from provenformer.base.version import __version__
from provenformer.certificates.certificate import Certificate
from provenformer.functions.grid import Grid
from provenformer.functions.targets import Target
from provenformer.networks.base import FloatNetwork
from provenformer.networks.circuit import CircuitNetwork
from provenformer.networks.thin import Network
from provenformer.networks.wide import WideNetwork
from provenformer.storage.schema import CERTIFICATE, FORMAT, MANIFEST, NETWORK, require_certificate, require_manifest
from provenformer.storage.spec import built_in_target, described_target, import_function

if TYPE_CHECKING:
    from torch import nn

# The kinds of network, by the entry of the manifest that holds their layout.
NETWORKS: dict[str, type[FloatNetwork]] = {
    "runs": Network,
    "wide_blocks": WideNetwork,
    "circuit_blocks": CircuitNetwork,
}
SHARED_LAYERS = 1 << 16  # a longer run must have at least one weight of its own per layer: its file bounds the work
IS_IT = "is it a saved network?"
DATA_KEYS = ("inputs", "outputs")


@dataclass(frozen=True, eq=False, repr=False)
class Saved:
    """What a folder holds. `network(x)` runs; nothing that the folder names was imported."""

    network: FloatNetwork
    certificate: Certificate
    manifest: dict[str, Any]
    data: dict[str, FloatArray]  # the pairs of a memorised data set, if any

    @property
    def construction(self) -> str:
        """By which construction it was made, as the folder says."""
        return str(self.manifest["construction"])

    @cached_property
    def grid(self) -> Grid | None:
        """The grid of a compiled network; None for a memorised data set."""
        cells = self.manifest.get("cells_per_axis")
        return None if cells is None else Grid(self.network.token_dim, self.network.seq_len, cells)

    @property
    def target(self) -> Target | None:
        """The target if it is a built-in one, else None, and `why_no_target` says why. Nothing is imported."""
        return self._built_in[0]

    @property
    def why_no_target(self) -> str | None:
        """Why `target` is None, in a few words."""
        return self._built_in[1]

    @cached_property
    def _built_in(self) -> tuple[Target | None, str | None]:
        spec = self.manifest["target"]
        if spec["source"] == "built-in":
            try:
                return built_in_target(spec), None
            except TargetError as error:
                return None, str(error)
        if spec["source"] == "import":
            return None, f"the folder names the function {spec['import']}, which is not imported unless you say so"
        if spec["source"] == "data":
            return None, "the network was made from pairs of sequences"
        if spec["source"] == "program":
            return None, "the network was made from a program on tokens"
        return None, "the function has no import path, so the folder holds only its network"

    def import_target(self) -> Target:
        """The target, importing (and so running) the module that the folder names: only for folders that you trust.

        Raises TargetError when the folder names none, or it cannot be imported.
        """
        spec = self.manifest["target"]
        if spec["source"] == "import":
            return described_target(spec, import_function(spec["import"]))
        if self.target is None:
            raise TargetError(f"there is no target to import: {self.why_no_target}.")
        return self.target

    def to_torch(self) -> nn.Module:
        """The network as a torch module."""
        return self.network.to_torch()

    def __repr__(self) -> str:
        name = self.manifest["target"].get("name", "a data set")
        return f"{type(self).__name__}({name!r}, {self.construction}, {self.network!r}, {self.certificate.short})"


def save(
    path: str | Path,
    network: FloatNetwork,
    certificate: Certificate,
    facts: dict[str, Any],
    data: dict[str, FloatArray] | None = None,
) -> None:
    """Write a folder. `facts` (construction, target, sizes, ...) go into the manifest.

    Raises BadFolder, and touches nothing, when something else than a saved network is there; ProvenformerError, with the old
    folder as it was, when the disk is full or may not be written to.
    """
    tensors = network.tensors()
    if network.positions is not None:
        tensors["positions"] = network.positions
    tensors |= {f"data.{name}": value for name, value in (data or {}).items()}
    claim = _as_json(certificate.to_json())
    require_certificate("the certificate", claim)
    with atomic_path(Path(path), may_replace=require_ours) as folder:
        folder.mkdir()
        _write(folder / CERTIFICATE, claim)
        save_file({k: np.ascontiguousarray(v) for k, v in tensors.items()}, folder / NETWORK)
        manifest = _as_json({
            "format": FORMAT,
            "token_dim": network.token_dim,
            "seq_len": network.seq_len,
            "positional": network.positions is not None,
            **network.layout(),
            "blocks": network.blocks,
            "parameters": network.parameters,
            **facts,
            "versions": {
                "provenformer": __version__, "numpy": np.__version__, "python": platform.python_version()
            },
            "sha256": {name: file_digest(folder / name) for name in (NETWORK, CERTIFICATE)},
        })  # fmt: skip
        manifest["manifest_sha256"] = manifest_hash(manifest)
        require_manifest("the manifest", manifest)
        _write(folder / MANIFEST, manifest)


def load(path: str | Path, check_hashes: bool = True) -> Saved:
    """Read a folder. Any missing, altered or malformed part is a BadFolder, one clear line; nothing is imported or run."""
    return read_steadily(Path(path), lambda folder: _read(folder, check_hashes))


def require_ours(folder: Path) -> None:
    """Raise BadFolder unless a folder is a saved network and nothing else: its three files, unaltered."""

    def check(at: Path) -> None:
        refused = f"{folder} is not a saved network"
        try:
            kinds = {entry.name: entry.is_file() and not entry.is_symlink() for entry in at.iterdir()}
        except OSError as error:
            raise BadFolder(f"{refused} ({error.strerror}); choose another folder.") from error
        others = sorted(kinds.keys() - {NETWORK, CERTIFICATE, MANIFEST})
        if others or len(kinds) < 3 or not all(kinds.values()):
            odd = others or [name for name, regular in kinds.items() if not regular] or ["a part is missing"]
            raise BadFolder(f"{refused}, or not only that ({one_line(odd[0])[:60]}); choose another folder.")
        try:
            manifest = read_json(at / MANIFEST, IS_IT)
            require_manifest(str(at / MANIFEST), manifest)
            _require_hashes(at, manifest)
        except ProvenformerError as error:
            raise BadFolder(f"{refused} as it was written ({one_line(error)[:200]}); choose another folder.") from error

    read_steadily(folder, check)


def manifest_hash(manifest: dict[str, Any]) -> str:
    """sha256 of the manifest without its own hash."""
    rest = {k: v for k, v in manifest.items() if k != "manifest_sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def _read(folder: Path, check_hashes: bool) -> Saved:
    manifest = read_json(folder / MANIFEST, IS_IT)
    if manifest.get("format", FORMAT) != FORMAT:
        other = one_line(repr(manifest["format"]))[:40]
        raise BadFolder(f"{folder} has format {other}; this version reads format {FORMAT}.")
    require_manifest(str(folder / MANIFEST), manifest)
    if check_hashes:
        _require_hashes(folder, manifest)
    raw = read_json(folder / CERTIFICATE, IS_IT)
    require_certificate(str(folder / CERTIFICATE), raw)
    if not len(raw["clip_low"]) == len(raw["clip_high"]) == manifest["token_dim"]:
        raise BadFolder(f"{folder / CERTIFICATE}: the clip does not have one end per row; save the network again.")
    certificate = Certificate(**{**raw, "clip_low": tuple(raw["clip_low"]), "clip_high": tuple(raw["clip_high"])})
    tensors = _read_tensors(folder / NETWORK)
    try:
        network = _network(manifest, tensors)
        counts = (network.blocks, network.parameters)
    except (ProvenformerError, KeyError, TypeError, AttributeError, IndexError, ValueError, OverflowError) as error:
        reason = str(error) if isinstance(error, ProvenformerError) else one_line(repr(error))[:200]
        raise BadFolder(f"{folder} is not a valid network folder ({reason.rstrip('.')}); save it again.") from error
    if counts != (manifest["blocks"], manifest["parameters"]):
        raise BadFolder(
            f"{folder / MANIFEST}: blocks and parameters are not those of the weights; save the network again."
        )
    data = {k.removeprefix("data."): v for k, v in tensors.items() if k.startswith("data.")}
    return Saved(network, certificate, manifest, data)


def _require_hashes(folder: Path, manifest: dict[str, Any]) -> None:
    if manifest["manifest_sha256"] != manifest_hash(manifest):
        raise BadFolder(f"{folder / MANIFEST} was altered (its hash does not match); save the network again.")
    for name in (NETWORK, CERTIFICATE):
        if file_digest(folder / name) != manifest["sha256"][name]:
            raise BadFolder(f"{folder / name} was altered (its hash does not match); save the network again.")


def _read_tensors(path: Path) -> dict[str, FloatArray]:
    if not path.is_file():
        raise BadFolder(f"cannot read {path} (no such file); {IS_IT}")
    try:
        tensors = load_file(path)
    except (SafetensorError, OSError, ValueError, MemoryError) as error:
        raise BadFolder(
            f"{path} is not a complete safetensors file ({one_line(error)[:200]}); save it again."
        ) from error
    for name, value in tensors.items():
        if value.dtype != np.float64:
            raise BadFolder(f"{path}: {one_line(name)} is {value.dtype}, not float64; save the network again.")
        if not np.isfinite(value).all():
            raise BadFolder(f"{path}: {one_line(name)} has a weight that is not finite; save the network again.")
    return tensors


def _network(manifest: dict[str, Any], tensors: dict[str, FloatArray]) -> FloatNetwork:
    kind = next(kind for key, kind in NETWORKS.items() if key in manifest)
    weights = {k: v for k, v in tensors.items() if k != "positions" and not k.startswith("data.")}
    if unknown := [k for k in tensors if k.startswith("data.") and k.removeprefix("data.") not in DATA_KEYS]:
        raise BadFolder(f"the file has data that is not known ({one_line(unknown[0])[:60]})")
    for i, run in enumerate(manifest.get("runs", [])):
        own = [v for k, v in weights.items() if k.startswith(f"runs.{i}.") and v.ndim and len(v) > 1]
        if run["layers"] > SHARED_LAYERS and not own:
            raise BadFolder(f"run {i} has {run['layers']:,} layers (limit {SHARED_LAYERS:,}) of the same weights")
    if manifest.get("model_dim", manifest["token_dim"]) < manifest["token_dim"]:
        raise BadFolder("model_dim is below token_dim")
    return kind.of_tensors(manifest, weights, _positions(manifest, tensors, kind.positions_shape(manifest)))


def _positions(manifest: dict[str, Any], tensors: dict[str, FloatArray], shape: tuple[int, int]) -> FloatArray | None:
    positions = tensors.get("positions")
    if (positions is not None) != manifest["positional"]:
        raise BadFolder("positions are not where the manifest says so")
    if positions is not None and positions.shape != shape:
        raise BadFolder(f"positions have shape {positions.shape}, not {shape}")
    return positions


def _as_json(value: dict[str, Any]) -> dict[str, Any]:
    """As it will be read again: lists for tuples, Python's numbers for numpy's."""
    found: dict[str, Any] = parse_json(json_text(value), "what is to be saved")
    return found


def _write(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json_text(value))
