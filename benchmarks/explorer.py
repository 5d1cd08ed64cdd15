"""The explorer in a browser: from the start of the command to the first page, and from moving a token to its new picture.

Needs chromium and chromedriver, as `make test-browser` installs them. The limits are on wall time, medians over rounds. Beside
it stands the CPU time of the page's main thread and the server, which hardly depends on what else the machine does.
"""

import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from selenium import webdriver

from benchmarks.measuring import about

RESULTS = Path(__file__).parent / "results" / "explorer.json"
STARTS, MOVES = 3, 25
FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync", "--window-size=1280,1000"]  # fmt: skip
# The default table, and the largest of a kind that the explorer builds.
SIZES: dict[str, dict[str, str]] = {
    "default: sum, n=3, N=6": {},
    "sum, n=3, N=10": {"cells": "10"},
    "paper, sort, n=3, N=5": {"target": "sort", "cells": "5", "construction": "paper"},
}
PAINTED = """
const done = arguments[arguments.length - 1];
const ready = () => {
  if (document.documentElement.dataset.ready !== "true") { setTimeout(ready, 5); return; }
  requestAnimationFrame(() => setTimeout(() => done({
    paint: performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? performance.now(),
    useful: performance.now() }), 0));
};
ready();
"""
# One key press on the first token, until the output has been drawn anew.
MOVE = """
const done = arguments[arguments.length - 1];
const table = document.querySelector(arguments[1]);
const start = performance.now();
const seen = new MutationObserver(() => {
  seen.disconnect();
  requestAnimationFrame(() => setTimeout(() => done(performance.now() - start), 0));
});
seen.observe(table, { subtree: true, childList: true, attributes: true });
document.querySelector(arguments[2]).dispatchEvent(new KeyboardEvent("keydown", { key: arguments[0], bubbles: true }));
"""


def start() -> tuple[subprocess.Popen[str], str, float]:
    """The command, its address, and how long it took to answer."""
    begin = time.perf_counter()
    code = "from provenformer.cli import main; main()"
    command = [sys.executable, "-c", code, "explore", "--port", "0", "--no-open"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    found = re.search(r"http://127\.0\.0\.1:\d+/", process.stdout.readline())
    assert found is not None
    return process, found.group(), time.perf_counter() - begin


def browser() -> webdriver.Chrome:
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for flag in FLAGS:
        options.add_argument(flag)
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))


class Work:
    """CPU seconds of the page's main thread and of the server since it was made: what a move costs on an idle machine."""

    def __init__(self, driver: webdriver.Chrome, process: subprocess.Popen[str]) -> None:
        self.driver, self.process = driver, process
        driver.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
        self.start = self._now()

    def _now(self) -> float:
        metrics = self.driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
        page = next(m["value"] for m in metrics if m["name"] == "TaskDuration")
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return float(page) + (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def milliseconds(self) -> float:
        return 1e3 * (self._now() - self.start)


def first_pages() -> list[dict[str, float]]:
    """Fresh server, fresh browser: seconds to start-up, then milliseconds of the page until paint and until all is drawn."""
    rows = []
    for _ in range(STARTS):
        driver = browser()
        process, url, seconds = start()
        try:
            work = Work(driver, process)
            driver.get(url)
            times = driver.execute_async_script(PAINTED)
            rows.append(
                {
                    "start-up (s)": seconds,
                    "first paint (ms)": times["paint"],
                    "all drawn (ms)": times["useful"],
                    "CPU (ms)": work.milliseconds(),
                }
            )
        finally:
            driver.quit()
            process.kill()
            process.wait()
    return rows


def moves() -> list[dict[str, Any]]:
    """Milliseconds from a key press to the new picture, for each size and both kinds of network."""
    process, url, _ = start()
    driver = browser()
    rows = []
    try:
        for name, changes in SIZES.items():
            driver.get("about:blank")
            driver.get(f"{url}#/tables")
            driver.execute_async_script(PAINTED)
            if changes:
                fill = "for (const [k, v] of Object.entries(arguments[0])) document.getElementById(`f-${k}`).value = v;"
                driver.execute_script(fill + "document.getElementById('compile').click();", changes)
                settle(driver)
            for mode in ("hardmax", "softmax"):
                driver.execute_script(f"document.querySelector('input[value={mode}]').click()")
                settle(driver)
                rows.append(
                    {"network": name, "mode": mode, **moves_of_one(driver, process, "#slice", "#tokens .handle")}
                )
        driver.get("about:blank")
        driver.get(url)
        driver.execute_async_script(PAINTED)
        first = moves_of_one(driver, process, "#circuit-output", "#circuit-input .number")
        rows.append({"network": "default circuit, n=8", "mode": "softmax", **first})
    finally:
        driver.quit()
        process.kill()
        process.wait()
    return rows


def moves_of_one(driver: webdriver.Chrome, process: subprocess.Popen[str], output: str, token: str) -> dict[str, Any]:
    times = []
    work = Work(driver, process)
    for i in range(MOVES):
        times.append(driver.execute_async_script(MOVE, "ArrowRight" if i % 2 else "ArrowLeft", output, token))
        settle(driver)
    cpu = work.milliseconds() / MOVES
    return {
        "median (ms)": statistics.median(times),
        "slowest (ms)": max(times),
        "CPU (ms)": cpu,
    }


def settle(driver: webdriver.Chrome) -> None:
    """Until the page waits for nothing."""
    while driver.execute_script("return document.getElementById('main').getAttribute('aria-busy')") == "true":
        time.sleep(0.01)


def main() -> bool:
    """Measure, print, save; True if the first page is there within 1 s and a move is answered within 100 ms."""
    result: dict[str, Any] = {
        "about": about("explorer", 0),
        "load": os.getloadavg()[0],
        "first page": first_pages(),
        "moves": moves(),
    }
    first = {name: statistics.median(row[name] for row in result["first page"]) for name in result["first page"][0]}
    rows = [
        ("start-up of the command (s)", first["start-up (s)"], None, None),
        ("first paint after start-up (ms)", first["first paint (ms)"], None, 1000),
        ("all pictures drawn (ms)", first["all drawn (ms)"], first["CPU (ms)"], 1000),
    ]
    for row in result["moves"]:
        what = f"move a token: {row['network']}, {row['mode']} (ms)"
        rows.append((what, row["median (ms)"], row["CPU (ms)"], 100))
    table = Table("what", "median", "CPU", "limit", "met", title=f"explorer (load average {result['load']:.1f})")
    for what, value, cpu, limit in rows:
        met = "" if limit is None else "yes" if value <= limit else "NO"
        table.add_row(
            what, f"{value:.3g}", "" if cpu is None else f"{cpu:.3g}", "" if limit is None else f"{limit}", met
        )
    Console().print(table)
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    return all(limit is None or value <= limit for _, value, _, limit in rows)
