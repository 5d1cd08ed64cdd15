"""Forgeries, each written to get a false bound past `verify`. Those that once worked say so.

A forger controls everything: weights, certificate, manifest, hashes. What he must not get is a report that holds for a
bound that is false.
"""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import run_of, thin
from forging import forge, measured, ramp_points, with_run, with_weight

import provenformer as pf
from provenformer import storage
from provenformer.bounds import integrals
from provenformer.networks.thin import Network, ReluRun, SoftmaxRun


def saved(
    folder: Path, name: str = "scaled-mean", d: int = 1, n: int = 2, cells: int = 4, **options: Any
) -> pf.Compiled:
    c = pf.compile(pf.targets.get(name, d, n), cells_per_axis=cells, **options)
    c.save(folder)
    assert pf.verify(folder)
    return c


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "net"


# What the certificate and the manifest say.


def test_a_smaller_bound(folder: Path) -> None:
    c = saved(folder)
    forge(folder, certificate={"bound": 0.999 * c.certificate.bound})
    report = pf.verify(folder)
    assert not report
    assert report.derived == pytest.approx(c.certificate.bound, rel=1e-4)
    forge(folder, certificate={"bound": 1.1 * c.certificate.bound})
    assert pf.verify(folder)


@pytest.mark.parametrize("bound", [0.0, -1.0, math.nan])
def test_nonsense_bounds(folder: Path, bound: float) -> None:
    saved(folder)
    forge(folder, certificate={"bound": bound})
    assert refused(folder)


@pytest.mark.parametrize("factor", [0.5, 0.1, 0.99])
def test_a_ramp_claimed_smaller_than_it_is(folder: Path, factor: float) -> None:
    c = saved(folder)
    forge(folder, certificate={"ramp": factor * c.certificate.ramp})
    report = pf.verify(folder)
    assert not report
    assert "break lies inside cell" in report.reason
    assert "quantise" in report.reason


def test_a_ramp_claimed_larger_costs_its_measure(folder: Path) -> None:
    c = saved(folder)
    forge(folder, certificate={"ramp": 16 * c.certificate.ramp})
    report = pf.verify(folder)
    assert not report
    assert report.terms["ramps"] == pytest.approx(4 * c.certificate.terms["ramps"], rel=1e-3)
    assert report.derived is not None
    forge(folder, certificate={"bound": 2 * report.derived})
    assert "ramps" in pf.verify(folder).reason  # the bound is true now, but not the term
    forge(folder, certificate={"terms": {**c.certificate.terms, "ramps": 1.01 * report.terms["ramps"]}})
    assert pf.verify(folder)


@pytest.mark.parametrize("ramp", [0.0, -0.1, 0.5, 3.0, math.nan])
def test_ramps_outside_their_range(folder: Path, ramp: float) -> None:
    saved(folder)
    forge(folder, certificate={"ramp": ramp})
    assert refused(folder)


def test_another_norm(folder: Path) -> None:
    """The bound for p = 1 (smaller here) does not pass for p = 2; an order beyond the limit is refused."""
    c = saved(folder, norm_order=1)
    forge(folder, certificate={"norm_order": 4})
    report = pf.verify(folder)
    found = measured(c.target, c.network, 4, 4)
    assert report.derived is not None
    assert report.derived >= found.value - 4 * found.error
    assert not report
    for order in (0.5, 0, 65, 1e4, None):
        forge(folder, certificate={"norm_order": order})
        assert refused(folder)


def test_the_whole_space_for_a_function_on_a_box(folder: Path) -> None:
    saved(folder)
    for domain in ("space", "everything", ""):
        forge(folder, certificate={"domain": domain})
        assert refused(folder)


def test_a_data_certificate_without_data(folder: Path) -> None:
    saved(folder)
    forge(folder, certificate={"domain": "data"})
    assert refused(folder)


