"""Download files from a web server by fsspec: several at once, each over one connection; staging has the same client.

    NAME.VERSION.part   the bytes of a file so far; VERSION: a digest of its size and ETag at the server

An interrupted download asks for the bytes after those. A file gets its name once it is complete.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from common.address import check_redirect, mask_secrets
from common.files import follow_no_link, naming
from common.version import DISTRIBUTION, VERSION

T = TypeVar("T")
Errors = tuple[type[Exception], ...]

BLOCK: Final = 2**20
TIMEOUT_S: Final = 30.0
"""Without any byte; a server that is silent for longer is asked again."""
ATTEMPTS: Final = 5
"""In a row that bring no byte, before a file is given up."""
FIRST_WAIT_S = 1.0
"""Before the second attempt; each further wait is twice as long."""
MOST_REDIRECTS: Final = 5
TEMPORARY: Final = (408, 425, 429)
"""Answers of the kind 4xx that may pass, as all of the kind 5xx may."""
HEADERS: Final = {"Accept-Encoding": "identity", "User-Agent": f"{DISTRIBUTION}/{VERSION}"}
UNLIKE: Final = 2.0
"""A file whose size differs from the published one by this factor is another, such as a page with an error."""
SPAN: Final = re.compile(r"bytes (\d{1,18})-\d*/(\d{1,18})")
"""A Content-Range: the first byte, and the size of the file."""


class DownloadError(RuntimeError):
    """A file cannot be downloaded; the message names its address, what was expected, and how to go on."""


class MissingFileError(DownloadError):
    """The server has no such file."""


# -- the client of web servers


def connect_http(*checks: Callable[..., Awaitable[None]]) -> tuple[Any, Errors, Errors]:
    """Return a file system of fsspec that reads web servers, the errors that it raises, and those that do not pass.

    Bytes come as they are stored: a gzip file is not inflated on its way. Proxies are those of the environment.
    checks: what aiohttp calls for each answer.
    """
    import aiohttp
    from fsspec.implementations.http import HTTPFileSystem

    async def check_target(_session: Any, context: Any, request: Any) -> None:
        url = str(request.response.url)
        context.redirects = getattr(context, "redirects", 0) + 1
        if context.redirects > MOST_REDIRECTS:
            raise PermissionError(f"{mask_secrets(url)} redirects without end")
        try:
            check_redirect(url, request.response.headers.get("Location", ""))
        except ValueError as error:
            raise PermissionError(str(error)) from None

    trace = aiohttp.TraceConfig()
    trace.on_request_redirect.append(check_target)
    trace.on_request_end.extend(checks)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=TIMEOUT_S, sock_read=TIMEOUT_S)
    client = {"timeout": timeout, "trust_env": True, "headers": HEADERS, "auto_decompress": False}
    files = HTTPFileSystem(client_kwargs={**client, "trace_configs": [trace]}, skip_instance_cache=True)
    refusals = (PermissionError, aiohttp.InvalidURL, aiohttp.ClientConnectorCertificateError)
    return files, (aiohttp.ClientError, ConnectionError, TimeoutError, PermissionError), refusals


def explain_failure(error: Exception, refusals: Errors) -> tuple[str, bool]:
    """Return the cause of an error of the client, and whether it may pass."""
    status = getattr(error, "status", 0) if error.__cause__ is None else 0  # aiohttp gives one to what is not HTTP, too
    cause = f"the server answers {status}" if status else mask_secrets(str(error)) or type(error).__name__
    return cause, not isinstance(error, refusals) and not (400 <= status < 500 and status not in TEMPORARY)


# -- downloads


class Remote(NamedTuple):
    """A file as its server describes it. version: its ETag or time of change, "" if it has none."""

    bytes: int
    version: str


class Downloader:
    """Downloads files by their names below an address into a folder; DownloadError where one cannot be had.

    about: the published size of a file, bytes. ImportError if the extra `storage` is not installed.
    """

    def __init__(self, address: str, folder: Path) -> None:
        self.address, self.folder = address, folder
        self._files, self._errors, self._refusals = connect_http()

    def read_small(self, name: str, most_bytes: int) -> bytes | None:
        """Return the content of a small file, None if there is none."""
        url = f"{self.address}/{name}"

        async def read_content() -> bytes:
            content = bytearray()
            async with self._request(url) as answer:
                while block := await answer.content.read(BLOCK):
                    content += block
                    if len(content) > most_bytes:
                        raise DownloadError(f"{url}: more than {most_bytes:,} bytes; expected a short list")
            return bytes(content)

        try:
            return self._wait_for(self._retry(url, read_content))
        except MissingFileError:
            return None

    def count_missing(self, name: str, about: float) -> int:
        """Return how many bytes of a file are to come."""
        if (self.folder / name).exists():
            return 0
        remote, part = self._wait_for(self._probe(name, about))
        return remote.bytes - (part.stat().st_size if part.exists() else 0)

    def download(
        self,
        files: Mapping[str, float],
        connections: int,
        notify: Callable[[int], object],
        finish: Callable[[str], object] = lambda _: None,
    ) -> None:
        """Download files, names with their published sizes, unless they are there.

        notify: gets the bytes as they come. finish: gets the name of each file that is complete.
        """

        async def work(names: Iterator[str]) -> None:
            for name in names:
                if not (self.folder / name).exists():
                    await self._download_file(name, files[name], notify)
                finish(name)

        async def work_at_once() -> None:
            names = iter(files)
            async with asyncio.TaskGroup() as group:
                for _ in range(connections):
                    group.create_task(work(names))

        try:
            self._wait_for(work_at_once())
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None

    def _wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what work in fsspec's thread returns; Ctrl-C cancels it."""
        future = asyncio.run_coroutine_threadsafe(work, self._files.loop)
        try:
            return future.result()
        finally:
            future.cancel()

    @asynccontextmanager
    async def _request(self, url: str, span: str = "") -> AsyncIterator[Any]:
        """Yield the answer to a request for a file. span: of its bytes, for servers that serve parts."""
        session = await self._files.set_session()
        async with session.get(url, headers={"Range": span} if span else {}) as answer:
            answer.raise_for_status()
            yield answer

    async def _probe(self, name: str, about: float) -> tuple[Remote, Path]:
        """Return what the server says of a file, and the path of its bytes so far."""
        url, path = f"{self.address}/{name}", self.folder / name

        async def ask() -> Remote:
            async with self._request(url, "bytes=0-0") as answer:
                return _describe_answer(url, answer)[0]

        remote = await self._retry(url, ask)
        if not about / UNLIKE < remote.bytes < about * UNLIKE:
            raise DownloadError(
                f"{url} has {remote.bytes:,} bytes, but about {round(about):,} are published: this is another file, or "
                "a page that says why it is not there; look at it in a browser"
            )
        digest = hashlib.sha256(repr(remote).encode()).hexdigest()[:8]
        part = path.with_name(f"{path.name}.{digest}.part")
        for other in set(path.parent.glob(f"{path.name}.{'?' * len(digest)}.part")) - {part}:
            raise DownloadError(
                f"{other} is a part of another version of {url}, or came from another address; continue from that "
                f"address, or begin again: rm {other}"
            )
        return remote, part

    async def _download_file(self, name: str, about: float, notify: Callable[[int], object]) -> None:
        """Download what is missing of a file, and give it its name."""
        remote, part = await self._probe(name, about)
        url = f"{self.address}/{name}"
        part.parent.mkdir(parents=True, exist_ok=True)
        with naming(part), open(part, "ab", opener=follow_no_link) as output:

            async def append_rest() -> None:
                offset = output.tell() if remote.version else 0  # else nothing shows that it is the same file
                if offset == remote.bytes:  # from an answer that ended wrongly
                    return
                async with self._request(url, f"bytes={offset}-") as answer:
                    answered, first = _describe_answer(url, answer)
                    if answered != remote or first > offset:
                        raise DownloadError(
                            f"{url} has changed at the server since this download began; begin again: rm {part}"
                        )
                    notify(first - offset)  # a server that serves no parts begins at 0
                    output.truncate(first)
                    output.seek(first)
                    while block := await answer.content.read(BLOCK):
                        notify(output.write(block))
                if output.tell() < remote.bytes:
                    raise ConnectionError("the connection ended too early")

            if output.tell() < remote.bytes:
                await self._retry(url, append_rest, output.tell)
            if output.tell() != remote.bytes:
                raise DownloadError(f"{part}: more than the {remote.bytes:,} bytes of {url}; begin again: rm {part}")
        part.replace(self.folder / name)

    async def _retry(
        self, url: str, request: Callable[[], Awaitable[T]], count_bytes: Callable[[], int] = lambda: 0
    ) -> T:
        """Return what a request brings, after further attempts while it fails for a moment.

        count_bytes: returns how many bytes there are; attempts are counted from the last that brought more.
        """
        failures, most = 0, count_bytes()
        while True:
            try:
                return await request()
            except self._errors as error:
                cause, may_pass = explain_failure(error, self._refusals)
                failures, most = failures + 1 if count_bytes() <= most else 1, max(most, count_bytes())
                if getattr(error, "status", 0) in (404, 410):
                    raise MissingFileError(
                        f"{url}: {cause}: there is no such file; if it has moved, name the new address by --url"
                    ) from error
                if not may_pass:
                    raise DownloadError(
                        f"{url}: cannot be read: {cause}; look at it in a browser; behind a proxy of your centre, set "
                        "https_proxy, and SSL_CERT_FILE if it has certificates of its own"
                    ) from error
                if failures == ATTEMPTS:
                    raise DownloadError(
                        f"{url}: cannot be read, tried {failures} times, the last time: {cause}; what arrived is kept: "
                        "run the command again later, or try another --url"
                    ) from error
            await asyncio.sleep(FIRST_WAIT_S * 2 ** (failures - 1))


