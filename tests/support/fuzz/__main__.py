"""python -m fuzz --minutes 60: random functions and forgeries in turn; what is found is kept in tests/fuzz/found."""

from __future__ import annotations

import argparse
import json
import re
import signal
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import provenformer as pf
from fuzz.forgeries import genuine, ours, try_forgery
from fuzz.kept import CASES, keep, random_case, tried
from fuzz.outcome import Built, rejected

SECONDS = 4  # of this process, for one case; some functions take the mean value form very long
OWN = 1  # forgeries of every network that was just made; one more is of a built-in target's or program's
MOST_LAYERS = 2000  # of a network that is forged: verifying a long one takes long
LOOSE = 2.0  # bound over measured: half of all must be below


class Late(BaseException):
    """The time for one case is over. No Exception: the library must not take it for one of the function's."""


@dataclass
class Run:
    """A run so far."""

    seed: int
    counts: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    ratios: dict[str, list[float]] = field(default_factory=lambda: {"table": [], "circuit": []})

    def function(self, index: int) -> None:
        """One random function, then forgeries of its network."""
        kind = list(CASES)[index % len(CASES)]
        case = random_case(np.random.default_rng((self.seed, index)), kind)
        built = None
        with self._guarded({"case": case.as_json()}):
            outcome, built = tried(case)
            self.counts.update(["functions", f"functions: {kind}"])
            self.counts["functions refused" if outcome.refused else f"certificates: {outcome.kind}"] += 1
            if outcome.refused:
                self.refusals[f"{kind}: {_class_of(outcome.refused)}"] += 1
            if outcome.ratio:
                self.ratios[kind].append(outcome.ratio)
            if outcome.wrong:
                self.counts["WRONG functions"] += 1
                keep("function", {"case": case.as_json(), "found": outcome.wrong})
                return
        if built is not None and built.network.layers <= MOST_LAYERS:
            for part in range(OWN):
                self.forgery((self.seed, index, part), built, {"case": case.as_json()})

    def genuine(self, index: int) -> None:
        """One network as it was made must pass its own `verify`, or is refused when it is compiled."""
        kind = ("circuit", "program", "table", "table")[index % 4]
        case = random_case(np.random.default_rng((self.seed, index)), kind)
        with self._guarded({"case": case.as_json()}):
            try:
                c = case.compiled()
            except pf.ProvenformerError as error:
                self.counts["refused"] += 1
                self.refusals[f"{kind}: {_class_of(str(error))}"] += 1
                return
            reason = rejected(c)
            self.counts["networks"] += 1
            made = "tokens" if isinstance(c, pf.CompiledTokens) else c.construction
            self.counts["REJECTED" if reason else f"verified: {made}"] += 1
            if reason:
                keep("genuine", {"case": case.as_json(), "found": reason})

    def forgery(self, seed: tuple[int, ...], built: Built | None = None, of: dict[str, Any] | None = None) -> None:
        """One forgery: of the given network, or of one of ours."""
        finding = {**(of or {}), "seed": seed}
        with self._guarded(finding):
            verdict = try_forgery(seed, built)
            self.counts.update(["forgeries", f"forgeries {'accepted' if verdict.accepted else 'rejected'}"])
            if verdict.wrong:
                self.counts["WRONG forgeries"] += 1
                keep("forgery", {**finding, "change": verdict.change, "found": verdict.wrong})

    @contextmanager
    def _guarded(self, finding: dict[str, Any]) -> Iterator[None]:
        """A limited time; a crash is a find: whatever a function or a folder holds, the library says so in one line."""
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            yield
        except Late:
            self.counts["late"] += 1
        except Exception as error:
            self.counts["CRASHES"] += 1
            frame = traceback.extract_tb(error.__traceback__)[-1]
            at = f"{Path(frame.filename).name}, line {frame.lineno} in {frame.name}"
            keep("crash", {**finding, "found": f"{type(error).__name__}: {error} at {at}"})
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)

    @property
    def bad(self) -> bool:
        """Something to repair: a find, or bounds that are loose on the whole."""
        found = any(name.split()[0].isupper() for name in self.counts)
        return found or any(len(some) > 50 and np.median(some) > LOOSE for some in self.ratios.values())

    def __str__(self) -> str:
        parts = [", ".join(f"{name} {count:,}" for name, count in sorted(self.counts.items()))]
        for kind, some in self.ratios.items():
            if some:
                middle, most = np.quantile(some, (0.5, 0.95))
                parts.append(f"{kind}: bound / measured median {middle:.3g}, 95 % {most:.3g}")
        return "; ".join(parts)


def main() -> int:
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument(
        "--seed", type=int, default=int(time.time()), help="another seed, other cases (default: the time)"
    )
    parser.add_argument("--forgeries", action="store_true", help="only forgeries, of built-in targets' networks")
    parser.add_argument("--genuine", type=int, help="only see whether so many networks pass their own verify")
    parser.add_argument("--counts", type=Path, help="write the counts to this JSON file, every minute")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    signal.signal(signal.SIGPROF, _late)
    run, start, last, index = Run(options.seed), time.monotonic(), 0.0, 0
    while time.monotonic() - start < 60 * options.minutes and run.counts["networks"] < (options.genuine or np.inf):
        index += 1
        if options.genuine:
            run.genuine(index)
        else:
            if not options.forgeries:
                run.function(index)
            programs = ours("tokens")
            if index % 4 == 0:
                which = programs[index // 4 % len(programs)]
                run.forgery((run.seed, index), genuine(which), {"ours": which})
            else:
                run.forgery((run.seed, index))
        if time.monotonic() - last > 60:
            last = time.monotonic()
            _tell(run, options.counts, last - start)
    _tell(run, options.counts, time.monotonic() - start)
    for reason, count in run.refusals.most_common(None if options.genuine else 20):
        print(f"  refused {count:,}: {reason}")
    return 1 if run.bad else 0


def _tell(run: Run, counts: Path | None, seconds: float) -> None:
    print(run, flush=True)
    if counts is not None:
        spent = {"seed": run.seed, "seconds": round(seconds), "CPU seconds": round(time.process_time())}
        counts.write_text(json.dumps({**spent, **run.counts, "refusals": run.refusals}, indent=1) + "\n")


def _late(*_: object) -> None:
    raise Late


def _class_of(refusal: str) -> str:
    """A refusal without its numbers."""
    return re.sub(r"[-+]?\d[\d.,e+-]*", "#", refusal)[:110]


if __name__ == "__main__":
    raise SystemExit(main())