def test_another_kind_is_derived_again(folder: Path) -> None:
    """Calling it lipschitz makes the bound larger here, so the claim fails; an unknown kind is refused."""
    c = saved(folder)
    forge(folder, certificate={"kind": "lipschitz"})
    report = pf.verify(folder)
    assert not report
    assert report.derived is not None
    assert report.derived > c.certificate.bound
    forge(folder, certificate={"kind": "certain"})
    assert refused(folder)


@pytest.mark.parametrize("construction", ["sum", "paper"])
@pytest.mark.parametrize("cells", [2, 3, 8, 16])
def test_another_grid(folder: Path, construction: str, cells: int) -> None:
    saved(folder, construction=construction)
    forge(folder, manifest={"cells_per_axis": cells})
    assert not pf.verify(folder)


def test_a_finer_grid_with_the_ramp_to_match_is_true(folder: Path) -> None:
    """Each cell called two: the ramp is then twice as many (smaller) cells wide, and everything said is true."""
    c = saved(folder)
    forge(folder, certificate={"ramp": 2 * c.certificate.ramp, "bound": 1.0}, manifest={"cells_per_axis": 8})
    report = pf.verify(folder)
    found = measured(c.target, c.network, 2, 4)
    assert report.derived is None or report.derived >= found.value - 4 * found.error


@pytest.mark.parametrize("cells", [None, "4", 4.0, True, -1, 1, 0])
def test_no_grid_at_all(folder: Path, cells: object) -> None:
    saved(folder)
    forge(folder, manifest={"cells_per_axis": cells})
    with pytest.raises(pf.ProvenformerError):
        pf.verify(folder)


@pytest.mark.parametrize("changes", [{"token_dim": 2}, {"seq_len": 3}, {"seq_len": 0}, {"token_dim": "1"}])
def test_other_sizes(folder: Path, changes: dict[str, Any]) -> None:
    saved(folder)
    path = folder / storage.MANIFEST
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    with pytest.raises(pf.ProvenformerError):
        pf.load(folder)
    assert refused(folder)


def refused(folder: Path) -> bool:
    """A verdict or one clear line, never anything else."""
    try:
        return not pf.verify(folder)
    except pf.ProvenformerError as error:
        return "\n" not in str(error)


def test_another_target(folder: Path) -> None:
    """The claim is about the target that is named: replace it, and the bound is derived for that one."""
    c = saved(folder)
    for name in ("centered", "softmax-mean", "relative-max"):
        other = pf.targets.get(name, 1, 2)
        forge(folder, manifest={"target": storage.target_spec(other)})
        report = pf.verify(folder)
        found = measured(other, c.network, 2, 4)
        assert not report
        assert report.derived is not None
        assert report.derived >= found.value - 4 * found.error
    forge(folder, manifest={"target": storage.target_spec(pf.targets.get("sort", 1, 2))})
    assert not pf.verify(folder)
    forge(folder, manifest={"target": storage.target_spec(pf.targets.get("scaled-mean", 1, 2, (0.0, 2.0)))})
    assert not pf.verify(folder)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("bound", "0.1"),
        ("bound", None),
        ("ramp", [1]),
        ("norm_order", "2"),
        ("kind", 3),
        ("terms", 5),
        ("clip_low", 0.0),
    ],
)
def test_certificates_of_the_wrong_type(folder: Path, field: str, value: object) -> None:
    saved(folder)
    path = folder / storage.CERTIFICATE
    path.write_text(json.dumps({**json.loads(path.read_text()), field: value}))
    for read in (pf.load, pf.verify):
        with pytest.raises(pf.ProvenformerError):
            read(folder)


# The clip.


