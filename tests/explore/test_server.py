"""The explorer's server: numbers equal to the library's, limits before building, a sentence for every bad input."""

import inspect
import json
import pickle
import socket
import subprocess
import sys
import xml.etree.ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from cases import thin

pytest.importorskip("starlette", reason="the explorer needs the extra 'explore'")
from starlette.testclient import TestClient

import provenformer as pf
from provenformer.base import errors
from provenformer.bounds.integrals import Kind
from provenformer.certificates.certify import ID_BITS_LIMIT
from provenformer.cli import main
from provenformer.constructions import registry
from provenformer.constructions.relax import inverse_temperature
from provenformer.explore import building, server, views
from provenformer.explore.building import Workshop, with_temperature
from provenformer.explore.pages import best_without_positions
from provenformer.explore.settings import DRAWN_DIM, DRAWN_LEN, LAYER_LIMIT, LIMITS, UNIT_LIMIT, FieldError, Settings
from provenformer.explore.views import SLICE_POINTS
from provenformer.networks.thin import SMALL_JOB

FORM = {
    "target": "softmax-mean", "token_dim": "1", "seq_len": "3", "by": "cells", "cells": "5", "tolerance": "0.1",
    "construction": "paper", "norm_order": "2", "kind": "rigorous",
}  # fmt: skip
TOKENS = [[0.13], [0.87], [0.47]]
SIZES = [
    {},
    {"construction": "sum"},
    {"construction": "wide"},
    {"target": "sort", "cells": "4"},
    {"target": "reverse", "cells": "3", "construction": "sum"},
    {"token_dim": "2", "seq_len": "2", "cells": "3", "kind": "lipschitz"},
    {"token_dim": "2", "seq_len": "2", "cells": "3", "kind": "lipschitz", "construction": "sum", "norm_order": "1"},
]


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with TestClient(server.application(), base_url="http://127.0.0.1:8000", raise_server_exceptions=False) as client:
        yield client


def post(client: TestClient, path: str, fields: Any) -> dict[str, Any]:
    response = client.post(path, json=fields)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def refusal(client: TestClient, path: str, fields: Any) -> tuple[str, str | None]:
    """The sentence and the field of a refused request: never a trace of the program."""
    response = client.post(path, json=fields)
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert "\n" not in error
    assert "Traceback" not in error
    assert error.endswith(".")
    return error, response.json()["field"]


def compiled(change: dict[str, str]) -> pf.Compiled:
    """What the library makes of the same settings."""
    f = FORM | change
    target = pf.targets.get(f["target"], int(f["token_dim"]), int(f["seq_len"]))
    kind, norm_order = cast(Kind, f["kind"]), float(f["norm_order"])
    return pf.compile(
        target, cells_per_axis=int(f["cells"]), construction=f["construction"], kind=kind, norm_order=norm_order
    )


def test_the_first_page_carries_the_default_circuit(client: TestClient) -> None:
    page = client.get("/")
    assert page.status_code == 200
    start = json.loads(page.text.split('id="start">')[1].split("</script>")[0])
    assert [t["name"] for t in start["targets"]] == list(pf.targets.names())
    for target in start["targets"]:
        assert xml.etree.ElementTree.fromstring(target["math"]).tag == "math"
    circuit = pf.compile(pf.targets.get("softmax-mean", 1, 8), tolerance=1e-3, norm_order=np.inf)
    assert start["circuit"]["circuit"]["bound"]["value"] == circuit.certificate.bound


def test_the_first_table_is_the_default_one(client: TestClient) -> None:
    first = client.post("/api/first-table", json={}).json()
    c = pf.compile(Settings().function(), cells_per_axis=6, construction="sum")
    assert first["network"]["certificate"]["bound"] == c.certificate.bound
    x = np.array(first["tokens"]).T
    np.testing.assert_array_equal(np.array(first["look"]["output"]).T, c.modified(x))


