"""Altered networks: `load` notices by hash; with forged hashes `verify` rejects, or derives a bound that is true of them.

Truth is measured: d_p(f, altered) by stratified sampling; points off the ramps in every cube, where the altered network must
be constant; points on the ramps, where it must be finite and within twice the clip.
"""

from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from cases import run_of, thin
from forging import fields, forge, measured, off_ramp_points, ramp_points, with_run, with_weight

import provenformer as pf
from provenformer import storage
from provenformer.networks.base import FloatNetwork
from provenformer.networks.thin import FloatRun, Network, ReluRun

CASES = [
    ("scaled-mean", 1, 2, 4, "sum"),
    ("scaled-mean", 1, 3, 3, "sum"),
    ("centered", 2, 2, 2, "sum"),
    ("softmax-mean", 1, 2, 12, "sum"),  # its value run is long enough to be read back as windows
    ("scaled-mean", 1, 2, 4, "paper"),
    ("scaled-mean", 1, 3, 4, "paper"),
    ("centered", 2, 2, 2, "paper"),
    ("sort", 1, 2, 4, "sum"),
    ("sort", 1, 2, 4, "paper"),
    ("reverse", 2, 2, 2, "sum"),
]
Case = tuple[str, int, int, int, str]
Mutation = tuple[int, str, tuple[int, ...], str, float]
EACH = 24


@cache
def compiled(case: Case) -> pf.Compiled:
    name, d, n, cells, construction = case
    return pf.compile(pf.targets.get(name, d, n), cells_per_axis=cells, construction=construction)


def require_true(case: Case, folder: Path, altered: Network, what: object) -> str:
    """`verify` says something true about the altered network, or nothing. Returns what it said."""
    c = compiled(case)
    target, cells, ramp = c.target, case[3], c.certificate.ramp
    report = pf.verify(folder)
    if report.derived is None:
        assert not report
        assert report.reason
        return "rejected"
    rng = np.random.default_rng(0)
    with np.errstate(all="ignore"):
        found = measured(target, altered, 2, cells)
        assert found.value - 5 * found.error <= report.derived * (1 + 1e-6) + 1e-9, (what, found, report)
        one, other = (altered(off_ramp_points(target, cells, ramp, rng)) for _ in range(2))
        assert np.abs(one - other).max() <= 1e-6, what
        on_ramps = altered(ramp_points(target, cells, ramp, rng, 256))
    assert np.isfinite(on_ramps).all(), what
    clip = run_of(altered, -1, ReluRun).b_1[:, :2]
    for row in range(case[1]):
        assert on_ramps[:, row].min() >= 2 * clip[row, 0] - 1e-9, what
        assert on_ramps[:, row].max() <= -2 * clip[row, 1] + 1e-9, what
    return "accepted" if report else "larger bound"


def changes(value: float) -> dict[str, float]:
    return {
        "1 %": value * 1.01, "-1 %": value * 0.99, "1e-9": value * (1 + 1e-9), "sign": -value, "zero": 0.0,
        "huge": 1e300, "minus huge": -1e300, "large": 1e30, "plus 1": value + 1, "plus 1e-9": value + 1e-9,
        "next float": float(np.nextafter(value, np.inf)),
    }  # fmt: skip


def sampled_mutations(network: FloatNetwork, rng: np.random.Generator, count: int) -> list[Mutation]:
    """(run, field, index, kind, new value), every run and field in turn, weights that are 0 included."""
    places = list(fields(network))
    if network.positions is not None:
        places.append((-1, "positions", network.positions))
    out: list[Mutation] = []
    while len(out) < count:
        run, name, array = places[len(out) % len(places)]
        at = tuple(int(rng.integers(size)) for size in array.shape)
        if rng.random() < 0.7 and array.any():  # more often a weight that is used
            at = tuple(int(i) for i in rng.choice(np.argwhere(array)))
        kinds = changes(float(array[at]))
        kind = str(rng.choice(list(kinds)))
        if kinds[kind] != array[at]:
            out.append((run, name, at, kind, kinds[kind]))
        else:
            out.append((run, name, at, "plus 1", float(array[at]) + 1))
    return out


@pytest.mark.parametrize("case", CASES, ids=str)
def test_single_weights(case: Case, tmp_path: Path) -> None:
    """Any single weight of any run: the hash notices; with forged hashes what `verify` says is true."""
    c = compiled(case)
    folder = tmp_path / "net"
    c.save(folder)
    assert pf.verify(folder)
    outcomes: Counter[str] = Counter()
    for run, name, at, kind, value in sampled_mutations(c.network, np.random.default_rng(7), EACH):
        altered = with_weight(c.network, run, name, at, value)
        forge(folder, altered)
        outcomes[require_true(case, folder, altered, (run, name, at, kind, value))] += 1
    assert outcomes["rejected"] >= EACH // 10
    assert sum(outcomes.values()) == EACH


