"""The arrays behind the figures are what the library computes, and what the paper says about them holds."""

from __future__ import annotations

import numpy as np
import pytest
from report_cases import KINDS, made

import provenformer as pf
from provenformer.constructions.lemmas import contextual_map_ids
from provenformer.constructions.paper.context import Sweep
from provenformer.report.bumps import bumps
from provenformer.report.context_ids import REPEATED, id_table, leaps, path
from provenformer.report.sizes import HIDDEN_UNITS, variants
from provenformer.report.states import states
from provenformer.report.subject import Subject
from provenformer.report.surfaces import curve, measured_distance, quantised, surface

WITH_GRID = [kind for kind in KINDS if kind != "data"]
WITH_VALUES = [kind for kind in KINDS if kind != "nothing distinct"]


def subject(kind: str) -> Subject:
    return Subject.of(made(kind))


@pytest.mark.parametrize("kind", KINDS)
def test_the_last_state_is_the_output_bit_for_bit(kind: str) -> None:
    s = subject(kind)
    x = np.stack([s.example(), s.example()[:, ::-1]])
    for every in (False, True):
        *_, last = states(s, x, every_attention_layer=every)
        assert np.array_equal(last.values[:, -s.token_dim :], s.network(x))
        assert last.layers == s.network.layers


@pytest.mark.parametrize("kind", ["sum", "rows", "positional", "paper", "positional paper"])
def test_states_are_those_of_the_exact_network(kind: str) -> None:
    """The paper's modified network counts in its own unit, the saved one in cells: a factor N on the way."""
    c, s = made(kind), subject(kind)
    assert isinstance(c, pf.Compiled)
    x = s.example()[None]
    exact = {step.stage: step.floats() for step in c.modified.trace(x)}
    unit = c.grid.cells_per_axis if c.construction == "paper" else 1
    for state in states(s, x):
        if state.stage in ("quantise", "recode", "contextual map"):
            assert np.array_equal(state.values, exact[state.stage] * unit)
    assert np.allclose(s.network(x), exact["values"], atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_contexts_with_a_value_end_in_the_range_and_no_others(kind: str) -> None:
    table = id_table(subject(kind))
    assert np.array_equal(table.inside, table.valid)
    final = np.round(table.ids[-1][table.valid], 6)
    different = [set(row) for row in final.tolist()]
    assert len(set().union(*different)) == sum(map(len, different))  # no id belongs to two contexts


def test_ids_after_the_shifts_are_those_of_the_lemma() -> None:
    s = subject("paper")
    table = id_table(s)
    assert s.grid is not None
    contexts = s.grid.contexts("sets")
    assert table.contexts == len(contexts) == int(table.valid.sum())
    assert table.repeated == sum(kind == REPEATED for kind in table.kinds) == 16
    before, after = contextual_map_ids(Sweep(s.grid), np.swapaxes(s.grid.columns(contexts), 1, 2))
    assert np.array_equal(table.ids[-2][table.valid], before.astype(float))
    assert np.array_equal(table.ids[-1][table.valid], after.astype(float))
    assert (table.low, table.high) == (Sweep(s.grid).id_low, Sweep(s.grid).id_high)
    assert table.moments == ("quantised", *(f"shift at id {i}" for i in range(4)), "last layer")


def test_a_token_leaps_when_the_window_is_at_its_id() -> None:
    s = subject("paper")
    found = leaps(s, s.example())
    for token in range(s.seq_len):
        (shifted,) = np.flatnonzero(np.diff(found.ids[:-1, token]))
        assert found.windows[shifted] == found.ids[0, token]
        assert found.ids[shifted + 1, token] == found.ids[shifted + 1].max()


@pytest.mark.parametrize("kind", WITH_GRID)
def test_slices_are_target_and_network_at_the_points_they_name(kind: str) -> None:
    s = subject(kind)
    flat = surface(s)
    i, j = 3, len(flat.network) - 2
    x = flat.base.copy()
    (x[flat.moves[0]], x[flat.moves[1]]) = flat.at[0][i], flat.at[1][j]
    assert flat.network[j, i] == s.network(x[None])[0][flat.shows]
    assert flat.target is not None
    assert s.target is not None
    assert flat.target[j, i] == s.target(x[None])[0][flat.shows]
    line = curve(s)
    x = line.base.copy()
    x[line.moves] = line.at[5]
    assert line.network[5] == s.network(x[None])[0][line.shows]


@pytest.mark.parametrize("kind", WITH_GRID)
def test_points_are_quantised_to_the_corner_of_their_cell(kind: str) -> None:
    s = subject(kind)
    found = quantised(s)
    for axis, edges in enumerate(found.edges):
        cell = np.searchsorted(edges, found.before[:, axis], side="right") - 1
        assert np.array_equal(found.corners[:, axis], edges[cell])


@pytest.mark.parametrize("kind", WITH_VALUES)
def test_bumps_are_on_at_their_id_and_give_the_outputs(kind: str) -> None:
    s = subject(kind)
    found = bumps(s)
    middle = len(found.offsets) // 2
    assert found.offsets[middle] == 0
    assert np.allclose(found.added[:, middle], 1)
    if kind in ("sum", "paper", "rows", "data"):  # merged and wide layers are staircases: they start from a lower step
        assert np.allclose(found.added[:, found.offsets < -0.5], 0)
    low, high = s.certificate.clip_low[0], s.certificate.clip_high[0]
    assert ((found.heights >= low - 1e-9) & (found.heights <= high + 1e-9)).all()


@pytest.mark.parametrize("kind", WITH_GRID)
def test_contributions_add_up_to_the_bound(kind: str) -> None:
    certificate = made(kind).certificate
    assert sum(certificate.contributions().values()) == pytest.approx(certificate.bound, rel=1e-12)


@pytest.mark.parametrize("kind", ["sum", "wide", "merged", "positional"])
def test_other_shapes_are_what_compile_makes(kind: str) -> None:
    c = made(kind)
    assert isinstance(c, pf.Compiled)
    rows = variants(subject(kind))
    assert sum(row.shown for row in rows) == 1
    for row in rows:
        same = pf.compile(
            c.target, cells_per_axis=c.grid.cells_per_axis, construction=row.construction,
            hidden_dim=row.hidden_units if row.construction == "sum" else 4, kind=c.certificate.kind,
        )  # fmt: skip
        found = (row.hidden_units, row.blocks, row.parameters)
        assert found == (same.network.hidden_dim, same.network.blocks, same.network.parameters)
        if c.certificate.ramp == same.certificate.ramp:  # a tolerance may have chosen another one
            assert row.bound == pytest.approx(same.certificate.bound, rel=1e-12)


def test_shapes_too_large_to_build_are_planned_rightly(monkeypatch: pytest.MonkeyPatch) -> None:
    built = variants(subject("sum"))
    monkeypatch.setattr("provenformer.report.sizes.LAYERS_TO_CERTIFY", 0)
    planned = variants(subject("sum"))
    assert [(r.hidden_units, r.blocks, r.parameters) for r in planned] == [
        (r.hidden_units, r.blocks, r.parameters) for r in built
    ]
    assert [r.bound for r in planned if not r.shown] == [None] * len(HIDDEN_UNITS)


def test_a_measured_distance_is_below_the_bound() -> None:
    s = subject("sum")
    found = measured_distance(s)
    assert found is not None
    assert 0 < found.value < s.certificate.bound


def test_the_path_ends_with_the_output() -> None:
    for kind in KINDS:
        s = subject(kind)
        last = path(s, s.example())[-1]
        assert np.array_equal(last.values, s.network(s.example()[None])[0])


def test_a_huge_network_is_sampled_not_enumerated() -> None:
    """10^5 layers and more: points and contexts are limited, however many there are."""
    c = pf.compile(pf.targets.get("scaled-mean", 1, 3), cells_per_axis=48)
    s = Subject.of(c)
    assert s.network.layers > 50_000
    table = id_table(s)
    assert s.grid is not None
    assert table.contexts == s.grid.count("multisets") > 10_000
    assert table.ids.shape[1] < 60
    assert table.inside[table.valid].all()
    assert len(bumps(s).all_ids) <= 240
