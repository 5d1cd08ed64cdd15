"""A function whose equivariance its user vouches for: one order of every cube's tokens, and a claim that says so."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import provenformer as pf
from provenformer.functions.targets import one_order_suffices

SIZES: dict[str, Any] = {"token_dim": 1, "seq_len": 3}


def scaled_largest(x: np.ndarray) -> np.ndarray:
    return x * np.max(x, axis=-1, keepdims=True)


def almost(x: np.ndarray) -> np.ndarray:
    """Equivariant but where the first token is far above the second: samples that see it are rare."""
    first, second = x[..., :1], x[..., 1:2]
    return x + 50 * np.maximum(first - second - 0.98, 0.0)


def unchanged(x: np.ndarray) -> np.ndarray:
    return x + 0.0


def compiled(function: Any, vouched: bool) -> pf.Compiled:
    target = pf.Target(function, **SIZES, vouched=vouched)
    return pf.compile(target, cells_per_axis=4, norm_order=2, construction="sum")


def test_one_order_is_looked_at() -> None:
    calls = []

    def counted(x: np.ndarray) -> np.ndarray:
        calls.append(np.size(x))
        return scaled_largest(x)

    found = {}
    for vouched in (False, True):
        calls.clear()
        target = pf.Target(counted, 1, 4, vouched=vouched)
        certificate = pf.compile(target, cells_per_axis=4, construction="sum").certificate
        found[vouched] = certificate.bound, sum(calls)
    assert found[True][0] == pytest.approx(found[False][0], rel=1e-3)
    assert found[True][1] < 0.6 * found[False][1]


def test_more_cubes_are_affordable() -> None:
    """23 tokens on two cells: 24 multisets of them, 8,388,608 sequences."""
    facts: dict[str, Any] = {"lipschitz": 1.0, "token_dim": 1, "seq_len": 23}
    asked: dict[str, Any] = {"cells_per_axis": 2, "construction": "sum", "kind": "lipschitz"}
    with pytest.raises(pf.ProvenformerError, match=r"needs 8,388,608 cubes .* vouch for its equivariance"):
        pf.compile(pf.Target(unchanged, **facts), **asked)
    assert pf.compile(pf.Target(unchanged, **facts, vouched=True), **asked).certificate.kind == "lipschitz"


def test_the_claim_says_whose_word_it_is(tmp_path: Path) -> None:
    compiled(scaled_largest, True).save(tmp_path / "net")
    vouched = pf.verify(tmp_path / "net", pf.Target(scaled_largest, **SIZES, vouched=True))
    assert vouched
    assert (
        "assumed by you, not proved; samples were tried; every cube was looked at in one order" in vouched.claim.basis
    )
    from_folder = pf.verify(tmp_path / "net", trust_target=True)
    assert "assumed by the folder" in from_folder.claim.basis
    assert from_folder.claim.vouched


def test_a_false_word_is_not_taken_from_the_folder(tmp_path: Path) -> None:
    """What samples do not see makes the bound false; who does not vouch is told."""
    target = pf.Target(almost, **SIZES, vouched=True)
    assert target.equivariance_counterexample() is None
    c = compiled(almost, True)
    at = np.array([[[1.0, 0.0, 0.5]]])
    assert np.abs(c.network(at) - almost(at)).max() > 0.9
    c.save(tmp_path / "net")
    assert pf.verify(tmp_path / "net", target)  # who vouches gets what follows from that
    assert not pf.verify(tmp_path / "net", pf.Target(almost, **SIZES))


def test_only_where_it_means_something() -> None:
    with pytest.raises(pf.ProvenformerError, match="vouched=True is your word that f is equivariant"):
        pf.Target(scaled_largest, **SIZES, equivariant=False, vouched=True)
    with pytest.raises(pf.ProvenformerError, match="vouched=1 is a int; give True or False"):
        pf.Target(scaled_largest, **SIZES, vouched=1)  # type: ignore[arg-type]
    with pytest.raises(pf.ProvenformerError, match="declared equivariant, but"):
        pf.compile(
            pf.Target(lambda x: np.cumsum(x, axis=-1), **SIZES, vouched=True), cells_per_axis=2, construction="sum"
        )
    assert one_order_suffices(pf.targets.get("rank", **SIZES))
    assert not one_order_suffices(pf.targets.get("sort", **SIZES))
