"""Parameter counts of BERT_BASE with each mixer, beside the paper's (Table 1). Nothing is allocated."""

from dataclasses import dataclass

import torch

from provenformer.bert.model.config import MixerBertConfig
from provenformer.bert.model.models import MixerBertForMaskedLM


@dataclass(frozen=True)
class ParameterRow:
    """One model: what it is, its exact size, and what the paper prints for it, if it does."""

    model: str
    count: int
    paper: str | None
    note: str


def count_parameters(config: MixerBertConfig) -> int:
    """Weights of the masked language model, decoder tied to the embeddings, no pooler: so the paper seems to count."""
    with torch.device("meta"):
        model = MixerBertForMaskedLM(config)
    return sum(parameter.numel() for parameter in model.parameters())


def parameter_table() -> list[ParameterRow]:
    """Every mixer at BERT_BASE size, both readings of BProj, and the hybrids of Figure 1."""

    def base(mixer: str, paper: str | None, note: str, name: str | None = None, **options: int) -> ParameterRow:
        config = MixerBertConfig.bert_base(mixer=mixer, mixer_options={mixer: options})
        return ParameterRow(name or mixer, count_parameters(config), paper, note)

    rows = [
        base("average", "88.3M", "no weights of its own"),
        base("bproj", "90M", "W_P 512 x 512, one weight per pair of positions"),
        base("bproj", "90M", "W_P 384 x 384: the size that meets the paper's count", name="bproj, size 384", size=384),
        base("sepconv", "102.5M", "GLU and 16 filters of 128 taps"),
        base("attention", "110M", "BERT_BASE"),
        base("dynamicconv", None, "GLU and 16 predicted filters of 31 taps"),
        base("fourier", None, "no weights of its own"),
    ]
    for swapped in range(1, 13):
        count = count_parameters(MixerBertConfig.hybrid(sepconv=swapped))
        rows.append(ParameterRow(f"hybrid({swapped})", count, None, f"first {swapped} of 12 layers sepconv"))
    return rows
