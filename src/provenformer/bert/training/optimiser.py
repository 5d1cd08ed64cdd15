"""AdamW for everything, or Muon (Jordan et al. 2024) for the hidden matrices and AdamW for the rest.

Muon makes the momentum of a matrix orthogonal before it is added: all its directions move alike, so those with a small
gradient do not wait for it to grow. `torch.optim.Muon` computes in bfloat16, which is several times slower where the
processor does not have it; this one computes in the matrix's own type.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from provenformer.bert.model.slot import encoder_layers
from provenformer.bert.runtime.sharding import own_part, whole
from provenformer.bert.training.settings import TrainingSettings

# The quintic of Newton and Schulz whose slope at 0 is largest: after five steps singular values lie in about 0.7 to 1.2.
QUINTIC = (3.4445, -4.7750, 2.0315)
STEPS = 5
MOMENTUM = 0.95
# An orthogonal matrix times this times the root of its longer side changes weights about as much as AdamW (Liu et al. 2025).
LIKE_ADAMW = 0.2


class Muon(torch.optim.Optimizer):
    """Nesterov momentum, made orthogonal; sharded matrices are put together for it, and each process keeps its rows."""

    def __init__(self, matrices: Iterable[nn.Parameter], lr: float, weight_decay: float) -> None:
        super().__init__(matrices, {"lr": lr, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, _closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            alike: dict[torch.Size, list[tuple[nn.Parameter, Tensor]]] = {}
            for matrix in (p for p in group["params"] if p.grad is not None):
                state = self.state[matrix]
                if "momentum" not in state:
                    state["momentum"] = torch.zeros_like(matrix)
                momentum = state["momentum"].mul_(MOMENTUM).add_(matrix.grad)
                alike.setdefault(matrix.shape, []).append((matrix, whole(matrix.grad + MOMENTUM * momentum)))
            for shape, several in alike.items():
                directions = orthogonal(torch.stack([update for _, update in several]))
                for (matrix, _), direction in zip(several, directions, strict=True):
                    matrix.mul_(1 - group["lr"] * group["weight_decay"])
                    matrix.add_(own_part(direction, matrix), alpha=-group["lr"] * LIKE_ADAMW * max(shape) ** 0.5)


def orthogonal(matrices: Tensor) -> Tensor:
    """(matrices, rows, columns): nearly the nearest orthogonal matrix of each: U V' for its singular value decomposition."""
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.transpose(1, 2) if tall else matrices  # the products are between the shorter sides
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    a, b, c = QUINTIC
    for _ in range(STEPS):
        square = x @ x.transpose(1, 2)
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return x.transpose(1, 2) if tall else x


def build_optimizers(model: nn.Module, settings: TrainingSettings) -> list[torch.optim.Optimizer]:
    """Those that together update all but frozen parameters; a group's `peak` is its rate when the schedule is at 1."""
    hidden = hidden_matrices(model) if settings.optimizer == "muon" else []
    by_muon = set(hidden)
    others = [p for p in model.parameters() if p.requires_grad and p not in by_muon]
    # Biases and LayerNorms do not decay, as in BERT.
    groups = [
        {"params": [p for p in others if p.ndim > 1], "weight_decay": settings.weight_decay},
        {"params": [p for p in others if p.ndim <= 1], "weight_decay": 0.0},
    ]
    adamw = torch.optim.AdamW(groups, lr=settings.learning_rate, betas=(settings.beta1, settings.beta2))
    muon = [Muon(hidden, settings.muon_learning_rate, settings.weight_decay)] if hidden else []
    optimizers = [adamw, *muon]
    for group in (group for optimizer in optimizers for group in optimizer.param_groups):
        group["peak"] = group["lr"]
    return optimizers


def hidden_matrices(model: nn.Module) -> list[nn.Parameter]:
    """The matrices of the layers; embeddings and heads, whose rows are words and labels, are not among them."""
    return [p for layer in encoder_layers(model) for p in layer.parameters() if p.ndim == 2 and p.requires_grad]
