"""BERT with cheaper token mixers in place of self-attention (Section 6); needs the extra `provenformer[bert]`."""

from provenformer.bert.config import MixerBertConfig
from provenformer.bert.mixers import MIXERS, build_mixer
from provenformer.bert.model import (
    MixerBertForMaskedLM,
    MixerBertForPreTraining,
    MixerBertForQuestionAnswering,
    MixerBertForSequenceClassification,
    MixerBertModel,
    WeightReport,
)
from provenformer.bert.slot import replace_attention

__all__ = [
    "MIXERS",
    "MixerBertConfig",
    "MixerBertForMaskedLM",
    "MixerBertForPreTraining",
    "MixerBertForQuestionAnswering",
    "MixerBertForSequenceClassification",
    "MixerBertModel",
    "WeightReport",
    "build_mixer",
    "replace_attention",
]
