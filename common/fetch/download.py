"""Download a file by HTTP in pieces, over several connections; an interrupted download resumes where it stopped.

    NAME.part        the file so far, with holes where pieces are missing
    NAME.part.json   a line about the file at the server, then the number of each piece that is complete

Every request asks for the same version of the file (If-Range), every answer is compared with its request, and the file
gets its name once it is complete and its checksum, if known, is right. A server that does not serve pieces is read from
start to end, after an interruption again from the start.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import re
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from email.message import Message
from functools import partial
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import IO, Any, Final, NamedTuple, TypeVar

from common.address import check_address, check_redirect
from common.errors import UsageError
from common.files import follow_no_link, naming
from common.lock import try_lock
from common.version import DISTRIBUTION, VERSION

T = TypeVar("T")
PIECE: Final = 64 << 20
"""Bytes of a piece: the most that a killed process downloads again, for each connection."""
BLOCK: Final = 1 << 20
TIMEOUT_S: Final = 30.0
"""Without any byte; a server that is silent for longer is asked again."""
ATTEMPTS: Final = 6
"""In a row that bring no byte, before a download gives up."""
LONGEST_WAIT_S: Final = 60.0
HEADERS: Final = {"Accept-Encoding": "identity", "User-Agent": f"{DISTRIBUTION}/{VERSION}"}
GONE: Final = {
    401: "it asks for a login",
    403: "access is denied",
    404: "there is no such file",
    410: "there is no such file any more",
}
TEMPORARY: Final = (408, 425, 429, 500, 502, 503, 504)
DIGITS: Final = 18
"""Of the longest number of bytes that a server may name."""
CONTENT_RANGE: Final = re.compile(rf"bytes (\d{{1,{DIGITS}}})-(\d{{1,{DIGITS}}})/(\d{{1,{DIGITS}}})")
SCHEMES: Final = ("https", "http")


class Stopped(Exception):
    """The work was stopped; finished parts are kept."""


class DownloadError(RuntimeError):
    """A file cannot be downloaded; the message names its address, what was expected, and how to go on."""


class _TryAgainError(Exception):
    """The network or the server fails at the moment; wait_s: what the server asks for."""

    def __init__(self, reason: str, wait_s: float = 0.0) -> None:
        super().__init__(reason)
        self.wait_s = wait_s


class Remote(NamedTuple):
    """A file as its server describes it. etag, modified: which version, "" if unknown. pieces: it serves any."""

    url: str
    bytes: int
    etag: str
    modified: str
    pieces: bool

    @property
    def version(self) -> str:
        """The version that requests for parts name, so that versions never mix; "" if the server tells none."""
        return self.etag if self.etag and not self.etag.startswith("W/") else self.modified


class Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects, but not from https to http; urllib follows none to files."""

    def redirect_request(self, req: Any, *answer: Any) -> Any:
        try:
            check_redirect(req.full_url, answer[-1])
        except ValueError as error:
            raise DownloadError(str(error)) from None
        return super().redirect_request(req, *answer)


_OPENER: Final = urllib.request.build_opener(Redirects)


def parse_url(text: str) -> str:
    """Return an address without a slash at its end; UsageError unless it is that of a server."""
    try:
        return check_address(text, SCHEMES)
    except ValueError as error:
        raise UsageError(f"--url {error}") from None


def probe_url(url: str, stop: threading.Event | None = None) -> Remote:
    """Return what the server says of a file; DownloadError if there is no such file, or no size."""
    with _call_with_retries(lambda: _open_url(url, {"Range": "bytes=0-0"}), url, stop or threading.Event()) as response:
        headers: Message = response.headers
        if response.status == 206:
            size = _content_range(headers, url)[2]
        elif (length := headers.get("Content-Length", "")).isdecimal() and len(length) <= DIGITS:
            size = int(length)
        else:
            raise DownloadError(f"{url}: the server does not say how large it is, so that nothing shows if all arrived")
        etag, modified = (headers.get(name, "").strip() for name in ("ETag", "Last-Modified"))
        return Remote(url, size, etag, modified, response.status == 206)