@pytest.mark.parametrize("ends", [(-10.0, 10.0), (0.0, 0.1), (0.0, 1e6), (0.2, 1.0), (-1.0, -0.5)])
@pytest.mark.parametrize("construction", ["sum", "paper"])
def test_another_clip(folder: Path, construction: str, ends: tuple[float, float]) -> None:
    c = saved(folder, construction=construction)
    b_1 = np.zeros((1, 4))
    b_1[0, :2] = ends[0], -ends[1]
    altered = with_run(c.network, len(thin(c.network).runs) - 1, b_1=b_1)
    forge(folder, altered)
    report = pf.verify(folder)
    assert not report
    if report.derived is not None:
        found = measured(c.target, altered, 2, 4)
        assert report.derived >= found.value - 4 * found.error


def test_no_clip(folder: Path) -> None:
    c = saved(folder)
    forge(folder, Network(1, 2, thin(c.network).runs[:-1]))
    assert "clip" in pf.verify(folder).reason
    forge(folder, Network(1, 2, thin(c.network).runs[-1:]))
    assert not pf.verify(folder)


# Weights that only ramps reach. (Once accepted: the output was inf or nan on the ramps.)


@pytest.mark.parametrize("construction", ["sum", "paper"])
@pytest.mark.parametrize("size", [1e300, 1e307, 1e200])
def test_overflow_on_ramps(folder: Path, construction: str, size: float) -> None:
    c = saved(folder, construction=construction)
    index = len(thin(c.network).runs) - 2
    for unit in (2, 3):
        altered = with_weight(c.network, index, "W_2", (1, 0, unit), size)
        forge(folder, altered)
        report = pf.verify(folder)
        with np.errstate(all="ignore"):
            points = ramp_points(c.target, 4, c.certificate.ramp, np.random.default_rng(0), 4096)
            finite = np.isfinite(altered(points)).all()
        assert finite or report.derived is None
        if size >= 1e300:
            assert "overflow" in report.reason


def test_overflow_of_scores_on_ramps(folder: Path) -> None:
    c = saved(folder, n=3, construction="paper")
    index = next(i for i, run in enumerate(thin(c.network).runs) if not isinstance(run, ReluRun))
    for name in ("W_K", "W_Q", "W_V", "W_O"):
        altered = with_weight(c.network, index, name, (2, 1, 0), 1e300)
        forge(folder, altered)
        assert not pf.verify(folder)


def test_overflow_by_many_moderate_weights(folder: Path) -> None:
    """No single weight is suspicious; fifty layers of slope 2^30 each are."""
    c = saved(folder)
    steep = ReluRun(
        "quantise",
        np.ones((50, 4, 1)),
        np.full((50, 4), -4.0 + c.certificate.ramp / 2),  # on the last ramp only
        np.broadcast_to(np.array([[[2.0**30, 0.0, 0.0, 0.0]]]), (50, 1, 4)),
        np.zeros((50, 1)),
    )
    altered = Network(1, 2, (thin(c.network).runs[0], steep, *thin(c.network).runs[1:]))
    forge(folder, altered, certificate={"bound": 1.0})
    with np.errstate(all="ignore"):
        assert not np.isfinite(altered(np.array([[[1 - c.certificate.ramp / 16, 0.3]]]))).all()
    assert not pf.verify(folder)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_weights_that_are_not_numbers(folder: Path, value: float) -> None:
    c = saved(folder, n=3, cells=8)
    index = len(thin(c.network).runs) - 2
    forge(folder, with_weight(c.network, index, "b_1", (len(thin(c.network).runs[index]) - 1, 0), value))
    with pytest.raises(pf.ProvenformerError, match="not finite"):
        pf.load(folder)
    with pytest.raises(pf.ProvenformerError, match="not finite"):
        pf.verify(folder)


# The whole space. (A unit with W_1 = 0 was once taken for nothing; it is a constant.)


def hat(x: np.ndarray) -> np.ndarray:
    u = 4.0 * x * (1.0 - x)
    return u * u[..., ::-1]


