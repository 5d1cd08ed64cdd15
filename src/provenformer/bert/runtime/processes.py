"""One process, or many under torchrun: who this one is, its share of the work, and sums over all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
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


@contextmanager
def joined(processes: Processes | None = None, *, shard: bool = False) -> Iterator[Processes]:
    """The group `processes` if the caller is in one; else the one that torchrun describes in the environment, or one process.

    Who calls several of our functions joins once and hands the group on: a second one could not meet at its addresses.
    """
    if processes is not None:
        yield processes
        return
    cuda = torch.cuda.is_available()
    if "RANK" not in os.environ:
        yield Processes(0, 1, torch.device("cuda" if cuda else "cpu"))
        return
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    torch.distributed.init_process_group("nccl" if cuda else "gloo", device_id=device if cuda else None)
    count = torch.distributed.get_world_size()
    try:
        yield Processes(torch.distributed.get_rank(), count, device, sharded=shard and count > 1)
    finally:
        torch.distributed.destroy_process_group()
