"""What a circuit of a program says of itself: every value by words of its own, and no head against its value."""

import re

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
        ("sort-by-rank", "v20 = x at the token whose rank by x is the own place"),
        ("parity", "v3 = (number of tokens with x % 2) % 2"),
        ("dyck-1", "[(sum so far of [x = 0] - sum so far of [x = 1]) < 0]"),
        ("addition", "head 0 looks at the token 2 away: v1 = x 2 tokens later"),  # of four tokens: two on, or two back
        ("addition", "(x 2 tokens later where [position <= 1], else 0)"),
        ("induction", "the last token with its x = own x and an earlier place, if any; v7 = x at v6"),
    ],
)
def test_what_a_reader_sees(name: str, said: str) -> None:
    assert said in str(pf.compile_tokens(pf.programs.get(name, 4, 4)).circuit)


def test_blocks_without_heads_have_no_patterns_to_look_at() -> None:
    c = pf.compile_tokens(pf.programs.get("induction", 4, 4))
    shown = {hook for hook in c.hook_names if hook.endswith("hook_pattern")}
    assert shown == {f"blocks.{b}.attn.hook_pattern" for b, _ in c.circuit.looks}
    assert len(shown) < c.network.blocks
