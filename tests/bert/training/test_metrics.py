"""SQuAD's metrics: hand-computed cases, and torchmetrics on the same answers."""

import random
from typing import Any

import pytest
from torchmetrics.functional.text import squad

from provenformer.bert.training.metrics import exact_match, f1, normalized


@pytest.mark.parametrize(
    ("prediction", "answers", "exact", "overlap"),
    [
        ("the Eiffel Tower", ["Eiffel tower!"], 1.0, 1.0),
        ("Eiffel", ["The Eiffel Tower", "tower"], 0.0, 2 / 3),
        ("in the year 1889", ["1889", "year 1889."], 0.0, 0.8),
        ("to be or not", ["to to be"], 0.0, 2 * 2 / 7),
        ("London", ["Paris"], 0.0, 0.0),
        ("", ["Paris"], 0.0, 0.0),
        ("U.S.", ["us"], 1.0, 1.0),
    ],
)
def test_by_hand(prediction: str, answers: list[str], exact: float, overlap: float) -> None:
    assert exact_match(prediction, answers) == exact
    assert f1(prediction, answers) == pytest.approx(overlap)


def test_normalized() -> None:
    assert normalized("  The theatre, an   A-list\tevent ") == "theatre alist event"


def test_equal_to_torchmetrics() -> None:
    dice = random.Random(0)
    words = ["the", "a", "An", "red", "Red,", "house", "U.S.", "1889", "of", "tower", "(old)", "café"]

    def phrase() -> str:
        return " ".join(dice.choices(words, k=dice.randint(1, 5)))

    for number in range(300):
        prediction, answers = phrase(), [phrase() for _ in range(dice.randint(1, 3))]
        if not normalized(prediction) or not all(map(normalized, answers)):
            continue  # articles alone: torchmetrics counts an empty answer found as right, the official script does not
        key = str(number)
        known: dict[str, Any] = {"answers": {"text": answers, "answer_start": [0] * len(answers)}, "id": key}
        found = squad([{"prediction_text": prediction, "id": key}], [known])
        assert 100 * exact_match(prediction, answers) == found["exact_match"]
        assert 100 * f1(prediction, answers) == pytest.approx(float(found["f1"]), abs=1e-4)
