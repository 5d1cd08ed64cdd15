"""Question 4: how can layers of one kind be stacked, and what does the skip connection do?

The compiled networks have their layers in runs of one kind; as genuine blocks the other half of each is 0 and the skip carries
the tokens past it. Without the skip nothing comes through. And neither kind is enough alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from experiments.questions.learned import Shape, train_on

import provenformer as pf
from provenformer.networks.export.blocks import block_weights
from provenformer.networks.thin import Network


def token_wise_floor(f: pf.Target, samples: int) -> float:
    """d_2 from f to the best function of single tokens, E[f_j | x_j], for an equivariant f and scalar tokens.

    Midpoints in x_1, the other tokens sampled: the square is n times the mean variance of f_1 given x_1.
    """
    rng = np.random.default_rng(0)
    variances = []
    for x_1 in (np.arange(64) + 0.5) / 64:
        x = rng.random((samples, 1, f.seq_len))
        x[:, 0, 0] = x_1
        variances.append(f(x)[:, 0, 0].var(ddof=1))
    return float(np.sqrt(f.seq_len * np.mean(variances)))


def without_skip(network: Any, x: Any) -> Any:
    """The same blocks, the skip taken away around the halves that are switched off."""
    module = network.to_torch()
    with torch.no_grad():
        state = torch.from_numpy(x)
        for block in range(network.blocks):
            for half, switch in ((module._attention, "W_O"), (module._feed_forward, "W_2")):
                after = half(block, state)
                state = after - state if not getattr(module, switch)[block].any() else after
    return state.numpy()


def run(quick: bool) -> dict[str, Any]:
    """Runs of layers, blocks with one half off, and each kind alone."""
    f = pf.targets.get("scaled-mean", token_dim=1, seq_len=3)
    x = f.sample(256)
    networks = []
    for construction in ("paper", "sum"):
        c = pf.compile(f, cells_per_axis=4, construction=construction)
        assert isinstance(c.network, Network)
        weights = block_weights(c.network)
        attends, feeds = (np.any(weights[name], axis=(1, 2)) for name in ("W_O", "W_2"))
        as_blocks = c.to_torch()(torch.from_numpy(x)).detach().numpy()
        networks.append({
            "construction": construction,
            "runs": [["attention" if run.attends else "feed-forward", run.stage, len(run)] for run in c.network.runs],
            "blocks": len(attends),
            "both_halves": int((attends & feeds).sum()),
            "attention_only": int((attends & ~feeds).sum()),
            "feed_forward_only": int((~attends & feeds).sum()),
            "blocks_minus_layers": float(np.abs(as_blocks - c.network(x)).max()),
            "different_outputs": len(np.unique(c.network(x))),
            "different_outputs_without_skip": len(np.unique(without_skip(c.network, x))),
        })  # fmt: skip
    steps, seeds = (30, 1) if quick else (1500, 3)
    kinds = {
        "both": Shape(4),
        "feed-forward only": Shape(4, attention=False),
        "attention only": Shape(4, feed_forward=False),
    }
    training = [
        {"kind": kind, "parameters": s.parameters(1, 3), "errors": train_on(f, s, steps, seeds).errors}
        for kind, s in kinds.items()
    ]
    return {
        "target": f.name,
        "networks": networks,
        "token_wise_floor": token_wise_floor(f, 1 << (9 if quick else 13)),
        "training": training,
    }
