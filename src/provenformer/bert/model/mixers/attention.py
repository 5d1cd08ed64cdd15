"""Self-attention as the common baseline: transformers' own layer behind the mixer signature."""

from torch import Tensor
from transformers import BertConfig
from transformers.models.bert.modeling_bert import BertSelfAttention

from provenformer.base.errors import ProvenformerError
from provenformer.bert.model.mixers.base import Mixer


class Attention(Mixer):
    """softmax((W_K X)^T W_Q X) applied to W_V X, per head: three d x d products and two n x n ones."""

    def __init__(self, dim: int, *, heads: int = 12, dropout: float = 0.0) -> None:
        super().__init__(dim)
        if heads < 1 or dim % heads:
            raise ProvenformerError(f"attention heads={heads} must divide dim={dim}; choose a divisor of {dim}")
        config = BertConfig(hidden_size=dim, num_attention_heads=heads, attention_probs_dropout_prob=dropout)
        config._attn_implementation = "sdpa"
        self.attention = BertSelfAttention(config)

    def mix(self, hidden: Tensor, real: Tensor | None) -> Tensor:
        visible_keys = None if real is None else real[:, None, None, :]
        mixed: Tensor = self.attention(hidden, attention_mask=visible_keys)[0]
        return mixed