def read_small(url: str, most_bytes: int) -> bytes | None:
    """Return the content of a small file, None if there is none; DownloadError as `probe_url`, or if it is large."""

    def read_content() -> bytes | None:
        try:
            with _open_url(url, {}) as response:
                content: bytes = response.read(most_bytes + 1)
                length = response.headers.get("Content-Length", "")
                wanted = int(length) if length.isdecimal() and len(length) <= DIGITS else 0
                if len(content) < min(wanted, most_bytes):
                    raise _TryAgainError(f"the connection ended after {len(content):,} of {wanted:,} bytes")
                return content
        except _MissingError:
            return None
        except (OSError, http.client.HTTPException) as error:
            raise _TryAgainError(str(error)) from error

    content: bytes | None = _call_with_retries(read_content, url, threading.Event())
    if content is not None and len(content) > most_bytes:
        raise DownloadError(f"{url}: more than {most_bytes:,} bytes; expected a short list")
    return content


class _MissingError(DownloadError):
    """The server has no such file."""


def _open_url(url: str, headers: Mapping[str, str]) -> Any:
    """Return an answer with content; _TryAgainError for what may pass, DownloadError for what does not."""
    try:
        response = _OPENER.open(urllib.request.Request(url, headers={**HEADERS, **headers}), timeout=TIMEOUT_S)
    except urllib.error.HTTPError as error:
        with error:
            _raise_refusal(url, error)
    except (OSError, http.client.HTTPException) as error:  # URLError among them
        reason = getattr(error, "reason", None) or error
        if isinstance(reason, ssl.SSLCertVerificationError):
            raise DownloadError(
                f"{url}: the server's certificate is not trusted ({reason.verify_message}); if a proxy of your centre "
                "replaces it, name its certificates in the environment variable SSL_CERT_FILE"
            ) from error
        raise _TryAgainError(str(reason) or type(error).__name__) from error
    except ValueError as error:
        raise DownloadError(f"{url} redirects to an address that is malformed ({error}); try another --url") from error
    if response.headers.get("Content-Encoding", "identity") not in ("identity", ""):
        response.close()
        raise DownloadError(f"{url}: the server compresses what it sends, so that no size fits; try another --url")
    return response


def _raise_refusal(url: str, error: urllib.error.HTTPError) -> None:
    if error.code in (404, 410):
        raise _MissingError(f"{url}: {GONE[error.code]} ({error.code}); if it has moved, name the new address by --url")
    if error.code in TEMPORARY:
        retry_after = error.headers.get("Retry-After", "")
        wait_s = min(float(retry_after), LONGEST_WAIT_S) if retry_after.isdecimal() else 0.0
        raise _TryAgainError(f"the server answers {error.code} {error.reason}", wait_s)
    if error.code == 416:
        raise DownloadError(f"{url} has become shorter, or is empty; remove its .part files and begin again")
    reason = GONE.get(error.code, error.reason)
    raise DownloadError(f"{url}: the server answers {error.code}, {reason}; look at the address in a browser")


