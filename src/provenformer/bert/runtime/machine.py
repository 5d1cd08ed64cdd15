"""What this machine can run."""

import subprocess
import sys
from functools import cache
from pathlib import Path

from provenformer.base.errors import ProvenformerError

WITHOUT_AMX = ("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
TRIAL = "import torch; x = torch.ones(64, 64, dtype=torch.bfloat16); torch.nn.functional.linear(x, x)"


@cache
def require_bf16() -> None:
    """bf16 on the CPU, tried in another process.

    Some virtual machines announce AMX without allowing it, and torch dies of the first product: no exception to catch.
    """
    processor = Path("/proc/cpuinfo")
    if not processor.exists() or "amx_tile" not in processor.read_text():
        return
    ended = subprocess.run([sys.executable, "-c", TRIAL], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if ended.returncode < 0:
        remedy = f"set {'='.join(WITHOUT_AMX)} in the environment, or bf16 = false"
        raise ProvenformerError(
            f"bf16 ends in signal {-ended.returncode}: the processor has AMX but forbids it; {remedy}"
        )