def test_static_files_come_once(client: TestClient) -> None:
    page = client.get("/static/app.js")
    assert page.text == (server.STATIC / "app.js").read_text()
    assert "javascript" in page.headers["content-type"]
    again = client.get("/static/app.js", headers={"if-none-match": page.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert client.get("/static/../server.py").status_code == client.get("/static/none.js").status_code == 404


@pytest.mark.parametrize("change", SIZES)
def test_numbers_are_the_librarys(client: TestClient, change: dict[str, str]) -> None:
    """Plan, certificate, every layer's last state, target, hardmax and softmax outputs."""
    c = compiled(change)
    fields = FORM | change
    plan = post(client, "/api/plan", fields)
    assert plan["layers"] == f"{c.plan.layers:,}"
    assert plan["parameters"] == f"{c.plan.parameters:,}"
    answer = post(client, "/api/compile", fields)
    network = answer["network"]
    assert network["certificate"]["bound"] == c.certificate.bound
    assert {t["name"]: t["value"] for t in network["certificate"]["terms"]} == c.certificate.terms
    assert network["built"]["blocks"] == f"{c.network.blocks:,}"
    x = np.array(answer["tokens"]).T
    for mode in ("hardmax", "softmax"):
        look = post(client, "/api/look", fields | {"tokens": answer["tokens"], "mode": mode, "token": 0})
        expected = c.modified(x) if mode == "hardmax" else c.network(x)
        np.testing.assert_array_equal(np.array(look["output"]).T, expected)
        np.testing.assert_array_equal(np.array(look["target"]).T, c.target(x))
        if network["construction"] != "wide":
            np.testing.assert_array_equal(np.array(look["moments"][-1]["state"]).T, expected)
        assert all(bump["hit"] for bump in look["bumps"])
        assert look["collisions"] == []


def test_ids_are_those_of_the_sweep(client: TestClient) -> None:
    """After quantising, the grid ids; after the contextual map, q of Lemma 6; every selective shift is a moment."""
    from provenformer.constructions.paper.context import Sweep

    c = compiled({})
    look = post(client, "/api/look", FORM | {"tokens": TOKENS, "mode": "hardmax", "token": 0})
    stages = {m["stage"]: m["ids"] for m in look["moments"]}
    ids = [name["id"] for name in look["names"]]
    assert stages["quantise"] == ids == [0, 4, 2]
    sweep = Sweep(c.grid)
    q = dict(zip(sorted(ids), sweep.context_ids(sweep.ids(np.array([sorted(ids)])))[0].tolist(), strict=True))
    assert stages["contextual map"] == [q[i] for i in ids]
    windows = [m["window"] for m in look["moments"] if m["stage"] == "contextual map"]
    assert windows == [*([k - 0.5, k + 0.5] for k in range(5)), None]
    assert [b["at"] for b in look["bumps"]] == stages["contextual map"]


def test_knobs_build_the_network_with_the_librarys_functions(client: TestClient) -> None:
    """At the certified temperature nothing changes; a warm softmax misses bumps; a wide ramp is wrong on its share."""
    c = compiled({})
    x = np.array(TOKENS).T
    look = FORM | {"tokens": TOKENS, "mode": "softmax", "token": 0}
    certified = post(client, "/api/look", look | {"temperature": float(np.log2(inverse_temperature()))})
    np.testing.assert_array_equal(np.array(certified["output"]).T, c.network(x))
    assert certified["against_modified"] < 1e-8
    assert certified["knobs"]["wrong_share"] == 0
    warm = post(client, "/api/look", look | {"temperature": 0})
    np.testing.assert_array_equal(np.array(warm["output"]).T, with_temperature(thin(c.network), 1.0)(x))
    assert warm["against_modified"] == np.abs(with_temperature(thin(c.network), 1.0)(x) - c.modified(x)).max() > 0.1
    assert not any(bump["hit"] for bump in warm["bumps"])
    cold = post(client, "/api/look", look | {"temperature": -6})
    assert cold["collisions"] != [] or not any(bump["hit"] for bump in cold["bumps"])
    ramp = post(client, "/api/look", look | {"ramp": -1})
    assert ramp["knobs"]["wrong_share"] > 0.2


def test_a_temperature_multiplies_queries_and_nothing_else() -> None:
    """W_Q and b_Q: scores are products with W_Q x + b_Q, so both carry the inverse temperature."""
    network = compiled({}).network
    before, after = network.tensors(), with_temperature(network, inverse_temperature() / 4).tensors()
    assert before.keys() == after.keys()
    for name, value in before.items():
        factor = 0.25 if name.rpartition(".")[2] in ("W_Q", "b_Q") else 1.0
        np.testing.assert_array_equal(after[name], factor * value)


def test_a_token_outside_and_a_repeated_token_give_zero(client: TestClient) -> None:
    for tokens in ([[-0.1], [0.87], [0.47]], [[0.13], [0.15], [0.47]]):
        look = post(client, "/api/look", FORM | {"tokens": tokens, "mode": "hardmax", "token": 1})
        assert look["output"] == [[0.0]] * 3
        assert not any(bump["expected"] for bump in look["bumps"])


def test_a_tolerance_is_met_and_its_plan_predicted(client: TestClient) -> None:
    fields = FORM | {"by": "tolerance", "construction": "sum"}
    plan = post(client, "/api/plan", fields)
    answer = post(client, "/api/compile", fields)
    assert plan["predicted"] is True
    assert abs(plan["cells"] - answer["network"]["cells"]) <= 1
    assert answer["network"]["certificate"]["bound"] <= 0.1


@pytest.mark.parametrize(
    ("change", "field", "words"),
    [
        ({"cells": "abc"}, "cells", "whole number"),
        ({"cells": "5.5"}, "cells", "whole number"),
        ({"cells": ""}, "cells", "whole number"),
        ({"cells": "1"}, "cells", "from 2"),
        ({"cells": True}, "cells", "whole number"),
        ({"cells": "9" * 400}, "cells", "whole number"),
        ({"cells": "\u0665"}, "cells", "whole number"),
        ({"by": "tolerance", "tolerance": "1" * 41 + "x"}, "tolerance", "is a number"),
        ({"by": "tolerance", "tolerance": "1e10"}, "tolerance", "is outside"),
        ({"cells": "9999"}, "cells", "from 2 to 11"),  # the limit of what is built, not of what is read
        ({"seq_len": "1"}, "seq_len", "from 2 to 6"),
        ({"seq_len": "9"}, "seq_len", "from 2 to 6"),
        ({"token_dim": "0"}, "token_dim", "from 1 to 2"),
        ({"token_dim": "16"}, "token_dim", "from 1 to 2"),
        ({"token_dim": None}, "token_dim", "whole number"),
        ({"by": "tolerance", "tolerance": "0"}, "tolerance", "not a positive distance"),
        ({"by": "tolerance", "tolerance": "-1"}, "tolerance", "not a positive distance"),
        ({"by": "tolerance", "tolerance": "much"}, "tolerance", "number"),
        ({"by": "tolerance", "tolerance": "1e999"}, "tolerance", "number"),
        ({"by": "tolerance", "tolerance": "nan"}, "tolerance", "number"),
        ({"by": "width"}, "by", "cells, tolerance"),
        ({"norm_order": "0.5"}, "norm_order", "from 1 to 16"),
        ({"norm_order": "inf"}, "norm_order", "number"),
        ({"construction": "tall"}, "construction", "sum, paper, wide"),
        ({"kind": "statistical"}, "kind", "rigorous, lipschitz"),
        ({"target": "os:system"}, "target", "softmax-mean"),
        ({"target": ["sort"]}, "target", "softmax-mean"),
        ({"code": "1"}, "code", "no field"),
    ],
)
def test_bad_fields_are_named(client: TestClient, change: dict[str, Any], field: str, words: str) -> None:
    for path in ("/api/plan", "/api/compile"):
        sentence, where = refusal(client, path, FORM | change)
        assert where == field
        assert words in sentence


@pytest.mark.parametrize(
    ("change", "field"),
    [({"cells": "400"}, "cells"), ({"construction": "wide", "cells": "60"}, "cells"),
     ({"token_dim": "2", "seq_len": "6", "cells": "4096"}, "cells")],
)  # fmt: skip
def test_a_plan_that_is_too_large_is_shown_and_refused_before_building(
    client: TestClient, change: dict[str, Any], field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Workshop, "_build", lambda *_: pytest.fail("it was built"))
    plan = post(client, "/api/plan", FORM | change)
    assert plan["refused"]["field"] == field
    sentence, where = refusal(client, "/api/compile", FORM | change)
    assert (sentence, where) == (plan["refused"]["error"], field)


def test_a_tolerance_that_is_too_small_is_refused(client: TestClient) -> None:
    fields = FORM | {"by": "tolerance", "tolerance": "0.001", "construction": "sum"}
    assert post(client, "/api/plan", fields)["refused"]["field"] == "tolerance"
    sentence, field = refusal(client, "/api/compile", fields)
    assert field == "tolerance"
    assert "about 0.04 can be had, with 10 cells per axis" in sentence


@pytest.mark.parametrize(
    ("construction", "begins", "words"),
    [
        (
            "wide",
            "Tolerance=0.001 is out of reach",
            "about 0.044 can be had, with 9 cells per axis (1,152 hidden units",
        ),
        ("paper", "The tolerance 0.001 needs more than the ", "or the sum construction"),
    ],
)
def test_what_is_too_large_is_said_before_it_is_built(
    client: TestClient, construction: str, begins: str, words: str
) -> None:
    """Whichever limit the library hit, and in whatever words: the class of the error is what counts."""
    fields = FORM | {"by": "tolerance", "tolerance": "0.001", "construction": construction}
    sentence, field = refusal(client, "/api/compile", fields)
    assert field == "tolerance"
    assert sentence.startswith(begins)
    assert words in sentence


def test_an_error_crosses_the_building_process_as_what_it_is() -> None:
    classes = [found for _, found in inspect.getmembers(errors, inspect.isclass) if issubclass(found, Exception)]
    assert errors.TooLarge in classes
    for error in (*(found("one line.") for found in classes), FieldError("cells", "one line.")):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), vars(again)) == (type(error), "one line.", vars(error))


