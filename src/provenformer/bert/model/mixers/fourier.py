"""Fourier mixing (FNet, Lee-Thorp et al. 2021): the real part of the Fourier transform over tokens and dimensions.

No weights. Cost d.n.(log d + log n) without a mask, n^2 d with one. Two departures from FNet: the transform is scaled
to keep the variance (FNet's is not; W_O, which we keep in every mixer, can undo it), and it runs over the *real* tokens
only, as if each sequence stood alone, where FNet transforms the padding too.
"""

import math

import torch
from torch import Tensor

from provenformer.bert.model.mixers.base import Mixer, zero_padding


class Fourier(Mixer):
    """y = Re F_n (F_d x) / sqrt(n d), n the number of real tokens."""

    def mix(self, hidden: Tensor, real: Tensor | None) -> Tensor:
        x = hidden.to(torch.promote_types(hidden.dtype, torch.float32))  # half precision has no FFT
        if real is None:
            return torch.fft.fft2(x, dim=(1, 2), norm="ortho").real.to(hidden.dtype)
        spectrum = torch.fft.fft(zero_padding(x, real), dim=-1, norm="ortho")
        angle, scale = _angles(real, x.dtype)
        mixed = (angle.cos() @ spectrum.real + angle.sin() @ spectrum.imag) * scale
        return mixed.to(hidden.dtype)


def _angles(real: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Angles 2 pi j i / n of each sequence's own transform, j and i counted among its real tokens; and 1 / sqrt(n)."""
    position = real.cumsum(dim=1) - 1
    length = real.sum(dim=1).clamp(min=1)[:, None, None]
    # Reduced modulo n as integers: a large float angle would lose digits.
    turns = (position.unsqueeze(2) * position.unsqueeze(1)) % length
    return turns.to(dtype) * (2 * math.pi) / length, length.to(dtype).rsqrt()
