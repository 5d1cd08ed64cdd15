"""The statements of Section 6, and that the checks can fail."""

import itertools

import pytest
import torch

from provenformer.base.errors import ProvenformerError
from provenformer.bert.model import claims
from provenformer.bert.model.mixers import Average, BProj
from provenformer.constructions.sum.codes import greedy_codes


def test_every_claim_holds() -> None:
    found = claims.check_all()
    assert len(found) == 5
    assert [claim.statement for claim in found if not claim.holds] == []


def test_a_sparse_position_matrix_fails_the_bproj_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    def identity(tokens: int, _seed: int) -> BProj:
        mixer = BProj(1, size=tokens).double()
        mixer.position_weight.data = torch.eye(tokens, dtype=torch.float64)
        return mixer

    monkeypatch.setattr(claims, "gaussian_bproj", identity)
    assert not claims.bproj_spreads_one_token().holds


def test_the_bproj_bound_is_above_the_measured_frequency() -> None:
    tokens, pairs, resolution, draws = 4, 3, 0.005, 2000
    bound = claims.bproj_failure_bound(pairs, tokens, gap=1.0, resolution=resolution)
    failures = sum(
        claims.gaussian_bproj(tokens, seed).position_weight[:pairs].abs().min().item() < resolution
        for seed in range(draws)
    )
    assert 0.3 * bound < failures / draws < 1.3 * bound  # neither wrong nor idle


@pytest.mark.parametrize(("tokens", "taps"), [(2, 3), (9, 3), (10, 4), (12, 5), (17, 9), (5, 9)])
def test_views_of_stacked_sepconv(tokens: int, taps: int) -> None:
    assert claims.sepconv_needs_layers(tokens, taps).holds


def test_views_of_bert_base() -> None:
    assert claims.layers_until_one_token_sees_all(512, 128) == 5
    assert claims.layers_until_every_token_sees_all(512, 128) == 9


def test_filters_too_short_to_see_are_refused() -> None:
    with pytest.raises(ProvenformerError, match=r"taps=1: no number of layers sees everything.*taps >= 2"):
        claims.layers_until_one_token_sees_all(5, 1)
    with pytest.raises(ProvenformerError, match="taps >= 3"):
        claims.layers_until_every_token_sees_all(5, 2)


@pytest.mark.parametrize(("alphabet", "tokens"), [(2, 2), (3, 3), (4, 3), (3, 5)])
def test_codes_repair_average_attention(alphabet: int, tokens: int) -> None:
    sequences = list(itertools.product(range(alphabet), repeat=tokens))
    codes = list(greedy_codes(alphabet, tokens))
    assert claims.find_collision(Average(1), sequences, codes) is None
    if alphabet > 2:
        assert claims.find_collision(Average(1), sequences, list(range(alphabet))) is not None
