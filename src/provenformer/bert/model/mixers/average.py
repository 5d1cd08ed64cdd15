"""Average attention (Appendix D): the attention matrix is full of 1/n. No weights; cost n.d."""

from torch import Tensor

from provenformer.bert.model.mixers.base import Mixer, zero_padding


class Average(Mixer):
    """Every token receives the mean of the real tokens, itself included."""

    def mix(self, hidden: Tensor, real: Tensor | None) -> Tensor:
        if real is None:
            return hidden.mean(dim=1, keepdim=True).expand_as(hidden)
        length = real.sum(dim=1).clamp(min=1).to(hidden.dtype)
        mean = zero_padding(hidden, real).sum(dim=1) / length.unsqueeze(-1)
        return mean.unsqueeze(1).expand_as(hidden)
