"""BERT with cheaper token mixers in place of self-attention (Section 6); needs the extra `provenformer[bert]`."""

from provenformer.base.extras import extra

with extra("bert", "provenformer.bert"):
    from provenformer.bert.model.config import MixerBertConfig
    from provenformer.bert.model.mixers import MIXERS, build_mixer
    from provenformer.bert.model.models import (
        MixerBertForMaskedLM,
        MixerBertForPreTraining,
        MixerBertForQuestionAnswering,
        MixerBertForSequenceClassification,
        MixerBertModel,
        WeightReport,
    )
    from provenformer.bert.model.replacing import load_model, replace_attention

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
    "load_model",
    "replace_attention",
]
