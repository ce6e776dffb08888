"""Files at any fsspec URI; on S3 with errors that say what to do, and whole folders kept on the local disk.

Credentials, region and endpoint of `s3://` come from where AWS's own tools take them: environment, profiles, roles.
botocore and s3fs retry throttled and broken requests with growing pauses (`AWS_MAX_ATTEMPTS` and `AWS_RETRY_MODE`
change how often). Errors are raised here only after that.

User's cache: embedded models, compiled kernels and copies of files at a URI.

Triton's compiled kernels are kept there, too, and a message tells when it has to compile.
"""

from __future__ import annotations

import errno
import functools
import logging
import os
import re
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import fsspec
from filelock import FileLock

from hpd_core.errors import StorageError
from hpd_core.types import content_hash

_S3_PROTOCOLS = ("s3", "s3a")
# With one slash, as from a tool that tidies paths, it would be a folder of this disk.
_MEANT_FOR_S3 = re.compile(r"\s*s3[an]?:", re.IGNORECASE)
# What reaches S3 and may fail because of the network or of missing rights; `_call_s3` is below most of them.
_REMOTE_METHODS = ("_call_s3", "_cat_file", "_copy", "_get_file", "_info", "_ls", "_pipe_file", "_rm")
_PAUSES = (1.0, 5.0, 15.0)
_UNASKED_SECONDS = 24 * 3600
_WEIGHTS_ENDING = ".safetensors"
# Weights in formats that are never loaded would only be downloaded in vain.
_UNUSED_ENDINGS = (".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack", ".onnx", ".gguf")


def open_filesystem(uri: str, *, anonymous: bool = False) -> tuple[Any, str]:
    """Return the fsspec file system of `uri` and the path in it. Listings are never cached: other processes write.

    Args:
        uri: a local path or any fsspec URI.
        anonymous: send S3 requests unsigned, for public buckets; nothing else changes.

    Raises:
        StorageError: unknown protocol, or its client library is missing.
    """
    protocol = fsspec.core.split_protocol(uri)[0]
    if protocol not in _S3_PROTOCOLS and _MEANT_FOR_S3.match(uri):
        raise StorageError(f"cannot open {uri!r}: a place on S3 is written s3://bucket/folder, in small letters")
    try:
        if protocol in _S3_PROTOCOLS:
            kind = _s3_class()
            options = kind._get_kwargs_from_urls(uri) | _region()
            filesystem = kind(use_listings_cache=False, anon=anonymous, **options)
            return filesystem, str(filesystem._strip_protocol(uri)).rstrip("/")
        if protocol is None:
            # A path, whatever its name holds: to fsspec "::" would join two file systems.
            filesystem = fsspec.filesystem("file", use_listings_cache=False)
            path = filesystem._strip_protocol(uri)
        else:
            filesystem, path = fsspec.core.url_to_fs(uri, use_listings_cache=False)
    except (ValueError, ImportError) as error:
        raise StorageError(f"cannot open {uri}: {error}") from error
    return filesystem, str(path).rstrip("/") or "/"


def missing_bucket(filesystem: Any, path: str) -> str | None:
    """Return the bucket of a path on S3, if it is known not to exist: nothing can be written to it."""
    if _S3_PROTOCOLS[0] not in filesystem.protocol:
        return None
    bucket: str = filesystem.split_path(path)[0]  # an access point's name has a slash
    try:
        filesystem.info(bucket)
    except FileNotFoundError:
        return bucket
    except StorageError:  # who may only write into a folder of it may not ask
        return None
    return None


def _region() -> dict[str, Any]:
    # botocore knows AWS_DEFAULT_REGION only; containers on AWS are often given AWS_REGION alone.
    region = os.environ.get("AWS_REGION")
    if not region or "AWS_DEFAULT_REGION" in os.environ:
        return {}
    return {"client_kwargs": {"region_name": region}}


