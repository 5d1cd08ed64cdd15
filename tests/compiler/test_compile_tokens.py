"""compile_tokens: which construction, how outputs are read, shorter sequences, tables of multisets, what is refused."""

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import provenformer as pf


def counted(s: list[Any]) -> list[int]:
    return [s.count(t) for t in s]


def plus_one(x: Any) -> Any:
    return x + 1


def test_a_program_becomes_a_circuit_and_any_other_function_a_table() -> None:
    circuit = pf.compile_tokens(pf.programs.sort, vocab="abcdefgh", seq_len=8)
    assert circuit.choice == "circuit, because the program could be followed"
    assert "".join(circuit("hgfedcba")) == "abcdefgh"
    table = pf.compile_tokens(counted, vocab="ab", seq_len=4)
    assert table.choice.startswith("table, because a Python 'if'")
    assert table("abaa") == [3, 1, 3, 3]
    asked = pf.compile_tokens(counted, vocab="ab", seq_len=4, construction="table")
    assert asked.choice == "table, as asked for"


def test_the_certificate_says_exact_and_is_checked(tmp_path: Path) -> None:
    c = pf.compile_tokens(pf.programs.get("most-frequent", 16, 16))
    assert c.certificate.domain == "tokens"
    assert c.certificate.kind == "rigorous"
    assert set(c.certificate.bounds) == {"float64", "float32"}
    assert 0.49 < c.certificate.details["margin"] < 0.5
    c.save(tmp_path / "net")
    report = pf.verify(tmp_path / "net")
    assert report
    assert "every one of the 16^16 sequences" in str(report.claim)
    again = pf.load(tmp_path / "net")
    x = np.random.default_rng(0).integers(0, 16, (50, 1, 16)).astype(float)
    assert (again.network(x) == c.network(x)).all()


def test_a_program_of_ones_own_is_imported_only_when_trusted(tmp_path: Path) -> None:
    c = pf.compile_tokens(plus_one, 4, 4)
    c.save(tmp_path / "net")
    with pytest.raises(pf.ProvenformerError, match="name the program yourself"):
        pf.verify(tmp_path / "net")
    assert pf.verify(tmp_path / "net", pf.TokenProgram(plus_one, 4, 4))
    pf.compile_tokens(lambda x: x + 1, 4, 4).save(tmp_path / "other")
    with pytest.raises(pf.ProvenformerError, match="no import path"):
        pf.verify(tmp_path / "other", trust_target=True)


def test_outputs_are_tokens_where_all_are() -> None:
    assert pf.compile_tokens(plus_one, "abcd", 3)("abc") == [1, 2, 3]
    assert pf.compile_tokens(lambda x: (x + 1) % 4, "abcd", 3)("abd") == ["b", "c", "a"]
    assert pf.compile_tokens(lambda x: (x + 1) % 4, "abcd", 3, output="numbers")("abd") == [1, 2, 0]
    assert pf.compile_tokens(lambda x: x / 2, "abcd", 3)("abd") == [0.0, 0.5, 1.5]


def test_shorter_sequences_with_a_padding_token() -> None:
    c = pf.compile_tokens(partial(pf.programs.reverse, pad=3), "abc", 5, pad=".")
    assert ["".join(c(s)) for s in ("a", "ab", "abc", "abcab")] == ["a", "ba", "cba", "bacba"]
    for wrong in ("", "abcabc", "abd"):
        with pytest.raises(pf.ProvenformerError, match="are not 1 to 5 tokens"):
            c(wrong)


