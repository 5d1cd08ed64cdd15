"""Small tests share two cores: one thread each, and a fixed seed."""

import os

import pytest

pytest.importorskip("torch")
import torch

from provenformer.base.errors import ProvenformerError
from provenformer.bert.runtime.machine import WITHOUT_AMX, require_bf16

try:
    require_bf16()
except ProvenformerError:  # bf16 without AMX, here and in every process that a test starts
    os.environ.setdefault(*WITHOUT_AMX)
    require_bf16.cache_clear()


@pytest.fixture(autouse=True)
def one_thread_fixed_seed() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
