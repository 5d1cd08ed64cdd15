"""MixerBert models: transformers' BERT classes with our encoder inside, saved, loaded and found as any of theirs."""

from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForPreTraining,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    BertConfig,
    BertForMaskedLM,
    BertForPreTraining,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertModel,
    BertPreTrainedModel,
    initialization,
)
from transformers.modeling_outputs import MaskedLMOutput
from transformers.models.bert.modeling_bert import BertEmbeddings, BertForPreTrainingOutput, BertSelfAttention

from provenformer.base.errors import ProvenformerError
from provenformer.bert.model.config import MixerBertConfig
from provenformer.bert.model.layers import MixerEncoder
from provenformer.bert.model.mixers import Mixer

SLOWEST_POSITION_SINE = 100.0  # wavelengths run from 2 pi to 2 pi times this
NOT_MASKED = -100  # Hugging Face's label of a position without a target


@dataclass(frozen=True)
class WeightReport:
    """What became of a stock checkpoint's weights, by name."""

    kept: tuple[str, ...]
    new: tuple[str, ...]
    dropped: tuple[str, ...]

    def __str__(self) -> str:
        return f"{len(self.kept)} weights kept, {len(self.new)} new (initialised), {len(self.dropped)} dropped"


class MixerBertPreTrainedModel(BertPreTrainedModel):
    """Initialisation and loading, common to the models below."""

    config_class = MixerBertConfig
    config: MixerBertConfig
    # The loss is a mean over this batch; without this the Trainer would scale it by accumulation steps and processes.
    accepts_loss_kwargs = False

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, Mixer):
            module.reset_parameters()
        elif isinstance(module, BertEmbeddings) and self.config.position_init == "sinusoidal":
            weight = module.position_embeddings.weight
            initialization.copy_(weight, self.config.position_amplitude * sinusoids(*weight.shape))

    def initialize_weights(self) -> None:
        super().initialize_weights()
        # Here, since transformers shows `_init_weights` only modules with parameters of their own. Loaded weights stay.
        if self.config.attention_init == "tied":
            deviation = self.config.attention_gain * self.config.initializer_range
            for attention in (module for module in self.modules() if isinstance(module, BertSelfAttention)):
                initialization.normal_(attention.query.weight, std=deviation)
                initialization.copy_(attention.key.weight, attention.query.weight)

    @classmethod
    def from_bert(cls, checkpoint: Any, **mixer_config: Any) -> tuple[Self, WeightReport]:
        """Load a stock BERT checkpoint as far as the mixers allow, and report which weights were kept, new or dropped.

        `MixerBertForMaskedLM.from_bert("google-bert/bert-base-uncased", mixers=["sepconv"] * 2 + ["attention"] * 10)`
        """
        stock = BertConfig.from_pretrained(checkpoint).to_dict()
        stock = {name: value for name, value in stock.items() if name not in ("model_type", "architectures")}
        config = MixerBertConfig(**(stock | mixer_config))
        if config.norm_position != "post":
            raise ProvenformerError("a stock BERT checkpoint is post-norm; load it with norm_position='post'")
        model, info = cls.from_pretrained(checkpoint, config=config, output_loading_info=True)
        new = {*info["missing_keys"], *(name for name, *_ in info["mismatched_keys"])}
        kept = set(model.state_dict()) - new
        return model, WeightReport(tuple(sorted(kept)), tuple(sorted(new)), tuple(sorted(info["unexpected_keys"])))


class MixerBertModel(MixerBertPreTrainedModel, BertModel):
    """`BertModel` with a mixer per layer."""

    def __init__(self, config: MixerBertConfig, add_pooling_layer: bool = True) -> None:
        # The stock encoder is replaced at once: allocate it, but do not spend time on filling it.
        with initialization.no_init_weights():
            super().__init__(config, add_pooling_layer)
            self.encoder = MixerEncoder(config)
        self.post_init()


class _WithMixerBert(MixerBertPreTrainedModel):
    """A head of transformers on top of MixerBertModel."""

    bert: Any

    def __init__(self, config: MixerBertConfig) -> None:
        with initialization.no_init_weights():
            super().__init__(config)
            self.bert = MixerBertModel(config, add_pooling_layer=self.bert.pooler is not None)
        self.post_init()


class MixerBertForPreTraining(_WithMixerBert, BertForPreTraining):
    """Masked language model and next-sentence prediction."""

    def forward(
        self,
        input_ids: Tensor | None = None,
        labels: Tensor | None = None,
        next_sentence_label: Tensor | None = None,
        **kwargs: Any,
    ) -> Any:
        if labels is None or not self.config.predict_masked_only:
            return super().forward(input_ids, labels=labels, next_sentence_label=next_sentence_label, **kwargs)
        outputs = self.bert(input_ids, **kwargs)
        states, targets = masked_positions(outputs.last_hidden_state, labels)
        scores, sentence_scores = self.cls(states, outputs.pooler_output)
        loss = None
        if next_sentence_label is not None:
            loss = cross_entropy(scores, targets) + cross_entropy(sentence_scores, next_sentence_label.view(-1))
        return BertForPreTrainingOutput(
            loss, scores, sentence_scores, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )


class MixerBertForMaskedLM(_WithMixerBert, BertForMaskedLM):
    """Masked language model alone."""

    def forward(self, input_ids: Tensor | None = None, labels: Tensor | None = None, **kwargs: Any) -> Any:
        if labels is None or not self.config.predict_masked_only:
            return super().forward(input_ids, labels=labels, **kwargs)
        outputs = self.bert(input_ids, **kwargs)
        states, targets = masked_positions(outputs.last_hidden_state, labels)
        scores = self.cls(states)
        return MaskedLMOutput(
            cross_entropy(scores, targets),
            scores,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


class MixerBertForSequenceClassification(_WithMixerBert, BertForSequenceClassification):
    """A label per sequence (MNLI)."""


class MixerBertForQuestionAnswering(_WithMixerBert, BertForQuestionAnswering):
    """A span per sequence (SQuAD)."""


def masked_positions(states: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """States and labels of the positions that have a target: about one in seven, so the projection costs a seventh."""
    chosen = labels.flatten() != NOT_MASKED
    return states.flatten(0, 1)[chosen], labels.flatten()[chosen]


def sinusoids(positions: int, dim: int) -> Tensor:
    """(positions, dim): sines then cosines, wavelengths in geometric progression."""
    half = (dim + 1) // 2
    frequency = SLOWEST_POSITION_SINE ** -(torch.arange(half) / max(half - 1, 1))
    angle = torch.arange(positions).unsqueeze(1) * frequency
    return torch.cat([angle.sin(), angle.cos()], dim=1)[:, :dim]


AutoConfig.register(MixerBertConfig.model_type, MixerBertConfig)
AutoModel.register(MixerBertConfig, MixerBertModel)
AutoModelForPreTraining.register(MixerBertConfig, MixerBertForPreTraining)
AutoModelForMaskedLM.register(MixerBertConfig, MixerBertForMaskedLM)
AutoModelForSequenceClassification.register(MixerBertConfig, MixerBertForSequenceClassification)
AutoModelForQuestionAnswering.register(MixerBertConfig, MixerBertForQuestionAnswering)