def test_a_program_is_saved_as_transformers_are(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    c = pf.compile_tokens(pf.programs.get("sort", 4, 6))
    c.save_pretrained(tmp_path / "model")
    x = torch.randint(0, 4, (20, 1, 6), generator=torch.Generator().manual_seed(0)).double()
    again: Any = pf.from_pretrained(tmp_path / "model")
    assert torch.equal(again(x), c.to_torch()(x))
    assert torch.equal(again(x).round(), torch.sort(x, dim=-1).values)
    with pytest.raises(pf.ProvenformerError, match="a table has no parts"):
        pf.compile_tokens(counted, "ab", 3).save_pretrained(tmp_path / "table")


def test_a_bar_is_shown_where_it_is_asked_for(capfd: pytest.CaptureFixture[str]) -> None:
    pf.compile_tokens(counted, "abcd", 6, equivariant=True, progress=True)
    shown = capfd.readouterr().err
    assert "84 multisets, up to 1,512 layers" in shown
    assert "memorising" in shown
    pf.compile_tokens(counted, "abcd", 6, equivariant=True)
    assert capfd.readouterr().err == ""


def test_multisets_of_an_equivariant_function(tmp_path: Path) -> None:
    said: list[str] = []
    c = pf.compile_tokens(counted, "abcd", 6, equivariant=True, progress=said.append)
    assert said[1:3] == ["84 multisets, up to 1,512 layers", "memorising"] or "84 multisets, up to 1,512 layers" in said
    assert c("dabacb") == [1, 2, 2, 2, 1, 2]
    c.save(tmp_path / "net")
    assert pf.verify(tmp_path / "net")
    with pytest.raises(pf.ProvenformerError, match="not equivariant"):
        pf.compile_tokens(lambda s: list(s)[::-1], "abc", 4, equivariant=True, construction="table")


def test_few_sequences_are_all_tried_for_equivariance() -> None:
    """One order of one multiset, which 200 random orders did not meet, was answered wrongly."""
    sizes: dict[str, Any] = {"vocab": 4, "seq_len": 4, "equivariant": True, "construction": "table"}
    with pytest.raises(pf.ProvenformerError, match=r"not equivariant: see its answer to \[3, 1, 2, 0\]"):
        pf.compile_tokens(lambda s: [7 * (s == [3, 1, 2, 0])] * 4, **sizes)
    sums = pf.compile_tokens(lambda s: [v + 10 * sum(s) for v in s], **sizes)
    assert sums([3, 0, 2, 0]) == pytest.approx([53, 50, 52, 50], abs=1e-9)


@pytest.mark.parametrize(
    ("fn", "given", "words"),
    [
        (plus_one, {"output": "tokens"}, "leaves the alphabet: its outputs range from 1 to 8.*tokens from 0 to 7"),
        (counted, {}, "no circuit: .*; no table: .*16,777,216 sequences"),
        (plus_one, {"vocab": 1000}, "vocab_size=1000 is not a whole number from 1 to 256"),
        (plus_one, {"seq_len": 5000}, "seq_len=5000 is not a whole number from 1 to 512"),
        (plus_one, {"seq_len": 1}, "below the limit 2"),
        (plus_one, {"vocab": "aa"}, "a token twice"),
        (pf.programs.sort_by_rank, {"max_parameters": 1000}, "parameters .limit 1,000."),
        (plus_one, {"construction": "paper"}, "construction is 'circuit' or 'table'"),
    ],
)
def test_refused_in_one_line(fn: Callable[[Any], Any], given: dict[str, Any], words: str) -> None:
    with pytest.raises(pf.ProvenformerError, match=words) as error:
        pf.compile_tokens(
            fn, **{"vocab": 8, "seq_len": 8, "construction": None if fn is counted else "circuit", **given}
        )
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("answer", ["12", 2**53 + 1, 10**400, Fraction(1, 3), np.int64(2**53 + 1), np.zeros(2)])
def test_a_table_holds_the_function_s_own_answers_or_none(answer: Any) -> None:
    with pytest.raises(pf.ProvenformerError, match="must return tokens of the vocabulary or numbers"):
        pf.compile_tokens(lambda _: [answer, 0], "ab", 2, construction="table")


def chosen(x: Any) -> Any:
    return np.select([x == "a", x == "b"], [2, 0], 1) + np.zeros(np.shape(x))


def parity_of_twos(x: Any) -> Any:
    return np.where(np.bitwise_and(x, 1) == 0, x == 2, 0)


@pytest.mark.parametrize(("fn", "vocab"), [(chosen, "abc"), (parity_of_twos, 3), (parity_of_twos, [2, 4, 7])])
@pytest.mark.parametrize("construction", [None, "table"])
def test_a_table_of_a_function_in_numpy_is_not_made_from_lists_that_it_does_not_compare(
    fn: Any, vocab: Any, construction: str | None
) -> None:
    """To a list x == 2 is False: the table would be that of another function."""
    with pytest.raises(pf.ProvenformerError, match=r"start it with x = np\.asarray"):
        pf.compile_tokens(fn, vocab, 3, construction=construction, output="numbers")
    c = pf.compile_tokens(lambda x: fn(np.asarray(x)), vocab, 3, construction="table", output="numbers")
    for sequence in product(c.vocab, repeat=3):
        assert c(sequence) == pytest.approx(np.asarray(fn(np.array([sequence])))[0].tolist(), abs=1e-9)


@pytest.mark.parametrize(
    "fn", [lambda s: s[::-1], lambda s: s[2:] + s[:2], lambda s: s[:1] * 3, lambda s: [int(s == s[::-1])] * 3, sorted]
)
def test_functions_of_lists_that_arrays_would_mislead_are_tables(fn: Any) -> None:
    c = pf.compile_tokens(fn, 3, 3, construction="table")
    assert all(c(s) == pytest.approx(fn(list(s)), abs=1e-9) for s in product(range(3), repeat=3))


def test_words_attention_and_states() -> None:
    c = pf.compile_tokens(pf.programs.get("induction", 4, 6))
    text = str(c.circuit)
    assert "head 0 looks 1 token ahead" in text
    assert "looks at the last token that it selects, if any" in text
    tokens = [1, 2, 3, 1, 2, 0]
    patterns = c.attention(tokens)
    assert len(patterns) == c.network.blocks
    assert patterns[1][0][3].argmax() == 0  # the second 1 looks at the first
    assert np.allclose(c.states(tokens)[0]["x"], tokens)
    with pytest.raises(pf.ProvenformerError, match="a table has no parts"):
        _ = pf.compile_tokens(counted, "ab", 3).circuit


def test_a_function_of_tokens_that_are_numbers_is_not_taken_for_one_of_their_indices() -> None:
    """Sorting [5, 3, 9] by index gave [5, 3, 9], certified as exact; the function says [3, 5, 9]."""
    sizes: dict[str, Any] = {"seq_len": 6}
    for fn, vocab in (
        (lambda t: np.sort(t, axis=-1), [5, 3, 9]),
        (lambda t: np.sort(t, axis=-1), ["2", "1", "0"]),
        (lambda t: np.abs(t), [-1, 0, 1]),
        (lambda x: x.sum(axis=-1, keepdims=True) % 2 + 0 * x, [-1, 1]),  # arrays alone
        (
            lambda t: np.all(np.equal(t, 3), axis=-1, keepdims=True) * np.ones(6, dtype=int),
            [1, 2, 3],
        ),  # one sequence of 729
    ):
        with pytest.raises(pf.ProvenformerError, match="ask for construction='circuit' if it means indices"):
            pf.compile_tokens(fn, vocab=vocab, **sizes)
    by_index = pf.compile_tokens(lambda t: np.sort(t, axis=-1), [5, 3, 9], construction="circuit", **sizes)
    assert by_index([9, 3, 5, 3, 5, 9]) == [5, 5, 3, 3, 9, 9]


@pytest.mark.parametrize(
    ("fn", "vocab"),
    [
        (lambda x: x[..., ::-1], [10, 20, 30]),
        (lambda t: np.sort(t, axis=-1), "abc"),
        (
            lambda x: np.cumsum((x == 1) * np.ones(6, dtype=int), axis=-1),
            "abc",
        ),  # on a list of letters: zeros, which are none
        (lambda x: np.sum(x[..., :, None] == x[..., None, :], axis=-1), [1.5, 2.5]),
        (lambda x: 2 - x, [False, True]),
    ],
)
def test_a_function_with_one_meaning_needs_no_word(fn: Any, vocab: Any) -> None:
    assert pf.compile_tokens(fn, vocab=vocab, seq_len=6).choice.startswith("circuit, because")
