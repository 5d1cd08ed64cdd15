"""The package as a user meets it: importable, and the core free of torch."""

import subprocess
import sys


def test_core_imports_without_torch() -> None:
    code = "import sys, provenformer; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