def test_constant_units_do_not_fake_a_shift(folder: Path) -> None:
    """Tokens left of the box are no longer sent far below; a shift that a constant unit undoes pretends that they are."""
    f = pf.Target(hat, 1, 2, vanishes_outside=True, name="hat")
    c = pf.compile(f, cells_per_axis=4)
    c.save(folder)
    assert c.certificate.domain == "space"
    assert pf.verify(folder, f)
    index = next(i for i, run in enumerate(thin(c.network).runs) if run.stage == "quantise" and len(run) == 1)
    run, bumps = run_of(c.network, index, ReluRun), thin(c.network).runs[index + 1]
    left = np.flatnonzero(run.W_1[0, :, 0] < 0)
    far = abs(float(run.W_2[0, 0, left[0]])) * c.certificate.ramp
    W_2 = np.array(run.W_2)
    W_2[0, 0, left] = 0.0  # what is left of the box stays where it is
    one = np.array([[1.0, 0.0, 0.0, 0.0]])
    fake = (0 * one[..., None], one, far * one[None], np.array([[-far]]))  # far - far, once every cell is a number
    parts = {k: np.concatenate([getattr(bumps, k), v]) for k, v in zip(("W_1", "b_1", "W_2", "b_2"), fake, strict=True)}
    altered = with_run(with_run(c.network, index, W_2=W_2), index + 1, **parts)
    x = np.stack([np.linspace(-far / 8, 0, 20_001), np.full(20_001, 0.4)], axis=1)[:, None, :]
    inside = f.sample(500)
    np.testing.assert_array_equal(altered(inside), c.network(inside))
    assert (c.network(x)[:-1] == 0).all()
    assert (altered(x) != 0).any()  # f is 0 there
    forge(folder, altered)
    assert not pf.verify(folder, f)


def test_positions_and_the_whole_space(folder: Path) -> None:
    f = pf.Target(hat, 1, 2, equivariant=False, vanishes_outside=True, name="hat")
    c = pf.compile(f, cells_per_axis=3)
    assert c.certificate.domain == "box"
    c.save(folder)
    forge(folder, certificate={"domain": "space", "bound": 100.0})
    assert not pf.verify(folder, f)


@pytest.mark.parametrize("run", range(1, 9))
def test_whole_space_with_altered_runs(folder: Path, run: int) -> None:
    """Every weight of the runs that the argument rests on, by 1 %: rejected, or exactly 0 outside all the same."""
    f = pf.Target(hat, 1, 2, vanishes_outside=True, name="hat")
    c = pf.compile(f, cells_per_axis=3)
    c.save(folder)
    rng = np.random.default_rng(run)
    x = rng.uniform(-1, 2, size=(4000, 1, 2))
    x[np.arange(4000), 0, rng.integers(2, size=4000)] = rng.choice([-1e6, -50, -3, -0.1, 1.1, 7, 1e3, 1e9], size=4000)
    if run >= len(thin(c.network).runs):
        return
    for name, value in vars(thin(c.network).runs[run]).items():
        if not isinstance(value, np.ndarray) or not value.any():
            continue
        at = tuple(int(i) for i in rng.choice(np.argwhere(value)))
        for factor in (1.01, -1.0, 0.0):
            altered = with_weight(c.network, run, name, at, factor * float(value[at]))
            forge(folder, altered, certificate={"bound": 10.0})
            report = pf.verify(folder, f)
            assert not report or (altered(x) == 0.0).all(), (run, name, at, factor)


# The target. (Equivariance was once not checked again, and only sampled.)


def leaning(x: np.ndarray) -> np.ndarray:
    """Not equivariant: the first token counts more."""
    return x + 0.5 * x[..., :1]


def nearly_equivariant(x: Any) -> Any:
    """Equivariant but for a corner that sampling does not find: there the first token and only it explodes."""
    corner = np.minimum(1000.0 * np.maximum(x[..., 2:3] - 0.99, 0.0), 1.0)
    return x + 5000.0 * np.maximum(x[..., :1] - x[..., 1:2] - 0.9, 0.0) * corner


