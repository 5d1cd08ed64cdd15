"""Token mixers that may stand where BERT has self-attention: one file each, one signature `mixer(hidden, mask)`."""

import inspect
from typing import Any

from provenformer.base.errors import ProvenformerError
from provenformer.bert.model.mixers.attention import Attention
from provenformer.bert.model.mixers.average import Average
from provenformer.bert.model.mixers.base import Mixer
from provenformer.bert.model.mixers.bproj import BProj
from provenformer.bert.model.mixers.dynamicconv import DynamicConv
from provenformer.bert.model.mixers.fourier import Fourier
from provenformer.bert.model.mixers.sepconv import SepConv

MIXERS: dict[str, type[Mixer]] = {
    "attention": Attention,
    "average": Average,
    "bproj": BProj,
    "sepconv": SepConv,
    "dynamicconv": DynamicConv,
    "fourier": Fourier,
}

__all__ = ["MIXERS", "Attention", "Average", "BProj", "DynamicConv", "Fourier", "Mixer", "SepConv", "build_mixer"]


def build_mixer(name: str, dim: int, **options: Any) -> Mixer:
    """The mixer of that name, e.g. `build_mixer("sepconv", 768, filter_length=31)`."""
    if name not in MIXERS:
        raise ProvenformerError(f"unknown mixer {name!r}; choose one of {', '.join(MIXERS)}")
    known = [option for option in inspect.signature(MIXERS[name]).parameters if option != "dim"]
    for option in options:
        if option not in known:
            raise ProvenformerError(f"mixer {name!r} has no option {option!r}; it takes {', '.join(known) or 'none'}")
    try:
        return MIXERS[name](dim, **options)
    except TypeError as error:  # a text where a number belongs, say
        raise ProvenformerError(f"mixer {name!r} cannot be built with {options}: {error}") from None
