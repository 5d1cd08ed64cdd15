"""Mixers in place of the self-attention of any BERT-family model, in memory and back from disk.

transformers' own classes build self-attention in every layer, and what a file does not hold they initialise afresh. So a
model that was changed says so in two places, whoever saves it (`save_pretrained`, the Trainer, a state dict):

- its configuration lists the mixers (`replaced_attention`) and has a name of an activation that does not exist, which says
  what to do: whoever builds the plain model from it gets that sentence as an error;
- its weights have, where the plain layer has `query.weight`, a single number: loaded into the plain layer, it does not fit.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn
from transformers import CONFIG_MAPPING, PreTrainedConfig, PreTrainedModel

from provenformer.base.errors import ProvenformerError, one_line
from provenformer.bert.model import models
from provenformer.bert.model.mixers import Mixer
from provenformer.bert.model.slot import DistilBertSlot, MixerSlot, encoder_layers, mixer_for
from provenformer.bert.settings import build_settings, shown

RECORD = "replaced_attention"
LOAD_WITH = "; its attention was replaced, load it with provenformer.bert.load_model"
HUB = ("revision", "token", "cache_dir", "local_files_only", "subfolder", "force_download")  # where a folder comes from


@dataclass(frozen=True)
class Replaced:
    """One entry of `config.replaced_attention`."""

    layer: int
    mixer: str
    options: dict[str, Any]


class NotAttention(nn.Module):
    """Stands where a plain layer has the weights of its queries."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.zeros(1))


def replace_attention(
    model: PreTrainedModel, layers: int | Iterable[int], mixer: str, **options: Any
) -> PreTrainedModel:
    """Put a freshly initialised mixer in place of self-attention in these layers of a BERT-family model, in place.

    `replace_attention(model, layers=[0, 1], mixer="sepconv", filter_length=31)`; returns the model. Save it as ever;
    `load_model` brings it back.
    """
    stack = encoder_layers(model)
    chosen = [layers] if isinstance(layers, int) else list(layers)
    if not chosen or not all(isinstance(index, int) for index in chosen):
        raise ProvenformerError(f"layers={layers!r} names no layers by number; give them as in layers=[0, 1]")
    for index in chosen:
        if not 0 <= index < len(stack):
            raise ProvenformerError(f"layer {index} does not exist; {type(model).__name__} has 0 to {len(stack) - 1}")
    if getattr(model.config, "is_decoder", False):
        raise ProvenformerError("mixers look both ways and cannot replace a decoder's attention; set is_decoder=False")
    slots = [mixer_for(mixer, model.config, **options) for _ in chosen]
    for index, built in zip(chosen, slots, strict=True):
        _put(model, stack[index], built)
    _record(model.config, [Replaced(int(index), mixer, options) for index in chosen])
    return model


def _put(model: PreTrainedModel, layer: Any, mixer: Mixer) -> None:
    with torch.no_grad():
        for linear in (module for module in mixer.modules() if isinstance(module, nn.Linear)):
            model._init_weights(linear)  # the model's own initializer_range
    distilled = hasattr(layer.attention, "out_lin")
    output = layer.attention.out_lin if distilled else layer.attention.output.dense
    slot = DistilBertSlot(mixer, output) if distilled else MixerSlot(mixer)
    slot.add_module("q_lin" if distilled else "query", NotAttention())
    slot.to(device=output.weight.device, dtype=output.weight.dtype).train(model.training)
    if distilled:
        layer.attention = slot
    else:
        layer.attention.self = slot


def _record(config: PreTrainedConfig, replaced: list[Replaced]) -> None:
    """Add to what the configuration says; a layer that is replaced again counts once."""
    known = {entry["layer"]: entry for entry in getattr(config, RECORD, [])}
    known |= {entry.layer: asdict(entry) for entry in replaced}
    setattr(config, RECORD, [known[layer] for layer in sorted(known)])
    name = _activation(vars(config))
    setattr(config, name, str(getattr(config, name)).removesuffix(LOAD_WITH) + LOAD_WITH)


def _activation(config: dict[str, Any]) -> str:
    return "activation" if "activation" in config else "hidden_act"  # DistilBERT's name, everyone's


