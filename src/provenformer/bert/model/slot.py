"""The seam to Hugging Face: a mixer dressed as the self-attention of a BERT-family model, and where those are."""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig

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


class DistilBertSlot(MixerSlot):
    """The same for DistilBERT, whose attention ends with W_O itself."""

    def __init__(self, mixer: Mixer, out_lin: nn.Linear) -> None:
        super().__init__(mixer)
        self.out_lin = out_lin

    def forward(
        self, hidden_states: Tensor, attention_mask: Tensor | None = None, **_attention_only: Any
    ) -> tuple[Tensor, None]:
        mixed, nothing = super().forward(hidden_states, attention_mask)
        return self.out_lin(mixed), nothing


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
    distilled = config.model_type == "distilbert"  # which has a name of its own for it
    dropout = config.attention_dropout if distilled else config.attention_probs_dropout_prob
    from_model: dict[str, dict[str, Any]] = {
        "attention": {"heads": config.num_attention_heads, "dropout": dropout},
        "bproj": {"size": config.max_position_embeddings},
    }
    return build_mixer(name, config.hidden_size, **(from_model.get(name, {}) | options))


def encoder_layers(model: nn.Module) -> list[Any]:
    """The stack of layers whose `attention` is BERT's (`self` and `output`) or DistilBERT's (with `out_lin`)."""
    for module in model.modules():
        if isinstance(module, nn.ModuleList) and len(module) > 0:
            attentions = [getattr(layer, "attention", None) for layer in module]
            if all(
                (hasattr(attention, "self") and hasattr(attention, "output")) or hasattr(attention, "out_lin")
                for attention in attentions
            ):
                return list(module)
    remedy = "give a BERT, RoBERTa, DistilBERT, ELECTRA, ... instance"
    raise ProvenformerError(f"{type(model).__name__} has no encoder.layer[i].attention.self to replace; {remedy}")
