"""The functions of `trades` as cases: their box, a few and a natural number of tokens, and what circuits make of them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from trades import finance, neural, physics, signals, statistics

import provenformer as pf
from provenformer.base.arrays import FloatArray


@dataclass(frozen=True)
class Case:
    """`refused` is a word of the refusal, "" where the function compiles; `refused_long` likewise for the natural length;
    `slow`: a few tokens already take their time."""

    fn: Callable[[Any], Any]
    token_dim: int
    few: int
    natural: int
    support: tuple[Any, Any]
    refused: str = ""
    refused_long: str = ""
    long: bool = False

    def target(self, seq_len: int) -> pf.Target:
        return pf.Target(
            self.fn, self.token_dim, seq_len, equivariant=False, support=self.support, name=self.fn.__name__
        )


SYMMETRIC = (-1.0, 1.0)
TURN = 2 * np.pi
TOO_LARGE = "max_units|rounding"

CASES = [
    Case(statistics.local_regression, 2, 6, 64, ([0.0, -2.0], [10.0, 2.0]), refused_long=TOO_LARGE),
    Case(statistics.huber_residuals, 1, 6, 24, (-3.0, 3.0), TOO_LARGE),
    Case(statistics.trimmed_mean, 1, 8, 64, (-5.0, 5.0)),
    Case(statistics.median_of_means, 1, 8, 128, (-2.0, 2.0)),
    Case(statistics.winsorised, 1, 6, 21, (-3.0, 3.0)),
    Case(statistics.interquartile_scaled, 2, 8, 32, (-4.0, 4.0), "contains 0"),
    Case(statistics.logistic_gradient, 3, 5, 64, ([-1.0, -1.0, 0.0], [1.0, 1.0, 1.0]), refused_long=TOO_LARGE),
    Case(statistics.ridge_residuals, 2, 6, 128, ([-1.0, -2.0], [1.0, 2.0])),
    Case(statistics.soft_ranks, 1, 5, 32, (-2.0, 2.0), refused_long=TOO_LARGE),
    Case(statistics.density, 1, 5, 64, (-3.0, 3.0), refused_long=TOO_LARGE),
    Case(statistics.z_score, 2, 6, 256, (-2.0, 2.0), refused_long=TOO_LARGE),
    Case(signals.fir, 1, 12, 512, SYMMETRIC),
    Case(signals.exponential_smoothing, 3, 6, 100, (-10.0, 10.0)),
    Case(signals.spectral_shrinkage, 1, 8, 64, SYMMETRIC),
    Case(signals.low_pass, 1, 8, 64, SYMMETRIC, "rfft"),
    Case(signals.moving_maximum, 1, 8, 256, SYMMETRIC),
    Case(signals.morphological_opening, 1, 6, 256, (0.0, 255.0)),
    Case(signals.teager, 1, 6, 128, SYMMETRIC, "item assignment"),
    Case(signals.haar_denoised, 2, 6, 128, SYMMETRIC),
    Case(signals.gain_control, 1, 6, 48, SYMMETRIC),
    Case(signals.biquad, 1, 6, 64, SYMMETRIC),
    Case(signals.mu_law, 1, 4, 16, SYMMETRIC),
    Case(signals.kalman, 1, 5, 32, (-3.0, 3.0), refused_long=TOO_LARGE),
    Case(signals.pid, 1, 5, 32, (-2.0, 2.0)),
    Case(signals.saturated_plant, 1, 5, 32, (-3.0, 3.0)),
    Case(signals.soft_dtw, 2, 3, 5, SYMMETRIC, TOO_LARGE, "np.log of", long=True),
    Case(physics.coulomb, 2, 4, 16, (-2.0, 2.0), refused_long=TOO_LARGE),
    Case(physics.burgers, 1, 6, 64, SYMMETRIC),
    Case(physics.mean_field_ising, 1, 5, 256, (-1.5, 1.5)),
    Case(physics.kuramoto_pairs, 1, 4, 64, (0.0, TURN), refused_long=TOO_LARGE),
    Case(physics.kuramoto, 1, 4, 128, (0.0, TURN)),
    Case(physics.spring_chain, 2, 5, 32, ([-0.5, -1.0], [0.5, 1.0])),
    Case(physics.lennard_jones_chain, 1, 5, 32, (-0.2, 0.2), refused_long=TOO_LARGE),
    Case(physics.bilateral, 1, 6, 64, (0.0, 1.0)),
    Case(physics.polar, 2, 3, 32, ([0.5, -2.0], [2.0, 2.0])),
    Case(physics.distance_to_centroid, 3, 4, 64, SYMMETRIC),
    Case(physics.whitened, 2, 5, 64, SYMMETRIC, "contains 0"),
    Case(physics.nearest_neighbour, 1, 4, 32, (0.0, 1.0), refused_long=TOO_LARGE),
    Case(physics.shoelace, 2, 4, 32, SYMMETRIC),
    Case(physics.spherical, 3, 3, 32, ([0.5, 0.0, 0.0], [2.0, np.pi, TURN])),
    Case(physics.graph_smoothing, 2, 6, 100, SYMMETRIC),
    Case(neural.gru, 4, 3, 8, SYMMETRIC, refused_long=TOO_LARGE, long=True),
    Case(neural.lstm, 2, 3, 6, SYMMETRIC, refused_long=TOO_LARGE, long=True),
    Case(neural.alibi_attention, 4, 5, 128, SYMMETRIC),
    Case(neural.rotary_attention, 4, 5, 32, SYMMETRIC),
    Case(neural.mixture_of_experts, 4, 3, 16, SYMMETRIC),
    Case(neural.squeeze_and_excitation, 8, 4, 64, SYMMETRIC),
    Case(neural.rms_norm, 6, 3, 32, SYMMETRIC),
    Case(neural.group_norm, 8, 4, 16, SYMMETRIC, "features and tokens"),
    Case(neural.gelu_mlp, 8, 3, 16, SYMMETRIC, refused_long=TOO_LARGE),
    Case(neural.swiglu, 4, 3, 16, SYMMETRIC),
    Case(neural.linear_attention, 2, 4, 16, SYMMETRIC, refused_long=TOO_LARGE),
    Case(neural.encoder_layer, 8, 4, 32, SYMMETRIC, TOO_LARGE, long=True),
    Case(neural.mlp_mixer, 4, 4, 32, SYMMETRIC, refused_long=TOO_LARGE, long=True),
    Case(neural.latent_queries, 3, 4, 64, SYMMETRIC),
    Case(neural.cosine_to_mean, 4, 4, 32, SYMMETRIC, TOO_LARGE),
    Case(neural.surprisal, 5, 3, 32, (-2.0, 2.0), "plain arrays"),
    Case(neural.soft_top_k, 1, 6, 50, (0.0, 1.0), "partition"),
    Case(neural.cumulative_softmax, 1, 5, 48, (-2.0, 2.0), refused_long=TOO_LARGE),
    Case(neural.crf_forward, 3, 4, 8, SYMMETRIC, refused_long="np.log of", long=True),
    Case(neural.log_mean_exp_pooling, 2, 5, 512, SYMMETRIC),
    Case(neural.previous_token_copy, 2, 5, 48, (0.0, 1.0)),
    Case(neural.sinkhorn, 4, 3, 8, SYMMETRIC, "contains 0"),
    Case(neural.random_mlp, 5, 3, 64, SYMMETRIC),
    Case(finance.black_scholes, 3, 3, 8, ([80.0, 0.1, 0.25], [120.0, 0.5, 2.0]), refused_long=TOO_LARGE),
    Case(finance.probit_default, 1, 4, 100, (-3.0, 3.0)),
    Case(finance.standardised_returns, 1, 5, 32, (-0.1, 0.1)),
    Case(finance.drawdown, 1, 6, 64, (50.0, 150.0)),
    Case(finance.momentum_portfolio, 4, 4, 32, (-0.5, 0.5), refused_long=TOO_LARGE),
    Case(finance.macd, 1, 8, 60, (90.0, 110.0)),
    Case(finance.log_returns, 1, 6, 250, (50.0, 150.0)),
    Case(finance.relative_strength, 1, 6, 15, (20.0, 40.0)),
    Case(finance.elo, 1, 4, 20, (1000.0, 2000.0), refused_long=TOO_LARGE),
    Case(finance.replicator, 3, 3, 10, (0.5, 1.5)),
    Case(finance.minimax, 1, 8, 32, SYMMETRIC),
    Case(finance.hit_points, 1, 6, 64, (-3.0, 3.0)),
]


def sequences(target: pf.Target, count: int, seed: int = 0) -> FloatArray:
    """`count` of each: random, corners, edges, a constant and a little noise, few values, sorted, one entry apart."""
    rng, shape = np.random.default_rng(seed), (count, target.token_dim, target.seq_len)
    flat = rng.random((count, target.token_dim, 1))
    one = rng.random(shape).reshape(count, -1)
    one = (one == one.max(axis=-1, keepdims=True)).reshape(shape)
    unit = [
        rng.random(shape),
        rng.random(shape) < rng.random((count, 1, 1)),
        np.clip(2 * rng.random(shape) - 0.5, 0, 1),
        np.clip(flat + 1e-3 * rng.normal(size=shape), 0, 1),
        rng.integers(0, 3, shape) / 2,
        np.sort(rng.random(shape), axis=-1),
        np.abs(rng.integers(0, 3, (count, 1, 1)) / 2 - one),
    ]
    low, high = target.low[:, None], target.high[:, None]
    scaled = low + (high - low) * np.concatenate([u.astype(float) for u in unit])
    return np.asarray(np.clip(scaled, low, high))
