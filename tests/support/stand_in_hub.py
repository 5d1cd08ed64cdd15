"""A stand-in for huggingface.co on this machine: the few answers that reading a dataset needs, from a folder."""

import json
import re
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import unquote, urlparse

COMMIT = "da70db2af9d09693783c3320c4249840212ee221"


def start(root: Path) -> ThreadingHTTPServer:
    """Serve the datasets root/OWNER/NAME; HF_ENDPOINT=http://localhost:PORT leads there."""

    class Hub(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            path = unquote(urlparse(self.path).path)
            if match := re.fullmatch(r"/datasets/([^/]+/[^/]+)/resolve/[^/]+/(.*)", path):
                self._file(root / match[1] / match[2])
            elif match := re.fullmatch(r"/api/datasets/([^/]+/[^/]+)/tree/[^/]+/?(.*)", path):
                self._json([_entry(root / match[1], found) for found in sorted((root / match[1] / match[2]).iterdir())])
            elif (match := re.fullmatch(r"/api/datasets/([^/]+/[^/]+)(/revision/.*)?", path)) and (
                root / match[1]
            ).is_dir():
                self._json({"id": match[1], "sha": COMMIT, "siblings": []})
            else:
                self._send(b'{"error": "Repository not found"}', 404, {"X-Error-Code": "RepoNotFound"})

        def _file(self, file: Path) -> None:
            if not file.is_file():
                self._send(b"", 404, {"X-Error-Code": "EntryNotFound"})
                return
            content, headers = file.read_bytes(), {"ETag": f'"{COMMIT}"', "X-Repo-Commit": COMMIT}
            if wanted := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")):
                first, last = int(wanted[1]), min(int(wanted[2] or len(content)), len(content) - 1)
                headers["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
                self._send(content[first : last + 1], 206, headers)
            else:
                self._send(content, 200, headers)

        def _json(self, content: Any) -> None:
            self._send(json.dumps(content).encode(), 200, {"Content-Type": "application/json"})

        def _send(self, body: bytes, status: int, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

    server = ThreadingHTTPServer(("localhost", 0), Hub)
    Thread(target=server.serve_forever, daemon=True).start()
    return server


def _entry(dataset: Path, path: Path) -> dict[str, Any]:
    kind = "directory" if path.is_dir() else "file"
    return {"type": kind, "oid": COMMIT, "size": path.stat().st_size, "path": path.relative_to(dataset).as_posix()}
