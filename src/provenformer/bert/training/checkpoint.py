"""Training state in one safetensors file: weights, what the optimizers remember, and the step. Whole or absent, never pickle.

Nothing else needs saving: data order, masks and dropout follow from (seed, step). A sharded run writes the same file.
"""

from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn

from provenformer.base.errors import ProvenformerError
from provenformer.base.files import atomic_path
from provenformer.bert.runtime.processes import Processes
from provenformer.bert.runtime.sharding import own_part, whole
from provenformer.bert.training.optimiser import Muon

KEPT = 2  # the newest, and one to fall back on
MOMENTS: dict[type[torch.optim.Optimizer], tuple[str, ...]] = {
    torch.optim.AdamW: ("exp_avg", "exp_avg_sq"),
    Muon: ("momentum",),
}


def save_checkpoint(
    folder: Path, step: int, model: nn.Module, optimizers: list[torch.optim.Optimizer], processes: Processes
) -> None:
    """Write the state after `step` steps and remove all but the last `KEPT` files; every process must take part."""
    tensors, responsible = {}, _responsible(optimizers)
    for name, parameter in model.named_parameters():
        optimizer = responsible[parameter]
        moments = {moment: optimizer.state[parameter][moment] for moment in MOMENTS[type(optimizer)]}
        parts = {"weight": parameter.detach()} | moments
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


def load_checkpoint(folder: Path, model: nn.Module, optimizers: list[torch.optim.Optimizer]) -> int:
    """Load the newest checkpoint into model and optimizers and return its step; 0 if there is none."""
    found, responsible = checkpoints(folder), _responsible(optimizers)
    if not found:
        return 0
    path = found[-1]
    try:
        with safe_open(path, framework="pt") as file:
            step = int(file.metadata()["step"])
            for name, parameter in model.named_parameters():
                optimizer = responsible[parameter]
                state = {"step": torch.tensor(float(step))}
                with torch.no_grad():
                    parameter.copy_(own_part(file.get_tensor(f"weight/{name}"), parameter))
                    for moment in MOMENTS[type(optimizer)]:
                        part = own_part(file.get_tensor(f"{moment}/{name}"), parameter)
                        state[moment] = torch.empty_like(parameter).copy_(part)
                optimizer.state[parameter] = state
    except (SafetensorError, RuntimeError, KeyError, TypeError) as error:
        remedy = "remove it, and the run resumes from the checkpoint before it"
        raise ProvenformerError(f"{path} is damaged or of another model ({error}); {remedy}") from None
    return step


def _responsible(optimizers: list[torch.optim.Optimizer]) -> dict[nn.Parameter, torch.optim.Optimizer]:
    """Which optimizer updates a parameter."""
    return {p: one for one in optimizers for group in one.param_groups for p in group["params"]}
