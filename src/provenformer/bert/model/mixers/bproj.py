"""Bi-linear projection (Section 6.1, equation 5): X W_P, a learnt matrix over positions. Cost n^2 d, n^2 weights."""

import math

import torch
from torch import Tensor, nn
from transformers import initialization

from provenformer.base.errors import ProvenformerError
from provenformer.bert.model.mixers.base import Mixer, zero_padding


class BProj(Mixer):
    """Token j receives sum_i X_i W_P[i, j].

    W_P is indexed by the position *among the real tokens*: a sequence meets the same weights wherever its padding is.
    It starts Gaussian, or with `band` above 0 as exp(-|i - j| / band): every token first hears its neighbours.
    """

    def __init__(self, dim: int, *, size: int = 512, band: float = 0.0) -> None:
        super().__init__(dim)
        if size < 1:
            raise ProvenformerError(f"bproj size={size} must be at least 1; give the longest sequence it shall take")
        if not 0 <= band < math.inf:
            raise ProvenformerError(f"bproj band={band} must be at least 0 and finite; 0 for a Gaussian start")
        self.size, self.band = size, band
        self.position_weight = nn.Parameter(torch.empty(size, size))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        # Both starts keep the variance of independent tokens.
        if self.band:
            place = torch.arange(self.size)
            near = torch.exp(-(place[:, None] - place).abs() / self.band)
            initialization.copy_(self.position_weight, near / near.norm(dim=0))
        else:  # as the paper's argument needs
            nn.init.normal_(self.position_weight, std=self.size**-0.5)

    def mix(self, hidden: Tensor, real: Tensor | None) -> Tensor:
        tokens = hidden.shape[1]
        if tokens > self.size:
            remedy = f"truncate the input or build the mixer with size={tokens}"
            raise ProvenformerError(f"bproj was built for {self.size} tokens and got {tokens}; {remedy}")
        weight = self.position_weight[:tokens, :tokens]
        if real is None:
            return torch.einsum("bid,ij->bjd", hidden, weight)
        # Real tokens to the front, in their order; mix; and back to where they stood.
        order = (~real).to(torch.int8).argsort(dim=1, stable=True).unsqueeze(-1).expand_as(hidden)
        packed = zero_padding(hidden, real).gather(1, order)
        mixed = torch.einsum("bid,ij->bjd", packed, weight)
        return torch.zeros_like(mixed).scatter(1, order, mixed)
