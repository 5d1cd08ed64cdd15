"""Depth-wise separable convolution (Section 6.2, Appendix D): GLU, then filters shared by groups of dimensions.

With `softmax_taps` it is the light-weight convolution of Wu et al. (2019); the paper does not say whether it did this.
Cost 2 d^2 n for the GLU and d.k.n for the filters; 2 d^2 + 2 d + filters.k weights, whatever the sequence length.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from provenformer.base.errors import ProvenformerError
from provenformer.bert.model.mixers.base import Mixer, zero_padding
from provenformer.bert.model.mixers.convolution import convolve


class SepConv(Mixer):
    """y = filters * GLU(W X + b); by default 16 filters of 128 taps, each on dim/16 dimensions."""

    def __init__(
        self,
        dim: int,
        *,
        filters: int = 16,
        filter_length: int = 128,
        softmax_taps: bool = False,
        symmetric: bool = False,
    ) -> None:
        super().__init__(dim)
        check_filters("sepconv", dim, filters, filter_length)
        if symmetric and filter_length % 2 == 0:
            remedy = f"use {filter_length - 1} or {filter_length + 1}, or symmetric=False (one tap more on the right)"
            raise ProvenformerError(f"sepconv filter_length={filter_length} is even, not symmetric; {remedy}")
        self.softmax_taps = softmax_taps
        self.gate = nn.Linear(dim, 2 * dim)
        self.filters = nn.Parameter(torch.empty(filters, filter_length))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        # Keeps the variance of the tokens inside the sequence.
        nn.init.normal_(self.filters, std=self.filters.shape[1] ** -0.5)

    def mix(self, hidden: Tensor, real: Tensor | None) -> Tensor:
        # Zero after the GLU: before it, the bias of the gate would leak out of padded positions.
        gated = zero_padding(functional.glu(self.gate(hidden)), real)
        taps = self.filters.softmax(dim=-1) if self.softmax_taps else self.filters
        return convolve(gated, taps.to(gated.dtype))


def check_filters(name: str, dim: int, filters: int, filter_length: int) -> None:
    """Refuse filters that cannot be shared evenly, or that have no taps."""
    if filters < 1 or dim % filters:
        divisors = [count for count in range(1, min(dim, 64) + 1) if dim % count == 0]
        raise ProvenformerError(f"{name} filters={filters} must divide dim={dim}; choose one of {divisors}")
    if filter_length < 1:
        raise ProvenformerError(f"{name} filter_length={filter_length} must be at least 1; the paper uses 128")
