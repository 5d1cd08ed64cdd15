"""memorize and compile_tokens: exact on what they are given, refused in one line when that is impossible."""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import run_of, thin
from forging import forge, with_weight

import provenformer as pf
from provenformer.networks.thin import ReluRun


def pairs(count: int, d: int, n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(count, d, n)), rng.normal(size=(count, d, n))


@pytest.mark.slow
def test_a_thousand_random_pairs(tmp_path: Path) -> None:
    x, y = pairs(1000, 2, 8)
    c = pf.memorize(x, y)
    assert np.abs(c.network(x) - y).max() <= 1e-6
    assert c.certificate.bound <= 1e-6
    assert c.network.shape == (2, 1, 4)
    order = np.random.default_rng(1).permutation(8)
    assert np.abs(c.network(x[..., order]) - y[..., order]).max() <= 1e-6
    c.save(tmp_path / "net")
    assert pf.verify(tmp_path / "net")


def test_a_hundred_thousand_layers() -> None:
    """Tokens of a vocabulary, so that layers come from contexts: built, run, right."""
    rng = np.random.default_rng(2)
    x = rng.choice(np.linspace(-1, 1, 64), size=(26_000, 1, 4))
    x = x[np.unique(np.sort(x[:, 0], axis=1), axis=0, return_index=True)[1]]
    y = x * x.mean(axis=-1, keepdims=True) + x**2
    c = pf.memorize(x, y)
    assert c.network.layers >= 100_000 - 4 * (26_000 - len(x))
    assert c.network.layers > 95_000
    assert c.certificate.bound <= 2e-5  # ids of 35 bits leave 17 for the values
    sample = rng.choice(len(x), size=64, replace=False)
    assert np.abs(c.network(x[sample]) - y[sample]).max() <= c.certificate.bound


@pytest.mark.parametrize("positional", [False, True])
def test_small_data_sets_of_every_size(positional: bool) -> None:
    for d, n, count in product((1, 2, 3), (2, 3, 5), (1, 2, 17)):
        x, y = pairs(count, d, n, seed=d + n)
        c = pf.memorize(x, y, positional=positional)
        assert np.abs(c.network(x) - y).max() <= 1e-6, (d, n, count)


def test_repeated_tokens() -> None:
    x = np.array([[[1.0, 1.0, 2.0]], [[1.0, 2.0, 2.0]], [[2.0, 2.0, 2.0]]])
    y = np.array([[[5.0, 5.0, 6.0]], [[7.0, 8.0, 8.0]], [[9.0, 9.0, 9.0]]])
    c = pf.memorize(x, y)
    assert np.abs(c.network(x) - y).max() <= 1e-9
    with pytest.raises(pf.ProvenformerError, match="pair 0 gives two equal tokens different outputs"):
        pf.memorize(x[:1], np.array([[[5.0, 4.0, 6.0]]]))


def test_contradictory_pairs_are_named() -> None:
    x, y = pairs(20, 1, 3)
    x[13] = x[4][:, [2, 0, 1]]
    with pytest.raises(pf.ProvenformerError, match="pairs 4 and 13"):
        pf.memorize(x, y)
    y[13] = y[4][:, [2, 0, 1]]
    assert np.abs(pf.memorize(x, y).network(x) - y).max() <= 1e-6


def test_positions_tell_permutations_apart() -> None:
    x = np.array([[[1.0, 2.0]], [[2.0, 1.0]], [[1.0, 1.0]]])
    y = np.array([[[1.0, 2.0]], [[3.0, 4.0]], [[5.0, 6.0]]])
    with pytest.raises(pf.ProvenformerError, match="positional=True"):
        pf.memorize(x, y)
    c = pf.memorize(x, y, positional=True)
    assert np.abs(c.network(x) - y).max() <= 1e-9
    with pytest.raises(pf.ProvenformerError, match="pairs 0 and 3"):
        pf.memorize(np.concatenate([x, x[:1]]), np.concatenate([y, y[:1] + 1]), positional=True)


