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
from provenformer.networks.thin import FloatRun, Network, ReluRun, SoftmaxRun
from provenformer.networks.wide import WideBlock, WideNetwork

if TYPE_CHECKING:
    from provenformer.networks.export.torch_module import TransformerBlocks, WideBlocks

FORMAT = 1
NETWORK, CERTIFICATE, MANIFEST = "network.safetensors", "certificate.json", "manifest.json"
_RUN_KINDS: dict[str, type[ReluRun] | type[SoftmaxRun]] = {"feed-forward": ReluRun, "attention": SoftmaxRun}
_WIDE_FIELDS = ("W_O", "W_V", "W_K", "W_Q", "b_Q", "W_1", "b_1", "W_2", "b_2")
_FIELDS = {"feed-forward": ("W_1", "b_1", "W_2", "b_2"), "attention": ("W_O", "W_V", "W_K", "W_Q", "b_Q")}


@dataclass(frozen=True)
class Saved:
    """What a folder holds. `network(x)` runs; `target` is None when it was a function without an import path."""

    network: Network | WideNetwork
    certificate: Certificate
    manifest: dict[str, Any]
    data: dict[str, FloatArray]  # the pairs of a memorised data set, if any

    def to_torch(self) -> TransformerBlocks | WideBlocks:
        """The network as a torch module (see export/torch_module.py)."""
        return self.network.to_torch()

    @property
    def target(self) -> Target | None:
        """The target, rebuilt from its name or import path."""
        return target_from_spec(self.manifest["target"])


def save(
    path: str | Path,
    network: Network | WideNetwork,
    certificate: Certificate,
    facts: dict[str, Any],
    data: dict[str, FloatArray] | None = None,
) -> None:
    """Write a folder. `facts` (construction, target, sizes, ...) go into the manifest."""
    tensors = _tensors(network)
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
            **_layout(network),
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


def _tensors(network: Network | WideNetwork) -> dict[str, FloatArray]:
    if isinstance(network, WideNetwork):
        return {
            f"blocks.{i}.{name}": getattr(b, name) for i, b in enumerate(network.wide_blocks) for name in _WIDE_FIELDS
        }
    return {f"runs.{i}.{name}": _stored_once(getattr(run, name)) for i, run, name in _fields(network)}


def _layout(network: Network | WideNetwork) -> dict[str, Any]:
    """What the manifest says about the tensors."""
    if isinstance(network, WideNetwork):
        entries = [{"stage": b.stage, "hidden_dim": len(b.b_1)} for b in network.wide_blocks]
        return {"model_dim": network.model_dim, "wide_blocks": entries}
    return {"runs": [_run_entry(run) for run in network.runs]}


def _wide_network(manifest: dict[str, Any], tensors: dict[str, FloatArray]) -> WideNetwork:
    d, n, size = manifest["token_dim"], manifest["seq_len"], manifest["model_dim"]
    blocks = []
    for i, entry in enumerate(manifest["wide_blocks"]):
        r = entry["hidden_dim"]
        shapes = {
            "W_O": (size, 1), "W_V": (1, size), "W_K": (1, size), "W_Q": (1, size), "b_Q": (1,),
            "W_1": (r, size), "b_1": (r,), "W_2": (size, r), "b_2": (size,),
        }  # fmt: skip
        for name, shape in shapes.items():
            if tensors[f"blocks.{i}.{name}"].shape != shape:
                raise ProvenformerError(f"blocks.{i}.{name} does not have shape {shape}; save the network again.")
        blocks.append(WideBlock(entry["stage"], **{name: tensors[f"blocks.{i}.{name}"] for name in _WIDE_FIELDS}))
    return WideNetwork(d, n, tuple(blocks), _positions(manifest, tensors))


def _positions(manifest: dict[str, Any], tensors: dict[str, FloatArray]) -> FloatArray | None:
    shape = (manifest["token_dim"], manifest["seq_len"])
    positions = tensors["positions"] if manifest["positional"] else None
    if positions is not None and positions.shape != shape:
        raise ProvenformerError(f"positions have shape {positions.shape}, not {shape}; save the network again.")
    return positions


def _network(manifest: dict[str, Any], tensors: dict[str, FloatArray]) -> Network | WideNetwork:
    if "wide_blocks" in manifest:
        return _wide_network(manifest, tensors)
    d, n = manifest["token_dim"], manifest["seq_len"]
    counts = [(d, 1), (n, 1), *((entry["layers"], 0) for entry in manifest["runs"])]
    if not manifest["runs"] or any(isinstance(v, bool) or not isinstance(v, int) or v < low for v, low in counts):
        raise ProvenformerError(
            "token_dim, seq_len or the layers of a run are not whole numbers; save the network again."
        )
    names = {f"runs.{i}.{name}" for i, entry in enumerate(manifest["runs"]) for name in _FIELDS[entry["kind"]]}
    unknown = [name for name in tensors if name not in names | {"positions"} and not name.startswith("data.")]
    if unknown or ("positions" in tensors) != manifest["positional"]:
        raise ProvenformerError(f"the file has tensors that the manifest does not name ({unknown}); save again.")
    runs: list[FloatRun] = []
    for i, entry in enumerate(manifest["runs"]):
        r = entry.get("hidden_dim", 4)
        shapes = {
            "W_1": (r, d), "b_1": (r,), "W_2": (d, r), "b_2": (d,),
            "W_O": (2, d), "W_V": (2, d), "W_K": (2, d), "W_Q": (2, d), "b_Q": (2,),
        }  # fmt: skip
        arrays = {}
        for name in _FIELDS[entry["kind"]]:
            value, shape = tensors[f"runs.{i}.{name}"], (entry["layers"], *shapes[name])
            if value.shape not in (shape, (1, *shape[1:])):
                raise ProvenformerError(
                    f"runs.{i}.{name} has shape {value.shape}, not {shape}; save the network again."
                )
            arrays[name] = np.broadcast_to(value, shape)
        runs.append(_RUN_KINDS[entry["kind"]](entry["stage"], **arrays))
    return Network(d, n, tuple(runs), _positions(manifest, tensors))


def _run_entry(run: FloatRun) -> dict[str, Any]:
    entry = {"kind": _kind(run), "stage": run.stage, "layers": len(run)}
    return entry | ({"hidden_dim": run.W_1.shape[1]} if isinstance(run, ReluRun) else {})


def _kind(run: FloatRun) -> str:
    return "feed-forward" if isinstance(run, ReluRun) else "attention"


def _fields(network: Network) -> Iterator[tuple[int, FloatRun, str]]:
    return ((i, run, name) for i, run in enumerate(network.runs) for name in _FIELDS[_kind(run)])


def _stored_once(array: FloatArray) -> FloatArray:
    return array[:1] if array.strides[0] == 0 else array


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
