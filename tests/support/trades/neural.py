"""Neural networks and language."""

from typing import Any

import numpy as np
from scipy.special import erf, logsumexp

from trades.common import sigmoid, softmax


def gru(x: Any) -> Any:
    d = x.shape[-2]
    rng = np.random.default_rng(7)
    Wz, Wr, Wh, Uz, Ur, Uh = (rng.normal(size=(d, d)) / np.sqrt(2 * d) for _ in range(6))
    h = np.zeros((*x.shape[:-1], 1))
    out = []
    for t in range(x.shape[-1]):
        u = x[..., t : t + 1]
        z, r = sigmoid(Wz @ u + Uz @ h), sigmoid(Wr @ u + Ur @ h)
        h = (1 - z) * h + z * np.tanh(Wh @ u + Uh @ (r * h))
        out.append(h)
    return np.concatenate(out, axis=-1)


def lstm(x: Any) -> Any:
    d = x.shape[-2]
    W = np.random.default_rng(8).normal(size=(4 * d, 2 * d)) / np.sqrt(2 * d)
    h = c = 0 * x[..., 0]
    out = []
    for t in range(x.shape[-1]):
        i, f, g, o = np.split(np.concatenate([x[..., t], h], axis=-1) @ W.T, 4, axis=-1)
        c = sigmoid(f + 1) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        out.append(h)
    return np.stack(out, axis=-1)


def alibi_attention(x: Any) -> Any:
    d, n = x.shape[-2:]
    Wq, Wk, Wv = np.random.default_rng(9).normal(size=(3, d, d)) / np.sqrt(d)
    i = np.arange(n)
    bias = np.where(i[:, None] >= i, -0.25 * (i[:, None] - i), -np.inf)
    scores = np.einsum("...dj,...dk->...jk", Wq @ x, Wk @ x) / np.sqrt(d) + bias
    return np.einsum("...jk,...dk->...dj", softmax(scores), Wv @ x)


