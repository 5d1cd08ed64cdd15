"""Saving and loading: a folder with network.safetensors, certificate.json and manifest.json.

Writes are atomic: everything goes to a temporary folder beside the destination, which then takes its place, so a full
disk or a killed process leaves the old folder as it was. Loading is strict (hashes, shapes, names) and never runs code:
only safetensors and JSON. Weights shared by all layers of a run are stored once and broadcast when loaded.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from provenformer.base.arrays import FloatArray
from provenformer.base.errors import ProvenformerError
from provenformer.certificates.certificate import Certificate
from provenformer.functions import targets
from provenformer.functions.targets import Target
from provenformer.networks.base import FloatNetwork
from provenformer.networks.circuit import CircuitNetwork
from provenformer.networks.thin import Network
from provenformer.networks.wide import WideNetwork

if TYPE_CHECKING:
    from torch import nn

FORMAT = 1
NETWORK, CERTIFICATE, MANIFEST = "network.safetensors", "certificate.json", "manifest.json"
# The kinds of network, by the key of their layout in the manifest.
NETWORKS: dict[str, type[FloatNetwork]] = {
    "runs": Network,
    "wide_blocks": WideNetwork,
    "circuit_blocks": CircuitNetwork,
}


@dataclass(frozen=True)
class Saved:
    """What a folder holds. `network(x)` runs; `target` is None when it was a function without an import path."""

    network: FloatNetwork
    certificate: Certificate
    manifest: dict[str, Any]
    data: dict[str, FloatArray]  # the pairs of a memorised data set, if any

    def to_torch(self) -> nn.Module:
        """The network as a torch module."""
        return self.network.to_torch()

    @property
    def target(self) -> Target | None:
        """The target, rebuilt from its name or import path."""
        return target_from_spec(self.manifest["target"])


def save(
    path: str | Path,
    network: FloatNetwork,
    certificate: Certificate,
    facts: dict[str, Any],
    data: dict[str, FloatArray] | None = None,
) -> None:
    """Write a folder. `facts` (construction, target, sizes, ...) go into the manifest."""
    tensors = network.tensors()
    if network.positions is not None:
        tensors["positions"] = network.positions
    tensors |= {f"data.{name}": np.ascontiguousarray(value) for name, value in (data or {}).items()}
    with _replacing(Path(path)) as folder:
        save_file({k: np.ascontiguousarray(v) for k, v in tensors.items()}, folder / NETWORK)
        _write_json(folder / CERTIFICATE, certificate.to_json())
        manifest = {
            "format": FORMAT,
            "token_dim": network.token_dim,
            "seq_len": network.seq_len,
            "positional": network.positions is not None,
            **network.layout(),
            "blocks": network.blocks,
            "parameters": network.parameters,
            **facts,
            "versions": {
                "provenformer": version("provenformer"), "numpy": np.__version__, "python": platform.python_version()
            },
            "sha256": {name: file_hash(folder / name) for name in (NETWORK, CERTIFICATE)},
        }  # fmt: skip
        manifest["manifest_sha256"] = manifest_hash(manifest)
        _write_json(folder / MANIFEST, manifest)


def load(path: str | Path, check_hashes: bool = True) -> Saved:
    """Read a folder; any missing, altered or malformed part is one clear line."""
    folder = Path(path)
    manifest = read_json(folder / MANIFEST)
    try:
        if manifest["format"] != FORMAT:
            raise ProvenformerError(f"{folder} has format {manifest['format']}; this version reads format {FORMAT}.")
        if check_hashes:
            _require_hashes(folder, manifest)
        raw = read_json(folder / CERTIFICATE)
        _require_types(folder / CERTIFICATE, raw)
        certificate = Certificate(**{**raw, "clip_low": tuple(raw["clip_low"]), "clip_high": tuple(raw["clip_high"])})
        tensors = _read_tensors(folder / NETWORK)
        network = _network(manifest, tensors)
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ProvenformerError(f"{folder} is not a valid network folder ({error!r}); save it again.") from error
    data = {k.removeprefix("data."): v for k, v in tensors.items() if k.startswith("data.")}
    return Saved(network, certificate, manifest, data)


def target_spec(target: Target) -> dict[str, Any]:
    """How to find a target again: a built-in name, an import path, or nothing but its description."""
    spec = {
        "name": target.name,
        "token_dim": target.token_dim,
        "seq_len": target.seq_len,
        "equivariant": target.equivariant,
        "lipschitz": target.lipschitz,
        "support": [list(target.support[0]), list(target.support[1])],
        "vanishes_outside": target.vanishes_outside,
    }
    if targets.is_built_in(target):
        return {**spec, "source": "built-in"}
    module, qualname = getattr(target.fn, "__module__", None), getattr(target.fn, "__qualname__", "<")
    if module and "<" not in qualname and module != "__main__":
        return {**spec, "source": "import", "import": f"{module}:{qualname}"}
    return {**spec, "source": "opaque"}


def target_from_spec(spec: dict[str, Any]) -> Target | None:
    """The inverse of `target_spec`; None for an opaque function."""
    support = (tuple(spec["support"][0]), tuple(spec["support"][1]))
    if spec["source"] == "built-in":
        return targets.get(spec["name"], spec["token_dim"], spec["seq_len"], support)
    if spec["source"] != "import":
        return None
    return Target(
        import_function(spec["import"]), spec["token_dim"], spec["seq_len"], spec["equivariant"], spec["lipschitz"],
        support, spec["name"], spec["vanishes_outside"],
    )  # fmt: skip


def import_function(path: str) -> Any:
    """`my_module:my_function`; never evaluates a string."""
    module, _, name = path.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise ProvenformerError(
            f"cannot import '{path}' ({error}); give module:function on the Python path."
        ) from error
    if not callable(found):
        raise ProvenformerError(f"'{path}' is not a function; give module:function.")
    return found


def file_hash(path: Path) -> str:
    """sha256 of a file."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ProvenformerError(f"cannot read {path} ({error.strerror}); is it a saved network?") from error


