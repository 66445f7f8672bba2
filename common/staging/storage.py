"""Where a dataset is: a folder of a shared file system, or an address from which fsspec reads it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlsplit

from tqdm import tqdm

from common.address import mask_secrets
from common.command import describe_reason
from common.data.fetch import ATTEMPTS, BLOCK, FIRST_WAIT_S, TIMEOUT_S, Errors, connect_http, explain_failure
from common.data.manifest import NAME, Manifest, ManifestError, decode_manifest
from common.installed import missing_extra
from common.staging.plan import Piece, SourceFile, StagingError
from common.staging.stage_dir import GZIP_MAGIC
from common.stop import LOOK_S, STOP
from common.tree import expect_regular, open_regular

T = TypeVar("T")

GZIP_LEAST: Final = 18  # bytes of header and trailer
MOST_MANIFEST_BYTES = 2**30


class SharedStorage:
    """The dataset's folder on shared storage. bytes_read: by this rank."""

    def __init__(self, root: Path | str) -> None:
        self.root = root
        self.bytes_read = 0
        self.failure: StagingError | None = None  # once set, nothing more is read
        self._lock = Lock()

    @property
    def identity(self) -> str:
        """The resolved path, or the address: the same for the same dataset alone."""
        return str(Path(self.root).resolve())

    def read_into(self, piece: Piece, view: memoryview) -> None:
        """Read a piece of a file into `view`. Staging reads the dataset nowhere else."""
        if self.failure:
            raise self.failure
        with self.ending_reads():
            count = self._fill_view(piece, view)
            with self._lock:
                self.bytes_read += count
            if count < len(view):
                raise StagingError(
                    f"{self.root}/{piece.file.name}: ends after {piece.start + count:,} of {piece.file.size:,} bytes; "
                    "fetch it again"
                )

    @contextmanager
    def ending_reads(self) -> Iterator[None]:
        """End the reads of all threads, those that wait for another attempt too, if the work in the `with` fails."""
        try:
            yield
        except Exception as error:
            self.failure = self.failure or (error if isinstance(error, StagingError) else StagingError(str(error)))
            raise

    def look_up(self, file: SourceFile, inflate: bool) -> SourceFile:
        """Return the file with its time of change, and with its raw size if it will be decompressed.

        Raises StagingError if it is missing or has another size. The raw size of a gzip file without one is taken
        from its trailer (RFC 1952, section 2.3.1: ISIZE), which costs 6 bytes of reading.
        """
        mtime_ns = self._read_time(file)
        raw_size = file.raw_size if inflate else None
        if inflate and raw_size is None and file.size >= GZIP_LEAST:
            magic, trailer = bytearray(2), bytearray(4)
            self.read_into(Piece(file, 0, 2), memoryview(magic))
            if magic == GZIP_MAGIC:
                self.read_into(Piece(file, file.size - 4, 4), memoryview(trailer))
                raw_size = int.from_bytes(trailer, "little")
        return replace(file, raw_size=raw_size, mtime_ns=mtime_ns)

    def _read_time(self, file: SourceFile) -> int:
        """Return the time of the last change of a file, ns; StagingError if it is missing or has another size."""
        path = Path(self.root, file.name)
        try:
            status = path.stat()
            expect_regular(str(path), status)
        except OSError as error:
            raise StagingError(f"{path}: {describe_reason(error)}; the list of files to stage has it") from error
        if status.st_size != file.size:
            raise StagingError(f"{path}: {status.st_size:,} bytes, {file.size:,} expected; fetch it again")
        return status.st_mtime_ns

    def _open_piece(self, piece: Piece) -> Any:
        """Return the file of a piece, opened."""
        return open(open_regular(Path(self.root, piece.file.name)), "rb", buffering=0)

    def _fill_view(self, piece: Piece, view: memoryview) -> int:
        """Return how many bytes of a piece could be read into `view`."""
        try:
            return self._read_piece(piece, view)
        except OSError as error:
            raise StagingError(f"{self.root}/{piece.file.name}: cannot be read: {error.strerror or error}") from error

    def _read_piece(self, piece: Piece, view: memoryview) -> int:
        with self._open_piece(piece) as file:
            file.seek(piece.start)
            count = 0
            while count < len(view) and (more := file.readinto(view[count:])):
                count += more
        return count