def test_a_target_relabelled_as_equivariant(folder: Path) -> None:
    f = pf.Target(leaning, 1, 2, equivariant=False)
    sorted_only = pf.Target(lambda x: x + 0.5 * np.min(x, axis=-1, keepdims=True), 1, 2)
    c = pf.compile(sorted_only, cells_per_axis=8)  # agrees with f on sorted tokens
    c.save(folder)
    spec = {**storage.target_spec(f), "equivariant": True}
    forge(folder, manifest={"target": spec})
    with pytest.raises(pf.ProvenformerError, match="equivariant"):
        pf.verify(folder, trust_target=True)


def test_a_function_that_is_almost_equivariant() -> None:
    f = pf.Target(nearly_equivariant, 1, 3)
    assert f.equivariance_counterexample() is None  # sampling does not see it
    c = pf.compile(f, cells_per_axis=4)
    assert c.certificate.kind == "rigorous"
    rng = np.random.default_rng(0)
    x = np.stack([rng.uniform(0.9, 1, 4000), rng.uniform(0, 0.1, 4000), rng.uniform(0.99, 1, 4000)], axis=1)[:, None, :]
    share = 0.1 * 0.1 * 0.01
    corner = share * (np.abs(f(x) - c.network(x)) ** 2).sum(axis=(1, 2)).mean()  # this corner's part alone
    assert corner**0.5 > 0.5
    assert c.certificate.bound**2 >= corner + 0.9 * measured(pf.Target(lambda x: x, 1, 3), c.network, 2, 4).value ** 2


def test_a_target_named_like_a_built_in_one(folder: Path) -> None:
    """It was once saved, and verified, as the built-in one."""
    f = pf.Target(lambda x: x * x, 1, 2, name="scaled-mean")
    c = pf.compile(f, cells_per_axis=4)
    c.save(folder)
    with pytest.raises(pf.ProvenformerError, match="import path"):
        pf.verify(folder)
    assert pf.verify(folder, f)


# A wrong value in a cube that no sample sees. (Once accepted as statistical.)