def test_within_the_limits_only_layers_can_be_too_many() -> None:
    """Ids of networks that small fit float64, and what is run on one input never needs the compiled engine."""
    for construction in registry.NAMES:
        for d, n, positional in (
            (d, n, p) for d in (1, DRAWN_DIM) for n in range(2, DRAWN_LEN + 1) for p in (False, True)
        ):
            cells = 2
            while (sizes := pf.plan(d, n, cells, construction, positional)).size[0] <= LIMITS[sizes.size[1]]:
                assert sizes.id_bits <= ID_BITS_LIMIT
                cells += 1
    assert LAYER_LIMIT * DRAWN_DIM * DRAWN_LEN * max(building.SAMPLES, SLICE_POINTS) < SMALL_JOB


@pytest.mark.parametrize(
    "change",
    [{"tokens": [[0.1], [0.2]]}, {"tokens": "x"}, {"tokens": [[0.1], [0.2], ["a"]]}, {"tokens": [[0.1], [0.2], [1e9]]},
     {"tokens": [[0.1], [0.2], [None]]}, {"token": 3}, {"mode": "mean"}, {"temperature": 99}, {"ramp": "wide"}],
)  # fmt: skip
def test_bad_looks_are_refused(client: TestClient, change: dict[str, Any]) -> None:
    _, field = refusal(client, "/api/look", FORM | {"tokens": TOKENS, "mode": "softmax", "token": 0} | change)
    assert field in change


