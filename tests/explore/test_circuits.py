"""The explorer's answers about circuits: numbers of the library, limits, sentences; and the command with a folder."""

from __future__ import annotations

import base64
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from circuit_cases import layer_norm, target

pytest.importorskip("starlette", reason="the explorer needs the extra 'explore'")
from starlette.testclient import TestClient

import provenformer as pf
from provenformer.cli import main
from provenformer.explore import server
from provenformer.explore.building import Workshop
from provenformer.explore.circuits import (
    CIRCUIT_LIMITS,
    CIRCUIT_TOLERANCES,
    MOST_NUMBERS,
    CircuitSettings,
    build_circuit,
    open_circuit,
)  # fmt: skip
from provenformer.look.circuit import CircuitSubject, node_values

FORM = {"target": "scaled-mean", "token_dim": "1", "seq_len": "8", "tolerance": "0.001"}
EVIL = '"><script>alert(1)</script>'


def opened() -> CircuitSubject:
    f = pf.Target(layer_norm, 1, 6, equivariant=False, support=(-1.0, 2.0), name=EVIL)
    c = pf.compile(f, tolerance=1e-2, norm_order=np.inf, construction="circuit")
    return CircuitSubject.of(c)


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    app = server.application(Workshop(seconds=120), opened())
    with TestClient(app, base_url="http://127.0.0.1:8000", raise_server_exceptions=False) as client:
        yield client


def post(client: TestClient, path: str, fields: Any) -> Any:
    response = client.post(path, json=fields)
    assert response.status_code == 200, response.text
    return response.json()


@pytest.mark.parametrize(
    "change",
    [{}, {"target": "softmax-mean", "token_dim": "2"}, {"target": "sort", "seq_len": "16"}, {"target": "reverse"}],
)
def test_numbers_are_the_librarys(client: TestClient, change: dict[str, str]) -> None:
    form = FORM | change
    answer = post(client, "/api/circuit", form)
    settings = CircuitSettings(form["target"], int(form["token_dim"]), int(form["seq_len"]), 1e-3)
    s = build_circuit(settings)
    assert s.circuit is not None
    assert s.target is not None
    assert answer["circuit"]["bound"]["value"] == s.certificate.bound
    assert [node["words"] for node in answer["circuit"]["nodes"]] == [node.words for node in s.circuit.nodes]
    x = s.target.sample(1, seed=4)[0]
    look = post(client, "/api/circuit-look", form | {"tokens": x.T.tolist()})
    assert np.array_equal(look["output"], s.network(x))
    assert np.array_equal(look["target"], s.target(x))
    values = node_values(s, x[None])
    assert look["errors"][: len(s.nodes)] == values.errors.tolist()
    assert np.allclose(look["values"][: len(s.nodes)], values.held[:, 0], rtol=1e-5, atol=0)
    for node, error in zip(answer["circuit"]["nodes"], look["errors"], strict=True):
        assert error <= node["bound"] + 1e-13
    for pattern in look["patterns"]:
        shades = np.frombuffer(base64.b64decode(pattern["shades"]), dtype=np.uint8)
        assert shades.shape == (pattern["size"] ** 2,)
        assert shades.max() == 255


def test_a_program_on_tokens(client: TestClient) -> None:
    form = {"target": "tokens:induction", "vocab_size": "4", "seq_len": "6"}
    answer = post(client, "/api/circuit", form)
    c = pf.compile_tokens(pf.programs.get("induction", 4, 6))
    assert answer["circuit"]["bound"]["value"] == c.certificate.bound
    assert answer["circuit"]["names"] == list("0123")
    assert [node["words"] for node in answer["circuit"]["nodes"]] == [node.words for node in c.circuit.nodes]
    tokens = [1, 2, 3, 1, 2, 0]
    look = post(client, "/api/circuit-look", form | {"tokens": [[v] for v in tokens]})
    assert np.rint(look["output"])[0].tolist() == c(tokens) == look["target"][0]
    assert look["patterns"][0]["looks"] == "looks 1 token ahead, around the end"
    assert look["patterns"][0]["tokens"] == list("123120")
    for node, error in zip(answer["circuit"]["nodes"], look["errors"], strict=True):
        assert error <= node["bound"]
    for wrong in ([0.5], [4]):
        response = client.post("/api/circuit-look", json=form | {"tokens": [wrong] * 6})
        assert response.json()["field"] == "tokens"
    response = client.post("/api/circuit", json=form | {"vocab_size": "17"})
    assert "from 2 to 16" in response.json()["error"]