@pytest.mark.slow
def test_relabelled_as_statistical(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(integrals, "SAMPLES", 500)  # fewer than cubes
    c = pf.compile(pf.targets.get("scaled-mean", 1, 3), cells_per_axis=10, kind="statistical")
    c.save(folder)
    assert pf.verify(folder)
    index = len(thin(c.network).runs) - 2
    clip = np.array([[0.0, -50.0, 0.0, 0.0]])
    same = [
        c.network(np.full((1, 1, 3), (k + 0.5) / 10))[0, 0, 0] for k in range(1, 10)
    ]  # three equal tokens: one cube
    written = run_of(c.network, index, ReluRun)
    values = written.W_2[:, 0, 0] / 4 + 0.5 - written.b_1[:, 0]
    layers = np.flatnonzero(np.isclose(values[:, None], same, atol=1e-9).any(axis=1))
    assert len(layers) >= len(same)
    for layer in layers:
        W_2 = np.array(written.W_2)
        W_2[layer] += 4 * 40.0 * np.array([[1.0, -1.0, -1.0, 1.0]])  # the value plus 40
        altered = with_run(with_run(c.network, index, W_2=W_2), index + 1, b_1=clip)
        forge(folder, altered, certificate={"bound": 1.0})
        report = pf.verify(folder)
        found = measured(c.target, altered, 2, 10, samples=1 << 14)
        assert report.derived is None or report.derived >= found.value - 4 * found.error


# Units and heads that do nothing.


def test_unused_heads_and_units_may_be_anything_small(folder: Path) -> None:
    """They change nothing, and the bound stays true; what they hold is not the network's business."""
    c = saved(folder)
    index = next(i for i, run in enumerate(thin(c.network).runs) if not isinstance(run, ReluRun))
    run = run_of(c.network, index, SoftmaxRun)
    assert not run.W_O[0, 1].any()
    W_V, W_K = np.array(run.W_V), np.array(run.W_K)
    W_V[0, 1], W_K[0, 1] = 3.0, -7.0
    altered = with_run(c.network, index, W_V=W_V, W_K=W_K)
    forge(folder, altered)
    assert pf.verify(folder)
    x = c.target.sample(200)
    np.testing.assert_array_equal(altered(x), c.network(x))


@pytest.mark.parametrize("field", ["W_K", "W_Q", "b_Q"])
def test_uniform_attention_that_is_not_quite(folder: Path, field: str) -> None:
    """Zero keys and queries made 1e-3: no longer uniform, and not decided."""
    c = saved(folder)
    index = next(i for i, run in enumerate(thin(c.network).runs) if not isinstance(run, ReluRun))
    altered = thin(c.network)
    for name in {field, "W_K"}:
        at = (0, 0) if name == "b_Q" else (0, 0, 0)
        altered = with_weight(altered, index, name, at, 1e-3)
    forge(folder, altered)
    report = pf.verify(folder)
    if not report:
        return
    found = measured(c.target, altered, 2, 4)
    assert report.derived is not None
    assert found.value - 4 * found.error <= report.derived


def test_positions_moved(folder: Path) -> None:
    c = saved(folder, name="sort", cells=4)
    for shift in (1e-12, 1e-3, 0.25, 1.0, -1.0):
        assert c.network.positions is not None
        altered = replace(thin(c.network), positions=c.network.positions + shift)
        forge(folder, altered)
        report = pf.verify(folder)
        if report.derived is not None:
            found = measured(c.target, altered, 2, 4)
            assert found.value - 4 * found.error <= report.derived
        assert not report or shift == 1e-12


def test_breaks_moved_by_less_than_rounding(folder: Path) -> None:
    c = saved(folder, n=3, cells=4)
    for index, run in enumerate(thin(c.network).runs[:-1]):
        if isinstance(run, ReluRun) and run.b_1.any():
            altered = with_run(c.network, index, b_1=np.nextafter(run.b_1, np.inf))
            forge(folder, altered)
            report = pf.verify(folder)
            found = measured(c.target, altered, 2, 4)
            assert report.derived is None or found.value - 4 * found.error <= report.derived * (1 + 1e-9)


def test_an_edited_file_is_noticed_by_hash(folder: Path) -> None:
    saved(folder)
    for name in (storage.NETWORK, storage.CERTIFICATE, storage.MANIFEST):
        content = (folder / name).read_bytes()
        for altered in (content[:-20], content + b"0", b"", content.replace(b"0", b"1", 1)):
            (folder / name).write_bytes(altered)
            with pytest.raises(pf.ProvenformerError) as refusal:
                pf.load(folder)
            assert "\n" not in str(refusal.value)
        (folder / name).write_bytes(content)
    pf.load(folder)


def test_a_truncated_file_is_refused_by_verify_too(folder: Path) -> None:
    saved(folder)
    content = (folder / storage.NETWORK).read_bytes()
    for share in (0.0, 0.3, 0.99):
        (folder / storage.NETWORK).write_bytes(content[: int(share * len(content))])
        with pytest.raises(pf.ProvenformerError, match="safetensors"):
            pf.verify(folder)


def test_the_layer_is_named(folder: Path) -> None:
    """A break in the middle of a cell: which layer of which run, and what is wrong."""
    c = saved(folder, cells=6)
    index = next(i for i, run in enumerate(thin(c.network).runs) if run.stage == "quantise" and len(run) > 1)
    b_1 = np.array(run_of(c.network, index, ReluRun).b_1)
    b_1[3] += 0.25
    forge(folder, with_run(c.network, index, b_1=b_1))
    report = pf.verify(folder)
    assert f"layer 3 of run {index} (quantise)" in report.reason
