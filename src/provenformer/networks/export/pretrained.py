"""A circuit's torch module in a folder as models of transformers are kept: config.json and model.safetensors. Needs `torch`.

This is an exchange format for weights: certificate and witness are not in it (`save` of a compiled circuit writes those). With a
disguised circuit goes how it is read: the names of the circuit's channels, `encode`, and a program's vocabulary.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from provenformer.base.arrays import FloatArray
from provenformer.base.errors import BadFolder, one_line
from provenformer.base.files import atomic_path, read_json, write_json
from provenformer.networks.circuit import CircuitBlock, CircuitNetwork, Head
from provenformer.networks.disguise import Disguised, DisguisedCircuit, DisguisedProgram

if TYPE_CHECKING:
    from provenformer.networks.export.torch_module import CircuitBlocks

CONFIG, WEIGHTS = "config.json", "model.safetensors"
MODEL_TYPE = "provenformer-circuit"
DTYPES = {"float64": torch.float64, "float32": torch.float32}
REMEDY = "write it again with save_pretrained."


def save_pretrained(module: CircuitBlocks, path: str | Path, stated: dict[str, Any] | None = None) -> None:
    """Write both files; an existing folder is replaced if it holds such a model and nothing else. `stated`: about its weights."""
    dtype = str(module.positions.dtype).removeprefix("torch.")
    config = {
        "model_type": MODEL_TYPE, "architectures": [type(module).__name__], "dtype": dtype,
        "token_dim": module.token_dim, "seq_len": module.seq_len, "hidden_size": module.model_dim,
        "num_hidden_layers": len(module.blocks), "hidden_act": "relu", "channels": list(module.channel_names),
        **module.facts, **(stated or {}),
    }  # fmt: skip
    weights = {name: value.detach().contiguous() for name, value in module.state_dict().items()}
    with atomic_path(Path(path), may_replace=_require_ours) as folder:
        folder.mkdir()
        write_json(folder / CONFIG, config)
        save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})


def read_pretrained(path: str | Path) -> tuple[CircuitNetwork | Disguised, torch.dtype]:
    """The network and the type of its weights; anything missing, left over or of another shape is a BadFolder."""
    folder = Path(path)
    config = read_json(folder / CONFIG, REMEDY)
    sizes = [config.get(name) for name in ("token_dim", "seq_len", "hidden_size")]
    whole = all(isinstance(v, int) and not isinstance(v, bool) and v > 0 for v in sizes)
    names = config.get("channels")
    if (
        config.get("model_type") != MODEL_TYPE
        or config.get("dtype") not in DTYPES
        or not whole
        or not isinstance(names, list)
    ):
        raise BadFolder(f"{folder / CONFIG} does not describe a {MODEL_TYPE} in float64 or float32; {REMEDY}")
    try:
        found = load_file(folder / WEIGHTS)
        network = _network(_Tensors({k: v.to(torch.float64).numpy() for k, v in found.items()}), config)
    except (SafetensorError, OSError, KeyError, ValueError, TypeError, AttributeError) as error:
        raise BadFolder(
            f"{folder / WEIGHTS} is not the model of its {CONFIG} ({one_line(error)[:200]}); {REMEDY}"
        ) from error
    return network, DTYPES[config["dtype"]]


class _Tensors:
    """The arrays of a file, taken one by one."""

    def __init__(self, arrays: dict[str, FloatArray]) -> None:
        self.rest = arrays

    def take(self, name: str, *shape: int | None) -> FloatArray:
        """One of them, of that shape; None is any size."""
        array = self.rest.pop(name)
        if array.ndim != len(shape) or any(
            want not in (None, have) for want, have in zip(shape, array.shape, strict=True)
        ):
            raise ValueError(f"{name} has shape {array.shape}")
        if not np.isfinite(array).all():
            raise ValueError(f"{name} has a weight that is not finite")
        return array

    def has(self, prefix: str) -> bool:
        return any(name.startswith(prefix) for name in self.rest)


def _network(tensors: _Tensors, config: dict[str, Any]) -> CircuitNetwork | Disguised:
    """The inverse of CircuitBlocks."""
    d, n, size = (int(config[name]) for name in ("token_dim", "seq_len", "hidden_size"))
    names = tuple(map(str, config["channels"]))
    embedding = tensors.take("embedding.weight", size, d)
    encode = tensors.take("encode", size, len(names)) if tensors.has("encode") else None
    if encode is None and len(names) != size:
        raise ValueError(f"{len(names)} channels have names, not {size}")
    positions = tensors.take("positions", n, size).T
    blocks: list[CircuitBlock] = []
    while tensors.has(at := f"blocks.{len(blocks)}."):
        heads: list[Head] = []
        while tensors.has(head := f"{at}heads.{len(heads)}."):
            heads.append(_head(tensors, head, size))
        bias = tensors.take(at + "bias", size)
        W_1, b_1, W_2 = np.zeros((0, size)), np.zeros(0), np.zeros((size, 0))
        if tensors.has(at + "up."):
            W_1 = tensors.take(at + "up.weight", None, size)
            b_1, W_2 = tensors.take(at + "up.bias", len(W_1)), tensors.take(at + "down.weight", size, len(W_1))
        blocks.append(CircuitBlock(tuple(heads), W_1, b_1, W_2, bias))
    W_out, b_out = tensors.take("readout.weight", d, size), tensors.take("readout.bias", d)
    if tensors.rest:
        raise ValueError(f"{min(tensors.rest)} belongs to no layer")
    if encode is None and np.array_equal(embedding, np.eye(size, d)):
        return CircuitNetwork(d, n, tuple(blocks), positions, W_out, b_out, names)
    if encode is None:  # trained further: what its directions hold is not known
        encode, names = np.zeros((size, 0)), ()
    known = tuple(map(str, config.get("recovered", ())))
    if not set(known) <= set(names):
        raise ValueError("a channel that is recovered has another name than any")
    bounds = {str(name): float(bound) for name, bound in config.get("bounds", {}).items()}
    made = Disguised(
        d, n, embedding, positions, tuple(blocks), W_out, b_out, encode, names, known, float(config.get("noise", 0.0)), bounds
    )  # fmt: skip
    return DisguisedCircuit(**vars(made)) if "vocab" not in config else _with_tokens(made, config)


def _with_tokens(made: Disguised, config: dict[str, Any]) -> DisguisedProgram:
    """A program's disguise, with its tokens."""
    vocab, output = tuple(config["vocab"]), config["output"]
    if not vocab or len(set(vocab)) != len(vocab) or output not in ("tokens", "numbers"):
        raise ValueError("vocab has a token twice, or none, or output is not tokens or numbers")
    pad = vocab[-1] if config["padded"] else None
    return DisguisedProgram(**vars(made), vocab=vocab, pad=pad, numeric=output == "numbers")


def _head(tensors: _Tensors, at: str, size: int) -> Head:
    """A head; one without queries averages."""
    W_V = tensors.take(at + "value.weight", None, size)
    W_O = tensors.take(at + "output.weight", size, len(W_V))
    if not tensors.has(at + "query."):
        return Head(np.zeros((0, size)), np.zeros(0), np.zeros((0, size)), W_V, W_O)
    W_Q = tensors.take(at + "query.weight", None, size)
    return Head(
        W_Q, tensors.take(at + "query.bias", len(W_Q)), tensors.take(at + "key.weight", len(W_Q), size), W_V, W_O
    )


def _require_ours(folder: Path) -> None:
    """Raise BadFolder unless a folder holds such a model and nothing else."""
    if {entry.name for entry in folder.iterdir()} != {CONFIG, WEIGHTS}:
        raise BadFolder(f"{folder} holds something else than a model of save_pretrained; choose another folder.")
    read_pretrained(folder)
