"""What the explorer's server accepts: from which Host and Origin, how large, how slow, how much at once."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the explorer needs the extra 'explore'")
import uvicorn
from starlette.testclient import TestClient

from provenformer.base.errors import ProvenformerError
from provenformer.explore import building, server
from provenformer.explore.building import Workshop
from provenformer.explore.settings import FieldError, Settings

FORM = {
    "target": "centered", "token_dim": 1, "seq_len": 2, "by": "cells", "cells": 3, "tolerance": "", "construction": "sum",
    "norm_order": 2, "kind": "rigorous",
}  # fmt: skip
PATHS = ("/api/plan", "/api/compile", "/api/look", "/api/theorem-2", "/api/theorem-3", "/api/repeats", "/api/infinite",
         "/api/circuit", "/api/circuit-look")  # fmt: skip
HERE = "127.0.0.1:8000"


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with TestClient(server.application(), base_url=f"http://{HERE}", raise_server_exceptions=False) as client:
        yield client


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "", "127.0.0.1:80:80", "127.0.0.1@evil.example",
     "0.0.0.0", "localhost:999999", "127.0.0.1\x00", "[::1].evil.example", " 127.0.0.1"],
)  # fmt: skip
def test_other_hosts_are_refused(client: TestClient, host: str) -> None:
    assert client.get("/", headers={"host": host}).status_code in (400, 403)
    assert client.post("/api/plan", json=FORM, headers={"host": host}).status_code in (400, 403)


def test_two_hosts_are_refused(client: TestClient) -> None:
    assert client.get("/", headers=[("host", "evil.example"), ("host", HERE)]).status_code == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"}, {"origin": "null"}, {"origin": "http://127.0.0.1:9999"}, {"origin": f"https://{HERE}"},
        {"origin": "http://localhost:8000"}, {"origin": ""}, {"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "none"},
    ],
)  # fmt: skip
def test_requests_of_other_pages_are_refused(client: TestClient, headers: dict[str, str]) -> None:
    for path in PATHS:
        assert client.post(path, json=FORM, headers=headers).status_code == 403


def test_our_own_page_may_ask_and_a_link_may_open_it(client: TestClient) -> None:
    own = {"origin": f"http://{HERE}", "sec-fetch-site": "same-origin"}
    assert client.post("/api/plan", json=FORM, headers=own).status_code == 200
    assert client.get("/", headers={"sec-fetch-site": "cross-site"}).status_code == 200


@pytest.mark.parametrize(
    "kind", ["text/plain", "text/plain; application/json", "application/json, text/plain", "", "a/b"]
)
def test_only_json_is_read(client: TestClient, kind: str) -> None:
    response = client.post("/api/plan", content=json.dumps(FORM), headers={"content-type": kind})
    assert response.status_code == 400


def test_no_permission_is_given_to_other_pages(client: TestClient) -> None:
    asked = {"origin": "http://evil.example", "access-control-request-method": "POST"}
    response = client.options("/api/compile", headers=asked)
    assert response.status_code == 403
    assert not any(name.startswith("access-control") for name in response.headers)


BODIES = [
    b"", b"{", b"[]", b"null", b"1e999", b"[" * 16_000, b'{"a":' * 3_000, b"\xff\xfe", b'{"target": NaN}', b"x" * 20_000,
    b'{"' + b"a" * 16_000 + b'":1}', b'{"cells":' + b"9" * 5_000 + b"}", json.dumps({**FORM, "__proto__": 1}).encode(),
    json.dumps({**FORM, "target": "\ud800"}).encode(), json.dumps({**FORM, "cells": "9" * 5_000}).encode(),
]  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_malformed_and_huge_bodies(client: TestClient, path: str) -> None:
    for body in BODIES:
        response = client.post(path, content=body, headers={"content-type": "application/json"})
        assert response.status_code == 400, (body[:30], response.text)
        assert "\n" not in response.json()["error"]


WEIRD: list[Any] = [
    None,
    True,
    -1,
    1.5,
    1e308,
    10**30,
    "",
    "x",
    "\u0663",
    [],
    {},
    [[0.5]],
    [["a"]],
    "nan",
    "-0",
    2**53 + 1,
]


LOOK = {**FORM, "tokens": [[0.1], [0.2]], "mode": "softmax", "token": 0, "temperature": 3, "ramp": -4}
CIRCUIT = {"target": "centered", "token_dim": 1, "seq_len": 2, "tolerance": 0.1}
THREE = [[0.1], [0.2], [0.3]]
ASKED: dict[str, dict[str, Any]] = {
    "/api/plan": FORM, "/api/compile": FORM, "/api/look": LOOK, "/api/theorem-2": {"cells": 3, "tokens": THREE},
    "/api/theorem-3": {"target": "sort", "tokens": THREE}, "/api/repeats": {"cells": 3, "tokens": THREE},
    "/api/infinite": {"far": 1, "temperature": 8}, "/api/circuit": CIRCUIT, "/api/circuit-look": {**CIRCUIT, "tokens": THREE[:2]},
}  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_weird_fields_are_answered(client: TestClient, path: str) -> None:
    assert client.post(path, json=ASKED[path]).status_code == 200
    for name in ASKED[path]:
        for value in WEIRD:
            response = client.post(path, json={**ASKED[path], name: value})
            assert response.status_code in (200, 400), (name, value, response.text)


@pytest.mark.parametrize(
    "path", ["/static/../server.py", "/static/..%2fserver.py", "/static/%2e%2e/server.py", "/static//etc/passwd", "/static/%00",
             "/static/..\\server.py", "/static/", "/static/" + "a" * 5_000, "/static/%252e%252e/server.py", "//etc/passwd"],
)  # fmt: skip
def test_only_the_pages_own_files(client: TestClient, path: str) -> None:
    assert client.get(path).status_code in (400, 404, 405)


# A server on a socket: slow and many connections.


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, int]]:
    monkeypatch.setattr(server, "BODY_SECONDS", 0.5)
    sock = server.listen(0)
    running = uvicorn.Server(uvicorn.Config(server.application(), log_level="critical"))
    thread = threading.Thread(target=running.run, kwargs={"sockets": [sock]})
    thread.start()
    while not running.started:
        time.sleep(0.01)
    yield "127.0.0.1", sock.getsockname()[1]
    running.should_exit = True
    thread.join()


def answer(connection: socket.socket) -> bytes:
    connection.settimeout(10)
    received = b""
    while chunk := connection.recv(65_536):
        received += chunk
    return received


def test_slow_bodies_are_not_waited_for(address: tuple[str, int]) -> None:
    head = (
        f"POST /api/plan HTTP/1.1\r\nHost: 127.0.0.1:{address[1]}\r\nConnection: close\r\n"
        "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
    )
    slow = [socket.create_connection(address) for _ in range(30)]
    for connection in slow:
        connection.sendall(head.encode())
    with socket.create_connection(address) as quick:
        quick.sendall(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{address[1]}\r\nConnection: close\r\n\r\n".encode())
        assert answer(quick).startswith(b"HTTP/1.1 200")
    for connection in slow:
        assert b"to arrive" in answer(connection)
        connection.close()


def test_waiting_for_networks_keeps_nothing_else_waiting(
    address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sixty requests for a network that takes long: plans and pages are answered at once."""
    release = threading.Event()
    monkeypatch.setattr(Workshop, "get", lambda *_: release.wait(20) and pytest.fail("released"))
    url = f"127.0.0.1:{address[1]}"

    def ask(path: str) -> socket.socket:
        body = json.dumps(FORM)
        connection = socket.create_connection(address)
        connection.sendall(
            f"POST {path} HTTP/1.1\r\nHost: {url}\r\nConnection: close\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
        )
        return connection

    waiting = [ask("/api/compile") for _ in range(60)]
    start = time.monotonic()
    with ask("/api/plan") as plan, socket.create_connection(address) as file:
        file.sendall(f"GET /static/app.js HTTP/1.1\r\nHost: {url}\r\nConnection: close\r\n\r\n".encode())
        assert answer(plan).startswith(b"HTTP/1.1 200")
        assert answer(file).startswith(b"HTTP/1.1 200")
    assert time.monotonic() - start < 10
    release.set()
    for connection in waiting:
        connection.close()