def rotary_attention(x: Any) -> Any:
    d, n = x.shape[-2:]
    rng = np.random.default_rng(10)
    angle = np.arange(n) * 10.0 ** -np.arange(d // 2)[:, None]
    cos, sin = np.cos(angle), np.sin(angle)

    def rotate(z: Any) -> Any:
        a, b = z[..., : d // 2, :], z[..., d // 2 :, :]
        return np.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-2)

    q, k, v = (rng.normal(size=(d, d)) / np.sqrt(d) @ x for _ in range(3))
    scores = np.swapaxes(rotate(q), -1, -2) @ rotate(k) / np.sqrt(d)
    scores = np.where(np.tril(np.ones((n, n))) == 1, scores, -1e9)
    return x + v @ np.swapaxes(softmax(scores), -1, -2)


def mixture_of_experts(x: Any) -> Any:
    d = x.shape[-2]
    rng = np.random.default_rng(11)
    gate = softmax(rng.normal(size=(3, d)) @ x, axis=-2)
    experts = np.tanh(np.einsum("eij,...jn->...ein", rng.normal(size=(3, d, d)) / np.sqrt(d), x))
    return np.einsum("...en,...ein->...in", gate, experts)


def squeeze_and_excitation(x: Any) -> Any:
    d = x.shape[-2]
    rng = np.random.default_rng(12)
    W1, W2 = rng.normal(size=(d // 2, d)), rng.normal(size=(d, d // 2))
    squeezed = x.mean(axis=-1)
    scale = sigmoid(np.maximum(squeezed @ W1.T, 0) @ W2.T)
    return x * scale[..., None]


def rms_norm(x: Any) -> Any:
    gain = np.linspace(0.5, 1.5, x.shape[-2])[:, None]
    return gain * x / np.sqrt((x**2).mean(axis=-2, keepdims=True) + 1e-2)


def group_norm(x: Any) -> Any:
    d, n = x.shape[-2:]
    groups = x.reshape(*x.shape[:-2], 2, d // 2 * n)
    groups = groups - groups.mean(axis=-1, keepdims=True)
    groups = groups / np.sqrt(groups.var(axis=-1, keepdims=True) + 0.1)
    return groups.reshape(x.shape)


def gelu_mlp(x: Any) -> Any:
    d = x.shape[-2]
    rng = np.random.default_rng(13)
    W1, b1, W2 = rng.normal(size=(2 * d, d)) / np.sqrt(d), rng.normal(size=(2 * d, 1)), rng.normal(size=(d, 2 * d))
    z = W1 @ x + b1
    return x + W2 @ (z * 0.5 * (1 + erf(z / np.sqrt(2)))) / np.sqrt(2 * d)


def swiglu(x: Any) -> Any:
    d = x.shape[-2]
    rng = np.random.default_rng(14)
    W, V, W2 = (rng.normal(size=s) / np.sqrt(d) for s in ((2 * d, d), (2 * d, d), (d, 2 * d)))
    gate = W @ x
    return W2 @ (gate * sigmoid(gate) * (V @ x))


def linear_attention(x: Any) -> Any:
    """Causal, with the feature map 1 + elu, written without jumps."""

    def positive(z: Any) -> Any:
        return np.maximum(z, 0) + np.exp(np.minimum(z, 0))

    q, k, v = positive(x), positive(0.5 * x), x
    state = np.cumsum(np.einsum("...an,...bn->...abn", k, v), axis=-1)
    norm = np.cumsum(k, axis=-1)
    return np.einsum("...an,...abn->...bn", q, state) / (q * norm).sum(axis=-2, keepdims=True)


def encoder_layer(x: Any) -> Any:
    """Pre-norm, two heads, ReLU."""
    d, n = x.shape[-2:]
    rng = np.random.default_rng(15)

    def norm(z: Any) -> Any:
        z = z - z.mean(axis=-2, keepdims=True)
        return z / np.sqrt(z.var(axis=-2, keepdims=True) + 0.1)

    def heads(z: Any) -> Any:
        return (rng.normal(size=(d, d)) / d @ z).reshape(*z.shape[:-2], 2, d // 2, n)

    z = norm(x)
    q, k, v = heads(z), heads(z), heads(z)
    weights = softmax(np.swapaxes(q, -1, -2) @ k / np.sqrt(d // 2))
    h = x + (v @ np.swapaxes(weights, -1, -2)).reshape(x.shape)
    W1, W2 = rng.normal(size=(2 * d, d)) / d, rng.normal(size=(d, 2 * d)) / d
    return h + W2 @ np.maximum(W1 @ norm(h), 0)


def mlp_mixer(x: Any) -> Any:
    d, n = x.shape[-2:]
    rng = np.random.default_rng(16)
    T1, T2 = rng.normal(size=(n, 8)) / np.sqrt(n), rng.normal(size=(8, n)) / np.sqrt(8)
    C1, C2 = rng.normal(size=(2 * d, d)) / np.sqrt(d), rng.normal(size=(d, 2 * d)) / np.sqrt(2 * d)
    h = x + np.tanh(x @ T1) @ T2
    return h + C2 @ np.tanh(C1 @ h)


def latent_queries(x: Any) -> Any:
    """Four constant queries read the sequence; every token gets the mean of what they read."""
    d = x.shape[-2]
    queries = np.random.default_rng(17).normal(size=(4, d))
    read = softmax(queries @ x) @ np.swapaxes(x, -1, -2)
    return x + read.mean(axis=-2)[..., None]


def sinkhorn(x: Any) -> Any:
    p = np.exp(x)
    for _ in range(3):
        p = p / p.sum(axis=-1, keepdims=True)
        p = p / p.sum(axis=-2, keepdims=True)
    return p


def random_mlp(x: Any) -> Any:
    rng = np.random.default_rng(19)
    for width_in, width_out in ((x.shape[-2], 16), (16, 16), (16, x.shape[-2])):
        x = np.tanh(np.einsum("ij,...jn->...in", rng.normal(size=(width_out, width_in)) / np.sqrt(width_in), x))
    return x


def cosine_to_mean(x: Any) -> Any:
    m = x.mean(axis=-1, keepdims=True)
    dot = (x * m).sum(axis=-2, keepdims=True)
    norms = np.linalg.norm(x, axis=-2, keepdims=True) * np.linalg.norm(m, axis=-2, keepdims=True)
    return np.repeat(dot / np.maximum(norms, 1e-1), x.shape[-2], axis=-2)


def surprisal(x: Any) -> Any:
    """Log probabilities of the classes (rows), less their entropy."""
    logp = x - logsumexp(x, axis=-2, keepdims=True)
    return logp + (np.exp(logp) * logp).sum(axis=-2, keepdims=True)


def soft_top_k(x: Any) -> Any:
    k = 3
    threshold = np.partition(x, -k, axis=-1)[..., -k, None]
    return x * sigmoid((x - threshold) / 0.1)


def cumulative_softmax(x: Any) -> Any:
    e = np.exp(x)
    return np.cumsum(e * x, axis=-1) / np.cumsum(e, axis=-1)


def crf_forward(x: Any) -> Any:
    """Log scores of the prefixes of a chain with three tags."""
    transition = np.array([[0.5, -0.2, -1.0], [-0.3, 0.4, 0.1], [0.0, -0.7, 0.6]])
    alpha = x[..., 0]
    out = [alpha]
    for t in range(1, x.shape[-1]):
        alpha = x[..., t] + np.log(np.sum(np.exp(alpha[..., :, None] + transition), axis=-2))
        alpha = alpha - alpha.mean(axis=-1, keepdims=True)
        out.append(alpha)
    return np.stack(out, axis=-1)


def log_mean_exp_pooling(x: Any) -> Any:
    r = 4.0
    pooled = np.log(np.exp(r * x).mean(axis=-1)) / r
    return x - np.expand_dims(pooled, -1)


def previous_token_copy(x: Any) -> Any:
    """Induction, softly: attend to tokens whose predecessor resembles me, copy them."""
    previous = np.concatenate([np.zeros_like(x[..., :1]), x[..., :-1]], axis=-1)
    return x @ softmax(3 * np.swapaxes(previous, -1, -2) @ x, axis=-2)
