"""A circuit as a model of TransformerLens: token ids in, residual stream, heads and units under its hook names.

Token id i stands for the number `values[i]` (for token_dim = d, for d numbers), which the embedding puts on the input channels;
the positions are the positional embedding; the unembedding picks the output channels, so logits (batch, n, d) are g(X),
transposed, or scores of given answers. There is no layer norm; channels of the residual stream are those of the circuit.

All blocks of that library have equally many heads of one size and equally many units: what a block does not have has zero
weights and adds exact zeros. It divides scores by a scale: that is 2 here, and queries are twice as large, which rounds nothing.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from numpy.typing import ArrayLike, DTypeLike
from transformer_lens.config import TransformerBridgeConfig
from transformer_lens.model_bridge import TransformerBridge

from provenformer.base.arrays import FloatArray
from provenformer.base.errors import ProvenformerError
from provenformer.networks.circuit import CircuitBlock, CircuitNetwork
from provenformer.networks.disguise import Disguised

DTYPES = {"float64": torch.float64, "float32": torch.float32}
SCALE = 2.0  # a power of two, and not 1, which that library refuses


def lens_model(
    network: CircuitNetwork | Disguised, values: ArrayLike, precision: DTypeLike, answers: ArrayLike | None = None
) -> TransformerBridge:
    """The bridge, with the weights of the network, for a vocabulary of tokens (V, d), or (V,) if d = 1."""
    tokens = require_tokens(values, network.token_dim)
    if np.dtype(precision).name not in DTYPES:
        raise ProvenformerError(f"dtype={np.dtype(precision).name} has no bound; use float64 or float32.")
    dtype = DTYPES[np.dtype(precision).name]
    W_U, b_U = _scores(network, answers) if answers is not None else (network.W_out, network.b_out)
    heads, key_size, units = network.shape
    size = max([1, key_size, *(len(h.W_V) for block in network.circuit_blocks for h in block.heads)])
    heads, units = max(heads, 1), max(units, 1)
    config = TransformerBridgeConfig(
        d_model=network.model_dim, d_head=size, n_heads=heads, n_layers=network.blocks, n_ctx=network.seq_len, d_mlp=units,
        d_vocab=len(tokens), d_vocab_out=len(b_U), act_fn="relu", attn_scale=SCALE, use_attn_scale=True,
        attention_dir="bidirectional", normalization_type=None, init_weights=False, device="cpu",
    )  # fmt: skip
    bridge = TransformerBridge.boot_native(config, dtype=dtype, model_name="provenformer")
    arrays = {
        "embed.weight": tokens @ network.embedding.T,
        "pos_embed.weight": network.positions.T,
        "unembed.weight": W_U,
        "unembed.bias": b_U,
    }
    for i, block in enumerate(network.circuit_blocks):
        arrays |= {f"blocks.{i}.{name}": value for name, value in _block(block, heads, size, units).items()}
    weights = {name: torch.from_numpy(np.ascontiguousarray(value)).to(dtype) for name, value in arrays.items()}
    bridge.load_state_dict(weights, strict=True)
    bridge.requires_grad_(False)
    # where ids come in, whoever calls: a shorter sequence would be answered, and wrongly
    bridge.get_submodule("embed").register_forward_pre_hook(partial(_require_ids, network.seq_len, len(tokens)))
    return bridge.eval()


def _require_ids(seq_len: int, size: int, _module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
    if not inputs:
        return
    ids = inputs[0]
    if ids.shape[-1] != seq_len:
        raise ProvenformerError(
            f"this model is about sequences of {seq_len} tokens, not of {ids.shape[-1]}; compile a program with pad= for "
            "shorter ones, and fill them up."
        )
    if ids.numel() and not 0 <= int(ids.min()) <= int(ids.max()) < size:
        raise ProvenformerError(
            f"ids reach from {int(ids.min())} to {int(ids.max())}, and this model has tokens 0 to {size - 1}; give places in its "
            "vocabulary."
        )


def _scores(network: CircuitNetwork | Disguised, answers: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Logits 2 a y - a^2 = y^2 - (y - a)^2 of every answer a: the largest is that of the nearest one."""
    a = require_tokens(answers, 1)
    if network.token_dim != 1:
        raise ProvenformerError(f"answers are numbers, but outputs are {network.token_dim} of them; leave answers out.")
    return 2 * a @ network.W_out, (2 * a @ network.b_out[:, None] - a**2)[:, 0]


def require_tokens(values: ArrayLike, token_dim: int) -> FloatArray:
    """(V, d), finite, or one clear line."""
    tokens = np.asarray(values, dtype=np.float64)
    tokens = tokens[:, None] if tokens.ndim == 1 and token_dim == 1 else tokens
    if tokens.ndim != 2 or tokens.shape[1] != token_dim or not len(tokens) or not np.isfinite(tokens).all():
        raise ProvenformerError(
            f"values of shape {np.shape(values)} are not finite tokens of {token_dim} numbers; give shape "
            f"(vocabulary, {token_dim})."
        )
    return tokens


def _block(block: CircuitBlock, heads: int, size: int, units: int) -> dict[str, FloatArray]:
    """Weights as that library stacks them, missing heads, rows and units 0."""
    channels = len(block.b_2)
    stacked = {name: np.zeros((heads, size, channels)) for name in ("q", "k", "v", "o")}
    query_bias = np.zeros((heads, size))
    for h, head in enumerate(block.heads):
        stacked["q"][h, : len(head.W_Q)], query_bias[h, : len(head.b_Q)] = SCALE * head.W_Q, SCALE * head.b_Q
        stacked["k"][h, : len(head.W_K)], stacked["v"][h, : len(head.W_V)] = head.W_K, head.W_V
        stacked["o"][h, : len(head.W_V)] = head.W_O.T
    W_1, b_1, W_2 = np.zeros((units, channels)), np.zeros(units), np.zeros((channels, units))
    used = slice(len(block.b_1))
    W_1[used], b_1[used], W_2[:, used] = block.W_1, block.b_1, block.W_2
    flat = {name: value.reshape(heads * size, channels) for name, value in stacked.items()}
    none = {f"attn.{name}.bias": np.zeros(heads * size) for name in ("k", "v")}
    return none | {
        "attn.q.weight": flat["q"], "attn.q.bias": query_bias.ravel(), "attn.k.weight": flat["k"], "attn.v.weight": flat["v"],
        "attn.o.weight": flat["o"].T, "attn.o.bias": np.zeros(channels), "mlp.in.weight": W_1, "mlp.in.bias": b_1,
        "mlp.out.weight": W_2, "mlp.out.bias": block.b_2,
    }  # fmt: skip
