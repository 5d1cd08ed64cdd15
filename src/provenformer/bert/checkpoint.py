"""Training state in one safetensors file: weights, both moments of Adam, and the step. Whole or absent, never pickle.

Nothing else needs saving: data order, masks and dropout follow from (seed, step).
"""

from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn

from provenformer.bert.atomic import atomic_path
from provenformer.errors import ProvenformerError

KEPT = 2  # the newest, and one to fall back on
MOMENTS = ("exp_avg", "exp_avg_sq")


def save_checkpoint(folder: Path, step: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Write the state after `step` steps and remove all but the last `KEPT` files."""
    tensors = {}
    for name, parameter in model.named_parameters():
        tensors[f"weight/{name}"] = parameter.detach().contiguous()
        for moment in MOMENTS:
            tensors[f"{moment}/{name}"] = optimizer.state[parameter][moment].contiguous()
    with atomic_path(folder / f"step-{step:08d}.safetensors") as temporary:
        save_file(tensors, temporary, metadata={"step": str(step)})
    for old in checkpoints(folder)[:-KEPT]:
        old.unlink()


def checkpoints(folder: Path) -> list[Path]:
    """The files there are, oldest first."""
    return sorted(folder.glob("step-*.safetensors"))


def load_checkpoint(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Load the newest checkpoint into model and optimizer and return its step; 0 if there is none."""
    found = checkpoints(folder)
    if not found:
        return 0
    path = found[-1]
    try:
        with safe_open(path, framework="pt") as file:
            step = int(file.metadata()["step"])
            for name, parameter in model.named_parameters():
                with torch.no_grad():
                    parameter.copy_(file.get_tensor(f"weight/{name}"))
                optimizer.state[parameter] = {"step": torch.tensor(float(step))} | {
                    moment: torch.empty_like(parameter).copy_(file.get_tensor(f"{moment}/{name}")) for moment in MOMENTS
                }
    except (SafetensorError, RuntimeError, KeyError, TypeError) as error:
        remedy = "remove it, and the run resumes from the checkpoint before it"
        raise ProvenformerError(f"{path} is damaged or of another model ({error}); {remedy}") from None
    return step
