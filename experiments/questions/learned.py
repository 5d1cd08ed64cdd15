"""Networks of the paper's class, trained by gradient descent: no layer norm, a skip around every layer, softmax, ReLU.

    attention      X + sum_h W_O W_V X softmax((W_K X)^T (W_Q X + b_Q))
    feed-forward   X + W_2 ReLU(W_1 X + b_1) + b_2

All trials (seeds times learning rates) train side by side as one stack of weights, each on the same stream of fresh inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import provenformer as pf
from provenformer.networks.stack import block_parameters

RATES = (1e-2, 3e-2, 1e-1)
BATCH = 64


@dataclass(frozen=True)
class Shape:
    """T^(h,1,r) with so many blocks; T_P with positions. `tied` uses one block's weights for all of them."""

    blocks: int
    heads: int = 2
    hidden_dim: int = 4
    positions: bool = False
    tied: bool = False
    attention: bool = True
    feed_forward: bool = True

    def parameters(self, token_dim: int, seq_len: int) -> int:
        """Numbers that training may choose."""
        per_block = block_parameters(token_dim, self.heads * self.attention, 1, self.hidden_dim * self.feed_forward)
        per_block -= token_dim * (not self.feed_forward)  # b_2
        return per_block * (1 if self.tied else self.blocks) + token_dim * seq_len * self.positions


class Trials(nn.Module):
    """A stack of networks of one shape, one per trial. X is (trials, d, batch, n)."""

    W_O: nn.Parameter  # (trials, blocks, ...), as all of them
    W_V: nn.Parameter
    W_K: nn.Parameter
    W_Q: nn.Parameter
    b_Q: nn.Parameter
    W_1: nn.Parameter
    b_1: nn.Parameter
    W_2: nn.Parameter
    b_2: nn.Parameter

    def __init__(self, shape: Shape, token_dim: int, seq_len: int, seeds: list[int]) -> None:
        super().__init__()
        self.shape = shape
        d, h, r = token_dim, shape.heads, shape.hidden_dim
        stored = 1 if shape.tied else shape.blocks
        small = shape.blocks**-0.5  # what a block adds at first, so that depth does not blow up the start
        sizes = {
            "W_O": ((d, h), small), "W_V": ((h, d), 1.0), "W_K": ((h, d), 1.0), "W_Q": ((h, d), 1.0), "b_Q": ((h, 1), 1.0),
            "W_1": ((r, d), 1.0), "b_1": ((r, 1), 1.0), "W_2": ((d, r), small), "b_2": ((d, 1), 0.0),
        }  # fmt: skip
        draws = [torch.Generator().manual_seed(seed) for seed in seeds]
        for name, (size, scale) in sizes.items():
            weights = [scale * torch.randn(stored, *size, generator=draw) for draw in draws]
            used = shape.feed_forward if name in ("W_1", "b_1", "W_2", "b_2") else shape.attention
            self.register_parameter(name, nn.Parameter(torch.stack(weights), requires_grad=used))
        ramp = torch.arange(float(seq_len)).expand(len(seeds), d, 1, seq_len)
        self.E = nn.Parameter(ramp.clone(), requires_grad=shape.positions)

    def forward(self, x: Tensor) -> Tensor:
        """All blocks in order."""
        if self.shape.positions:
            x = x + self.E
        size = x.shape
        x = x.flatten(2)  # (trials, d, batch * n)
        for block in range(self.shape.blocks):
            i = 0 if self.shape.tied else block
            if self.shape.attention:
                keys, values = self.W_K[:, i] @ x, self.W_V[:, i] @ x
                queries = self.W_Q[:, i] @ x + self.b_Q[:, i]
                x = x + self.W_O[:, i] @ mix(*(v.unflatten(2, size[2:]) for v in (keys, queries, values))).flatten(2)
            if self.shape.feed_forward:
                x = x + self.W_2[:, i] @ torch.relu(self.W_1[:, i] @ x + self.b_1[:, i]) + self.b_2[:, i]
        return x.reshape(size)


def mix(keys: Tensor, queries: Tensor, values: Tensor) -> Tensor:
    """Heads of size one: a score is a product of two numbers. All (trials, heads, batch, n)."""
    weights = torch.softmax(keys[..., :, None] * queries[..., None, :], dim=-2)  # (.., key, query)
    return (values[..., None] * weights).sum(dim=-2)


@dataclass(frozen=True)
class Learned:
    """The networks of the learning rate with the lowest error: one per seed."""

    rate: float
    errors: list[float]  # d_2, per seed
    diverged: int  # trials of all rates that ended as no number
    networks: list[Callable[[Any], Any]]


