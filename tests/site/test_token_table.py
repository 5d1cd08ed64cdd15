"""The table of programs in the docs is the one that the benchmark's results give, and the benchmark sees wrong answers."""

import json
from typing import Any

import numpy as np
import pytest

import provenformer as pf

pytest.importorskip("onnxruntime")
from benchmarks import tokens


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(tokens.RESULTS.read_text())["rows"]
    return found


def test_the_page_shows_the_results() -> None:
    text, results = tokens.PAGE.read_text(), json.loads(tokens.RESULTS.read_text())
    assert tokens.page(text, results) == text


def test_every_program_has_a_row_of_every_size(rows: list[dict[str, Any]]) -> None:
    wanted = [(name, size, n) for name in pf.programs.names() for size, n in tokens.SIZES]
    assert [(row["program"], row["V"], row["n"]) for row in rows] == wanted


def test_every_certificate_held(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        assert tokens.holds(row)
        assert not any(row["wrong"].values())
        assert row["compile (s)"] <= tokens.LIMIT or row["n"] > 16


def test_every_certificate_is_for_both_precisions(rows: list[dict[str, Any]]) -> None:
    assert all(tokens.certified(row, way) for row in rows for way in tokens.WAYS)


def test_a_wrong_answer_is_counted_in_every_way() -> None:
    program = pf.programs.get("sort", 4, 4)
    network, row = tokens.compiled(program)
    x = tokens.sequences(4, 4)
    assert len(x) == 4**4 == len(np.unique(x, axis=0)) == row["all"]
    wrong = int(((x[:, 0] == 3) & (np.diff(x) < 0).any(axis=1)).sum())
    for way in tokens.installed():
        assert not tokens.complete(row, way)
        tokens.go_on(row, lambda x: np.where(x[:, :1] == 3, x, program(x)), x, way, tokens.RUNS[way](network, 4))
        assert tokens.complete(row, way)
        assert row["wrong"][way] == wrong
    assert not tokens.holds(row)


def test_sequences_belong_to_weights_and_say_where_they_were_run() -> None:
    (network, row), (other, _) = (tokens.compiled(pf.programs.get("sort", 4, n)) for n in (4, 5))
    assert tokens.fingerprint(network) == row["weights"] != tokens.fingerprint(other)
    row["tried"]["float64"], row["tried"]["torch float32"] = row["all"], 7
    cells = tokens.table({"rows": [row]}).splitlines()[-1].split(" | ")
    assert cells[-4:] == ["0", "0 of 7", "not run", "not run |"]


def test_sequences_are_of_the_alphabet_and_of_all_kinds() -> None:
    x = tokens.drawn(8, 16, 2400)
    assert x.shape == (2400, 16)
    assert set(np.unique(x)) == set(range(8))
    constant = (x == x[:, :1]).all(axis=1)
    rising, falling = (np.diff(x) >= 0).all(axis=1), (np.diff(x) <= 0).all(axis=1)
    alternating = (x[:, 2:] == x[:, :-2]).all(axis=1)
    balanced = pf.programs.get("dyck-2", 8, 16)(x)[:, -1] == 2
    assert all(kind.sum() > 20 for kind in (constant, rising & ~constant, falling & ~constant, alternating & ~constant))
    assert (balanced & np.isin(x, (0, 1, 2, 3)).all(axis=1)).sum() > 20
