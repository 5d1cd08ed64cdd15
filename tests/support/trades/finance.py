"""Finance and games."""

from typing import Any

import numpy as np
from scipy.special import erf, ndtr

from trades.common import softmax


def normal_cdf(z: Any) -> Any:
    return 0.5 * (1 + erf(z / np.sqrt(2)))


def black_scholes(x: Any) -> Any:
    """Rows: price, volatility, years; the value of a call at 100 takes the place of the price."""
    price, volatility, years = x[..., 0, :], x[..., 1, :], x[..., 2, :]
    spread = volatility * np.sqrt(years)
    d1 = (np.log(price / 100) + (0.02 + volatility**2 / 2) * years) / spread
    d2 = d1 - spread
    call = price * normal_cdf(d1) - 100 * np.exp(-0.02 * years) * normal_cdf(d2)
    return np.stack([call, volatility, years], axis=-2)


def probit_default(x: Any) -> Any:
    """Vasicek: the default probability given a common factor, the mean."""
    factor = x.mean(axis=-1, keepdims=True)
    return ndtr((x - np.sqrt(0.2) * factor) / np.sqrt(0.8))


def standardised_returns(x: Any) -> Any:
    variance, out = 0.04, []
    for t in range(x.shape[-1]):
        out.append(x[..., t] / np.sqrt(variance))
        variance = 0.94 * variance + 0.06 * x[..., t] ** 2
    return np.stack(out, axis=-1)


def drawdown(x: Any) -> Any:
    return 1 - x / np.maximum.accumulate(x, axis=-1)


def momentum_portfolio(x: Any) -> Any:
    """Asset by asset the share that a softmax of the past returns gives it, and what it earns."""
    past = np.cumsum(x, axis=-1) - x
    return softmax(5 * past / x.shape[-1], axis=-2) * x


def macd(x: Any) -> Any:
    def ema(z: Any, span: int) -> Any:
        a, y = 2 / (span + 1), [z[..., 0]]
        for t in range(1, z.shape[-1]):
            y.append(a * z[..., t] + (1 - a) * y[-1])
        return np.stack(y, axis=-1)

    line = ema(x, 12) - ema(x, 26)
    return line - ema(line, 9)


def log_returns(x: Any) -> Any:
    return np.diff(np.log(x), axis=-1, prepend=np.log(x[..., :1]))


def relative_strength(x: Any) -> Any:
    change = np.diff(x, axis=-1, prepend=x[..., :1])
    up, down = np.maximum(change, 0).mean(-1, keepdims=True), np.maximum(-change, 0).mean(-1, keepdims=True)
    return np.broadcast_to(100 * up / (up + down + 1), x.shape)


def elo(x: Any) -> Any:
    expected = 1 / (1 + 10 ** ((x.mean(axis=-1, keepdims=True) - x) / 400))
    return x + 32 * (0.5 - expected)


def replicator(x: Any) -> Any:
    """Rock, paper, scissors: two steps of the populations (columns)."""
    payoff = np.array([[0, -1, 1], [1, 0, -1], [-1, 1, 0]])
    p = x / x.sum(axis=-2, keepdims=True)
    for _ in range(2):
        fitness = payoff @ p
        p = p * (1 + 0.2 * (fitness - (p * fitness).sum(axis=-2, keepdims=True)))
    return p


def minimax(x: Any) -> Any:
    """The value of a game tree with these leaves."""
    values, players = x, [np.max, np.min]
    for depth in range(int(np.log2(x.shape[-1]))):
        values = players[depth % 2](values.reshape(*values.shape[:-1], -1, 2), axis=-1)
    return x - values


def hit_points(x: Any) -> Any:
    """Damage and healing, between 0 and 10."""
    points, out = 10.0, []
    for t in range(x.shape[-1]):
        points = np.minimum(np.maximum(points + x[..., t], 0), 10)
        out.append(points)
    return np.stack(out, axis=-1)