def test_the_network_that_was_given(client: TestClient) -> None:
    answer = post(client, "/api/circuit", {"target": "network"})
    s = opened()
    assert answer["circuit"]["low"] == [-1.0]
    assert answer["circuit"]["bound"]["value"] == s.certificate.bound
    look = post(client, "/api/circuit-look", {"target": "network", "tokens": [[v] for v in np.linspace(-1, 2, 6)]})
    assert look["off"] <= s.certificate.bound
    page = client.get("/").text
    assert EVIL not in page
    assert "alert(1)" in page  # as a name, in JSON


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        (FORM | {"target": "network<"}, "target", "is one of"),
        (FORM | {"seq_len": "65"}, "seq_len", "from 2 to 64"),
        (FORM | {"token_dim": "5"}, "token_dim", "from 1 to 4"),
        (FORM | {"tolerance": "0"}, "tolerance", "give a number from"),
        (FORM | {"tolerance": "nan"}, "tolerance", "is a number"),
        (FORM | {"tolerance": "1e-9"}, "tolerance", "units"),
        (FORM | {"more": 1}, "more", "There is no field"),
        (FORM | {"tokens": []}, "tokens", "There is no field"),
    ],
)
def test_bad_settings_are_named(client: TestClient, fields: dict[str, Any], field: str, words: str) -> None:
    response = client.post("/api/circuit", json=fields)
    assert response.status_code == 400
    assert response.json()["field"] == field
    assert words in response.json()["error"]


@pytest.mark.parametrize(
    "tokens", [None, [], [[0.5]] * 7, [[0.5, 0.5]] * 8, [["x"]] * 8, [[None]] * 8, [[1.01]] * 8, [[1e999]] * 8]
)
def test_bad_tokens_are_refused(client: TestClient, tokens: Any) -> None:
    body = json.dumps(FORM | {"tokens": tokens})
    response = client.post("/api/circuit-look", content=body, headers={"content-type": "application/json"})
    assert response.status_code == 400
    assert response.json()["field"] == "tokens"


def test_the_rules_of_the_server_hold_for_circuits(client: TestClient) -> None:
    assert client.post("/api/circuit", json=FORM, headers={"host": "evil.example"}).status_code == 403
    assert client.post("/api/circuit", json=FORM, headers={"origin": "http://evil.example"}).status_code == 403
    assert client.post("/api/circuit", content="{}", headers={"content-type": "text/plain"}).status_code == 400
    assert client.get("/api/circuit").status_code == 405
    big = FORM | {"tokens": [[0.123456789] * 1] * 4000}
    assert "larger than" in client.post("/api/circuit-look", json=big).json()["error"]


def test_without_a_network_there_is_none_to_choose() -> None:
    client = TestClient(server.application(), base_url="http://localhost:1")
    assert client.post("/api/circuit", json={"target": "network"}).status_code == 400


def test_a_circuit_that_takes_too_long_is_ended() -> None:
    shop = Workshop(seconds=0.05)
    with pytest.raises(pf.ProvenformerError, match=r"takes more than 0\.05 s"):
        shop.circuit(CircuitSettings("sort", 1, 64))


def test_a_look_is_quick(client: TestClient) -> None:
    form = FORM | {"target": "sort", "seq_len": "64"}
    answer = post(client, "/api/circuit", form)
    look = form | {"tokens": answer["tokens"]}
    post(client, "/api/circuit-look", look)
    start = time.process_time()
    for _ in range(5):
        post(client, "/api/circuit-look", look)
    assert (time.process_time() - start) / 5 < 0.1


def test_folders_that_cannot_be_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    many, deep, data, own, large = (tmp_path / name for name in ("many", "deep", "data", "own", "large"))
    pf.compile(pf.targets.get("centered", 1, 7), cells_per_axis=2, kind="lipschitz").save(many)
    pf.compile(pf.targets.get("centered", 1, 3), cells_per_axis=12, kind="lipschitz").save(deep)
    pf.memorize(np.array([[[0.1, 0.2]]]), np.array([[[0.3, 0.4]]])).save(data)
    pf.compile(target(lambda x: np.tanh(x)), tolerance=1e-2, norm_order=np.inf, construction="circuit").save(own)
    pf.compile(
        pf.targets.get("centered", 3, MOST_NUMBERS // 2), tolerance=1e-2, norm_order=np.inf, construction="circuit"
    ).save(large)

    def said(*words: object) -> str:
        monkeypatch.setattr(sys, "argv", ["provenformer", "explore", *map(str, words), "--no-open", "--port", "0"])
        with pytest.raises(SystemExit) as end:
            main()
        assert end.value.code == 2
        return capsys.readouterr().err

    assert "d <= 2 and n <= 6, and this one has d = 1 and n = 7" in said(many)
    assert "up to 600 layers, and this one has" in said(deep)
    assert "made from data" in said(data)
    assert "name the function with --target" in said(own)
    assert f"up to {MOST_NUMBERS:,} numbers" in said(large)
    assert "give either --tolerance or --cells" in said("--target", "sort")
    assert "are for a function named with --target and no folder" in said("--tolerance", "0.1")
    assert "are for a function named with --target and no folder" in said(own, "--cells", "4")
    assert "is it a saved network" in said(tmp_path / "nothing")
    assert open_circuit(own, target(lambda x: np.tanh(x))).circuit is not None


def test_the_page_of_the_docs_states_the_limits() -> None:
    text = (Path(__file__).parents[2] / "docs" / "explorer.md").read_text()
    (_, d), (_, n) = CIRCUIT_LIMITS["token_dim"], CIRCUIT_LIMITS["seq_len"]
    assert f"d <= {d}, n <= {n}" in text
    assert f"V <= {CIRCUIT_LIMITS['vocab_size'][1]}" in text
    assert f"{MOST_NUMBERS:,} numbers" in text
    assert f"{CIRCUIT_TOLERANCES[0]:g}" in text
