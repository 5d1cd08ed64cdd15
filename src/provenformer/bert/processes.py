"""One process, or many under torchrun: who this one is, its share of the work, and sums over all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import torch
import torch.distributed
from torch import Tensor

from provenformer.base.errors import ProvenformerError


@dataclass(frozen=True)
class Processes:
    """This process among all of them.

    sharded  whether weights, gradients and optimizer state are split over the processes; else each holds all
    """

    rank: int
    count: int
    device: torch.device
    sharded: bool = False

    @property
    def first(self) -> bool:
        """Whether this process writes files and talks."""
        return self.rank == 0

    def share(self, total: int) -> range:
        """This process's part of `total` rows, even to one row."""
        if total < self.count:
            raise ProvenformerError(f"{total} rows cannot feed {self.count} processes; use a larger batch or fewer")
        return range(total * self.rank // self.count, total * (self.rank + 1) // self.count)

    def sum(self, values: Tensor) -> Tensor:
        """The sum over processes."""
        values = values.to(self.device)
        if self.count > 1:
            torch.distributed.all_reduce(values)
        return values

    def wait(self) -> None:
        """Until all are here."""
        if self.count > 1:
            torch.distributed.barrier()


def first_process() -> bool:
    """Whether this process talks and writes, also where no group is joined."""
    return int(os.environ.get("RANK", 0)) == 0


_outer: ContextVar[Processes | None] = ContextVar("_outer", default=None)


@contextmanager
def joined(shard: bool = False) -> Iterator[Processes]:
    """The process group that torchrun describes in the environment; without torchrun, one process, which holds all.

    Inside another `joined` it is the same group: a second one could not meet at the first one's addresses.
    """
    if outer := _outer.get():
        yield outer
        return
    cuda = torch.cuda.is_available()
    if "RANK" not in os.environ:
        yield Processes(0, 1, torch.device("cuda" if cuda else "cpu"))
        return
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    torch.distributed.init_process_group("nccl" if cuda else "gloo", device_id=device if cuda else None)
    count = torch.distributed.get_world_size()
    processes = Processes(torch.distributed.get_rank(), count, device, sharded=shard and count > 1)
    token = _outer.set(processes)
    try:
        yield processes
    finally:
        _outer.reset(token)
        torch.distributed.destroy_process_group()
