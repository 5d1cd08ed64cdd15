"""The arrays behind the figures are what the library computes, and what the paper says about them holds."""

from __future__ import annotations

import numpy as np
import pytest
from look_cases import KINDS, made

import provenformer as pf
from provenformer.constructions.lemmas import contextual_map_ids
from provenformer.constructions.paper.context import Sweep
from provenformer.look.bumps import bumps
from provenformer.look.context_ids import REPEATED, id_table, leaps, path
from provenformer.look.measured import measured_distance
from provenformer.look.sizes import HIDDEN_UNITS, stage_sizes, variants
from provenformer.look.slices import between, curve, moved, quantised, surface
from provenformer.look.states import states
from provenformer.look.subject import Subject
from provenformer.networks.modified import Attention, FeedForward

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
    assert found is not None
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


@pytest.mark.parametrize("kind", KINDS)
def test_only_a_sweep_leaps(kind: str) -> None:
    found = leaps(subject(kind), subject(kind).example())
    assert (found is not None) == (kind in ("paper", "positional paper", "nothing distinct"))


@pytest.mark.parametrize("kind", KINDS)
def test_layer_states_are_one_per_layer_and_end_with_the_output(kind: str) -> None:
    s = subject(kind)
    x = s.example()[None]
    found = list(s.network.layer_states(x))
    assert np.array_equal(found[-1].values[:, -s.token_dim :], s.network(x))
    assert found[-1].layers == s.network.layers
    if not s.how.has_channels:
        assert [state.layers for state in found] == list(range(s.network.layers + 1))
        ends = {state.layers: state.values for state in states(s, x, every_attention_layer=True)}
        assert all(np.array_equal(found[layers].values, values) for layers, values in ends.items())


@pytest.mark.parametrize("kind", KINDS)
def test_sizes_per_stage_count_what_they_say(kind: str) -> None:
    s, found = subject(kind), stage_sizes(subject(kind))
    if kind.startswith("wide"):
        assert found.unit == "hidden units"
        assert s.plan is not None
        assert tuple(found.stages.values()) == s.plan.hidden_units
    else:
        assert found.unit == "layers"
        assert sum(found.stages.values()) == s.network.layers
        assert s.plan is None or kind == "merged" or found.stages == s.plan.stages


@pytest.mark.parametrize("kind", [kind for kind in WITH_GRID if not kind.startswith("wide")])
def test_a_naming_tells_of_the_layers_that_are_there(kind: str) -> None:
    """One sentence per attention layer, one window per layer of a sweep, one renaming per recoding layer, with its ids."""
    s = subject(kind)
    c = made(kind)
    assert isinstance(c, pf.Compiled)
    assert s.naming is not None
    assert s.grid is not None
    runs = s.how.in_cells(c.piecewise).runs
    attention = [run for run in runs if isinstance(run, Attention)]
    assert len(s.naming.attention_in_words()) == sum(map(len, attention))
    if s.naming.windows:
        assert [-float(b) for b in attention[0].b_Q.to_float()[:, 0]] == [window - 0.5 for window in s.naming.windows]
    recoding = [run for run in runs if isinstance(run, FeedForward) and run.stage == "recode"]
    assert len(s.naming.renamings) == sum(map(len, recoding))
    for run in recoding:
        assert isinstance(run, FeedForward)
        assert [id_ for id_, _ in s.naming.renamings] == [-float(b) for b in run.b_1.to_float()]
        first_rows = [id_ if s.token_dim == 1 else id_ % c.grid.cells_per_axis for id_, _ in s.naming.renamings]
        renamed = first_rows + run.W_2.to_float()[:, 0]
        assert renamed.tolist() == [name for _, name in s.naming.renamings]


@pytest.mark.parametrize("kind", ["sum", "paper", "wide", "wide rows", "positional paper", "merged"])
def test_the_channels_of_a_network_hold_what_they_are_called(kind: str) -> None:
    s = subject(kind)
    x = s.example()[None]
    for state in states(s, x):
        named = s.network.channels(state.stage)
        assert bool(named) == (s.how.has_channels and state.stage != "input")
        for name, rows in named.items():
            held = state.values[:, rows]
            if name == "id":
                assert np.array_equal(held[:, 0], s.network.ids(state.values, s.id_direction))
            if name == "sum of codes":
                code = state.values[:, s.token_dim + 1]
                assert np.allclose(held[:, 0], code.sum(axis=1, keepdims=True))
            if name == "output":
                assert np.array_equal(held, s.network(x))


def test_moved_entries_have_their_numbers_and_the_others_stay() -> None:
    s = subject("rows")
    base, at = s.example(), between(s, 0, 5)
    x = moved(base, [(0, 1), (1, 0)], [at, np.array([[0.25], [0.75]])])
    assert x.shape == (2, 5, *base.shape)
    assert (x[:, :, 0, 1] == at).all()
    assert (x[:, :, 1, 0] == [[0.25], [0.75]]).all()
    assert (x[:, :, 0, 0] == base[0, 0]).all()
    assert (x[:, :, 1, 1] == base[1, 1]).all()


@pytest.mark.parametrize("kind", ["rows", "wide rows"])
def test_every_row_is_quantised_to_the_corner_of_its_cell(kind: str) -> None:
    """With positions a token's rows lie further out, also the second, whose digits are not the lowest of the id."""
    found = quantised(subject(kind), moves=((1, 0), (1, 1)))
    for axis, edges in enumerate(found.edges):
        cell = np.searchsorted(edges, found.before[:, axis], side="right") - 1
        assert np.array_equal(found.corners[:, axis], edges[cell])


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
    monkeypatch.setattr("provenformer.look.sizes.LAYERS_TO_CERTIFY", 0)
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
