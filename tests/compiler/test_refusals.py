"""Bad input: one clear line, with the quantity, the limit and the remedy."""

import math
from typing import Any

import numpy as np
import pytest
import scipy.special
from cases import thin

import provenformer as pf

F = pf.targets.get("scaled-mean", 1, 2)


def refusal(match: str, **options: Any) -> str:
    target = options.pop("target", F)
    with pytest.raises(pf.ProvenformerError, match=match) as caught:
        pf.compile(target, **options)
    text = str(caught.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize("tolerance", [0, 0.0, -1.0, math.nan, math.inf, "small"])
def test_tolerances_that_are_none(tolerance: object) -> None:
    refusal("tolerance", tolerance=tolerance)


def test_one_of_tolerance_and_grid() -> None:
    refusal("either tolerance or cells_per_axis")
    refusal("either tolerance or cells_per_axis", tolerance=0.1, cells_per_axis=4)


@pytest.mark.parametrize("norm_order", [0, 0.5, -1, math.inf, math.nan, 65, "two", None])
def test_norm_orders(norm_order: object) -> None:
    refusal("norm_order", cells_per_axis=4, norm_order=norm_order)


@pytest.mark.parametrize("cells", [0, 1, -3, 2.5, "8", None, True])
def test_grids(cells: object) -> None:
    refusal("cells_per_axis", cells_per_axis=cells)


def test_unknown_words() -> None:
    refusal("construction", cells_per_axis=4, construction="magic")
    refusal("kind", cells_per_axis=4, kind="certain")


@pytest.mark.parametrize("tolerance", [1e-9, 1e-12])
def test_a_tolerance_that_is_out_of_reach(tolerance: float) -> None:
    """The size it would need, or what float64 allows: in every case what to relax."""
    text = refusal("limit|bits|rounding", tolerance=tolerance, target=pf.targets.get("scaled-mean", 1, 3))
    assert any(word in text for word in ("fewer", "larger tolerance", "max_layers"))


def test_a_tolerance_below_float64_rounding_names_the_bits() -> None:
    """A constant needs no fine grid, so only rounding is left: the message names it, the bits, and the remedy."""
    f = pf.Target(lambda x: 0.0 * x + 0.1, 1, 3)
    text = refusal("float64 rounding", tolerance=1e-15, target=f, construction="sum")
    assert "bits" in text
    assert "larger tolerance" in text


def test_a_refusal_says_what_can_be_had_and_that_can_be_had() -> None:
    """From plans, without building anything large: the number it quotes is one that compiles, and is not far too large."""
    target = pf.targets.get("scaled-mean", 1, 3)
    built: list[str] = []
    text = refusal("can be had", tolerance=1e-6, target=target, construction="sum", progress=built.append)
    assert "cells per axis" in text
    assert "larger tolerance" in text
    assert len(built) <= 3
    quoted = float(text.split("about ")[1].split()[0])
    c = pf.compile(target, tolerance=quoted, construction="sum")
    assert quoted / 4 < c.certificate.bound <= quoted
    built.clear()
    refusal("can be had", tolerance=0.7 * quoted, target=target, construction="sum", progress=built.append)
    assert len(built) <= 3
    assert all(int(said.split()[0]) <= 16 for said in built)  # nothing large, though it is nearly in reach


def test_a_tolerance_just_out_of_reach_names_the_smallest_bound_that_was_found() -> None:
    target = pf.targets.get("scaled-mean", 1, 3)
    quoted = float(
        refusal("can be had", tolerance=1e-6, target=target, construction="sum").split("about ")[1].split()[0]
    )
    text = refusal("the smallest bound found is", tolerance=0.8 * quoted, target=target, construction="sum")
    found = float(text.split("bound found is ")[1].split(",")[0])
    cells = int(text.split("with ")[1].split()[0])
    again = pf.compile(target, cells_per_axis=cells, construction="sum").certificate.bound
    assert 0.8 * quoted < again <= found * 1.05


def test_too_many_bits_for_float64() -> None:
    text = refusal("bits", cells_per_axis=16, target=pf.targets.get("scaled-mean", 1, 6), construction="paper")
    assert "49" in text
    assert "construction='sum'" in text
    refusal("bits|layers|field", cells_per_axis=64, target=pf.targets.get("sort", 1, 5))


def test_too_many_layers() -> None:
    text = refusal("layers", cells_per_axis=32, max_layers=100)
    assert "limit 100" in text
    assert "fewer cells" in text


def test_too_many_attention_layers() -> None:
    text = refusal("attention layers", cells_per_axis=16, target=pf.targets.get("centered", 6, 2), construction="paper")
    assert "16,777,217" in text


def test_functions_that_misbehave() -> None:
    def raises(_: np.ndarray) -> np.ndarray:
        raise RuntimeError("two\nlines")

    refusal("RuntimeError: two lines", target=pf.Target(raises, 1, 2), cells_per_axis=4)
    refusal("shape", target=pf.Target(lambda x: x[..., :1], 1, 2), cells_per_axis=4)
    refusal("not finite", target=pf.Target(lambda x: x / (x - x), 1, 2, equivariant=False), cells_per_axis=4)
    refusal("equivariant=False", target=pf.Target(lambda x: x[..., ::-1] * 2 + x[..., :1], 1, 2), cells_per_axis=4)
    steep = pf.Target(lambda x: scipy.special.j0(50 * x), 1, 2, lipschitz=1.0)  # not on intervals
    refusal("larger constant", target=steep, cells_per_axis=4)


def test_supports() -> None:
    supports: list[Any] = [(1.0, 0.0), (0.0, 0.0), (0.0, math.inf), (math.nan, 1.0), "ab", (0.0,)]
    for support in supports:
        with pytest.raises(pf.ProvenformerError, match="support"):
            pf.Target(lambda x: x, 1, 2, support=support)
    refusal("volume", target=pf.targets.get("centered", 1, 2, (0.0, 1e-40)), cells_per_axis=4)


def test_inputs_of_a_network() -> None:
    network = pf.compile(F, cells_per_axis=4).network
    inputs: list[Any] = [np.zeros((1, 3)), np.zeros(2), np.full((1, 2), np.nan), [["a", "b"]]]
    for x in inputs:
        with pytest.raises(pf.ProvenformerError):
            network(x)
    with pytest.raises(pf.ProvenformerError, match="layers 0"):
        thin(network).layer(10**6)


def test_distances() -> None:
    wrong: list[dict[str, Any]] = [{"norm_order": 0.5}, {"samples": 1}, {"support": (1.0, 0.0)}]
    for options in wrong:
        with pytest.raises(pf.ProvenformerError):
            pf.distance(F, F, token_dim=1, seq_len=2, **options)
    with pytest.raises(pf.ProvenformerError, match="shape"):
        pf.distance(F, lambda x: x[0], token_dim=1, seq_len=2)
    assert pf.distance(F, F, token_dim=1, seq_len=2).value == 0.0


@pytest.mark.parametrize("norm_order", [1, 2, 7])
def test_distance_of_a_known_integral(norm_order: int) -> None:
    """|x - 0|_p over [0, 2]^2: (2 * 2^(p+1) / (p+1) * 2)^(1/p), within its error bar."""
    exact = (2 * 2 ** (norm_order + 1) / (norm_order + 1) * 2) ** (1 / norm_order)
    options: dict[str, Any] = {"token_dim": 1, "seq_len": 2, "norm_order": norm_order, "support": (0.0, 2.0)}
    for cells in (None, 8):
        found = pf.distance(lambda x: x, np.zeros_like, cells_per_axis=cells, samples=1 << 14, **options)
        assert abs(found.value - exact) <= 5 * found.error + 1e-9
        assert found.error < 0.01 * exact
