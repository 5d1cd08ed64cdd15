"""Signals and control."""

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view


def fir(x: Any) -> Any:
    taps = np.hamming(7) / np.hamming(7).sum()
    padded = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(3, 3)])
    n = x.shape[-1]
    return sum(tap * padded[..., k : k + n] for k, tap in enumerate(taps))


def exponential_smoothing(x: Any) -> Any:
    level = x[..., 0]
    levels = [level]
    for t in range(1, x.shape[-1]):
        level = 0.2 * x[..., t] + 0.8 * level
        levels.append(level)
    return np.stack(levels, axis=-1)


def spectral_shrinkage(x: Any) -> Any:
    """Soft thresholds in an orthonormal cosine basis."""
    n = x.shape[-1]
    basis = np.cos(np.pi * (np.arange(n)[:, None] + 0.5) * np.arange(n) / n) * np.sqrt(2 / n)
    basis[:, 0] /= np.sqrt(2)
    coefficients = x @ basis
    shrunk = np.sign(coefficients) * np.maximum(np.abs(coefficients) - 0.3, 0)
    return shrunk @ basis.T


def low_pass(x: Any) -> Any:
    spectrum = np.fft.rfft(x, axis=-1)
    return np.fft.irfft(spectrum * (np.arange(spectrum.shape[-1]) < 4), n=x.shape[-1], axis=-1)


def moving_maximum(x: Any) -> Any:
    padded = np.concatenate([np.repeat(x[..., :1], 4, axis=-1), x], axis=-1)
    return sliding_window_view(padded, 5, axis=-1).max(axis=-1)


def morphological_opening(x: Any) -> Any:
    def neighbours(z: Any) -> Any:
        return np.roll(z, -1, axis=-1), z, np.roll(z, 1, axis=-1)

    left, here, right = neighbours(x)
    left, here, right = neighbours(np.minimum(np.minimum(left, here), right))
    return np.maximum(np.maximum(left, here), right)


def teager(x: Any) -> Any:
    """Teager and Kaiser's energy, 0 at both ends."""
    out = np.zeros_like(x)
    out[..., 1:-1] = x[..., 1:-1] ** 2 - x[..., :-2] * x[..., 2:]
    return out


def haar_denoised(x: Any) -> Any:
    even, odd = x[..., ::2], x[..., 1::2]
    mean, detail = (even + odd) / 2, (even - odd) / 2
    detail = detail - np.clip(detail, -0.1, 0.1)
    return np.stack([mean + detail, mean - detail], axis=-1).reshape(x.shape)


def gain_control(x: Any) -> Any:
    power = np.cumsum(x**2, axis=-1) / np.arange(1, x.shape[-1] + 1)
    return x / np.sqrt(power + 0.05)


def biquad(x: Any) -> Any:
    b0, b1, b2, a1, a2 = 0.2, 0.4, 0.2, -0.6, 0.3
    s1 = s2 = np.zeros(x.shape[:-1])
    out = []
    for t in range(x.shape[-1]):
        u = x[..., t]
        y = b0 * u + s1
        s1, s2 = b1 * u - a1 * y + s2, b2 * u - a2 * y
        out.append(np.tanh(y))
    return np.stack(out, axis=-1)


def mu_law(x: Any) -> Any:
    return np.sign(x) * np.log1p(255 * np.abs(x)) / np.log1p(255)


def soft_dtw(x: Any) -> Any:
    """Rows are two signals; the last row of the table of their soft alignment, in place of the second."""
    a, b = x[..., 0, :], x[..., 1, :]
    n, gamma = x.shape[-1], 0.5
    R: dict[tuple[int, int], Any] = {}
    for i in range(n):
        for j in range(n):
            before = [R[k] for k in ((i - 1, j), (i, j - 1), (i - 1, j - 1)) if k in R]
            cost = (a[..., i] - b[..., j]) ** 2
            R[i, j] = cost - gamma * np.log(sum(np.exp(-r / gamma) for r in before)) if before else cost
    return np.stack([a, np.stack([R[n - 1, j] for j in range(n)], axis=-1)], axis=-2)


def kalman(x: Any) -> Any:
    """A random walk, observed with noise; large innovations are held back."""
    estimate, variance, out = 0.0, 1.0, []
    for t in range(x.shape[-1]):
        variance = variance + 0.1
        gain = variance / (variance + 0.5)
        estimate = estimate + gain * 2 * np.tanh((x[..., t] - estimate) / 2)
        variance = (1 - gain) * variance
        out.append(estimate)
    return np.stack(out, -1)


def pid(x: Any) -> Any:
    """The command of a controller with a clipped integrator for the errors x."""
    integral, previous, out = 0.0, x[..., 0], []
    for error in np.moveaxis(x, -1, 0):
        integral = np.clip(integral + 0.1 * error, -0.5, 0.5)
        out.append(np.clip(1.2 * error + 0.8 * integral + 0.3 * (error - previous), -1, 1))
        previous = error
    return np.stack(out, axis=-1)


def saturated_plant(x: Any) -> Any:
    """A double integrator that is pushed by x, at most by 1."""
    A, B = np.array([[1.0, 0.1], [-0.2, 0.9]]), np.array([0.0, 0.1])
    state = np.zeros((*x.shape[:-2], 2))
    positions = []
    for t in range(x.shape[-1]):
        state = state @ A.T + np.clip(x[..., 0, t], -1, 1)[..., None] * B
        positions.append(state[..., :1])
    return np.stack(positions, axis=-1)