def manifest_hash(manifest: dict[str, Any]) -> str:
    """sha256 of the manifest without its own hash."""
    rest = {k: v for k, v in manifest.items() if k != "manifest_sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object, or one clear line."""
    try:
        value = json.loads(path.read_text())
    except OSError as error:
        raise ProvenformerError(f"cannot read {path} ({error.strerror}); is it a saved network?") from error
    except ValueError as error:
        raise ProvenformerError(f"{path} is not valid JSON ({error}); save the network again.") from error
    if not isinstance(value, dict):
        raise ProvenformerError(f"{path} is not a JSON object; save the network again.")
    return value


def _require_hashes(folder: Path, manifest: dict[str, Any]) -> None:
    if manifest.get("manifest_sha256") != manifest_hash(manifest):
        raise ProvenformerError(f"{folder / MANIFEST} was altered (its hash does not match); save the network again.")
    for name in (NETWORK, CERTIFICATE):
        if file_hash(folder / name) != manifest["sha256"][name]:
            raise ProvenformerError(f"{folder / name} was altered (its hash does not match); save the network again.")


def _require_types(path: Path, raw: dict[str, Any]) -> None:
    """Numbers where a certificate has numbers, words where it has words."""
    numbers = [raw["bound"], raw["ramp"], *raw["clip_low"], *raw["clip_high"], *raw["terms"].values()]
    numbers += [] if raw["norm_order"] is None else [raw["norm_order"]]
    words = [raw[name] for name in ("kind", "domain", "basis")]
    if any(isinstance(v, bool) or not isinstance(v, int | float) for v in numbers) or not all(
        isinstance(v, str) for v in words
    ):
        raise ProvenformerError(f"{path} has an entry of the wrong type; save the network again.")


def _read_tensors(path: Path) -> dict[str, FloatArray]:
    try:
        tensors = load_file(path)
    except (SafetensorError, OSError) as error:
        raise ProvenformerError(f"{path} is not a complete safetensors file ({error}); save it again.") from error
    for name, value in tensors.items():
        if value.dtype != np.float64:
            raise ProvenformerError(f"{path}: {name} is {value.dtype}, not float64; save the network again.")
        if not np.isfinite(value).all():
            raise ProvenformerError(f"{path}: {name} has a weight that is not finite; save the network again.")
    return tensors


def _network(manifest: dict[str, Any], tensors: dict[str, FloatArray]) -> FloatNetwork:
    kind = next((kind for key, kind in NETWORKS.items() if key in manifest), None)
    if kind is None:
        raise ProvenformerError(f"the manifest describes no network ({' or '.join(NETWORKS)}); save the network again.")
    weights = {k: v for k, v in tensors.items() if k != "positions" and not k.startswith("data.")}
    return kind.of_tensors(manifest, weights, _positions(manifest, tensors, kind.positions_shape(manifest)))


def _positions(manifest: dict[str, Any], tensors: dict[str, FloatArray], shape: tuple[int, int]) -> FloatArray | None:
    positions = tensors.get("positions")
    if (positions is not None) != manifest["positional"]:
        raise ProvenformerError("positions are not where the manifest says so; save the network again.")
    if positions is not None and positions.shape != shape:
        raise ProvenformerError(f"positions have shape {positions.shape}, not {shape}; save the network again.")
    return positions


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n")


@contextmanager
def _replacing(destination: Path) -> Iterator[Path]:
    """A temporary folder that takes the place of `destination` if the body succeeds."""
    destination = destination.absolute()
    folder = destination.is_dir()
    if destination.exists() and not (destination / MANIFEST).is_file() and (not folder or any(destination.iterdir())):
        raise ProvenformerError(f"{destination} exists and is not a saved network; choose another folder.")
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{destination.name}.", dir=destination.parent))
    except OSError as error:
        raise ProvenformerError(f"cannot write to {destination.parent} ({error.strerror}).") from error
    try:
        yield temporary
        for file in temporary.iterdir():
            with file.open("rb") as handle:
                os.fsync(handle.fileno())
        if destination.exists():
            old = temporary.with_name(temporary.name + ".old")
            destination.rename(old)
            temporary.rename(destination)
            shutil.rmtree(old, ignore_errors=True)
        else:
            temporary.rename(destination)
    except (OSError, SafetensorError) as error:
        raise ProvenformerError(
            f"cannot save to {destination} ({error}); free disk space or choose another folder; the old one is intact."
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