def test_the_same_pair_twice_is_no_contradiction() -> None:
    x, y = pairs(3, 1, 2)
    c = pf.memorize(np.concatenate([x, x]), np.concatenate([y, y]))
    assert np.abs(c.network(x) - y).max() <= 1e-6


@pytest.mark.parametrize(
    ("x", "y", "match"),
    [
        (np.zeros((2, 1, 1)), np.zeros((2, 1, 1)), "seq_len"),
        (np.zeros((0, 1, 2)), np.zeros((0, 1, 2)), "count"),
        (np.zeros((2, 2)), np.zeros((2, 2)), "shape"),
        (np.zeros((2, 1, 2)), np.zeros((2, 1, 3)), "shape"),
        (np.full((1, 1, 2), np.nan), np.zeros((1, 1, 2)), "finite"),
        (np.zeros((1, 1, 2)), np.full((1, 1, 2), np.inf), "finite"),
        ([["a"]], [["b"]], "numbers"),
        (np.array([[[0.0, 1e-15]]]), np.array([[[0.0, 1.0]]]), "apart"),
    ],
)
def test_bad_data(x: object, y: object, match: str) -> None:
    with pytest.raises(pf.ProvenformerError, match=match) as refusal:
        pf.memorize(x, y)
    assert "\n" not in str(refusal.value)


def test_too_many_layers_are_refused_before_building() -> None:
    x, y = pairs(100, 1, 4)
    with pytest.raises(pf.ProvenformerError, match=r"1,200 layers \(limit 1,000\)"):
        pf.memorize(x, y, max_layers=1000)


def test_an_altered_memory_is_noticed(tmp_path: Path) -> None:
    x, y = pairs(10, 1, 3)
    c = pf.memorize(x, y)
    c.save(tmp_path / "net")
    index = max(range(len(thin(c.network).runs)), key=lambda i: len(thin(c.network).runs[i]))
    weight = float(run_of(c.network, index, ReluRun).W_2[3, 0, 0])
    altered = with_weight(c.network, index, "W_2", (3, 0, 0), 1.01 * weight)
    forge(tmp_path / "net", altered)
    report = pf.verify(tmp_path / "net")
    assert not report
    assert report.derived == np.abs(altered(x) - y).max()
    forge(tmp_path / "net", certificate={"bound": 0.5 * c.certificate.bound}, network=c.network)
    assert not pf.verify(tmp_path / "net")


# Token functions.


def histogram(tokens: list[str]) -> list[int]:
    return [Counter(tokens)[t] for t in tokens]