def test_one_network_is_built_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Workshop()
    working, most = 0, 0
    lock = threading.Lock()

    def build(settings: Settings) -> Any:
        nonlocal working, most
        with lock:
            working += 1
            most = max(most, working)
        made = building.build(settings)
        with lock:
            working -= 1
        return made

    monkeypatch.setattr(shop, "_build", build)
    sizes = [Settings(target="centered", seq_len=2, cells_per_axis=n, construction="sum") for n in range(2, 8)]
    threads = [threading.Thread(target=shop.get, args=(settings,)) for settings in sizes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1


def test_closing_ends_what_is_being_built_and_tells_who_waits() -> None:
    """Ten requests for networks that take long, each in its turn; the server is closed meanwhile."""
    shop = Workshop()
    told: list[str] = []

    def ask(seconds: int) -> None:
        slow = FieldError("cells", "too slow")
        try:
            shop._made(Settings(cells_per_axis=seconds), lambda: shop._in_a_process(time.sleep, seconds, slow))
        except ProvenformerError as error:
            told.append(str(error))

    threads = [threading.Thread(target=ask, args=(seconds,)) for seconds in range(15, 25)]
    for thread in threads:
        thread.start()
    while shop._process is None:
        time.sleep(0.01)
    config = uvicorn.Config(server.application(), log_level="critical")
    running = server.Server(config, shop)
    sock = server.listen(0)
    serving = threading.Thread(target=running.run, kwargs={"sockets": [sock]})
    serving.start()
    while not running.started:
        time.sleep(0.01)
    running.should_exit = True
    start = time.monotonic()
    for thread in [*threads, serving]:
        thread.join()
    assert told == [building.CLOSING] * 10
    assert time.monotonic() - start < 10
