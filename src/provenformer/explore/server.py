"""The web server of the explorer: loopback only, a handful of routes, every answer a page file or JSON.

What the browser sends is data, checked field by field (settings.py); nothing it sends is ever executed. Errors a user can
cause come back as a sentence and the field it belongs to; all others are logged, and the page gets a general sentence.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import mimetypes
import re
import socket
import threading
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from provenformer.base.errors import ProvenformerError
from provenformer.explore import circuits, pages, views
from provenformer.explore.building import Built, Workshop, columns_of
from provenformer.explore.settings import (
    FieldError,
    Fields,
    Settings,
    choice,
    read_knobs,
    read_settings,
    read_tokens,
    whole,
)  # fmt: skip
from provenformer.look.circuit import CircuitSubject

STATIC = Path(__file__).parent / "static"
BODY_LIMIT = 16_384  # bytes of a request; the largest real one has a few hundred
BODY_SECONDS = 5.0  # for its bytes to arrive
THREADS = 4  # per route, so that requests that wait for a network to be built do not keep others waiting
AT_ONCE = 200  # connections; a page needs a handful
GRACE = 3  # seconds for answers that are being written when it is closed
WARM_AFTER = 2.0  # seconds: the first page comes first
GENERAL = "Something went wrong on the server; the reason is in its log."
HEADERS = {
    "content-security-policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}
SETTING_FIELDS = {"target", "token_dim", "seq_len", "by", "cells", "tolerance", "construction", "norm_order", "kind"}
CIRCUIT_FIELDS = {"target", "token_dim", "seq_len", "tolerance", "vocab_size"}
LOOK_FIELDS = {"tokens", "mode", "token", "temperature", "ramp"}

log = logging.getLogger("provenformer.explore")
Answer = Callable[[Workshop, Fields], dict[str, Any]]


def application(
    workshop: Workshop | None = None, given: CircuitSubject | None = None, table: Built | None = None
) -> Starlette:
    """The app. Its default circuit is built at once, so that the first page already shows it; `given` and `table` are a
    circuit and a table to open."""
    shop = workshop or Workshop()
    default_circuit = circuits.CircuitSettings()
    shop.keep(default_circuit, circuits.build_circuit(default_circuit))
    first = {
        "targets": views.targets_view(),
        "programs": circuits.programs_view(),
        "given": given and given.target_name,
        "opened": table and table.compiled.target.name,
        "circuit": _circuit_with_a_look(given or shop.circuit(default_circuit)),
    }
    start = json.dumps(first, allow_nan=False).replace("<", "\\u003c")
    page = (STATIC / "index.html").read_text(encoding="utf-8").replace("{{start}}", start)

    async def index(_: Request) -> Response:
        return HTMLResponse(page)

    async def icon(_: Request) -> Response:
        return Response(status_code=204)

    answers: dict[str, Answer] = {
        "/api/first-table": _page(_first_table(table), set()),
        "/api/plan": _page(_plan(table), SETTING_FIELDS),
        "/api/compile": _page(_compile(table), SETTING_FIELDS),
        "/api/look": _page(_look(table), SETTING_FIELDS | LOOK_FIELDS),
        "/api/theorem-2": _page(pages.theorem_2, {"cells", "tokens"}),
        "/api/theorem-3": _page(pages.theorem_3, {"target", "tokens"}),
        "/api/repeats": _page(pages.repeats, {"cells", "tokens"}),
        "/api/infinite": _page(pages.infinite, {"far", "temperature"}),
        "/api/circuit": _page(_circuit(given), CIRCUIT_FIELDS),
        "/api/circuit-look": _page(_circuit_look(given), CIRCUIT_FIELDS | {"tokens"}),
    }
    return Starlette(
        routes=[
            Route("/", index),
            Route("/favicon.ico", icon),
            *(Route(path, _endpoint(shop, answer), methods=["POST"]) for path, answer in answers.items()),
            Route("/static/{name:path}", _static_files()),
        ],
        middleware=[Middleware(Guard)],
        exception_handlers={Exception: _unexpected},
    )


def _static_files() -> Callable[[Request], Any]:
    """The files of the page, from memory: it asks for a dozen at once, and a thread for each takes longer than to send it."""
    files = {path.relative_to(STATIC).as_posix(): path.read_bytes() for path in STATIC.rglob("*") if path.is_file()}
    tags = {name: f'"{hashlib.sha256(content).hexdigest()[:16]}"' for name, content in files.items()}

    async def file(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in files:
            return PlainTextResponse("Not Found", 404)
        headers = {"etag": tags[name]}
        if request.headers.get("if-none-match") == tags[name]:
            return Response(status_code=304, headers=headers)
        return Response(files[name], headers=headers, media_type=mimetypes.guess_type(name)[0])

    return file


class Guard:
    """Only requests to this machine by name, and none that another web page makes, under whatever name."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if not _from_here(scope):
            await PlainTextResponse("Open the explorer as http://127.0.0.1:PORT.", 403)(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                extra = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message = {**message, "headers": [*message["headers"], *extra]}
            await send(message)

        await self.app(scope, receive, with_headers)


def _from_here(scope: Scope) -> bool:
    """Whether it is addressed to this machine and, where the browser says who asks, comes from our own page."""
    named: dict[bytes, list[str]] = {}
    for name, value in scope["headers"]:
        named.setdefault(name.lower(), []).append(value.decode("latin-1"))
    hosts, origins = named.get(b"host", []), named.get(b"origin", [])
    if len(hosts) != 1 or not re.fullmatch(r"(localhost|127\.0\.0\.1|\[::1\])(:\d{1,5})?", hosts[0]):
        return False
    if any(origin != f"http://{hosts[0]}" for origin in origins):
        return False
    asks = scope["method"] not in ("GET", "HEAD")  # a link from elsewhere may open the page, but nothing more
    return not (asks and named.get(b"sec-fetch-site", ["same-origin"]) != ["same-origin"])


def _endpoint(shop: Workshop, answer: Answer) -> Callable[[Request], Any]:
    threads = anyio.CapacityLimiter(THREADS)

    async def endpoint(request: Request) -> Response:
        try:
            fields = await _fields(request)
            return JSONResponse(await anyio.to_thread.run_sync(answer, shop, fields, limiter=threads))
        except ProvenformerError as error:
            return JSONResponse({"error": str(error), "field": getattr(error, "field", None)}, 400)

    return endpoint


async def _fields(request: Request) -> Fields:
    """The body: a small JSON object."""
    if request.headers.get("content-type", "").split(";")[0].strip() != "application/json":
        raise ProvenformerError("Requests carry JSON (content-type application/json).")
    body = b""
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > BODY_LIMIT:
                    raise ProvenformerError(f"The request is larger than {BODY_LIMIT:,} bytes.")
    except TimeoutError:
        raise ProvenformerError(f"The request took more than {BODY_SECONDS:g} s to arrive.") from None
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ProvenformerError("The request is not JSON.") from error
    if not isinstance(fields, dict):
        raise ProvenformerError("The request is not a JSON object.")
    return fields


def _only(fields: Fields, known: set[str]) -> None:
    for name in fields:
        if name not in known:
            raise FieldError(name[:40], f"There is no field '{name[:40]}'.")


def _plan(table: Built | None) -> Answer:
    def answer(_: Workshop, fields: Fields) -> dict[str, Any]:
        settings = read_settings(fields, None if table is None else table.settings)
        if table is not None and settings is table.settings:
            return views.opened_plan(table)
        return views.plan_view(settings)

    return answer


def _built(shop: Workshop, fields: Fields, table: Built | None) -> Built:
    settings = read_settings(fields, None if table is None else table.settings)
    return table if table is not None and settings is table.settings else shop.get(settings)


def _compile(table: Built | None) -> Answer:
    def answer(shop: Workshop, fields: Fields) -> dict[str, Any]:
        return _network(_built(shop, fields, table))

    return answer


def _first_table(table: Built | None) -> Answer:
    opened = None if table is None else _network(table)  # at once: it is what the page begins with

    def answer(shop: Workshop, _: Fields) -> dict[str, Any]:
        return opened or _network(shop.here(Settings()))

    return answer


def _network(built: Built) -> dict[str, Any]:
    """A network with a first look at it."""
    x = views.start_tokens(built)
    look = views.look_view(built, x, False, read_knobs({}), 0)
    return {"network": views.network_view(built), "tokens": columns_of(x), "look": look}


def _look(table: Built | None) -> Answer:
    def answer(shop: Workshop, fields: Fields) -> dict[str, Any]:
        built = _built(shop, fields, table)
        f = built.compiled.target
        x = read_tokens(fields, f.support, f.seq_len, built.positional)
        soft = choice(fields, "mode", ("hardmax", "softmax")) == "softmax"
        token = whole(fields, "token", 0, f.seq_len - 1)
        return views.look_view(built, x, soft, read_knobs(fields), token)

    return answer


def _subject(shop: Workshop, fields: Fields, given: CircuitSubject | None) -> CircuitSubject:
    settings = circuits.read_circuit_settings(fields, given)
    return given if given is not None and settings.target == circuits.GIVEN else shop.circuit(settings)


def _circuit(given: CircuitSubject | None) -> Answer:
    def answer(shop: Workshop, fields: Fields) -> dict[str, Any]:
        return _circuit_with_a_look(_subject(shop, fields, given))

    return answer


def _circuit_with_a_look(subject: CircuitSubject) -> dict[str, Any]:
    x = subject.example()
    look = circuits.circuit_look(subject, x)
    return {"circuit": circuits.circuit_view(subject), "tokens": columns_of(x), "look": look}


def _circuit_look(given: CircuitSubject | None) -> Answer:
    def answer(shop: Workshop, fields: Fields) -> dict[str, Any]:
        subject = _subject(shop, fields, given)
        return circuits.circuit_look(subject, circuits.read_circuit_tokens(fields, subject))

    return answer


def _page(answer: Answer, known: set[str]) -> Answer:
    def checked(shop: Workshop, fields: Fields) -> dict[str, Any]:
        _only(fields, known)
        return answer(shop, fields)

    return checked


async def _unexpected(_: Request, error: Exception) -> Response:
    log.error("unexpected error", exc_info=error)
    return JSONResponse({"error": GENERAL, "field": None}, 500)


def listen(port: int) -> socket.socket:
    """A socket on the loopback interface, or one line that says why not."""
    if not 0 <= port < 65536:
        raise ProvenformerError(f"port={port} is outside 0..65535; give another with --port.")
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind(("127.0.0.1", port))
        sock.listen()  # from here on a browser waits for its answer instead of being refused
    except OSError as error:
        sock.close()
        raise ProvenformerError(f"cannot use port {port} ({error.strerror}); give another with --port.") from error
    return sock


def _warm(shop: Workshop) -> None:
    """Make what is likely to be asked for next, while the first page is read."""
    _network(shop.here(Settings()))
    shop.warm()


class Server(uvicorn.Server):
    """Ends at once: requests that wait for a network do not keep it."""

    def __init__(self, config: uvicorn.Config, shop: Workshop) -> None:
        super().__init__(config)
        self.shop = shop

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.shop.close()
        await super().shutdown(sockets)


def serve(
    port: int,
    open_browser: bool,
    say: Callable[[str], object],
    given: CircuitSubject | None = None,
    table: Built | None = None,
) -> None:
    """Run until interrupted; `given` and `table` are a circuit and a table to open."""
    sock = listen(port)
    address = f"http://127.0.0.1:{sock.getsockname()[1]}/" + ("#/tables" if table is not None else "")
    shop = Workshop()
    config = uvicorn.Config(
        application(shop, given, table), log_level="warning", server_header=False, limit_concurrency=AT_ONCE,
        timeout_keep_alive=int(BODY_SECONDS), timeout_graceful_shutdown=GRACE,
    )  # fmt: skip
    server = Server(config, shop)
    warm = threading.Timer(WARM_AFTER, _warm, [shop])
    warm.daemon = True
    warm.start()
    say(f"explorer at {address} (stop with Ctrl-C)")
    if open_browser:
        threading.Timer(0.5, webbrowser.open, [address]).start()
    server.run(sockets=[sock])