def train(
    shape: Shape,
    batches: Callable[[torch.Generator], tuple[Tensor, Tensor]],
    measure: Callable[[Callable[[Any], Any]], float],
    token_dim: int,
    seq_len: int,
    steps: int,
    seeds: int,
    rates: tuple[float, ...] = RATES,
) -> Learned:
    """Adam on the mean squared error, the rate falling to 0 along a half cosine; `measure` is d_2 from the target."""
    torch.set_num_threads(1)  # these tensors are tiny, and running a compiled network has set it to all cores
    trials = [(rate, seed) for rate in rates for seed in range(seeds)]
    model = Trials(shape, token_dim, seq_len, [seed for _, seed in trials])
    weights = [p for p in model.parameters() if p.requires_grad]
    adam = torch.optim.Adam(weights, lr=1.0, betas=(0.9, 0.99))
    rate = torch.tensor([r for r, _ in trials])
    draw = torch.Generator().manual_seed(0)
    for step in range(steps):
        x, y = (v.transpose(0, 1) for v in batches(draw))
        loss = (model(x.expand(len(trials), *x.shape)) - y).square().sum() / x.shape[1]
        adam.zero_grad()
        loss.backward()
        before = [p.detach().clone() for p in weights]
        for p in weights:
            assert p.grad is not None
            p.grad.nan_to_num_(0.0, 0.0, 0.0)  # a trial that has diverged must not stop the others
        adam.step()
        now = rate * 0.5 * (1 + np.cos(np.pi * step / steps))
        with torch.no_grad():  # each trial goes its own share of Adam's step of size one
            for p, old in zip(weights, before, strict=True):
                p.copy_(torch.lerp(old, p, now.reshape(-1, *[1] * (p.dim() - 1))))
    networks = [_alone(model, i) for i in range(len(trials))]
    errors = np.array([measure(g) for g in networks]).reshape(len(rates), seeds)
    best = int(np.argmin(np.where(np.isfinite(errors), errors, np.inf).mean(axis=1)))
    chosen = slice(best * seeds, (best + 1) * seeds)
    return Learned(rates[best], errors[best].tolist(), int((~np.isfinite(errors)).sum()), networks[chosen])


def _alone(model: Trials, trial: int) -> Callable[[Any], Any]:
    """One trial as a function of arrays (..., d, n), evaluated in float64."""
    single = Trials(model.shape, model.E.shape[1], model.E.shape[3], [0]).double()
    with torch.no_grad():
        for name, p in model.named_parameters():
            single.get_parameter(name).copy_(p[trial : trial + 1])

    def network(x: Any) -> Any:
        with torch.no_grad():
            batch = torch.from_numpy(np.asarray(x, dtype=np.float64)).reshape(-1, *np.shape(x)[-2:])
            return single(batch.transpose(0, 1)[None])[0].transpose(0, 1).reshape(np.shape(x)).numpy()

    return network


def train_on(target: pf.Target, shape: Shape, steps: int, seeds: int) -> Learned:
    """Fresh uniform inputs at every step; errors are d_2 over the box, by the same measure as for compiled networks."""
    d, n = target.token_dim, target.seq_len

    def batches(draw: torch.Generator) -> tuple[Tensor, Tensor]:
        x = torch.rand(BATCH, d, n, generator=draw, dtype=torch.float64)
        return x.float(), torch.from_numpy(target(x.numpy())).float()

    return train(shape, batches, lambda g: measured(target, g), d, n, steps, seeds)


def measured(target: pf.Target, g: Callable[[Any], Any], cells_per_axis: int | None = None) -> float:
    """d_2 between a target and a network, on 16,384 sequences; not a number when the network's output is not finite."""
    try:
        return pf.distance(
            target, g, token_dim=target.token_dim, seq_len=target.seq_len, samples=1 << 14, cells_per_axis=cells_per_axis
        ).value  # fmt: skip
    except pf.ProvenformerError:
        return float("nan")


def random_table(pairs: int = 32) -> tuple[Any, Any]:
    """Sequences of three scalar tokens with random outputs."""
    rng = np.random.default_rng(0)
    return rng.random((pairs, 1, 3)).round(3), rng.random((pairs, 1, 3)).round(3)


def error_on_table(g: Callable[[Any], Any]) -> float:
    """d_2 with the mean over the pairs in place of the integral."""
    inputs, outputs = random_table()
    return float(np.sqrt(((g(inputs) - outputs) ** 2).sum(axis=(1, 2)).mean()))


def train_on_table(shape: Shape, steps: int, seeds: int) -> Learned:
    """All pairs at every step."""
    x, y = (torch.from_numpy(v).float() for v in random_table())
    return train(shape, lambda _: (x, y), error_on_table, 1, 3, steps, seeds)
