"""What a process holds of BERT_BASE, whole or sharded over many: `python -m benchmarks sharding`.

Weights, gradients and moments of Adam, counted tensor by tensor in the first process, whose share is never the smaller
one. On the meta device and with torch's fake process group: nothing is allocated or sent.
"""

import json
from collections.abc import Iterable
from pathlib import Path

import torch
import torch.distributed
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed.fake_pg import FakeStore

from benchmarks.measuring import about
from provenformer.bert import MixerBertConfig, MixerBertForPreTraining
from provenformer.bert.runtime.processes import Processes
from provenformer.bert.runtime.sharding import shard
from provenformer.bert.training.optimiser import build_optimizers
from provenformer.bert.training.settings import TrainingSettings

RESULTS = Path(__file__).parent / "results" / "sharding.json"
COUNTS = (1, 2, 8, 16)
KINDS = ("weights", "gradients", "moments")


def measure(count: int) -> dict[str, int]:
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=count)
    with torch.device("meta"):
        model = MixerBertForPreTraining(MixerBertConfig.bert_base())
    if count > 1:
        shard(model, Processes(0, count, torch.device("cpu"), sharded=True))
    (optimizer,) = build_optimizers(model, TrainingSettings())
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    torch.distributed.destroy_process_group()
    return {
        "processes": count,
        "weights": held(model.parameters()),
        "gradients": held(parameter.grad for parameter in model.parameters() if parameter.grad is not None),
        "moments": held(state[name] for state in optimizer.state.values() for name in ("exp_avg", "exp_avg_sq")),
    }


def held(tensors: Iterable[Tensor]) -> int:
    """Bytes of this process's part of the tensors."""
    own = [tensor.to_local() if isinstance(tensor, DTensor) else tensor for tensor in tensors]
    return sum(tensor.numel() * tensor.element_size() for tensor in own)


def main() -> bool:
    """Count, print, save; there is no limit to meet."""
    rows = [measure(count) for count in COUNTS]
    table = Table("processes", *KINDS, "together", title="BERT_BASE, MB in the first process")
    for row in rows:
        sizes = [row[kind] / 1e6 for kind in KINDS]
        table.add_row(str(row["processes"]), *(f"{size:,.1f}" for size in (*sizes, sum(sizes))))
    Console().print(table)
    record = {**about("sharding", 0), "rows": rows}
    RESULTS.write_text(json.dumps(record, indent=2) + "\n")
    return True