@functools.cache
def _s3_class() -> type[Any]:
    """Return s3fs's file system with errors translated. It is made on demand: local paths do without s3fs."""
    from fsspec.asyn import sync_wrapper
    from s3fs import S3FileSystem

    class ExplainedS3FileSystem(S3FileSystem):  # type: ignore[misc]
        """S3 file system that raises `StorageError` for everything but a missing or an existing object."""

        def _open(self, path: str, *args: Any, **options: Any) -> Any:
            file = super()._open(path, *args, **options)
            if getattr(file, "cache", None) is not None:
                file.cache.fetcher = _explained_fetch(file.cache.fetcher, path)
            return file

    for name in _REMOTE_METHODS:
        setattr(ExplainedS3FileSystem, name, _explained(getattr(S3FileSystem, name)))
    # Files that are written call this one.
    ExplainedS3FileSystem.call_s3 = sync_wrapper(ExplainedS3FileSystem._call_s3)
    return ExplainedS3FileSystem


def _explained(method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    @functools.wraps(method)
    async def call(self: Any, *args: Any, **options: Any) -> Any:
        with _translated(_place(args, options)):
            return await method(self, *args, **options)

    return call


def _explained_fetch(fetch: Callable[..., bytes], path: str) -> Callable[..., bytes]:
    @functools.wraps(fetch)
    def call(*args: Any, **options: Any) -> bytes:
        with _translated(path):
            return fetch(*args, **options)

    return call


def _place(args: tuple[Any, ...], options: dict[str, Any]) -> str:
    if "Bucket" in options:
        return "/".join(str(options[key]) for key in ("Bucket", "Key") if key in options)
    first = args[0] if args else options.get("path", "")
    return str(first[0] if isinstance(first, list) and first else first)


@contextmanager
def _translated(place: str) -> Iterator[None]:
    import aiohttp
    from botocore import exceptions
    from botocore.parsers import ResponseParserError

    uri = place if "://" in place else f"s3://{place}"
    try:
        yield
    except FileNotFoundError as error:
        if error.errno is not None:
            raise
        # With the number that every file system's own has: an error without one is taken for damaged content, or a bug.
        # Some say nothing but the path.
        reason = os.strerror(errno.ENOENT) if str(error) in uri else str(error)
        raise FileNotFoundError(errno.ENOENT, reason, uri) from error
    except (StorageError, FileExistsError, IsADirectoryError, NotADirectoryError):
        raise
    except (
        exceptions.NoCredentialsError,
        exceptions.PartialCredentialsError,
        exceptions.CredentialRetrievalError,
        exceptions.TokenRetrievalError,
        exceptions.SSOError,
        exceptions.ProfileNotFound,
    ) as error:
        raise StorageError(
            f"{uri}: no usable AWS credentials ({error}). Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
            f"AWS_PROFILE, or give the machine a role; to read a public bucket set input.anonymous: true"
        ) from error
    except PermissionError as error:
        raise StorageError(
            f"{uri}: access denied ({error}). Check that the AWS credentials in use are the right ones and may list, "
            f"read and, for outputs, write and delete there"
        ) from error
    except exceptions.EndpointConnectionError as error:
        raise StorageError(f"{uri}: {error}. Check the network and, if you set one, AWS_ENDPOINT_URL") from error
    except ResponseParserError as error:
        raise StorageError(f"{uri}: what answers does not speak S3. Check AWS_ENDPOINT_URL, if you set one") from error
    except (exceptions.BotoCoreError, aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise  # the local disk's
        reason = " ".join(str(error).split()) or type(error).__name__
        hint = ""
        if isinstance(error, OSError) and error.errno == errno.EINVAL:
            # What S3 answers to a HEAD request with a token that has run out: no code, no text.
            hint = ". If the AWS credentials in use are temporary ones, they may have run out"
        elif isinstance(error, ValueError) and "endpoint" in reason:
            hint = ". AWS_ENDPOINT_URL must begin with http:// or https://"
        raise StorageError(f"{uri}: the storage does not do as asked: {reason}{hint}") from error


def local_copy(uri: str, cache: Path, *, weights: bool = True) -> Path:
    """Return a copy on the local disk of the model folder at `uri`; it is downloaded once for all processes of the
    machine.

    The name of the copy holds a hash of the files' names, sizes and entity tags. A folder that has changed is
    downloaded again, beside the old copy, and a copy is complete or does not exist. Old ones that were not requested
    for a day are deleted then; a process that has such a model loaded keeps it.

    Args:
        cache: folder of the copies; it is created if necessary.
        weights: False leaves the weights out: a tokenizer needs none.

    Raises:
        StorageError: no such folder, no access, or no network.
    """
    filesystem, root = open_filesystem(uri)
    try:
        listed = filesystem.ls(root, detail=True)
    except FileNotFoundError as error:
        raise StorageError(f"{uri}: no such folder") from error
    files = {}
    for entry in listed:
        name = str(entry["name"]).rsplit("/", 1)[-1]
        if entry["type"] != "file" or not name or name.endswith(_UNUSED_ENDINGS):
            continue
        if weights or not name.endswith(_WEIGHTS_ENDING):
            files[name] = (str(entry["name"]), _state(entry))
    if not files:
        raise StorageError(f"{uri}: there is no file in it")
    which = content_hash([uri, weights])
    content = content_hash(sorted((name, state) for name, (_, state) in files.items()))
    folder = cache / f"{root.rsplit('/', 1)[-1]}-{which}-{content}"
    lock = Path(f"{folder}.lock")
    if folder.is_dir():
        with suppress(OSError):  # not where the cache can only be read
            lock.touch()  # tells when the copy was last asked for
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with FileLock(lock):
        if not folder.is_dir():
            with tempfile.TemporaryDirectory(dir=cache, prefix=".download-") as scratch:
                target = Path(scratch) / "files"
                target.mkdir()
                for name, (path, state) in files.items():
                    _download(filesystem, path, target / name)
                    if _state(filesystem.info(path)) != state or state[0] not in (None, (target / name).stat().st_size):
                        raise StorageError(f"{uri}: {name} has changed while it was downloaded; start again")
                target.replace(folder)
            _delete_unasked(cache.glob(f"*-{which}-*.lock"))
    return folder


def _delete_unasked(locks: Iterable[Path]) -> None:
    """Delete the copies of these locks that were not requested for a long time; skip those that cannot be deleted."""
    for lock in locks:
        with suppress(OSError):
            if time.time() - lock.stat().st_mtime > _UNASKED_SECONDS:
                shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
                lock.unlink()


def _state(entry: dict[str, Any]) -> list[Any]:
    """Return the size of a listed file, and its storage's version mark (entity tag or time), or None."""
    keys = ("ETag", "etag", "LastModified", "last_modified", "mtime", "created")
    return [entry["size"], next((str(entry[key]).strip('"') for key in keys if entry.get(key)), None)]


def _download(filesystem: Any, source: str, target: Path) -> None:
    # Large files are fetched in parts, and s3fs does not repeat a part whose connection broke half-way.
    for pause in (*_PAUSES, None):
        try:
            filesystem.get_file(source, str(target))
            return
        except StorageError:
            if pause is None:
                raise
            time.sleep(pause)


def cache_folder() -> Path:
    """Return the folder of converted models: `$HPD_CACHE`, else `~/.cache/hpd`."""
    return Path(os.environ.get("HPD_CACHE") or Path.home() / ".cache" / "hpd")


logger = logging.getLogger(__name__)

_FOLDER = "TRITON_CACHE_DIR"


def prepare_compile_cache() -> None:
    """Make Triton keep kernels in the user's cache, and log once from now on that it compiles some.

    Call it when a model is loaded, before its first launch. A folder that the user has named is kept.

    Raises:
        ImportError: Triton is not here.
    """
    if _FOLDER not in os.environ:
        os.environ[_FOLDER] = _kept_in(cache_folder() / "triton")
    from triton import knobs

    knobs.compilation.listener = _Listener()


def _kept_in(folder: Path) -> str:
    """Return the folder, or, if it cannot be written, one of this process."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        logger.warning("kernels for the GPU cannot be kept (%s): every process compiles them; set HPD_CACHE", error)
        return tempfile.mkdtemp(prefix="hpd-triton-")
    return str(folder)


class _Listener:
    """Listener that Triton calls for every kernel that is found in its cache or was compiled."""

    def __init__(self) -> None:
        self._has_told = False

    def __call__(self, *, cache_hit: bool, **_: Any) -> None:
        if cache_hit or self._has_told:
            return
        self._has_told = True
        logger.info("compiling kernels for this GPU: some seconds, once; they are kept in %s", os.environ[_FOLDER])