def _describe_answer(url: str, answer: Any) -> tuple[Remote, int]:
    """Return what an answer says of its file, and the first byte that it brings."""
    headers = answer.headers
    encoding = headers.get("Content-Encoding", "identity")  # some servers say of a stored .gz that it is gzip
    if encoding != "identity" and not (url.endswith("gz") and encoding in ("gzip", "x-gzip")):
        raise DownloadError(f"{url}: the server compresses what it sends ({encoding}); try another --url")
    whole = f"bytes 0-/{headers.get('Content-Length', '')}"
    span = SPAN.fullmatch(headers.get("Content-Range", "") if answer.status == 206 else whole)
    if not span:
        raise DownloadError(f"{url}: the server does not say how large it is, so that nothing shows if all arrived")
    return Remote(int(span[2]), headers.get("ETag") or headers.get("Last-Modified", "")), int(span[1])


def check_md5(path: Path, md5: str) -> None:
    """Raise DownloadError unless a file has an MD5."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, partial(hashlib.md5, usedforsecurity=False)).hexdigest()
    if digest != md5:
        raise DownloadError(
            f"{path}: MD5 {digest}, but {md5} is published: it is damaged, or another file. Nothing was unpacked; "
            f"remove it and download it again, from another --url if there is one: rm {path}"
        )
