"""A small web server for tests: parts of files, redirects, and the faults that real ones have."""

import re
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec

import pytest

HAS_STORAGE = all(map(find_spec, ("fsspec", "aiohttp", "s3fs")))
needs_storage = pytest.mark.needs("storage", HAS_STORAGE, "fsspec, aiohttp and s3fs: pip install '.[storage]'")


class FileServer:
    """Serves `files`, bytes by path.

    ranges: whether parts are served. etag, encoding: of all files, "" for none. faults: what to do instead, one for
    each request to come, as ("status", 503), ("cut", bytes to send), ("raw", the answer) or ("redirect", address).
    asked: the Range and path of each request so far.
    on_request: called before each answer.
    """

    def __init__(self, files=None):
        self.files, self.ranges, self.etag, self.faults = files or {}, True, '"1"', []
        self.asked, self.on_request, self.lock = [], lambda path: None, threading.Lock()
        self.length, self.encoding = True, ""
        served = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                served.answer(self)

            def log_message(self, *_):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_port}"

    def __enter__(self):
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.http.shutdown()
        self.http.server_close()

    def answer(self, to):
        wanted = to.headers.get("Range", "")
        with self.lock:
            self.asked.append((to.path, wanted))
            fault, value = self.faults.pop(0) if self.faults and wanted != "bytes=0-0" else ("", None)
        self.on_request(to.path)
        body = self.files.get(to.path)
        if fault == "status":
            return to.send_error(value)
        if fault == "raw":
            return to.wfile.write(value)
        if fault == "redirect":
            to.send_response(302)
            to.send_header("Location", value)
            return to.end_headers()
        if body is None:
            return to.send_error(404)
        part = re.fullmatch(r"bytes=(\d+)-(\d*)", wanted) if self.ranges else None
        first, end = (int(part[1]), min(int(part[2] or len(body)) + 1, len(body))) if part else (0, len(body))
        headers = {
            "Content-Range": f"bytes {first}-{end - 1}/{len(body)}" if part else "",
            "ETag": self.etag,
            "Content-Encoding": self.encoding,
            "Content-Length": str(end - first) if self.length else "",
        }
        to.send_response(206 if part else 200)
        for name, text in headers.items():
            if text:
                to.send_header(name, text)
        to.end_headers()
        sent = body[first:end]
        with suppress(ConnectionError):  # who asks for a size hangs up
            to.wfile.write(sent[:value] if fault == "cut" else sent)
