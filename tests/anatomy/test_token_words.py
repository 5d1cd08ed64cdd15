"""What a circuit of a program says of itself: every value by words of its own, and no head against its value."""

import re

import numpy as np
import pytest

import provenformer as pf


@pytest.mark.parametrize("name", ["sort-by-rank", "dyck-2", "induction", "double-histogram", "pattern-match", "parity"])
def test_values_differ_in_words_and_no_word_is_doubled(name: str) -> None:
    nodes = pf.compile_tokens(pf.programs.get(name, 4, 4)).circuit.nodes
    words = [node.words for node in nodes if node.kind != "output"]
    assert len(set(words)) == len(words)
    for text in words:
        assert not re.search(r"\b(\w+) \1\b|\b1 tokens|at the v\d|\(v\d+\)|- 0\b", text), text


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("sort-by-rank", "v19 = the place of the token whose rank by x is the own place"),
        ("parity", "v3 = (number of tokens with x % 2) % 2"),
        ("dyck-1", "[(sum so far of [x = 0] - sum so far of [x = 1]) < 0]"),
        ("addition", "head 0 looks at the token 2 away: v1 = x 2 tokens later"),  # of four tokens: two on, or two back
        ("addition", "(x 2 tokens later where [position <= 1], else 0)"),
        ("induction", "the place of the last token with its x = own x and an earlier place, if any; v7 = x at v6"),
    ],
)
def test_what_a_reader_sees(name: str, said: str) -> None:
    assert said in str(pf.compile_tokens(pf.programs.get(name, 4, 4)).circuit)


def test_blocks_without_heads_have_no_patterns_to_look_at() -> None:
    c = pf.compile_tokens(pf.programs.get("induction", 4, 4))
    shown = {hook for hook in c.hook_names if hook.endswith("hook_pattern")}
    assert shown == {f"blocks.{b}.attn.hook_pattern" for b, _ in c.circuit.looks}
    assert len(shown) < c.network.blocks


def test_what_is_said_of_places_is_so() -> None:
    """Places are called places, beside tokens 0 to 3; how often the own token is counted too often is said, and true."""
    c = pf.compile_tokens(pf.programs.get("sort-by-rank", 4, 6))
    tokens = [3, 1, 2, 1, 0, 2]
    held = c.states(tokens)[-1]
    assert np.allclose(held["is at place 2"], [0, 0, 1, 0, 0, 0])
    assert np.allclose(held["minus position squared"], -np.square(np.arange(6)))
    places = held["the place of the token whose rank by x is the own place"]
    assert np.allclose(places, np.argsort(tokens, kind="stable"))
    is_one = np.array(tokens) == 1
    earlier, position = np.cumsum(is_one) - is_one, np.arange(6)
    counted = held["number of earlier tokens with [x = 1], the own one (5 - position) times too often"]
    assert np.allclose(counted, earlier + (5 - position) * is_one)
    assert c.circuit.looks[1, 1] == "looks at all earlier tokens alike, and at itself with the rest of its weight"
    weights = c.attention(tokens)[1][1]
    assert np.allclose(weights, (np.tri(6, k=-1) + np.diag(5 - position)) / 5)


def test_a_head_that_looks_around_the_end_says_so() -> None:
    rolled = pf.compile_tokens(lambda x: np.roll(x, -1, axis=-1), 3, 5)
    assert rolled.circuit.looks == {(0, 0): "looks 1 token ahead, around the end"}
    assert rolled.attention([0, 1, 2, 0, 1])[0][0].argmax(axis=-1).tolist() == [1, 2, 3, 4, 0]
    assert pf.compile_tokens(pf.programs.get("shift", 3, 5)).circuit.looks == {(0, 0): "looks 1 token back"}


def test_the_first_of_extreme_value_and_the_first_that_is_selected() -> None:
    def first_largest(x: np.ndarray) -> np.ndarray:
        return np.argmax(x, axis=-1, keepdims=True) + 0 * x

    def mirrored_place(x: np.ndarray) -> np.ndarray:
        alike = x[..., :, None] == x[..., None, :]
        return np.max(np.where(alike, 4 - np.arange(5), -1), axis=-1)

    circuit = pf.compile_tokens(first_largest, 3, 5).circuit
    assert circuit.looks == {(0, 0): "looks at the first token of extreme value"}
    assert circuit["v1"].words == "the place of the first token of largest x"
    said = str(pf.compile_tokens(mirrored_place, 3, 5).circuit)
    assert "looks at the first token that it selects, if any" in said
    assert "the number of the first token with own x = its x, or 0" in said
