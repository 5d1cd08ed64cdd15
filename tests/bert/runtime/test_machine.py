"""A machine that announces AMX and dies of it is refused in one line, before a training run dies of it."""

import pytest

from provenformer.base.errors import ProvenformerError
from provenformer.bert.runtime import machine


def test_a_trial_that_is_killed_is_a_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "Path", lambda _: Processor("flags: amx_tile"))
    monkeypatch.setattr(machine, "TRIAL", "import os, signal; os.kill(os.getpid(), signal.SIGILL)")
    machine.require_bf16.cache_clear()
    with pytest.raises(ProvenformerError, match=r"signal 4.*ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16"):
        machine.require_bf16()
    monkeypatch.setattr(machine, "Path", lambda _: Processor("flags: avx2"))
    machine.require_bf16.cache_clear()
    machine.require_bf16()  # nothing to try without AMX


class Processor(str):
    def exists(self) -> bool:
        return True

    def read_text(self) -> str:
        return self
