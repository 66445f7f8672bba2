"""Download published datasets: addresses, sizes, checksums, unpacking; `<benchmark>/fetch.py` lists the files.

A dataset is archives, which are unpacked, or folders with a file for each sample, whose names the server lists.
Several files are downloaded at once by fsspec, each over one connection; staging has the same client.

    NAME.VERSION.part   the bytes of a file so far; VERSION: a digest of its size and ETag at the server

An interrupted download asks for the bytes after those. A file gets its name once it is complete.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import lzma
import re
import tarfile
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, Any, Final, NamedTuple, TypeVar

from common.address import check_redirect, mask_secrets
from common.data.build import Journal, Part
from common.data.manifest import ManifestEntry
from common.file_kind import BZIP2, GZIPPED, TAR, XZ, explain_file
from common.files import follow_no_link, name_errors, open_whole_file
from common.reference import FULL
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
    files = HTTPFileSystem(
        client_kwargs={
            "timeout": aiohttp.ClientTimeout(total=None, sock_connect=TIMEOUT_S, sock_read=TIMEOUT_S),
            "trust_env": True,
            "headers": {"Accept-Encoding": "identity", "User-Agent": f"{DISTRIBUTION}/{VERSION}"},
            "auto_decompress": False,
            "trace_configs": [trace],
        },
        skip_instance_cache=True,
    )
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
            async with self._open_request(url) as answer:
                while block := await answer.content.read(BLOCK):
                    content += block
                    if len(content) > most_bytes:
                        raise DownloadError(f"{url}: more than {most_bytes:,} bytes; expected a short list")
            return bytes(content)

        try:
            return self._wait_for(self._retry_request(url, read_content))
        except MissingFileError:
            return None

    def count_missing(self, name: str, about: float) -> int:
        """Return how many bytes of a file are to come."""
        if (self.folder / name).exists():
            return 0
        remote, part = self._wait_for(self._probe_file(name, about))
        return remote.bytes - (part.stat().st_size if part.exists() else 0)

    def download_files(
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
    async def _open_request(self, url: str, span: str = "") -> AsyncIterator[Any]:
        """Yield the answer to a request for a file. span: of its bytes, for servers that serve parts."""
        session = await self._files.set_session()
        async with session.get(url, headers={"Range": span} if span else {}) as answer:
            answer.raise_for_status()
            yield answer

    async def _probe_file(self, name: str, about: float) -> tuple[Remote, Path]:
        """Return what the server says of a file, and the path of its bytes so far."""
        url, path = f"{self.address}/{name}", self.folder / name

        async def ask() -> Remote:
            async with self._open_request(url, "bytes=0-0") as answer:
                return _describe_answer(url, answer)[0]

        remote = await self._retry_request(url, ask)
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
        remote, part = await self._probe_file(name, about)
        url = f"{self.address}/{name}"
        part.parent.mkdir(parents=True, exist_ok=True)
        with name_errors(part), open(part, "ab", opener=follow_no_link) as output:

            async def append_rest() -> None:
                offset = output.tell() if remote.version else 0  # else nothing shows that it is the same file
                if offset == remote.bytes:  # from an answer that ended wrongly
                    return
                async with self._open_request(url, f"bytes={offset}-") as answer:
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
                await self._retry_request(url, append_rest, output.tell)
            if output.tell() != remote.bytes:
                raise DownloadError(f"{part}: more than the {remote.bytes:,} bytes of {url}; begin again: rm {part}")
        part.replace(self.folder / name)

    async def _retry_request(
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


GB, TB = 10**9, 10**12
LARGER: Final = 2.0
"""An archive that unpacks to this times its published size is not the published one."""
MOST_MEMBERS: Final = 10_000_000

DAMAGED: Final = (
    # Of the bytes.
    tarfile.TarError,
    EOFError,
    zlib.error,
    gzip.BadGzipFile,
    lzma.LZMAError,
    # Of headers.
    ValueError,
    OverflowError,
    RecursionError,
)
"""Errors of tarfile for a damaged archive: headers may have impossible numbers, or be too many in a row."""


@dataclass(frozen=True, slots=True)
class Archive:
    """A tar file, compressed or not, below the address of its dataset.

    bytes, unpacked_bytes: about, as published. md5: as published, "" if there is none. dataset_path: returns the path
    of a member below the dataset's folder; None leaves it out.
    """

    name: str
    bytes: float
    unpacked_bytes: float
    dataset_path: Callable[[str], str | None]
    md5: str = ""


@dataclass(frozen=True, slots=True)
class RemoteFolder:
    """A folder of a server with a file for each sample. name: also that of the split. bytes: of a file, about."""

    name: str
    pattern: re.Pattern[str]
    bytes: float


@dataclass(frozen=True, slots=True)
class Published:
    """A dataset, or a part of one under a name of its own.

    counts: files of each split, None where the number is not published. beside: files that may lie at the address, and
    belong beside the splits. notes: for users.
    """

    name: str
    text: str
    address: str
    counts: Mapping[str, int | None]
    archives: tuple[Archive, ...] = ()
    folders: tuple[RemoteFolder, ...] = ()
    beside: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def variant(self) -> str:
        """The variant in the manifest: a part of a dataset never has that of the whole."""
        return self.name if self.name == FULL else f"subset-{self.name}"

    @property
    def bytes(self) -> float:
        """The bytes to transfer, about."""
        folders = sum(folder.bytes * (self.counts[folder.name] or 0) for folder in self.folders)
        return sum(archive.bytes for archive in self.archives) + folders

    def take_first(self, samples: int, shares: Mapping[str, int]) -> Published:
        """Return the part with the first files of each split: `samples` divided by the split's share, rounded up."""
        counts = {split: -(-samples // share) for split, share in shares.items()}
        return replace(self, name=str(samples), text=f"the first {samples:,} samples by name", counts=counts)


def by_name(pattern: str, folders: Mapping[str, str]) -> Callable[[str], str | None]:
    """Return the `dataset_path` of members whose names match a pattern with the groups `folder` and `file`.

    folders: the folder below the dataset for each `folder` of the archive; members of others are left out. A file keeps
    its own name and nothing else of its path, so that none can lead out of the dataset.
    """
    compiled = re.compile(pattern)

    def dataset_path(member: str) -> str | None:
        match = compiled.search(member)
        folder = folders.get(match["folder"]) if match else None
        return f"{folder}/{match['file']}" if match and folder else None

    return dataset_path


# -- unpacking -----------------------------------------------------------------------------------------------
# Only regular files are taken, each to a place that the dataset knows: names, owners, modes and links of the archive
# count for nothing, so that it can write nowhere else. What it may unpack to is limited.


def unpack_archive(
    archive: Archive, path: Path, journal: Journal, record: Part, notify: Callable[[int], object]
) -> None:
    """Unpack what belongs to the dataset, but for files that the journal has; each is recorded when it is complete.

    notify: gets the bytes of each file. DownloadError for a damaged archive, a member that is a link, two members with
    one path, or more bytes than published.
    """
    bytes_left, names_seen = LARGER * archive.unpacked_bytes, set[str]()
    with _errors_named(path), tarfile.open(path, "r:*") as members:
        for number, member in enumerate(iter(members.next, None)):
            members.members.clear()  # type: ignore[attr-defined]  # or it would keep half a million of them
            name = archive.dataset_path(member.name)
            if number >= MOST_MEMBERS:
                raise DownloadError(f"{path}: more than {MOST_MEMBERS:,} members; this is not the published archive")
            if name is None or member.isdir():
                continue
            source = members.extractfile(member) if member.isreg() else None
            if source is None:
                raise DownloadError(f"{path}: {member.name} is a link or a device; expected a file. It is not unpacked")
            bytes_left -= member.size
            if name in names_seen or bytes_left < 0:
                problem = f"there are two of {name}" if name in names_seen else "it unpacks to twice its published size"
                raise DownloadError(f"{path}: {problem}; this is not the published archive")
            names_seen.add(name)
            if not journal.has_files((name,)):
                record.add_files({name: _write_file(source, journal.folder / name)})
            notify(member.size)
    if not names_seen:
        raise DownloadError(f"{path} has no file of the dataset; this is not the published archive")


def _write_file(source: IO[bytes], path: Path) -> ManifestEntry:
    """Write a file whole or not at all; return its size and checksum."""
    digest, size = hashlib.sha256(), 0
    path.parent.mkdir(parents=True, exist_ok=True)
    with open_whole_file(path) as file:
        while block := source.read(BLOCK):
            digest.update(block)
            size += file.write(block)
    return ManifestEntry(size, digest.hexdigest())


@contextmanager
def _errors_named(path: Path) -> Iterator[None]:
    try:
        yield
    except DAMAGED as error:
        problem = explain_file(path, TAR, GZIPPED, BZIP2, XZ) or error or "it ends too early"
        raise DownloadError(
            f"{path} is damaged, or no tar file: {problem}; unpacked files are kept. Remove it, and run the command "
            "again, which downloads it"
        ) from error
