"""The configuration: BERT's, plus which mixer each layer uses and how a model starts."""

import math
from typing import Any, Self

import torch
from transformers import BertConfig
from transformers.activations import ACT2FN

from provenformer.base.errors import ProvenformerError
from provenformer.bert.model.mixers import MIXERS
from provenformer.bert.model.slot import mixer_for

SIZES = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
    "type_vocab_size",
)
DROPOUTS = ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout")


class MixerBertConfig(BertConfig):
    """BERT with a mixer per layer, input side first.

    mixers               one name for all layers, or a list with one name per layer
    mixer_options        e.g. {"sepconv": {"filter_length": 31}}; what is not given follows from the model's sizes
    norm_position        "post" (BERT, the paper) or "pre" (LayerNorm before each sublayer and one at the end)
    position_init        "normal" (BERT) or "sinusoidal": learnt positions that start as sines of `position_amplitude`
    attention_init       "normal" (BERT) or "tied": key weights start as the query weights, `attention_gain` times the usual size
    predict_masked_only  with labels, only the masked positions meet the vocabulary: logits are (masked, vocabulary)
    """

    model_type = "mixer-bert"

    mixers: Any = "attention"
    mixer_options: Any = None
    norm_position: Any = "post"
    position_init: Any = "normal"
    position_amplitude: float = 0.2
    attention_init: Any = "normal"
    attention_gain: float = 1.7
    predict_masked_only: bool = False

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)
        self._check_bert()
        self.mixer_options = options = self.mixer_options or {}
        if not (isinstance(options, dict) and all(isinstance(one, dict) for one in options.values())):
            example = '{"sepconv": {"filter_length": 31}}'
            raise ProvenformerError(f"mixer_options={options!r} must be a dict of dicts; for example {example}")
        if options.get("attention"):
            remedy = "set num_attention_heads and attention_probs_dropout_prob"
            raise ProvenformerError(f"mixer_options for 'attention' would have no effect; {remedy} instead")
        self.mixers = _per_layer(self.mixers, self.num_hidden_layers)
        _check_choice("norm_position", self.norm_position, ("post", "pre"))
        _check_choice("position_init", self.position_init, ("normal", "sinusoidal"))
        _check_choice("attention_init", self.attention_init, ("normal", "tied"))
        if not 0 < self.attention_gain < math.inf:
            raise ProvenformerError(f"attention_gain={self.attention_gain} must be above 0 and finite; correct it")
        if self.is_decoder or self.add_cross_attention:
            raise ProvenformerError("mixers look both ways, so is_decoder and add_cross_attention must be False")
        for name in [*self.mixer_options, *self.mixers]:
            _check_choice("mixer", name, tuple(MIXERS))
        # Built on no device, so that a bad option is told here and not when the model is made.
        with torch.device("meta"):
            for name in dict.fromkeys(self.mixers):
                mixer_for(name, self, **self.mixer_options.get(name, {}))

    def _check_bert(self) -> None:
        """What transformers finds out only when it builds the model, if at all."""
        for name in SIZES:
            if getattr(self, name) < 1:
                raise ProvenformerError(f"{name}={getattr(self, name)} must be at least 1; correct it")
        for name in DROPOUTS:
            if not 0 <= (getattr(self, name) or 0) <= 1:
                raise ProvenformerError(f"{name}={getattr(self, name)} must be from 0 to 1; correct it")
        # Whatever the mixers: BERT's attention is built in every layer before a mixer takes its place.
        if self.hidden_size % self.num_attention_heads:
            sizes = f"num_attention_heads={self.num_attention_heads} must divide hidden_size={self.hidden_size}"
            raise ProvenformerError(f"{sizes}; choose a divisor of {self.hidden_size}")
        _check_choice("hidden_act", self.hidden_act, tuple(ACT2FN))

    @classmethod
    def bert_base(cls, mixer: str = "attention", **overrides: Any) -> Self:
        """The paper's BERT_BASE (12 layers, 768 dimensions, 12 heads, 512 positions) with one mixer throughout."""
        return cls(**({"mixers": mixer} | overrides))

    @classmethod
    def hybrid(cls, **counts_and_overrides: Any) -> Self:
        """`hybrid(sepconv=2)`: so many layers nearest the input, attention above; other arguments are config fields."""
        counts = {name: count for name, count in counts_and_overrides.items() if name in MIXERS}
        overrides = {name: value for name, value in counts_and_overrides.items() if name not in MIXERS}
        depth = overrides.get("num_hidden_layers", cls.num_hidden_layers)
        lower = [name for name, count in counts.items() for _ in range(count)]
        if len(lower) > depth or min(counts.values(), default=0) < 0:
            asked = ", ".join(f"{name}={count}" for name, count in counts.items())
            raise ProvenformerError(f"hybrid({asked}) does not fit {depth} layers; counts are 0 to {depth} in all")
        return cls(mixers=lower + ["attention"] * (depth - len(lower)), **overrides)


def _per_layer(mixers: Any, depth: int) -> list[str]:
    if not isinstance(mixers, str | list | tuple):
        raise ProvenformerError(f"mixers={mixers!r} must be a name or a list of names; for example 'sepconv'")
    names = [mixers] * depth if isinstance(mixers, str) else list(mixers)
    if len(names) != depth:
        raise ProvenformerError(
            f"mixers lists {len(names)} layers, the model has {depth}; give one name per layer or one name for all"
        )
    return names


def _check_choice(what: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ProvenformerError(f"unknown {what} {value!r}; choose one of {', '.join(choices)}")