FUNCTIONS: dict[str, Callable[[list[Any]], Sequence[Any]]] = {
    "reverse": lambda tokens: tokens[::-1],
    "sort": sorted,
    "histogram": histogram,
    "first": lambda tokens: [tokens[0]] * len(tokens),
    "is repeated": lambda tokens: [float(tokens.count(t) > 1) for t in tokens],
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(("vocab", "seq_len"), [("abc", 4), ("ab", 2), (("x", 7, None), 3)])
def test_token_functions_on_every_sequence(name: str, vocab: Sequence[Any], seq_len: int) -> None:
    fn = FUNCTIONS[name]
    if name == "sort" and None in tuple(vocab):
        return
    c = pf.compile_tokens(fn, vocab=vocab, seq_len=seq_len)
    for tokens in product(tuple(vocab), repeat=seq_len):
        expected = list(fn(list(tokens)))
        found = c(list(tokens))
        if c.numeric:
            assert found == pytest.approx(expected, abs=1e-6)
        else:
            assert found == expected
    assert c.certificate.bound <= 1e-6


def test_token_functions_save_and_verify(tmp_path: Path) -> None:
    c = pf.compile_tokens(sorted, vocab="abc", seq_len=3)
    c.save(tmp_path / "net")
    assert pf.verify(tmp_path / "net")


@pytest.mark.parametrize(
    ("fn", "vocab", "seq_len", "match"),
    [
        (sorted, "aa", 2, "twice"),
        (sorted, "", 2, "empty"),
        (sorted, "ab", 1, "below the limit 2"),
        (lambda t: t[:1], "ab", 2, "1 items for 2 tokens"),
        (lambda t: ["z"] * len(t), "ab", 2, "tokens of the vocabulary or numbers"),
        (lambda t: t[0] / 0, "ab", 2, "TypeError"),
        (sorted, "abcdefghij", 9, "limit"),
    ],
)
def test_bad_token_functions(fn: Any, vocab: str, seq_len: int, match: str) -> None:
    with pytest.raises(pf.ProvenformerError, match=match) as refusal:
        pf.compile_tokens(fn, vocab=vocab, seq_len=seq_len)
    assert "\n" not in str(refusal.value)


def test_unknown_tokens_are_refused() -> None:
    c = pf.compile_tokens(sorted, vocab="abc", seq_len=3)
    for tokens in ("abz", "ab", "abca"):
        with pytest.raises(pf.ProvenformerError, match="vocabulary"):
            c(list(tokens))


@pytest.mark.parametrize("size", [1e20, 1e300, 1.7e308])
@pytest.mark.parametrize("positional", [False, True])
def test_inputs_beyond_what_ids_can_hold_are_refused_in_one_line(size: float, positional: bool) -> None:
    rng = np.random.default_rng(0)
    with np.errstate(over="ignore"), pytest.raises(pf.ProvenformerError) as refusal:
        pf.memorize(size * rng.random((5, 1, 3)), rng.random((5, 1, 3)), positional=positional)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("vocab", "seq_len"), [([[1], [2]], 2), (None, 3), ("ab", "3"), ("ab", 2.5), ("ab", 100_000), ("ab", True)]
)
def test_arguments_that_make_no_sense_are_refused_in_one_line(vocab: Any, seq_len: Any) -> None:
    with pytest.raises(pf.ProvenformerError) as refusal:
        pf.compile_tokens(lambda tokens: tokens, vocab, seq_len)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("seed", [-1, 0.5, "1"])
def test_seeds_that_make_no_sense_are_refused_in_one_line(seed: Any) -> None:
    with pytest.raises(pf.ProvenformerError, match="seed"):
        pf.memorize(np.zeros((1, 1, 2)), np.zeros((1, 1, 2)), seed=seed)


@pytest.mark.parametrize("positional", [False, True])
@pytest.mark.parametrize("d", [1, 2, 3])
def test_outputs_that_differ_by_rounding_alone(d: int, positional: bool) -> None:
    """A mean over permuted tokens differs in the last bit; the certificate counts that difference as error."""
    rng = np.random.default_rng(d)
    x = rng.normal(size=(20, d, 5)) * 1e3
    x = np.concatenate([x, x[..., ::-1], x[..., [2, 0, 3, 1, 4]]])
    y = x + x.mean(axis=-1, keepdims=True)
    assert (y[20:40][..., ::-1] != y[:20]).any()
    c = pf.memorize(x, y, positional=positional)
    assert np.abs(c.network(x) - y).max() == c.certificate.bound <= 1e-8


def test_what_is_more_than_rounding_is_still_a_contradiction() -> None:
    x = np.array([[[1.0, 2.0]], [[2.0, 1.0]]])
    with pytest.raises(pf.ProvenformerError, match="pairs 0 and 1"):
        pf.memorize(x, np.array([[[1.0, 0.0]], [[0.0, 1.0 + 1e-12]]]))
    with pytest.raises(pf.ProvenformerError, match="two equal tokens"):
        pf.memorize(np.ones((1, 1, 2)), np.array([[[1.0, 1.0 + 1e-12]]]))
    rounded = pf.memorize(x, np.array([[[1.0, 0.0]], [[0.0, 1.0 + 2.0**-52]]]))
    assert 2.0**-53 <= rounded.certificate.bound <= 1e-14  # no float is both numbers


