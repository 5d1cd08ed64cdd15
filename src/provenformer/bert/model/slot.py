"""The seam to Hugging Face: a mixer dressed as the `attention.self` sublayer, and the swap in any BERT-family model."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from provenformer.base.errors import ProvenformerError
from provenformer.bert.model.mixers import Mixer, build_mixer


class MixerSlot(nn.Module):
    """Takes and returns what `BertSelfAttention` does; W_O, skip and LayerNorm follow in `attention.output` as ever."""

    def __init__(self, mixer: Mixer) -> None:
        super().__init__()
        self.mixer = mixer

    def forward(
        self, hidden_states: Tensor, attention_mask: Tensor | None = None, **_attention_only: Any
    ) -> tuple[Tensor, None]:
        return self.mixer(hidden_states, real_tokens(attention_mask)), None


def real_tokens(attention_mask: Tensor | None) -> Tensor | None:
    """The (batch, tokens) mask inside Hugging Face's: boolean for SDPA, additive for eager, 2-D for flash attention."""
    if attention_mask is None:
        return None
    if not isinstance(attention_mask, Tensor) or attention_mask.dim() not in (2, 4):
        remedy = "load the model with attn_implementation='sdpa'"
        raise ProvenformerError(f"mixers need a padding mask, not a {type(attention_mask).__name__}; {remedy}")
    if attention_mask.dim() == 2:
        return attention_mask.bool()
    # A padding mask hides the same keys from every query, so one row tells all; a graph cannot branch on the others.
    row = attention_mask[:, 0, :1]
    if not torch.compiler.is_compiling() and bool((attention_mask[:, 0] != row).any()):
        raise ProvenformerError("mixers take one mask for all queries; causal or packed masks need mixer='attention'")
    row = row[:, 0]
    return row if row.dtype == torch.bool else row == 0


def mixer_for(name: str, config: PreTrainedConfig, **options: Any) -> Mixer:
    """The mixer that fits a model: its sizes are the defaults, `options` override them."""
    from_model: dict[str, dict[str, Any]] = {
        "attention": {"heads": config.num_attention_heads, "dropout": config.attention_probs_dropout_prob},
        "bproj": {"size": config.max_position_embeddings},
    }
    return build_mixer(name, config.hidden_size, **(from_model.get(name, {}) | options))


def replace_attention(model: PreTrainedModel, layers: Iterable[int], mixer: str, **options: Any) -> PreTrainedModel:
    """Put a freshly initialised mixer in place of self-attention in these layers of a BERT-family model, in place.

    `replace_attention(model, layers=[0, 1], mixer="sepconv", filter_length=31)`; returns the model.
    """
    stack = encoder_layers(model)
    chosen = list(layers)
    for index in chosen:
        if not 0 <= index < len(stack):
            raise ProvenformerError(f"layer {index} does not exist; {type(model).__name__} has 0 to {len(stack) - 1}")
    if model.config.is_decoder:
        raise ProvenformerError("mixers look both ways and cannot replace a decoder's attention; set is_decoder=False")
    for index in chosen:
        weight = stack[index].attention.output.dense.weight
        slot = MixerSlot(mixer_for(mixer, model.config, **options))
        with torch.no_grad():
            for linear in (module for module in slot.modules() if isinstance(module, nn.Linear)):
                model._init_weights(linear)  # the model's own initializer_range
        stack[index].attention.self = slot.to(device=weight.device, dtype=weight.dtype).train(model.training)
    return model


def encoder_layers(model: nn.Module) -> list[Any]:
    """The stack of layers that have BERT's `attention.self` and `attention.output`."""
    for module in model.modules():
        if isinstance(module, nn.ModuleList) and len(module) > 0:
            attentions = [getattr(layer, "attention", None) for layer in module]
            if all(hasattr(attention, "self") and hasattr(attention, "output") for attention in attentions):
                return list(module)
    remedy = "give a BERT, RoBERTa, ELECTRA, ... instance"
    raise ProvenformerError(f"{type(model).__name__} has no encoder.layer[i].attention.self to replace; {remedy}")
