"""python -m fuzz --minutes 60: random functions and forgeries in turn; what is found is kept in tests/fuzz/found."""

from __future__ import annotations

import argparse
import json
import signal
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from fuzz.forgeries import try_forgery
from fuzz.functions import Case, try_case

SECONDS = 30  # for one case; some functions take the mean value form very long
FOUND = Path(__file__).parents[2] / "fuzz" / "found"


def main() -> int:
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument(
        "--seed", type=int, default=int(time.time()), help="another seed, other cases (default: the time)"
    )
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    counts: Counter[str] = Counter()
    ratios: list[float] = []
    signal.signal(signal.SIGALRM, _late)
    start, last, index = time.monotonic(), 0.0, 0
    while time.monotonic() - start < 60 * options.minutes:
        index += 1
        _one_function(options.seed, index, counts, ratios)
        for part in range(4):  # a forgery takes a fraction of the time
            _one_forgery((options.seed, index, part), counts)
        if time.monotonic() - last > 60:
            last = time.monotonic()
            print(_summary(counts, ratios), flush=True)
    print(_summary(counts, ratios))
    return 1 if counts["wrong functions"] + counts["wrong forgeries"] + counts["crashes"] else 0


def _one_function(seed: int, index: int, counts: Counter[str], ratios: list[float]) -> None:
    case = Case.random(np.random.default_rng((seed, index)))
    counts["functions"] += 1
    signal.alarm(SECONDS)
    try:
        outcome = try_case(case)
    except TimeoutError:
        counts["late"] += 1
        return
    except Exception as error:  # whatever a user's function does, compile says so in one line
        counts["crashes"] += 1
        _keep("function", {"case": case.as_json(), "found": _told(error)})
        return
    finally:
        signal.alarm(0)
    counts["refused" if outcome.refused else f"{outcome.kind} certificates"] += 1
    if outcome.ratio:
        ratios.append(outcome.ratio)
    if outcome.wrong:
        counts["wrong functions"] += 1
        _keep("function", {"case": case.as_json(), "found": outcome.wrong})


def _one_forgery(seed: tuple[int, ...], counts: Counter[str]) -> None:
    counts["forgeries"] += 1
    try:
        verdict = try_forgery(seed)
    except Exception as error:
        counts["crashes"] += 1
        _keep("forgery", {"seed": seed, "found": _told(error)})
        return
    counts["accepted" if verdict.accepted else "rejected"] += 1
    if verdict.wrong:
        counts["wrong forgeries"] += 1
        _keep("forgery", {"seed": seed, "change": verdict.change, "found": verdict.wrong})


def _late(*_: object) -> None:
    raise TimeoutError(f"longer than {SECONDS} s")


def _keep(kind: str, finding: dict[str, Any]) -> None:
    FOUND.mkdir(exist_ok=True)
    place = FOUND / f"{kind}-{len(list(FOUND.iterdir())):03d}.json"
    place.write_text(json.dumps(finding, indent=1) + "\n")
    print(f"FOUND {place}: {finding['found']}", flush=True)


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error} at {traceback.extract_tb(error.__traceback__)[-1]}"


def _summary(counts: Counter[str], ratios: list[float]) -> str:
    spread = (
        f"; bound / measured: median {np.median(ratios):.3g}, 95 % {np.quantile(ratios, 0.95):.3g}" if ratios else ""
    )
    return ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items())) + spread


if __name__ == "__main__":
    raise SystemExit(main())