def _call_with_retries(function: Any, url: str, stop: threading.Event) -> Any:
    """Return what a function returns, after further attempts if it fails for a moment."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return function()
        except _TryAgainError as error:
            _wait_before_retry(url, attempt, error, stop)
    raise AssertionError("the last attempt raises")


def _wait_before_retry(url: str, attempt: int, error: _TryAgainError, stop: threading.Event) -> None:
    """Wait longer after each attempt; DownloadError after the last, Stopped as soon as `stop` is set."""
    if attempt >= ATTEMPTS:
        raise DownloadError(
            f"{url}: {error}, {ATTEMPTS} times in a row; finished pieces are kept: run the command again later, or try "
            "another --url"
        ) from error
    if stop.wait(max(error.wait_s, min(2.0 ** (attempt - 1), LONGEST_WAIT_S))):
        raise Stopped


def _content_range(headers: Message, url: str) -> tuple[int, int, int]:
    match = CONTENT_RANGE.fullmatch(headers.get("Content-Range", "").strip())
    if not match:
        raise DownloadError(f"{url}: the server sends a part without saying which; try another --url")
    first, last, size = map(int, match.groups())
    return first, last, size


def in_threads(
    work: Callable[[T], object],
    items: Iterable[T],
    connections: int,
    stop: threading.Event,
    done: Callable[[T], object] = lambda _: None,
) -> None:
    """Call `work` with each item, in threads, and `done` with each that is finished, in this thread.

    The first error, or Ctrl-C, sets `stop`, which `work` must look at before it writes anything, and is raised. A
    single connection is this thread itself.
    """
    todo = list(items)
    if connections == 1 or len(todo) <= 1:
        for item in todo:
            work(item)
            done(item)
        return

    def attempt_item(item: T) -> T:
        if stop.is_set():
            raise Stopped
        try:
            work(item)
        except BaseException:
            stop.set()
            raise
        return item

    pool = ThreadPool(min(connections, len(todo)))
    results = pool.imap_unordered(attempt_item, todo)
    try:
        while True:
            try:
                done(next(results))
            except StopIteration:
                break
            except Stopped:  # because of an error, which follows
                continue
        if stop.is_set():
            raise Stopped
    except BaseException:
        stop.set()
        raise
    finally:
        pool.terminate()  # does not wait for a thread that waits for the network


@dataclass(frozen=True, slots=True)
class Transfer:
    """Settings of a download: `bar` gets the bytes as they come; `stop` ends all connections within a block."""

    connections: int
    bar: Any
    stop: threading.Event


class _PartFile:
    """The file of a download that is not complete; nothing is written any more once `stop` is set."""

    def __init__(self, path: Path, stop: threading.Event) -> None:
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        self._stop, self._writing = stop, threading.Lock()

    def __enter__(self) -> _PartFile:
        return self

    def __exit__(self, *raised: object) -> None:
        if any(raised):
            self._stop.set()
        with self._writing:  # a thread that is left behind must not write into whatever gets this number next
            os.close(self._handle)

    def write_block(self, block: bytes, offset: int) -> None:
        """Write a block."""
        with self._writing:
            if self._stop.is_set():
                raise Stopped
            os.pwrite(self._handle, block, offset)

    def record_piece(self, record: IO[str], number: int) -> None:
        """Record a piece as complete, when it is on the disk."""
        with self._writing:
            if self._stop.is_set():
                raise Stopped
            os.fdatasync(self._handle)
            record.write(f"{number}\n")
            record.flush()


class Download:
    """The download of one file to a path, which is new; `missing_bytes` are to come."""

    def __init__(self, remote: Remote, path: Path) -> None:
        self.remote, self.path = remote, path
        self.part = path.with_name(f"{path.name}.part")
        self.record = path.with_name(f"{path.name}.part.json")
        count = -(-remote.bytes // PIECE) if remote.pieces else 1
        recorded = self._recorded_pieces()
        self.missing = [number for number in range(count) if number not in recorded]

    @property
    def missing_bytes(self) -> int:
        """The bytes that are missing."""
        return sum(end - first for first, end in map(self._piece_span, self.missing))

    def run(self, transfer: Transfer, md5: str = "") -> None:
        """Download what is missing, verify, and give the file its name. DownloadError, Stopped, OSError."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._open_record() as record, naming(self.part), _PartFile(self.part, transfer.stop) as part:

            def fill_piece(number: int) -> None:
                self._download_piece(part, number, transfer)
                part.record_piece(record, number)

            in_threads(fill_piece, self.missing, transfer.connections, transfer.stop)
        self._verify_file(md5)
        self.part.replace(self.path)
        self.record.unlink(missing_ok=True)

    def _recorded_pieces(self) -> set[int]:
        """Return the pieces that an earlier call completed; DownloadError if it was about another file."""
        try:
            head, *lines = self.record.read_text(encoding="utf-8").split("\n")
        except FileNotFoundError:
            if self.part.exists():
                raise DownloadError(f"{self.part} is there without {self.record.name}: move it away") from None
            return set()
        try:
            earlier = Remote(**json.loads(head))
        except (ValueError, TypeError):
            earlier = None
        if earlier != self.remote:
            old = f"{earlier.bytes:,} bytes of {earlier.url}" if earlier else "something else"
            raise DownloadError(
                f"{self.part} is a part of {old}, but now {self.remote.url} has {self.remote.bytes:,} bytes, of "
                f"another version or address; go on from the same, or remove both files: rm {self.part} {self.record}"
            )
        recorded = {int(line) for line in lines[:-1] if line.isdecimal()}  # the last may be half a line
        size = self.part.stat().st_size if self.part.exists() else 0
        if recorded and self._piece_span(max(recorded))[1] > size:
            raise DownloadError(f"{self.part} lacks what {self.record.name} says is there; remove both and begin again")
        return recorded

    @contextmanager
    def _open_record(self) -> Iterator[Any]:
        """Open the record for this process alone."""
        with open(self.record, "a", encoding="utf-8", opener=follow_no_link) as record:
            if not try_lock(record):
                raise DownloadError(f"{self.part} is being downloaded by another process; wait for it")
            if not record.tell():
                record.write(json.dumps(self.remote._asdict()) + "\n")
                record.flush()
            yield record

    def _piece_span(self, number: int) -> tuple[int, int]:
        """Return the first byte of a piece, and that after its last."""
        if not self.remote.pieces:
            return 0, self.remote.bytes
        return number * PIECE, min((number + 1) * PIECE, self.remote.bytes)

    def _download_piece(self, part: _PartFile, number: int, transfer: Transfer) -> None:
        first, end = self._piece_span(number)
        offset, attempt = first, 0
        while offset < end:
            try:
                for block in self._read_blocks(offset, end):
                    part.write_block(block, offset)
                    offset += len(block)
                    transfer.bar.update(len(block))
                    attempt = 0 if self.remote.pieces else attempt
                if offset < end:
                    raise _TryAgainError(f"the connection ended {end - offset:,} bytes too early")
            except _TryAgainError as error:
                if not self.remote.pieces:
                    transfer.bar.update(first - offset)
                    offset = first
                attempt += 1
                _wait_before_retry(self.remote.url, attempt, error, transfer.stop)

    def _read_blocks(self, first: int, end: int) -> Iterator[bytes]:
        """Yield the bytes of the file from `first` on, as they come; may end too early, as connections do."""
        headers = {"Range": f"bytes={first}-{end - 1}"} if self.remote.pieces else {}
        if headers and self.remote.version:
            headers["If-Range"] = self.remote.version
        with _open_url(self.remote.url, headers) as response:
            self._expect_same(response, first, end)
            while first < end:
                try:
                    block = response.read(min(BLOCK, end - first))
                except (OSError, http.client.HTTPException) as error:
                    raise _TryAgainError(str(error) or type(error).__name__) from error
                if not block:
                    return
                yield block
                first += len(block)

    def _expect_same(self, response: Any, first: int, end: int) -> None:
        """Raise DownloadError unless the answer is the requested part, of the same version of the file."""
        headers, remote = response.headers, self.remote
        if response.status == 206:
            same = _content_range(headers, remote.url) == (first, end - 1, remote.bytes)
        else:
            same = not remote.pieces and headers.get("Content-Length") == str(remote.bytes)
        if not same or headers.get("ETag", "").strip() != remote.etag:
            raise DownloadError(
                f"{remote.url} has changed at the server since this download began; remove what is there of it and "
                f"begin again: rm {self.part} {self.record}"
            )

    def _verify_file(self, md5: str) -> None:
        """Raise DownloadError if bytes are missing, or if the checksum is not the published one."""
        size = self.part.stat().st_size
        if size != self.remote.bytes:
            raise DownloadError(
                f"{self.part}: {size:,} bytes, expected {self.remote.bytes:,}; remove it, and begin again"
            )
        if md5:
            check_md5(self.part, md5, f"rm {self.part} {self.record}")


def check_md5(path: Path, md5: str, remove: str) -> None:
    """Raise DownloadError unless a file has an MD5; remove: the command that makes place for another download."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, partial(hashlib.md5, usedforsecurity=False)).hexdigest()
    if digest != md5:
        raise DownloadError(
            f"{path}: MD5 {digest}, but {md5} is published: it is damaged, or another file. Nothing was unpacked; "
            f"remove it and download it again, from another --url if there is one: {remove}"
        )
