"""How long `provenformer report` takes for the demo's network, from start to end, and how large the page is."""

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.measuring import about

RESULTS = Path(__file__).parent / "results" / "report.json"
RUNS = 5
NETWORK = ["compile", "softmax-mean", "--tolerance", "0.0478", "--construction", "sum"]


def command(*arguments: str) -> tuple[float, float]:
    """Seconds on the clock and of processor time of one `provenformer` process."""
    program = [sys.executable, "-c", "from provenformer.cli import main; main()", *arguments]
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(program, check=True, capture_output=True)
    clock, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return clock, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> bool:
    """Measure, print, save; True if the page takes less than 5 s and 3 MB."""
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        net, page = f"{folder}/net", f"{folder}/report.html"
        command(*NETWORK, "-o", net)
        runs = [command("report", net, "-o", page) for _ in range(RUNS)]
        megabytes = Path(page).stat().st_size / 1e6
    clock, processor = (statistics.median(column) for column in zip(*runs, strict=True))
    table = Table("what", "median", "limit", title=f"report on the demo's network (load average {load:.1f})")
    table.add_row("clock (s)", f"{clock:.2f}", "5")
    table.add_row("processor (s)", f"{processor:.2f}", "")
    table.add_row("page (MB)", f"{megabytes:.2f}", "3")
    Console().print(table)
    result = {"about": about("report", 0), "load": load, "clock, processor (s)": runs, "page (MB)": megabytes}
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    return clock < 5 and megabytes < 3
