"""A program that was saved is the same again when it is loaded; so is one in disguise, with how it is read."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forging import forge

import provenformer as pf
from provenformer.compiler.programs import SavedProgram
from provenformer.networks.disguise import DisguisedProgram


def loaded(path: Path, **given: Any) -> SavedProgram:
    found = pf.load(path, **given)
    assert isinstance(found, SavedProgram)
    return found


def doubled(x: Any) -> Any:
    return 2 * x


def test_a_loaded_program_offers_what_the_compiled_one_does(tmp_path: Path) -> None:
    c = pf.compile_tokens(partial(pf.programs.reverse, pad=3), vocab="abc", seq_len=5, pad=".")
    program = pf.TokenProgram(partial(pf.programs.reverse, pad=3), 4, 5)
    c.save(tmp_path / "net")
    again = loaded(tmp_path / "net", target=program)
    assert (again.vocab, again.pad, again.numeric) == (("a", "b", "c", "."), ".", False)
    assert again("abca") == c("abca") == list("acba")
    assert again.hook_names == c.hook_names
    assert str(again.circuit) == str(c.circuit)
    assert all(np.array_equal(a, b) for a, b in zip(again.attention("abc"), c.attention("abc"), strict=True))
    for ours, theirs in zip(again.states("abc"), c.states("abc"), strict=True):
        assert ours.keys() == theirs.keys()
        assert all(np.array_equal(ours[name], theirs[name]) for name in ours)
    assert np.array_equal(again.disguised(seed=3).W_out, c.disguised(seed=3).W_out)


def test_a_program_of_the_library_is_found_by_its_name(tmp_path: Path) -> None:
    pf.compile_tokens(pf.programs.get("histogram", 3, 4)).save(tmp_path / "net")
    again = loaded(tmp_path / "net")
    assert again([0, 2, 0, 0]) == [3, 1, 3, 3]
    assert again.circuit["x"].words == "the token"


def test_a_program_of_your_own_is_asked_for_where_it_is_needed(tmp_path: Path) -> None:
    pf.compile_tokens(doubled, 3, 4).save(tmp_path / "net")
    again = loaded(tmp_path / "net")
    assert again([0, 1, 2, 1]) == [0, 2, 4, 2]
    for needs_it in (lambda: again.circuit, lambda: again.hook_names, lambda: again.disguised()):
        with pytest.raises(
            pf.ProvenformerError, match=r"does not hold its program.*pf\.load\(folder, target="
        ) as raised:
            needs_it()
        assert "\n" not in str(raised.value)
    assert loaded(tmp_path / "net", target=pf.TokenProgram(doubled, 3, 4)).hook_names
    with pytest.raises(pf.ProvenformerError, match="for 3 tokens and n=4"):
        pf.load(tmp_path / "net", target=pf.TokenProgram(doubled, 3, 5))
    with pytest.raises(pf.ProvenformerError, match="does not compute"):
        _ = loaded(tmp_path / "net", target=pf.TokenProgram(lambda x: 3 * x, 3, 4)).circuit


@pytest.mark.parametrize("vocab", [["\n", " ", "\x1b[2J"], [5, 3, 9], ["0", "1", "2"], [0.5, 1, "x"]], ids=str)
def test_tokens_are_kept_as_they_are(vocab: list[Any], tmp_path: Path) -> None:
    c = pf.compile_tokens(pf.programs.reverse, vocab=vocab, seq_len=3, construction="circuit")
    c.save(tmp_path / "net")
    assert loaded(tmp_path / "net")(vocab) == c(vocab) == vocab[::-1]


def test_other_tokens_are_kept_by_their_words(tmp_path: Path) -> None:
    c = pf.compile_tokens(pf.programs.reverse, vocab=[("a", 1), True, None], seq_len=3, construction="circuit")
    c.save(tmp_path / "net")
    assert loaded(tmp_path / "net").vocab == ("('a', 1)", "True", "None")


def test_folders_that_say_something_else_are_refused(tmp_path: Path) -> None:
    pf.compile_tokens(pf.programs.reverse, vocab="abc", seq_len=3).save(tmp_path / "net")
    target = json.loads((tmp_path / "net/manifest.json").read_text())["target"]
    others: list[dict[str, Any]] = [{"vocab": ["a", "b"]}, {"vocab": ["a", "b", "b"]}, {"seq_len": 4}]
    for change in others:
        with pytest.raises(pf.ProvenformerError, match="another vocabulary or length"):
            pf.load(forge(tmp_path / "net", manifest={"target": target | change}))
    others = [{"vocab": [["a"], "b", "c"]}, {"padded": 1}, {"output": "words"}, {"vocab": ["a", True, "c"]}]
    for change in others:
        with pytest.raises(pf.ProvenformerError, match="save the network again"):
            pf.load(forge(tmp_path / "net", manifest={"target": target | change}))
    silent = {k: v for k, v in target.items() if k not in ("vocab", "padded", "output")}
    again = loaded(forge(tmp_path / "net", manifest={"target": silent}))  # as folders were before they said so
    assert (again.numeric, again("abc")) == (True, [2, 1, 0])
    with pytest.raises(pf.ProvenformerError, match="does not know what its token ids stand for"):
        again._circuit_network.to_transformer_lens()
    pf.compile(pf.targets.get("reverse", 1, 3), tolerance=0.1, construction="circuit").save(tmp_path / "circuit")
    with pytest.raises(pf.ProvenformerError, match="not made from a program on tokens"):
        pf.load(tmp_path / "circuit", target=pf.TokenProgram(doubled, 3, 3))


def test_decode_gives_the_channels_that_it_says_and_no_others() -> None:
    c = pf.compile_tokens(pf.programs.get("induction", 4, 6))
    tokens = [1, 2, 3, 1, 2, 1]
    missing = {}
    for compress in (False, True):
        d = c.disguised(seed=1, compress=compress)
        assert d.channel_names == tuple(c.states(tokens)[0])
        missing[compress] = set(d.channel_names) - set(d.recovered)
        worst = dict.fromkeys(d.channel_names, 0.0)
        for held in c.states(tokens):
            state = d.encode @ np.stack(list(held.values()))
            for name, values, plain in zip(d.channel_names, d.decode @ state, d.encode.T @ state, strict=True):
                assert np.isnan(values).all() if name in missing[compress] else np.allclose(values, held[name])
                worst[name] = max(worst[name], float(np.abs(plain - held[name]).max()))
        assert all(worst[name] > 0.01 for name in missing[compress])  # what is nan would have been wrong
    assert not missing[False]
    assert "the place of the last token with its x = own x and an earlier place, if any" in missing[True]


def test_a_disguised_program_is_kept_with_all_that_it_takes_to_read_it(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    c = pf.compile_tokens(partial(pf.programs.reverse, pad=3), vocab="abc", seq_len=4, pad=".")
    d = c.disguised(seed=2, within=0.1)
    d.save(tmp_path / "d")
    again = pf.load_disguised(tmp_path / "d")
    assert isinstance(again, DisguisedProgram)
    assert (again.vocab, again.pad, again.numeric) == (c.vocab, ".", False)
    assert (again.channel_names, again.recovered) == (d.channel_names, d.recovered)
    assert (again.noise, again.bounds) == (d.noise, d.bounds)
    assert np.array_equal(again.encode, d.encode)
    assert np.array_equal(again.decode, d.decode)
    x = torch.tensor([[[0.0, 1.0, 2.0, 3.0]]])
    assert torch.equal(again.to_torch()(x), d.to_torch()(x))
    module: Any = d.to_torch()
    module.save_pretrained(tmp_path / "d")  # weights may have been trained: nothing is said of bounds
    bare = pf.load_disguised(tmp_path / "d")
    assert (bare.channel_names, bare.bounds, bare.noise) == (d.channel_names, {}, 0.0)
    config = json.loads((tmp_path / "d/config.json").read_text())
    for change in ({"vocab": ["a", "a"]}, {"output": "words"}, {"recovered": ["nothing"]}, {"channels": ["x"]}):
        (tmp_path / "d/config.json").write_text(json.dumps(config | change))
        with pytest.raises(pf.ProvenformerError, match=r"is not the model of its config\.json"):
            pf.load_disguised(tmp_path / "d")
    c.save_pretrained(tmp_path / "plain")
    with pytest.raises(pf.ProvenformerError, match="not disguised"):
        pf.load_disguised(tmp_path / "plain")
