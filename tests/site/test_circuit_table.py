"""The table of circuits in the docs is the one that the benchmark's results give."""

import json

from benchmarks import circuits


def test_the_page_shows_the_results() -> None:
    text, results = circuits.PAGE.read_text(), json.loads(circuits.RESULTS.read_text())
    assert circuits.page(text, results) == text


def test_every_bound_held() -> None:
    rows = json.loads(circuits.RESULTS.read_text())["rows"]
    made = [row for row in rows if "refused" not in row]
    assert len(made) >= 90
    for row in made:
        assert row["holds"]
        assert row["measured"] <= row["certified"] <= row["tolerance"]
