"""Dynamic convolution (Wu et al. 2019): light-weight convolution whose filters each token predicts for itself.

The GLU of SepConv, then softmax(W_F x_j) gives the filter at token j. Cost (2 d^2 + d.filters.k) n for the projections
and d.k.n for the filters; weights do not depend on the sequence length.
"""

from torch import Tensor, nn
from torch.nn import functional

from provenformer.bert.model.mixers.base import Mixer, zero_padding
from provenformer.bert.model.mixers.convolution import BLOCK, skew, taps_before
from provenformer.bert.model.mixers.sepconv import check_filters


class DynamicConv(Mixer):
    """y_j = sum_t softmax(W_F g_j)_t g_(j + t - before), g = GLU(W X + b); 31 taps are Wu et al.'s longest."""

    def __init__(self, dim: int, *, filters: int = 16, filter_length: int = 31) -> None:
        super().__init__(dim)
        check_filters("dynamicconv", dim, filters, filter_length)
        self.filters, self.filter_length = filters, filter_length
        self.gate = nn.Linear(dim, 2 * dim)
        self.predict = nn.Linear(dim, filters * filter_length, bias=False)

    def mix(self, hidden: Tensor, real: Tensor | None) -> Tensor:
        batch, tokens, dim = hidden.shape
        before, after = taps_before(self.filter_length), self.filter_length - 1 - taps_before(self.filter_length)
        gated = zero_padding(functional.glu(self.gate(hidden)), real)
        taps = self.predict(gated).unflatten(-1, (self.filters, -1)).softmax(dim=-1).to(gated.dtype)

        # Blocks of tokens, each times its own band matrix over the window that it can see.
        rows = min(tokens, BLOCK)
        missing = -tokens % rows
        taps = functional.pad(taps.transpose(1, 2), (0, 0, 0, missing)).unflatten(2, (-1, rows))
        values = gated.unflatten(-1, (self.filters, -1)).transpose(1, 2)
        values = functional.pad(values, (0, 0, before, after + missing))
        windows = values.unfold(2, rows + self.filter_length - 1, rows)  # (batch, filters, blocks, dim/filters, window)
        mixed = skew(taps) @ windows.transpose(-1, -2)
        return mixed.flatten(2, 3)[:, :, :tokens].transpose(1, 2).reshape(batch, tokens, dim)