@pytest.mark.parametrize("positional", [False, True])
@pytest.mark.parametrize("value", [0.0, -7.25, 1e6])
def test_a_constant_costs_next_to_nothing(value: float, positional: bool, tmp_path: Path) -> None:
    x, _ = pairs(300, 2, 6)
    y = np.broadcast_to(np.array([[value], [0.1]]), x.shape)
    c = pf.memorize(x * 1e4, y, positional=positional)
    assert c.network.blocks == 4
    assert c.certificate.bound == 0
    assert np.array_equal(c.modified(x[:3] * 1e4).astype(float), y[:3])
    c.save(tmp_path / "net")
    assert pf.verify(tmp_path / "net")


def test_a_function_of_the_own_token_needs_no_contexts(tmp_path: Path) -> None:
    c = pf.compile_tokens(lambda s: [t.swapcase() for t in s], vocab="abAB", seq_len=6)
    assert c.network.blocks <= 3 * 4 * 6 + 2
    assert "".join(c("aBbAab")) == "AbBaAB"
    assert c.certificate.bound == 0
    c.save(tmp_path / "net")
    assert pf.verify(tmp_path / "net")


def test_contradictions_are_named_with_what_helps() -> None:
    x, y = np.array([[[1.0, 2.0]], [[1.0, 2.0]]]), np.array([[[1.0, 2.0]], [[1.0, 3.0]]])
    with pytest.raises(pf.ProvenformerError, match=r"same input up to permutation .* use positional=True\.$"):
        pf.memorize(x, y)
    with pytest.raises(pf.ProvenformerError, match=r"same input but different outputs; remove one\.$"):
        pf.memorize(x, y, positional=True)


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ([[1e17, 1.0], [1e17, 2.0]], "some that differ are equal in float64"),  # 1 and 2 are one beside 1e17
        ([[1e17, -1e17], [0.0, 1e16]], "smaller inputs"),  # 1e17 and, a position further, -1e17 were one token
        ([[1e308, -1e308], [0.0, 1.0]], "too far for float64"),
    ],
)
def test_inputs_that_positions_would_merge_are_named_as_that(inputs: Any, words: str) -> None:
    with pytest.raises(pf.ProvenformerError, match=words):
        pf.memorize(np.array(inputs)[:, None, :], np.arange(4.0).reshape(2, 1, 2), positional=True)


@pytest.mark.parametrize("tokens", [None, 5, [["a"], "b", "c"], "ab", "abz", ["a"] * 4])
def test_what_is_no_sequence_of_tokens_is_refused(tokens: Any) -> None:
    c = pf.compile_tokens(lambda s: s[::-1], vocab="abc", seq_len=3)
    with pytest.raises(pf.ProvenformerError, match="are not 3 tokens of the vocabulary"):
        c(tokens)


def test_a_function_that_counts_its_calls_is_refused() -> None:
    calls = [0]

    def counting(tokens: list[str]) -> list[int]:
        calls[0] += 1
        return [calls[0]] * len(tokens)

    with pytest.raises(pf.ProvenformerError, match="gives two results for"):
        pf.compile_tokens(counting, vocab="ab", seq_len=2)


@pytest.mark.parametrize(("inside", "outside"), [(1.0, 1e-300), (1e200, 0.0)])
def test_outputs_that_are_lost_on_their_way_are_refused(inside: float, outside: float) -> None:
    """Networks that answered 0 instead were handed out, with their error as the bound."""
    rng = np.random.default_rng(0)
    x, y = rng.random((6, 2, 3)) * inside, rng.random((6, 2, 3)) * outside if outside else np.full((6, 2, 3), 3.3)
    with pytest.raises(pf.ProvenformerError, match="scale both to moderate numbers"):
        pf.memorize(x, y)
