"""Weights, gradients and optimizer state split over the processes (torch's FSDP2), and put together again to be saved.

A split parameter is a DTensor: its rows are dealt out, a process computes with the whole layer only while it needs it.
Files never show the split, so a run may go on with another number of processes.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from provenformer.bert.model.slot import encoder_layers
from provenformer.bert.runtime.processes import Processes


def shard(model: nn.Module, processes: Processes) -> None:
    """Split the parameters in place: every layer is a unit, and embeddings with heads, which share weights, one more.

    Every process must have built the same model; each keeps its rows.
    """
    mesh = init_device_mesh(processes.device.type, (processes.count,))
    for layer in encoder_layers(model):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)


@contextmanager
def gathered(model: nn.Module) -> Iterator[None]:
    """Inside, every process has all weights, so that they may run the model a different number of times."""
    units = [module for module in model.modules() if isinstance(module, FSDPModule)]
    for unit in units:
        unit.set_reshard_after_forward(False, recurse=False)
        unit.unshard()
    try:
        yield
    finally:
        for unit in units:
            # The heads are what the backward pass begins with, so torch keeps the outermost unit after the forward pass.
            unit.set_reshard_after_forward(unit is not model, recurse=False)
            unit.reshard()


def whole(tensor: Tensor) -> Tensor:
    """All rows of a parameter or of a moment; every process must ask."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def own_part(tensor: Tensor, like: Tensor) -> Tensor:
    """Of a whole tensor that every process has, what `like` has of its own."""
    if not isinstance(like, DTensor):
        return tensor
    # src_data_rank=None: nobody sends anything.
    return distribute_tensor(tensor.to(like.device), like.device_mesh, like.placements, src_data_rank=None)


def whole_weights(model: nn.Module, keep: bool) -> dict[str, Tensor]:
    """All weights in one piece, tied ones once; every process must ask, and those that do not keep them get nothing."""
    complete = ((name, whole(parameter.detach())) for name, parameter in model.named_parameters())
    return {name: tensor.cpu() for name, tensor in complete if keep}