def test_requests_that_are_not_small_json_objects_are_refused(client: TestClient) -> None:
    as_json = {"content-type": "application/json"}
    for body in (b"{", b"[1]", b'"text"', b"[" * 10_000, b"\xff", b" " * 20_000):
        response = client.post("/api/plan", content=body, headers=as_json)
        assert response.status_code == 400
        assert "error" in response.json()
    assert client.post("/api/plan", content=b"{}", headers={"content-type": "text/plain"}).status_code == 400
    assert client.get("/api/plan").status_code == 405


def test_only_this_machine_by_name_and_no_outside_content(client: TestClient) -> None:
    for host in ("evil.example", "127.0.0.1.evil.example:8000", "localhost:8000.evil", ""):
        assert client.get("/", headers={"host": host}).status_code == 403
    for host in ("localhost:8000", "127.0.0.1:8000"):
        response = client.get("/", headers={"host": host})
        assert response.status_code == 200
        assert response.headers["content-security-policy"].startswith("default-src 'self'")
    assert client.get("/static/../server.py").status_code == 404
    assert client.get("/static/%2e%2e/server.py").status_code == 404
    assert "Copyright" in client.get("/static/vendor/d3-LICENSE.txt").text


def test_an_unexpected_error_is_logged_and_gives_a_general_sentence(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(views, "look_view", lambda *_: 1 / 0)
    response = client.post("/api/look", json=FORM | {"tokens": TOKENS, "mode": "hardmax", "token": 0})
    assert response.status_code == 500
    assert response.json() == {"error": server.GENERAL, "field": None}
    assert "ZeroDivisionError" in caplog.text


def test_a_build_that_takes_too_long_is_ended() -> None:
    shop = Workshop(seconds=0.5)
    shop.warm()
    with pytest.raises(pf.ProvenformerError, match=r"takes more than 0\.5 s"):
        shop.get(Settings(token_dim=2, seq_len=3, cells_per_axis=3, construction="sum"))
    shop.seconds = 60.0
    assert shop.get(Settings(target="centered", seq_len=2, cells_per_axis=3)).compiled.certificate.bound > 0


def test_only_the_latest_networks_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[int | None] = []
    shop = Workshop(kept=2)

    def build(settings: Settings) -> pf.Compiled:
        built.append(settings.cells_per_axis)
        return building.build(settings)

    monkeypatch.setattr(shop, "_build", build)
    sizes = [Settings(target="centered", seq_len=2, cells_per_axis=n) for n in (2, 3, 4)]
    for settings in (sizes[0], sizes[1], sizes[0], sizes[2], sizes[0], sizes[1]):
        shop.get(settings)
    assert built == [2, 3, 4, 3]


def test_theorem_2(client: TestClient) -> None:
    c = compiled({"cells": "4", "construction": "sum"})
    answer = post(client, "/api/theorem-2", {"cells": 4, "tokens": TOKENS})
    assert answer["bound"] == c.certificate.bound
    assert answer["equivariant"] is True
    np.testing.assert_array_equal(np.array(answer["output"]).T, c.network(np.array(TOKENS).T))
    swapped = post(client, "/api/theorem-2", {"cells": 4, "tokens": [TOKENS[1], TOKENS[0], TOKENS[2]]})
    assert swapped["output"] == [answer["output"][i] for i in (1, 0, 2)]


def test_theorem_3(client: TestClient) -> None:
    answer = post(client, "/api/theorem-3", {"target": "reverse", "tokens": TOKENS})
    c = compiled({"target": "reverse", "cells": "4", "construction": "sum"})
    np.testing.assert_array_equal(np.array(answer["output"]).T, c.network(np.array(TOKENS).T))
    np.testing.assert_allclose(np.ravel(answer["moved"]), np.ravel(TOKENS) + np.arange(3))
    assert answer["bound"] == c.certificate.bound < answer["without_distance"]
    assert "declared equivariant" in answer["refusal"]


def test_the_best_without_positions_is_equivariant_and_a_projection() -> None:
    """It commutes with swaps, leaves equivariant functions alone, and f minus it is orthogonal to an equivariant function."""
    x = np.random.default_rng(0).random((20_000, 1, 3))
    nearest = best_without_positions("sort", x)
    order = [2, 0, 1]
    np.testing.assert_allclose(best_without_positions("sort", x[..., order]), nearest[..., order], atol=1e-12)
    rest = pf.targets.get("sort", 1, 3)(x) - nearest
    assert abs((rest * pf.targets.get("scaled-mean", 1, 3)(x)).mean()) < 5e-3
    same = pf.targets.get("centered", 1, 3)
    np.testing.assert_allclose(best_without_positions("centered", x[:50]), same(x[:50]), atol=1e-12)


def test_repeats(client: TestClient) -> None:
    together = post(client, "/api/repeats", {"cells": 5, "tokens": [[0.13], [0.15], [0.47]]})
    assert together["repeated"] is True
    paper, ours = together["constructions"]["paper"], together["constructions"]["sum"]
    assert paper["output"] == [[0.0]] * 3
    assert all(v[0] > 0 for v in ours["output"])
    assert paper["lost"] == str(pf.plan(1, 3, 5, "paper").lost_share)
    lost = np.array(paper["heat"]) == 0
    assert lost.diagonal().all()
    assert lost[2].all()  # x_2 in the cell of x_3
    assert (np.array(ours["heat"]) > 0).all()


def test_infinite(client: TestClient) -> None:
    """The strip is there for every x_2 and every temperature, and thinner when sharper; the sum network is exactly 0."""
    widths = []
    for sharpness in (4, 8, 12):
        answers = [post(client, "/api/infinite", {"far": far, "temperature": sharpness}) for far in (0.7, 3, 6)]
        assert all(a["paper"] == answers[0]["paper"] for a in answers)
        assert all(max(a["paper"]) > 0.5 and a["raw"] > 700 and a["sum_largest"] == 0 for a in answers)
        widths.append(answers[0]["strip_width"])
    assert widths[0] > widths[1] > widths[2] > 0


def test_a_port_that_cannot_be_used_is_one_line() -> None:
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = busy.getsockname()[1]
        with pytest.raises(pf.ProvenformerError, match=f"cannot use port {port} .*--port"):
            server.listen(port)
    with pytest.raises(pf.ProvenformerError, match="outside"):
        server.listen(70_000)


def test_without_the_extra_the_command_names_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "provenformer.explore.server")
    monkeypatch.setattr(sys, "argv", ["provenformer", "explore", "--no-open"])
    with pytest.raises(SystemExit):
        main()
    assert "pip install 'provenformer[explore]'" in capsys.readouterr().err


def test_the_page_of_the_docs_states_the_limits() -> None:
    text = (Path(__file__).parents[2] / "docs" / "explorer.md").read_text()
    assert f"| {LAYER_LIMIT:,} (wide: {UNIT_LIMIT:,} hidden units) |" in text
    assert f"d <= {DRAWN_DIM}, n <= {DRAWN_LEN}" in text
    assert f"| {building.SECONDS:g} s, then" in text
    assert f"| {building.KEPT}, the latest used |" in text


def test_the_compiled_engine_is_never_loaded() -> None:
    """Loading numba takes seconds, and a look at an input is small enough without it."""
    look = FORM | {"tokens": TOKENS, "mode": "softmax", "token": 0}
    code = f"""
import sys
from starlette.testclient import TestClient
from provenformer.explore import server
client = TestClient(server.application(), base_url="http://localhost:1")
assert client.post("/api/look", json={look!r}).status_code == 200
assert "numba" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
