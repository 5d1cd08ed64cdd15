"""`measure`: what it says does not depend on rotation or scale, is right against brute force, and finds what was planted."""

import itertools
from typing import Any

import numpy as np
import pytest
from contextual_cases import mixer_bert, some_ids
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist
from scipy.stats import ortho_group

from provenformer import contextual
from provenformer.contextual.layers import anisotropy, radius

SEQUENCES = [[3, 1, 4, 1, 5], [9, 2, 6, 5, 3], [5, 8, 9, 7, 9], [3, 2, 3, 8, 4], [6, 2, 6, 4], [3, 3, 8, 3]]


def table(width: int = 6, layers: int = 2, seed: int = 0) -> Any:
    """A function that gives hidden states: token and position and a little of the mean, differently per layer."""
    rng = np.random.default_rng(seed)
    tokens, places = rng.standard_normal((10, width)), rng.standard_normal((5, width))

    def states(batch: np.ndarray) -> list[np.ndarray]:
        own = tokens[batch] + places[: batch.shape[1]]
        return [own + 0.1 * k * tokens[batch].mean(axis=1, keepdims=True) for k in range(layers)]

    return states


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 10**6), st.floats(1e-3, 1e3))
def test_rotation_and_scale_change_nothing(seed: int, scale: float) -> None:
    plain = table()
    turn = ortho_group.rvs(6, random_state=seed) * scale

    def turned(batch: np.ndarray) -> list[np.ndarray]:
        return [states @ turn for states in plain(batch)]

    one, other = (contextual.measure(f, SEQUENCES, modes=contextual.MODES, line_tokens=0) for f in (plain, turned))
    for mode in contextual.MODES:
        for a, b in zip(one.model.modes[mode], other.model.modes[mode], strict=True):
            assert b.radius == pytest.approx(scale * a.radius)
            assert b.ratio == pytest.approx(a.ratio, abs=1e-9)
            assert [q.value for q in b.quantiles] == pytest.approx([q.value for q in a.quantiles], abs=1e-9)
            assert b.anisotropy == pytest.approx(a.anisotropy)


def test_every_mode_against_brute_force() -> None:
    function = table()
    found = contextual.measure(function, SEQUENCES, line_tokens=0).model.modes
    states = [function(np.array([s]))[1][0] for s in SEQUENCES]
    x, token = np.concatenate(states), np.concatenate(SEQUENCES)
    between = cdist(x, x)
    np.fill_diagonal(between, np.inf)
    r = np.sqrt(((x - x.mean(axis=0)) ** 2).sum(axis=1).mean())
    tokens, words, edits = (found[mode][1] for mode in ("tokens", "words", "edits"))
    assert tokens.radius == pytest.approx(r) == radius(x)
    assert tokens.typical == pytest.approx(np.median(np.linalg.norm(x - x.mean(axis=0), axis=1)) / r)
    assert tokens.delta == pytest.approx(between.min())
    assert tokens.bits == pytest.approx(np.log2(r / between.min()))
    nearest = between.min(axis=1) / r
    assert [q.value for q in tokens.quantiles] == pytest.approx(np.quantile(nearest, [q.at for q in tokens.quantiles]))
    other_word = np.where(token[:, None] == token, between, np.inf)
    assert words.delta == pytest.approx(other_word.min())
    assert words.compared == np.isfinite(other_word.min(axis=1)).sum()
    assert edits.compared == len(x) - len(SEQUENCES)
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    cosines = (unit @ unit.T)[~np.eye(len(x), dtype=bool)]
    assert anisotropy(x) == pytest.approx(cosines.mean())


def test_the_worst_pair_is_named_and_a_planted_collision_is_it() -> None:
    plain = table(layers=3)

    def planted(batch: np.ndarray) -> list[np.ndarray]:
        found = plain(batch)
        for row, sequence in enumerate(batch.tolist()):
            if sequence == SEQUENCES[1]:
                found[2][row, 2] = 7.0
            if sequence == SEQUENCES[3]:
                found[2][row, 4] = 7.0
        return found

    measured = contextual.measure(planted, SEQUENCES, line_tokens=20).model
    _, first, second = measured.modes["tokens"]
    assert first.delta > 0
    assert (second.delta, second.ratio, second.bits) == (0.0, 0.0, None)
    assert second.worst == ("9 2 [6] 5 3", "3 2 3 8 [4]")
    assert second.collisions["float16"] == second.collisions["int8"] == 2
    assert [line.holds for line in measured.line] == [False, True, False]  # the first layer knows no context


def test_without_mixing_an_edit_reaches_nobody() -> None:
    found = contextual.measure(table(layers=2), SEQUENCES).model
    assert found.modes["edits"][0].delta == 0
    assert found.modes["edits"][0].collisions["float16"] == found.modes["edits"][0].compared
    assert found.modes["edits"][1].delta > 0
    assert (found.reach[0].left, found.reach[0].right) == (0, 0)
    assert found.reach[1].everywhere


def test_the_mean_notices_no_exchange() -> None:
    """Average attention without positions: two words change places, and the others cannot tell."""
    found = contextual.measure(table(), SEQUENCES, modes=("edits", "swaps")).model
    assert found.modes["edits"][1].quantile(0.5).value > 0.01
    assert found.modes["swaps"][1].quantile(0.95).value < 1e-12


def test_a_model_that_reads_left_to_right_is_not_asked_about_the_future() -> None:
    rng = np.random.default_rng(0)
    tokens = rng.standard_normal((10, 6))

    def causal(batch: np.ndarray) -> list[np.ndarray]:
        return [np.cumsum(tokens[batch] * (1 + np.arange(batch.shape[1]))[:, None], axis=1)]

    sequences = [*SEQUENCES, [3, 1, 4, 9, 9]]  # shares three tokens of its past with the first
    found = contextual.measure(causal, sequences)
    assert found.identify == "pasts"
    assert found.model.modes["tokens"][0].delta > 0
    strict = contextual.measure(causal, sequences, identify="nothing")
    assert strict.model.modes["tokens"][0].delta == 0


def test_special_tokens_and_repeated_sequences_are_said() -> None:
    found = contextual.measure(table(), [*SEQUENCES, SEQUENCES[0]])
    assert (found.sequences, found.repeated, found.tokens) == (6, 1, 28)
    assert found.special_tokens == "measured like all others"


def test_the_twin_has_other_weights_and_the_model_keeps_its_own() -> None:
    model = mixer_bert("attention", seed=5)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = contextual.measure(model, some_ids(), line_tokens=0)
    again = contextual.measure(model, some_ids(), line_tokens=0)
    assert found.random is not None
    assert found.to_json() == again.to_json()
    for a, b in zip(found.model.modes["edits"][1:], found.random.modes["edits"][1:], strict=True):
        assert a.ratio != b.ratio
    assert all((value == before[name]).all() for name, value in model.state_dict().items())


@pytest.mark.parametrize("mixer", ["attention", "average", "bproj", "sepconv", "dynamicconv", "fourier"])
def test_every_mixer_has_a_twin(mixer: str) -> None:
    found = contextual.measure(mixer_bert(mixer, seed=5), some_ids(), line_tokens=0)
    assert found.random is not None
    assert found.random.modes["edits"][-1].delta != found.model.modes["edits"][-1].delta


def test_intervals_hold_the_value() -> None:
    found = contextual.measure(mixer_bert("attention"), some_ids(), line_tokens=0).model
    for row in itertools.chain(*found.modes.values()):
        assert all(q.low <= q.value + 1e-12 for q in row.quantiles)
        assert all(q.value <= q.high + 1e-12 for q in row.quantiles)