def load_model(folder: str | Path, head: Any = None, **overrides: Any) -> Any:
    """The model of a saved folder as it was, mixers included: changed by `replace_attention`, MixerBert or stock.

    `head` is another class than the one saved, of transformers or of ours (`AutoModelForSequenceClassification`, ...); a
    head that the folder does not have is new, everything below it must be there. `overrides` are fields of the
    configuration (`num_labels=3`) and options of `from_pretrained` (`dtype`, `revision`). A name that is no folder is one of
    the hub. Nothing in a folder is executed.
    """
    place = Path(folder)
    beside = place.parent != Path() and place.parent.is_dir()  # no name of the hub: what is beside it is here
    if not place.is_dir() and (place.exists() or place.is_absolute() or beside or str(folder).count("/") > 1):
        raise ProvenformerError(f"{folder} is not a folder; name the one that save_pretrained wrote")
    config, replaced, options = _configuration(folder, overrides)
    kind = _class(folder, config, head)
    with _one_line(folder):
        model, info = _with_mixers(kind, replaced).from_pretrained(
            folder,
            config=config,
            output_loading_info=True,
            use_safetensors=True,
            ignore_mismatched_sizes=head is not None,  # a new head may have other labels; below it nothing may differ
            **options,
        )
    model.__class__ = kind
    missing = {*info["missing_keys"], *(name for name, *_ in info["mismatched_keys"])}
    if head is not None:  # then the head may be new, and with it what only some models have below it
        below = f"{kind.base_model_prefix}." if model.base_model is not model else ""
        missing = {name for name in missing if name.startswith(below) and "pooler." not in name}
    if missing:
        raise ProvenformerError(f"the weights in {folder} have no {min(missing)} that fits; save the model again")
    return model


def _configuration(
    folder: str | Path, overrides: dict[str, Any]
) -> tuple[PreTrainedConfig, list[Replaced], dict[str, Any]]:
    """The configuration as it was before attention was replaced, what was replaced, and the overrides left over."""
    where = f"config.json of {folder}"
    with _one_line(folder):
        content, _ = PreTrainedConfig.get_config_dict(folder, **{k: v for k, v in overrides.items() if k in HUB})
    if content.get("model_type") not in CONFIG_MAPPING:
        known = "name a model of transformers' BERT family"
        raise ProvenformerError(f"{where}: model_type {shown(content.get('model_type'))} is not known; {known}")
    entries = content.pop(RECORD, [])
    if not isinstance(entries, list):
        raise ProvenformerError(f"{where}: {RECORD} = {shown(entries)} must be a list; save the model again")
    replaced = [build_settings(Replaced, entry, f"{where}: {RECORD}", "save the model again") for entry in entries]
    name = _activation(content)
    activation = content.get(name)
    if isinstance(activation, str) and activation.endswith(LOAD_WITH):
        content[name] = activation.removesuffix(LOAD_WITH)
        if not replaced:
            raise ProvenformerError(f"{where} lacks {RECORD}, which says what was replaced; save the model again")
    with _one_line(folder):
        config, options = CONFIG_MAPPING[content["model_type"]].from_dict(
            content, return_unused_kwargs=True, **overrides
        )
    return config, replaced, options


def _class(folder: str | Path, config: PreTrainedConfig, head: Any) -> Any:
    """The class to build: that of the head asked for, else the one that was saved."""
    kind: Any
    if head is None:
        name = (config.architectures or [""])[0]
        kind = getattr(models, name, None) or getattr(transformers, name, None)
    else:
        mapping = getattr(head, "_model_mapping", None)  # of an Auto class
        kind = head if mapping is None else mapping.get(type(config), None)
        name = head.__name__
    is_model = isinstance(kind, type) and issubclass(kind, PreTrainedModel)
    if not is_model or kind.config_class is not type(config):
        found = f"{folder} holds a {config.model_type} model, for which {name or 'its class'} does not stand"
        raise ProvenformerError(
            f"{found}; give the class, as in load_model(folder, AutoModelForSequenceClassification)"
        )
    return kind


def _with_mixers(kind: Any, replaced: list[Replaced]) -> Any:
    """`kind`, built with these mixers, so that `from_pretrained` finds where their weights belong."""

    def build(self: Any, config: PreTrainedConfig, *arguments: Any, **options: Any) -> None:
        kind.__init__(self, config, *arguments, **options)
        for entry in replaced:
            replace_attention(self, [entry.layer], entry.mixer, **entry.options)

    return type(kind.__name__, (kind,), {"__init__": build, "__module__": kind.__module__}) if replaced else kind


@contextmanager
def _one_line(folder: str | Path) -> Iterator[None]:
    """transformers reads config.json without checking it, so what is wrong there may show as anything."""
    try:
        yield
    except ProvenformerError:
        raise
    except Exception as error:
        reason = one_line(error)[:200] or type(error).__name__
        raise ProvenformerError(f"the model in {folder} cannot be loaded ({reason}); make it again") from None
