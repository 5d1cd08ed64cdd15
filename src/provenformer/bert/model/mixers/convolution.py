"""Depth-wise convolution over tokens with filters shared by groups of dimensions, three ways to the same numbers.

    y_j = sum_t filter_t x_(j + t - before),    before = (taps - 1) // 2

x is zero outside the sequence. An even number of taps reaches one token further to the right than to the left.
"""

import torch
from torch import Tensor
from torch.nn import functional

BLOCK = 64  # tokens per product: long enough for full matmul speed, short enough to skip most zeros of the band
LARGEST_MATMUL_WINDOW = 256  # tokens per output; beyond, FFT was measured faster (`python -m benchmarks convolution`)


def taps_before(taps: int) -> int:
    """How many taps lie left of the centre."""
    return (taps - 1) // 2


def skew(taps: Tensor) -> Tensor:
    """(..., rows, taps) -> (..., rows, rows + taps - 1): row r is moved r columns to the right, zeros elsewhere."""
    *lead, rows, width = taps.shape
    flat = functional.pad(taps, (0, rows)).flatten(
        -2
    )  # entry (r, t) now stands at r (rows + width) + t = r (rows + width - 1) + r + t
    return flat[..., : rows * (rows + width - 1)].reshape(*lead, rows, rows + width - 1)


def convolve(x: Tensor, filters: Tensor) -> Tensor:
    """x (batch, tokens, dim) with filters (groups, taps), by whichever way is faster at this size."""
    way = convolve_fft if fft_is_faster(x.shape[1], filters.shape[1]) else convolve_toeplitz
    return way(x, filters)


def fft_is_faster(tokens: int, taps: int) -> bool:
    """A product reads at most this many tokens per output; FFT does not care."""
    return min(tokens, BLOCK + taps - 1) > LARGEST_MATMUL_WINDOW


def convolve_toeplitz(x: Tensor, filters: Tensor) -> Tensor:
    """As matrix products: a band matrix per filter, shared by all blocks of tokens, the batch folded into columns."""
    batch, tokens, dim = x.shape
    groups, taps = filters.shape
    before, window = taps_before(taps), BLOCK + taps - 1
    columns = x.reshape(batch, tokens, groups, -1).permute(2, 1, 0, 3).reshape(groups, tokens, -1)
    if tokens <= window:
        band = skew(filters.unsqueeze(1).expand(groups, tokens, taps))[..., before : before + tokens]
        mixed = band @ columns
    else:
        band = skew(filters.unsqueeze(1).expand(groups, BLOCK, taps))
        padded = functional.pad(columns, (0, 0, before, taps - 1 - before + -tokens % BLOCK))
        blocks = [band @ padded[:, start : start + window] for start in range(0, tokens, BLOCK)]
        mixed = torch.cat(blocks, dim=1)[:, :tokens]
    return mixed.view(groups, tokens, batch, -1).permute(2, 1, 0, 3).reshape(batch, tokens, dim)


def convolve_fft(x: Tensor, filters: Tensor) -> Tensor:
    """By the convolution theorem; in float32 where the dtype has no FFT."""
    batch, tokens, dim = x.shape
    groups, taps = filters.shape
    after = taps - 1 - taps_before(taps)
    work = torch.promote_types(x.dtype, torch.float32)
    length = _fast_length(tokens + taps - 1)
    signals = x.to(work).transpose(1, 2).reshape(batch, groups, -1, tokens)
    kernels = filters.to(work).flip(-1).unsqueeze(1)
    product = torch.fft.rfft(signals, n=length) * torch.fft.rfft(kernels, n=length)
    full = torch.fft.irfft(product, n=length)[..., after : after + tokens]
    return full.reshape(batch, dim, tokens).transpose(1, 2).to(x.dtype)


def _fast_length(least: int) -> int:
    """The smallest 2^a or 3.2^a that is at least `least`."""
    power = 1 << (least - 1).bit_length()
    return power * 3 // 4 if power >= 4 and power * 3 // 4 >= least else power