def test_the_hash_notices_one_weight(tmp_path: Path) -> None:
    """Exactly one weight in the file, one bit, the rest as saved."""
    c = compiled(CASES[0])
    c.save(tmp_path / "net")
    file = tmp_path / "net" / storage.NETWORK
    content = file.read_bytes()
    for at in (len(content) - 1, len(content) // 2, 3 * len(content) // 4):
        file.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        with pytest.raises(pf.ProvenformerError, match="altered"):
            pf.load(tmp_path / "net")
    file.write_bytes(content)
    pf.load(tmp_path / "net")


@pytest.mark.parametrize("case", [CASES[0], CASES[3], CASES[5], CASES[7]], ids=str)
def test_a_percent_on_a_value_is_not_accepted(case: Case, tmp_path: Path) -> None:
    """1 % of an id is far more than any value; only where the clip undoes it (the largest value) nothing changes."""
    c = compiled(case)
    c.save(tmp_path / "net")
    index = max(range(len(thin(c.network).runs)), key=lambda i: len(thin(c.network).runs[i]))
    rng = np.random.default_rng(1)
    for _ in range(6):
        layer, unit = int(rng.integers(len(thin(c.network).runs[index]))), int(rng.integers(2))
        weight = float(run_of(c.network, index, ReluRun).W_2[layer, 0, unit])
        altered = with_weight(c.network, index, "W_2", (layer, 0, unit), 1.01 * weight)
        forge(tmp_path / "net", altered)
        x = off_ramp_points(c.target, case[3], c.certificate.ramp, rng)
        assert bool(pf.verify(tmp_path / "net")) == bool(np.abs(altered(x) - c.network(x)).max() <= 1e-6)


@pytest.mark.parametrize("case", CASES[::2] + CASES[5:6], ids=str)
def test_swapped_layers(case: Case, tmp_path: Path) -> None:
    c = compiled(case)
    folder = tmp_path / "net"
    c.save(folder)
    rng = np.random.default_rng(3)
    seen: Counter[str] = Counter()
    for index, run in enumerate(thin(c.network).runs):
        if len(run) < 2:
            continue
        for _ in range(2):
            i, j = rng.choice(len(run), size=2, replace=False)
            order = np.arange(len(run))
            order[[i, j]] = order[[j, i]]
            altered = with_run(
                c.network, index, **{k: v[order] for k, v in vars(run).items() if isinstance(v, np.ndarray)}
            )
            forge(folder, altered)
            seen[require_true(case, folder, altered, (index, int(i), int(j)))] += 1
    assert seen["rejected"] + seen["larger bound"] > 0


@pytest.mark.parametrize("case", [CASES[1], CASES[2], CASES[5], CASES[7]], ids=str)
def test_swapped_dropped_repeated_and_added_runs(case: Case, tmp_path: Path) -> None:
    c = compiled(case)
    folder = tmp_path / "net"
    c.save(folder)
    runs = thin(c.network).runs
    d = c.network.token_dim
    zero = np.zeros((1, 4, d)), np.zeros((1, 4)), np.zeros((1, d, 4))
    after = ReluRun("clip", *zero, np.full((1, d), 0.25))
    variants: dict[str, tuple[FloatRun, ...]] = {"after the clip": (*runs, after), "clip twice": (*runs, runs[-1])}
    for i in range(len(runs)):
        variants[f"without {i}"] = runs[:i] + runs[i + 1 :]
        variants[f"twice {i}"] = (*runs[: i + 1], *runs[i:])
        variants[f"shift before {i}"] = (*runs[:i], after, *runs[i:])
        if i:
            variants[f"swap {i}"] = (*runs[: i - 1], runs[i], runs[i - 1], *runs[i + 1 :])
    seen: Counter[str] = Counter()
    for what, altered_runs in variants.items():
        altered = Network(d, c.network.seq_len, tuple(altered_runs), c.network.positions)
        forge(folder, altered)
        seen[require_true(case, folder, altered, what)] += 1
    assert seen["rejected"] > 0


def test_a_run_without_layers_and_other_stage_names_change_nothing(tmp_path: Path) -> None:
    """Stage names are labels; the verdict rests on the weights."""
    case = CASES[1]
    c = compiled(case)
    folder = tmp_path / "net"
    c.save(folder)
    d = c.network.token_dim
    empty = ReluRun("quantise", np.zeros((0, 4, d)), np.zeros((0, 4)), np.zeros((0, d, 4)), np.zeros((0, d)))
    x = c.target.sample(50)
    for at in range(len(thin(c.network).runs)):
        altered = with_run(c.network, at, stage="clip")
        forge(folder, altered)
        assert pf.verify(folder)
        runs = (*thin(c.network).runs[:at], empty, *thin(c.network).runs[at:])
        forge(folder, Network(d, c.network.seq_len, runs))
        require_true(case, folder, Network(d, c.network.seq_len, runs), at)
        np.testing.assert_array_equal(pf.load(folder).network(x), c.network(x))