class UrlStorage(SharedStorage):
    """A dataset below an address of a web server (http, https) or an object store (s3); its manifest lists the files.

    Only whole files of one piece are asked for without a range, so that a server that serves no parts can serve them.
    Raises StagingError if the extra `storage` is not installed.
    """

    def __init__(self, url: str) -> None:
        super().__init__(url.rstrip("/"))
        self._retries = False
        try:
            self._files, self._errors, self._refusals = (
                connect_s3() if url.startswith("s3:") else connect_http(_check_size)
            )
        except ImportError as error:
            raise StagingError(f"staging.source {url}: {missing_extra(error, 'storage') or error}") from error

    @property
    def identity(self) -> str:
        return str(self.root)

    def read_manifest(self) -> tuple[bytes, Manifest]:
        """Return the manifest as it is there, and decoded; StagingError if there is none, or an unusable one."""
        url = self._locate_file(NAME)
        try:
            text = self._retry_read(NAME, lambda: self._read_limited(url))
            return text, decode_manifest(text, url)
        except FileNotFoundError as error:
            raise StagingError(
                f"{url} does not exist: staging.source needs the manifest of the dataset; `python -m BENCHMARK.prepare "
                "manifest DATA_DIR` writes it: put it beside the data"
            ) from error
        except ManifestError as error:
            raise StagingError(str(error)) from error

    def _read_limited(self, url: str) -> bytes:
        """Return the content of a manifest, and print where it comes from if the server redirects to another one."""
        from fsspec.asyn import sync

        async def read_blocks() -> tuple[bytes, Any]:
            text = bytearray()
            stream = await self._files.open_async(url, size=1)  # any size saves a request for it
            try:
                while block := await stream.read(BLOCK):
                    text += block
                    if STOP.number:
                        raise StagingError(f"{url}: stopped by a signal")
                    if len(text) > MOST_MANIFEST_BYTES:
                        raise StagingError(f"{url}: more than {MOST_MANIFEST_BYTES:,} bytes; expected a manifest")
                return bytes(text), getattr(stream.r, "url", url)
            finally:
                await stream.close()

        text: bytes
        text, final = sync(self._files.loop, read_blocks)
        if urlsplit(str(final)).netloc != urlsplit(url).netloc:
            print(f"staging: {url} redirects to {mask_secrets(str(final))}", flush=True)
        return text

    def _locate_file(self, name: str) -> str:
        return f"{self.root}/{name if str(self.root).startswith('s3:') else quote(name)}"

    def _read_time(self, file: SourceFile) -> int:
        return 0  # the manifest's checksum tells other versions of a file

    def _open_piece(self, piece: Piece) -> Any:
        file = piece.file
        block = 0 if piece.length == file.size else piece.length  # 0: without a range
        url = self._locate_file(file.name)
        expected = {} if url.startswith("s3:") else {"trace_request_ctx": file.size}
        return self._files.open(url, "rb", block_size=block, size=file.size, cache_type="none", **expected)

    def _fill_view(self, piece: Piece, view: memoryview) -> int:
        url = self._locate_file(piece.file.name)

        def read_whole() -> int:
            count = self._read_piece(piece, view) if len(view) else 0
            if count < len(view):
                raise ConnectionError(f"the connection ended after {count:,} of {len(view):,} bytes")
            return count

        try:
            return self._retry_read(piece.file.name, read_whole)
        except FileNotFoundError as error:
            raise StagingError(f"{url} does not exist, but {NAME} there lists it") from error
        except ValueError as error:
            raise StagingError(
                f"{url}: the server serves no parts of files, which files above 64 MiB and staging.inflate need "
                f"({error})"
            ) from error

    def _retry_read(self, name: str, read: Callable[[], T]) -> T:
        """Return what a function reads of a file, after further attempts if it fails for a moment.

        FileNotFoundError as it comes, StagingError for what else does not pass, or not soon. The first of all further
        attempts is announced.
        """
        url = self._locate_file(name)
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return read()
            except FileNotFoundError:
                raise
            except self._errors as error:
                cause, may_pass = explain_failure(error, self._refusals)
                if not may_pass:
                    raise StagingError(f"{url}: cannot be read: {cause}") from error
                with self._lock:
                    is_first, self._retries = not self._retries, True
                if is_first:
                    tqdm.write(f"staging: {url}: {cause}; such failures are tried {ATTEMPTS} times", file=sys.stderr)
                if attempt == ATTEMPTS or not self._wait_for_retry(FIRST_WAIT_S * 2 ** (attempt - 1)):
                    raise self.failure or StagingError(
                        f"{url}: cannot be read, tried {attempt} times, the last time: {cause}; "
                        "finished files are kept: start again later"
                    ) from error
        raise AssertionError("the last attempt raises")

    def _wait_for_retry(self, seconds: float) -> bool:
        """Wait; return early, and False, when the run is to stop or another file is given up."""
        end = time.monotonic() + seconds
        while not (STOP.number or self.failure) and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, LOOK_S))
        return not (STOP.number or self.failure)


async def _check_size(_session: Any, context: Any, request: Any) -> None:
    """Raise StagingError if an answer is about a file of another size than that of the manifest, the context."""
    answer, expected = request.response, context.trace_request_ctx
    header = "Content-Length" if answer.status == 200 else "Content-Range"
    size = answer.headers.get(header, "").rpartition("/")[2]
    if expected is not None and answer.status in (200, 206) and size.isdecimal() and size != str(expected):
        raise StagingError(
            f"{mask_secrets(str(request.url))}: the server has {size:.20} bytes, its manifest says {expected}: "
            "upload the file and manifest.json again"
        )


def connect_s3() -> tuple[Any, Errors, Errors]:
    """Return a file system of fsspec that reads S3, the errors that it raises, and those that do not pass.

    Address and credentials are those of the environment, as AWS's own tools find them.
    """
    import aiohttp
    import s3fs
    from botocore.exceptions import BotoCoreError, NoCredentialsError

    limits = {"connect_timeout": TIMEOUT_S, "read_timeout": TIMEOUT_S, "retries": {"total_max_attempts": 1}}
    files = s3fs.S3FileSystem(config_kwargs=limits, max_concurrency=1, skip_instance_cache=True)
    files.retries = 1  # the attempts are counted here
    return files, (OSError, aiohttp.ClientError, BotoCoreError), (PermissionError, NoCredentialsError)
