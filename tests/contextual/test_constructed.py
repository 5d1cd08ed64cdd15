"""Constructed networks, measured with the same call: the contextual map appears where it is built, with the margin proved."""

import numpy as np
import pytest

import provenformer as pf
from provenformer import contextual
from provenformer.constructions.lemmas import contextual_map_ids
from provenformer.constructions.paper.context import Sweep
from provenformer.look.context_ids import context_sequences
from provenformer.look.subject import Subject


def test_the_paper_construction_has_the_gaps_of_lemma_6() -> None:
    made = pf.compile(pf.targets.get("scaled-mean", 1, 3), cells_per_axis=4, construction="paper")
    subject = Subject.of(made)
    contexts = subject.grid.contexts("sets")  # type: ignore[union-attr]
    x = context_sequences(subject, contexts)
    found = contextual.measure(made, x, modes=("tokens",), directions=subject.id_direction)
    assert found.identify == "permutations"
    assert found.random is None
    rows = {row.layer: row for row in found.model.modes["tokens"]}
    lines = {line.layer: line for line in found.model.line}
    cells = np.swapaxes(subject.grid.columns(contexts), 1, 2)  # type: ignore[union-attr]
    _, ids = contextual_map_ids(Sweep(subject.grid), cells)  # type: ignore[arg-type]
    smallest = int(np.diff(np.sort(ids.ravel().astype(np.int64))).min())
    assert rows["quantise"].delta == 0  # quantised tokens know no context
    assert smallest >= 1  # distinct whole numbers, in cells
    assert rows["contextual map"].delta == pytest.approx(smallest, rel=1e-9)
    assert lines["contextual map"].holds
    assert lines["contextual map"].margin * rows["contextual map"].radius == pytest.approx(smallest, rel=1e-9)


@pytest.mark.parametrize("cells", [3, 5])
def test_the_sum_construction_has_ids_one_apart(cells: int) -> None:
    made = pf.compile(pf.targets.get("scaled-mean", 1, 3), cells_per_axis=cells, construction="sum")
    subject = Subject.of(made)
    x = context_sequences(subject, subject.grid.contexts("multisets"))  # type: ignore[union-attr]
    found = contextual.measure(made, x, modes=("tokens", "words", "edits"), directions=subject.id_direction)
    rows = {row.layer: row for row in found.model.modes["tokens"]}
    assert rows["recode"].delta == 0
    assert rows["contextual map"].delta >= 1 - 1e-9  # docs/sum.md: distinct whole numbers, up to float64
    # Every edit reaches every token, by the same margin, and as soon as there is the one attention layer.
    edits = {row.layer: row for row in found.model.modes["edits"]}
    assert edits["recode"].delta == 0
    assert edits["contextual map"].delta >= 1 - 1e-9
    assert {row.layer: row.everywhere for row in found.model.reach}["contextual map"]


def test_a_circuit_keeps_apart_what_the_function_keeps_apart() -> None:
    """|g(X)_j - g(X')_k| >= |f(X)_j - f(X')_k| - 2 bound in the sup norm, so is the smallest distance of outputs."""
    target = pf.targets.get("scaled-mean", 1, 3)
    made = pf.compile(target, tolerance=0.002, norm_order=np.inf)
    x = np.array([[[0.1, 0.45, 0.9]], [[0.2, 0.65, 0.95]]])
    wanted = np.sort(target(x).ravel())
    proved = np.diff(wanted).min() - 2 * made.certificate.bound
    found = contextual.measure(made, x, modes=("tokens",)).model.modes["tokens"]
    assert proved > 0.01
    assert found[-1].layer == "output"
    assert found[-1].delta >= proved
    assert found[-1].delta <= np.diff(wanted).min() + 2 * made.certificate.bound


def test_the_check_of_definition_5_1_agrees() -> None:
    """The direction that was found gives ids which `is_contextual_mapping` accepts."""
    made = pf.compile(pf.targets.get("scaled-mean", 1, 2), cells_per_axis=3, construction="sum")
    subject = Subject.of(made)
    x = context_sequences(subject, subject.grid.contexts("multisets"))  # type: ignore[union-attr]
    found = contextual.measure(made, x, modes=("tokens",))
    for line, state in zip(found.model.line, made.network.states(x), strict=False):
        ids = np.einsum("bdn,d->bn", state.values, np.array(line.direction))
        assert bool(pf.is_contextual_mapping(ids, x, tolerance=1e-9)) == line.holds
