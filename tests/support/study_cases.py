"""A study on the sample that takes seconds."""

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from provenformer.cli.bert import app

SQUAD = {"seq_len": 32, "stride": 8, "epochs": 0.05, "threads": 1}
MODELS = ("average", "attention", "hybrid")
STUDY = """
title = "Sample"
seeds = [0, 1]
tuning_steps = 4
models = { average = { mixers = "average" }, attention = { mixers = "attention" }, hybrid = { mixers = "sepconv" } }
tuned_as = { hybrid = "attention" }
paper = { average = { parameters = "88.3M", masked_accuracy = 28, mnli_accuracy = 66 } }

[pretrain]
steps = 6
batch_size = 8
threads = 1
evaluate_every = 3
short_fraction = 0.5
model = { hidden_size = 32, num_hidden_layers = 1, num_attention_heads = 2, intermediate_size = 32 }

[recipes]
low = { learning_rate = 1e-6 }
good = { learning_rate = 3e-3, optimizer = "muon", model = { attention_init = "tied" } }
high = { learning_rate = 1e20 }

[finetune.mnli]
seq_len = 32
epochs = 0.1
threads = 1
recipes = { low = { learning_rate = 1e-9 }, high = { learning_rate = 1e20 }, good = { learning_rate = 1e-3 } }
"""


def invoke(*arguments: object) -> str:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False).stdout


def read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text())
    return content


def change(path: Path, **entries: Any) -> None:
    """Set entries of a JSON file."""
    path.write_text(json.dumps(read(path) | entries))


def forget(path: Path, task: str) -> None:
    """Take a task out of a result, as if it had not been learnt yet."""
    result = read(path)
    del result["asked"]["finetune"][task], result["cpu_seconds"][task]
    result["metrics"] = {name: value for name, value in result["metrics"].items() if not name.startswith(f"{task}_")}
    path.write_text(json.dumps(result))
