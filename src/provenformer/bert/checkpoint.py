"""Training state in one safetensors file: weights, both moments of Adam, and the step. Whole or absent, never pickle.

Nothing else needs saving: data order, masks and dropout follow from (seed, step). A sharded run writes the same file.
"""

from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn

from provenformer.base.errors import ProvenformerError
from provenformer.base.files import atomic_path
from provenformer.bert.processes import Processes
from provenformer.bert.sharding import own_part, whole

KEPT = 2  # the newest, and one to fall back on
MOMENTS = ("exp_avg", "exp_avg_sq")


def save_checkpoint(
    folder: Path, step: int, model: nn.Module, optimizer: torch.optim.Optimizer, processes: Processes
) -> None:
    """Write the state after `step` steps and remove all but the last `KEPT` files; every process must take part."""
    tensors = {}
    for name, parameter in model.named_parameters():
        parts = {"weight": parameter.detach()} | {moment: optimizer.state[parameter][moment] for moment in MOMENTS}
        for kind, part in parts.items():
            complete = whole(part)
            if processes.first:
                tensors[f"{kind}/{name}"] = complete.contiguous().cpu()
    if not processes.first:
        return
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
                state = {"step": torch.tensor(float(step))}
                with torch.no_grad():
                    parameter.copy_(own_part(file.get_tensor(f"weight/{name}"), parameter))
                    for moment in MOMENTS:
                        part = own_part(file.get_tensor(f"{moment}/{name}"), parameter)
                        state[moment] = torch.empty_like(parameter).copy_(part)
                optimizer.state[parameter] = state
    except (SafetensorError, RuntimeError, KeyError, TypeError) as error:
        remedy = "remove it, and the run resumes from the checkpoint before it"
        raise ProvenformerError(f"{path} is damaged or of another model ({error}); {remedy}") from None
    return step
