"""Statistics."""

from typing import Any

import numpy as np
from scipy.special import expit

from trades.common import sigmoid


def local_regression(x: Any) -> Any:
    """Row 0 is where, row 1 what was measured there: smooth the measurements with a Gaussian kernel."""
    where, values = x[..., 0, :], x[..., 1, :]
    kernel = np.exp(-0.5 * ((where[..., :, None] - where[..., None, :]) / 0.8) ** 2)
    smooth = np.einsum("...jk,...k->...j", kernel, values) / kernel.sum(-1)
    return np.stack([where, smooth], axis=-2)


def huber_residuals(x: Any) -> Any:
    """Residuals from Huber's mean, by three reweightings from the median."""
    centre = np.median(x, axis=-1, keepdims=True)
    for _ in range(3):
        weights = 1.345 / np.maximum(1.345, np.abs(x - centre))
        centre = (weights * x).sum(-1, keepdims=True) / weights.sum(-1, keepdims=True)
    return x - centre


def trimmed_mean(x: Any) -> Any:
    cut = max(1, x.shape[-1] // 10)
    middle = np.sort(x, axis=-1)[..., cut:-cut]
    return x - middle.mean(axis=-1)[..., None]


def median_of_means(x: Any) -> Any:
    blocks = x.reshape(*x.shape[:-1], 4, -1).mean(axis=-1)
    return x - np.median(blocks, axis=-1)[..., np.newaxis]


def winsorised(x: Any) -> Any:
    low, high = np.quantile(x, [0.1, 0.9], axis=-1, keepdims=True)
    return np.clip(x, low, high)


def interquartile_scaled(x: Any) -> Any:
    ordered = np.sort(x, axis=-1)
    n = x.shape[-1]
    spread = ordered[..., 3 * n // 4] - ordered[..., n // 4]
    return x / (1 + spread[..., None])


def logistic_gradient(x: Any) -> Any:
    """Rows 0 and 1 are features, row 2 the label: two steps of gradient descent, then the probabilities."""
    features, label = x[..., :2, :], x[..., 2:, :]
    weights = np.zeros((1, 2))
    for _ in range(2):
        error = sigmoid(weights @ features) - label
        weights = weights - 0.5 * error @ np.swapaxes(features, -1, -2) / x.shape[-1]
    return np.concatenate([features, sigmoid(weights @ features)], axis=-2)


def ridge_residuals(x: Any) -> Any:
    """What a line through the cloud of points (t, y) leaves of y."""
    t, y = x[..., 0, :], x[..., 1, :]
    dt, dy = t - t.mean(-1, keepdims=True), y - y.mean(-1, keepdims=True)
    slope = (dt * dy).mean(-1, keepdims=True) / ((dt**2).mean(-1, keepdims=True) + 0.1)
    return np.stack((t, dy - slope * dt), axis=-2)


def soft_ranks(x: Any) -> Any:
    return expit((x[..., :, None] - x[..., None, :]) / 0.5).mean(axis=-1)


def density(x: Any) -> Any:
    """A kernel density estimate at every observation."""
    distance = x[..., :, None] - x[..., None, :]
    return np.exp(-0.5 * distance**2).mean(axis=-1) / np.sqrt(2 * np.pi)


def z_score(x: Any) -> Any:
    return (x - x.mean(axis=-1, keepdims=True)) / (x.std(axis=-1, keepdims=True) + 1e-1)
