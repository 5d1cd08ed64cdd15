"""One process, or many under torchrun: who this one is, its share of the work, and sums over all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed
from torch import Tensor

from provenformer.errors import ProvenformerError


@dataclass(frozen=True)
class Processes:
    """This process among all of them."""

    rank: int
    count: int
    device: torch.device

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


@contextmanager
def joined() -> Iterator[Processes]:
    """The process group that torchrun describes in the environment; without torchrun, one process.

    Inside another `joined` it is the same group: a second one could not meet at the first one's addresses.
    """
    cuda = torch.cuda.is_available()
    if "RANK" not in os.environ:
        yield Processes(0, 1, torch.device("cuda" if cuda else "cpu"))
        return
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    outermost = not torch.distributed.is_initialized()
    if outermost:
        torch.distributed.init_process_group("nccl" if cuda else "gloo", device_id=device if cuda else None)
    try:
        yield Processes(torch.distributed.get_rank(), torch.distributed.get_world_size(), device)
    finally:
        if outermost:
            torch.distributed.destroy_process_group()
