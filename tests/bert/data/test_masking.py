"""Dynamic masking: shares, whole words, and batches that depend on (seed, step) alone."""

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from provenformer.bert.data.examples import Examples, MaskedBatches, evenly_spaced
from provenformer.bert.data.masking import NO_TARGET, Masking
from provenformer.bert.data.order import balanced, grouped, permutation, rows_in_order, rows_of_step
from provenformer.bert.data.prepare import PrepareSettings, prepare
from provenformer.bert.data.sample import write_sample
from provenformer.bert.data.vocabulary import SPECIAL, Vocabulary

VOCABULARY = Vocabulary([*SPECIAL, *(f"w{i}" for i in range(500)), *(f"##p{i}" for i in range(500))])


def random_ids(rows: int = 200, length: int = 128) -> np.ndarray:
    ids = np.random.default_rng(0).integers(len(SPECIAL), len(VOCABULARY), (rows, length))
    ids[:, 0], ids[:, 60], ids[:, 99], ids[:, 100:] = VOCABULARY.cls, VOCABULARY.sep, VOCABULARY.sep, VOCABULARY.pad
    return ids


def draws(ids: np.ndarray) -> np.ndarray:
    return np.random.default_rng(1).random((len(ids), 3, ids.shape[1]))


def test_shares() -> None:
    ids = random_ids()
    masked, labels = Masking(VOCABULARY).apply(ids, draws(ids))
    target = labels != NO_TARGET
    assert (target.sum(axis=1) == round(0.15 * 97)).all()
    assert (labels[target] == ids[target]).all()
    assert (masked[~target] == ids[~target]).all()
    assert not target[:, [0, 60, 99, *range(100, 128)]].any()
    is_mask, kept = masked[target] == VOCABULARY.mask, masked[target] == ids[target]
    assert is_mask.mean() == pytest.approx(0.8, abs=0.02)
    assert kept.mean() == pytest.approx(0.1, abs=0.02)
    assert np.isin(masked[target], [0, 1, 2, 3]).sum() == 0


def test_whole_words_are_targets_together() -> None:
    ids = random_ids()
    _, labels = Masking(VOCABULARY, whole_word=True).apply(ids, draws(ids))
    target = labels != NO_TARGET
    goes_on = VOCABULARY.continues_word[ids[:, 2:60]]
    assert (target[:, 2:60][goes_on] == target[:, 1:59][goes_on]).all()
    assert target.sum(axis=1).mean() == pytest.approx(0.15 * 97, abs=2)


def test_a_short_row_has_one_target() -> None:
    ids = np.array([[VOCABULARY.cls, 7, VOCABULARY.sep, 9, VOCABULARY.sep, VOCABULARY.pad]])
    assert (Masking(VOCABULARY).apply(ids, draws(ids))[1] != NO_TARGET).sum() == 1


def test_every_epoch_is_a_new_permutation() -> None:
    epochs = np.concatenate([rows_of_step(3, step, 8, 20) for step in range(5)]).reshape(2, 20)
    assert (np.sort(epochs) == np.arange(20)).all()
    assert (epochs[0] != epochs[1]).any()


def test_a_batch_depends_on_seed_and_step_alone(tmp_path: Path) -> None:
    write_sample(tmp_path)
    prepare([tmp_path / "valid"], tmp_path / "data", PrepareSettings(seq_len=32, vocabulary_size=300))
    batches, masking = MaskedBatches(Examples(tmp_path / "data"), seed=0, batch_size=8), Masking(VOCABULARY)
    whole = batches.part(5, range(8), masking)
    halves = [batches.part(5, range(4), masking), batches.part(5, range(4, 8), masking)]
    for name, value in whole.items():
        assert torch.equal(value, torch.cat([half[name] for half in halves]))
    assert not torch.equal(whole["input_ids"], batches.part(6, range(8), masking)["input_ids"])
    some, all_labels = [1, 4, 6], batches.in_order(range(8), masking)["labels"]
    assert torch.equal(batches.in_order(some, masking)["labels"], all_labels[some])


def test_evenly_spaced_numbers_are_from_all_parts() -> None:
    assert evenly_spaced(10, 4) == [0, 2, 5, 7]
    assert evenly_spaced(3, 0) == evenly_spaced(3, 5) == [0, 1, 2]


@pytest.mark.parametrize(("examples", "batch_size"), [(1000, 8), (103, 7), (5, 8)])
def test_batches_by_length_have_every_row_once_an_epoch_and_little_padding(examples: int, batch_size: int) -> None:
    lengths = np.random.default_rng(0).integers(5, 60, examples).astype(np.int32)

    def order(epoch: int) -> NDArray[np.int64]:
        return grouped(permutation(3, epoch, examples), lengths, 3, epoch, batch_size)

    steps = 2 * examples // batch_size + 1
    rows = np.array([rows_in_order(order, step, batch_size, examples) for step in range(steps)])
    epochs = rows.ravel()[: 2 * examples].reshape(2, examples)
    assert all(sorted(epoch) == list(range(examples)) for epoch in epochs)
    if examples == 1000:
        assert not np.array_equal(*epochs)
        padded, plain = (
            np.array([lengths[batch].max() for batch in batches]).sum()
            for batches in (rows, permutation(3, 0, examples).reshape(-1, batch_size).repeat(2, axis=0))
        )
        assert padded < 0.75 * plain
        # The order of the batches says nothing of their length.
        assert abs(np.corrcoef(lengths[rows[:125]].mean(axis=1), np.arange(125))[0, 1]) < 0.3


def test_windows_with_the_answer_come_as_often_as_those_without() -> None:
    question = np.repeat(np.arange(40), 3)
    has_answer = np.tile([True, True, False], 40) | (question < 10)  # the first ten have it in every window
    has_answer[question == 39] = False  # an answer that no window holds
    seen = set()
    for epoch in range(40):
        rows = balanced(question, has_answer, 0, epoch)
        assert sorted(question[rows]) == list(range(40))
        assert has_answer[rows].sum() == 20
        seen |= set(rows)
    assert seen == set(range(120))
    assert not np.array_equal(balanced(question, has_answer, 0, 0), balanced(question, has_answer, 0, 1))
    assert has_answer[balanced(question, has_answer | True, 0, 0)].sum() >= 30
    assert len(balanced(question, np.zeros(120, bool), 0, 0)) == 40
