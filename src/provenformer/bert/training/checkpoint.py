"""Training state in one safetensors file: weights, what the optimizers remember, and the step. Whole or absent, never pickle.

Nothing else needs saving: data order, masks and dropout follow from (seed, step). A sharded run writes the same file.

A file is read twice: first every tensor is compared with what model and optimizers need (its name, shape, type, finite
numbers) and all of them with the digest in the header, then they are loaded. A flipped bit anywhere ends in one line.
"""

import hashlib
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from provenformer.base.errors import ProvenformerError, one_line
from provenformer.base.files import atomic_path
from provenformer.bert.runtime.processes import Processes
from provenformer.bert.runtime.sharding import own_part, whole
from provenformer.bert.training.optimiser import Muon

KEPT = 2  # the newest, and one to fall back on
MOMENTS: dict[type[torch.optim.Optimizer], tuple[str, ...]] = {
    torch.optim.AdamW: ("exp_avg", "exp_avg_sq"),
    Muon: ("momentum",),
}
SQUARES = "exp_avg_sq"  # never below 0
REMEDY = "remove it, and the run resumes from the checkpoint before it"


def save_checkpoint(
    folder: Path, step: int, model: nn.Module, optimizers: list[torch.optim.Optimizer], processes: Processes
) -> None:
    """Write the state after `step` steps and remove all but the last `KEPT` files; every process must take part."""
    tensors, responsible = {}, _responsible(optimizers)
    for name, parameter in model.named_parameters():
        optimizer = responsible.get(parameter)
        state = optimizer.state[parameter] if optimizer else {}
        moments = {moment: state[moment] for moment in _moments(optimizer)}
        parts = {"weight": parameter.detach()} | moments
        for kind, part in parts.items():
            complete = whole(part)
            if processes.first:
                tensors[f"{kind}/{name}"] = complete.contiguous().cpu()
    if not processes.first:
        return
    sha256 = _digest(step, ((name, tensors[name]) for name in sorted(tensors)))
    with atomic_path(_place(folder, step)) as temporary:
        save_file(tensors, temporary, metadata={"step": str(step), "sha256": sha256})
    for old in checkpoints(folder)[:-KEPT]:
        old.unlink()


def checkpoints(folder: Path) -> list[Path]:
    """The files there are, oldest first."""
    return sorted(folder.glob("step-*.safetensors"))


def load_checkpoint(folder: Path, model: nn.Module, optimizers: list[torch.optim.Optimizer]) -> int:
    """Load the newest checkpoint into model and optimizers and return its step; 0 if there is none.

    Nothing is loaded of a file that is not in order. One of an earlier version has no digest: what it holds is checked
    as far as it can be, and the rest is said.
    """
    found, responsible = checkpoints(folder), _responsible(optimizers)
    if not found:
        return 0
    path = found[-1]
    needed = {
        f"{kind}/{name}": parameter
        for name, parameter in model.named_parameters()
        for kind in ("weight", *_moments(responsible.get(parameter)))
    }
    try:
        with safe_open(path, framework="pt") as file:
            step = _checked_step(path, file, needed)
            for name, parameter in model.named_parameters():
                optimizer = responsible.get(parameter)
                state = {"step": torch.tensor(float(step))}
                with torch.no_grad():
                    parameter.copy_(own_part(file.get_tensor(f"weight/{name}"), parameter))
                    for moment in _moments(optimizer):
                        part = own_part(file.get_tensor(f"{moment}/{name}"), parameter)
                        state[moment] = torch.empty_like(parameter).copy_(part)
                if optimizer:
                    optimizer.state[parameter] = state
    except (SafetensorError, OSError) as error:
        raise ProvenformerError(f"{path} is damaged ({one_line(error)[:200]}); {REMEDY}") from None
    return step


def _checked_step(path: Path, file: Any, needed: dict[str, nn.Parameter]) -> int:
    """The step of a file that holds exactly the tensors `needed`, and what was written."""

    def refuse(reason: str) -> ProvenformerError:
        return ProvenformerError(f"{path} is damaged or of another model: {reason}; {REMEDY}")

    said = file.metadata() or {}
    if not {"step"} <= said.keys() <= {"step", "sha256"}:
        raise refuse(
            f"its header says {', '.join(map(one_line, sorted(said)))[:200] or 'nothing'}, not step and sha256"
        )
    step = int(said["step"]) if said["step"].isascii() and said["step"].isdigit() and len(said["step"]) < 16 else -1
    if path != _place(path.parent, step):
        raise refuse(f"its header says step {one_line(said['step'])[:40]}, its name another")
    names = set(file.keys())
    if names != needed.keys():
        odd = min(names ^ needed.keys())
        raise refuse(f"it {'has an unknown' if odd in names else 'lacks the'} tensor {one_line(odd)[:200]}")

    def checked(name: str) -> tuple[str, Tensor]:
        tensor, like = file.get_tensor(name), needed[name]
        if (tensor.dtype, tensor.shape) != (like.dtype, like.shape):
            there, here = (f"{one.dtype} {list(one.shape)}" for one in (tensor, like))
            raise refuse(f"{name} is {there}, not {here}".replace("torch.", ""))
        if not tensor.isfinite().all():
            raise refuse(f"{name} has numbers that are not finite")
        if name.startswith(f"{SQUARES}/") and (tensor < 0).any():
            raise refuse(f"{name} has squares below 0")
        return name, tensor

    sha256 = _digest(step, (checked(name) for name in sorted(names)))
    if "sha256" not in said:
        print(f"{path} is of an earlier version, without a digest: a damaged number would not show", file=sys.stderr)
    elif said["sha256"] != sha256:
        raise refuse("its content does not match its sha256")
    return step


def _digest(step: int, tensors: Iterable[tuple[str, Tensor]]) -> str:
    """sha256 over the step and every tensor: its name, type, shape and bytes."""
    found = hashlib.sha256(f"step {step}".encode())
    for name, tensor in tensors:
        found.update(f"\n{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        found.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()


def _place(folder: Path, step: int) -> Path:
    return folder / f"step-{step:08d}.safetensors"


def _moments(optimizer: torch.optim.Optimizer | None) -> tuple[str, ...]:
    """What is kept beside a weight: of a frozen one nothing."""
    return MOMENTS[type(optimizer)] if optimizer else ()


def _responsible(optimizers: list[torch.optim.Optimizer]) -> dict[nn.Parameter, torch.optim.Optimizer]:
    """Which optimizer updates a parameter."""
    return {p: one for one in optimizers for group in one.param_groups for p in group["params"]}
