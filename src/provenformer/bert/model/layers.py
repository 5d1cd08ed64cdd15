"""BERT's layers with the mixer of the configuration in them, in post-norm (BERT's) or pre-norm order."""

from typing import Any

from torch import Tensor, nn
from transformers.models.bert.modeling_bert import BertAttention, BertEncoder, BertLayer

from provenformer.bert.model.config import MixerBertConfig
from provenformer.bert.model.slot import MixerSlot, mixer_for


class MixerLayer(BertLayer):
    """A BERT layer; "attention" leaves transformers' sublayer as it is, so it is BERT bit for bit."""

    attention: Any

    def __init__(self, config: MixerBertConfig, layer_idx: int) -> None:
        super().__init__(config, layer_idx=layer_idx)
        name = config.mixers[layer_idx]
        if name != "attention":
            self.attention.self = MixerSlot(mixer_for(name, config, **config.mixer_options.get(name, {})))


class PreNormAttention(BertAttention):
    """x + W_O mix(LayerNorm(x)) instead of LayerNorm(x + W_O mix(x)); the same weights under the same names."""

    def forward(
        self, hidden_states: Tensor, attention_mask: Tensor | None = None, **kwargs: Any
    ) -> tuple[Tensor, Tensor | None]:
        mixed, weights = self.self(self.output.LayerNorm(hidden_states), attention_mask=attention_mask, **kwargs)
        return hidden_states + self.output.dropout(self.output.dense(mixed)), weights


class PreNormLayer(MixerLayer):
    """The pre-norm order for both sublayers."""

    def __init__(self, config: MixerBertConfig, layer_idx: int) -> None:
        super().__init__(config, layer_idx)
        mixing = self.attention.self
        self.attention = PreNormAttention(config, layer_idx=layer_idx)
        self.attention.self = mixing

    def feed_forward_chunk(self, attention_output: Tensor) -> Tensor:
        inner = self.intermediate(self.output.LayerNorm(attention_output))
        return attention_output + self.output.dropout(self.output.dense(inner))


class MixerEncoder(BertEncoder):
    """The stack; pre-norm ends with one more LayerNorm, because nothing else normalises the sum of its layers."""

    def __init__(self, config: MixerBertConfig) -> None:
        super().__init__(config)
        pre = config.norm_position == "pre"
        layer = PreNormLayer if pre else MixerLayer
        self.layer = nn.ModuleList([layer(config, index) for index in range(config.num_hidden_layers)])
        self.final_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps) if pre else nn.Identity()

    def forward(self, hidden_states: Tensor, **kwargs: Any) -> Any:
        output = super().forward(hidden_states, **kwargs)
        output.last_hidden_state = self.final_norm(output.last_hidden_state)
        return output
