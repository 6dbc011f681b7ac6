"""Detects media types, and loads media from files and URLs within a resolver's limits."""

from __future__ import annotations

import os
import re
import sys
from base64 import b64encode
from binascii import a2b_base64
from dataclasses import dataclass
from errno import EFBIG
from os import PathLike
from typing import TYPE_CHECKING, cast

from lazyprompt._base.files import names_other_machine, read_regular
from lazyprompt._base.frozen import read_only
from lazyprompt.errors import MediaError
from lazyprompt.media.fetch import Deadline, FetchLimits, check_url, checked_host, fetch, scheme_of, url_error
from lazyprompt.messages.msg import Base64Source, URLSource

if TYPE_CHECKING:
    from collections.abc import Sequence


__all__ = ["MediaResolver", "check_url", "checked_source", "is_local", "media_type_of", "sniff_type"]

_HEAD = 64
_HEAD_BASE64 = 88
_DAY = 86_400
_UNTOLD = frozenset({"", "application/octet-stream", "binary/octet-stream", "application/force-download"})

# The known MIME types, each with file extensions, alternative names and a pattern for the first bytes.
# The first matching pattern determines the MIME type.
# The mimetypes module is not used, because its results depend on the operating system.
# The patterns for HEIF (mif1) search the list of compatible brands, because the brands identify the codec.
# The MP3 pattern excludes MPEG layer I, which can begin like a UTF-16 byte order mark.
_TABLE = (
    ("image/png", "png", "image/x-png", rb"\x89PNG\r\n\x1a\n"),
    ("image/jpeg", "jpg jpeg jpe jfif", "image/jpg image/pjpeg", rb"\xff\xd8\xff"),
    ("image/gif", "gif", "", rb"GIF8[79]a"),
    ("image/webp", "webp", "", rb"RIFF....WEBP"),
    ("image/bmp", "bmp", "image/x-bmp image/x-ms-bmp", rb"BM....\x00{4}....[\x0c(48@l|]\x00{3}"),
    ("image/tiff", "tif tiff", "image/tif", rb"II\*\x00|MM\x00\*"),
    ("image/avif", "avif", "", rb"....ftyp(?:avi[fs]|m[is]f1.{4}(?:.{4}){0,8}?avif)"),
    ("image/heic", "heic", "", rb"....ftyp(?:hei[cmsx]|hev[cx]|m[is]f1.{4}(?:.{4}){0,8}?heic)"),
    ("image/heif", "heif", "", rb"....ftypm[is]f1"),
    ("audio/wav", "wav", "audio/x-wav audio/wave audio/vnd.wave audio/x-pn-wav", rb"R(?:IFF|F64)....WAVE"),
    (
        "audio/mpeg",
        "mp3",
        "audio/mp3 audio/x-mp3 audio/x-mpeg audio/mpeg3",
        rb"ID3[\x02-\x04]|\xff[\xe2-\xe5\xf2-\xf5\xfa-\xfd][\x10-\xef]",
    ),
    ("audio/mp4", "m4a", "audio/x-m4a audio/m4a", rb"....ftypM4[ABP] "),
    ("audio/flac", "flac", "audio/x-flac", rb"fLaC\x00"),
    ("audio/aac", "aac", "audio/x-aac audio/aacp", rb"\xff[\xf0\xf1\xf8\xf9]"),
    ("audio/aiff", "aif aiff", "audio/x-aiff", rb"FORM....AIF[CF]"),
    ("video/ogg", "ogv", "", rb"OggS\x00.{0,50}\x80theora"),
    ("audio/ogg", "ogg oga opus", "audio/opus application/ogg", rb"OggS\x00"),
    ("video/quicktime", "mov", "video/mov", rb"....ftypqt  "),
    ("video/3gpp", "3gp", "", rb"....ftyp3g"),
    ("video/mp4", "mp4 m4v", "video/x-m4v", rb"....ftyp"),
    ("video/webm", "webm", "", rb"\x1aE\xdf\xa3.{0,56}webm"),
    ("video/x-matroska", "mkv", "video/matroska", rb"\x1aE\xdf\xa3"),
    ("video/x-msvideo", "avi", "video/avi video/msvideo video/vnd.avi", rb"RIFF....AVI "),
    ("video/mpeg", "mpeg mpg", "video/mpg video/x-mpeg", rb"\x00\x00\x01[\xb3\xba]"),
    ("video/x-flv", "flv", "", rb"FLV\x01"),
    ("application/pdf", "pdf", "application/x-pdf", rb"(?:\xef\xbb\xbf)?\s*%PDF-"),
    ("application/json", "json", "text/json", None),
    ("text/plain", "txt", "", None),
    ("text/markdown", "md markdown", "text/x-markdown", None),
    ("text/csv", "csv", "", None),
    ("text/html", "html htm", "", None),
    ("text/xml", "xml", "application/xml", None),
    ("image/svg+xml", "svg", "", None),
)
_TYPES = tuple(row[0] for row in _TABLE)
_ENDINGS = {ending: row[0] for row in _TABLE for ending in row[1].split()}
_NAMES = {name: row[0] for row in _TABLE for name in (row[0], *row[2].split())}
_BEGINNING = re.compile(b"|".join(b"(%b)" % row[3] for row in _TABLE if row[3]), re.DOTALL)
# The container formats that can contain audio or video. Their first bytes are the same for audio and video.
_BOXES = ("mp4", "webm", "ogg", "3gpp", "x-matroska")
_FILE_URL = re.compile(r"file:(?://(?:localhost)?(?=/)|(?!//))(/[^?#]*)", re.IGNORECASE)
_BASE64 = re.compile(r"[A-Za-z0-9+/]*+={0,2}")
_URLSAFE = str.maketrans("-_", "+/")
_ENDING = re.compile(r"\.(\w+)\Z")
_BARE = re.compile(r"[\\/]|\A[.~]|\.\w+\Z")


def is_local(url: str) -> bool:
    """Return True if a URL refers to a local file.

    Args:
        url: A URL, a path, or a file identifier that a provider issued.

    Returns:
        True for a ``file:`` URL or a local path. Text without a scheme is a local path if it contains a slash or
        backslash, ends with an extension (``a.png``), or begins with a dot or tilde.
    """
    scheme = scheme_of(url)
    return scheme == "file" if scheme else bool(_BARE.search(url))


def media_type_of(url: str) -> str | None:
    """Return the MIME type for a URL's file extension.

    Args:
        url: A URL or a path. The query, the fragment and letter case are ignored.

    Returns:
        The MIME type, or None if the extension is missing or unknown.
    """
    path = re.split("[?#]", url, maxsplit=1)[0]
    # Remove a URL's scheme and host, because a host name has no file extension.
    # Search a local path with and without the text after a question mark, which may be part of a file name.
    texts = (re.sub("[^:]+:(//[^/]*)?", "", path, count=1),) if scheme_of(url) else (path, url)
    endings = (_ENDING.search(text) for text in texts)
    return next((_ENDINGS[found[1].lower()] for found in endings if found and found[1].lower() in _ENDINGS), None)


def sniff_type(head: bytes) -> str | None:
    """Detect a MIME type from the first bytes of the content.

    Args:
        head: At least the first 64 bytes, or all bytes if there are fewer.

    Returns:
        The MIME type, or None if the bytes match no known format. For plain text, which has no signature, the function
        returns None.
    """
    found = _BEGINNING.match(head)
    return _TYPES[found.lastindex - 1] if found and found.lastindex else None


def checked_source(source: Base64Source, kind: str, where: str) -> Base64Source:
    """Validate a base64 source, and correct its MIME type to match its content.

    Args:
        source: The source.
        kind: The kind of the content block: ``image``, ``audio``, ``video`` or ``file``.
        where: The location of the source to show in error messages, such as ``messages[2].content[1]``.

    Returns:
        The given source if it needs no correction. Otherwise, a new source whose data is standard base64 without white
        space, and whose MIME type is the canonical name of the detected type. If no type is detected, the source keeps
        its declared type.

    Raises:
        MediaError: The data is empty or not base64, or the content doesn't match ``kind``.
    """
    data = source.data
    if not _plain(data):
        data = "".join(data.split()).translate(_URLSAFE)
        if not _plain(data):
            raise MediaError(f"{where}: the data is {_fault(source.data)}; pass the bytes in base64")
    media_type = _named(source.media_type)
    true = sniff_type(a2b_base64(data[:_HEAD_BASE64]))
    if true is not None and true != media_type:
        media_type = _of_kind(true, media_type, kind, where)
    if data is source.data and media_type == source.media_type:
        return source
    return Base64Source(media_type, data)


def _plain(data: str) -> bool:
    return bool(data) and not len(data) % 4 and _BASE64.fullmatch(data) is not None


def _fault(data: str) -> str:
    if not data.strip():
        return "empty"
    if data.startswith("data:"):
        return "a data: URL; use only the part after its comma"
    wrong = re.search(r"[^A-Za-z0-9+/=_\s-]", data)
    return f"not base64: found {wrong[0]!r} at index {wrong.start()}" if wrong else "not base64: invalid padding"


def _of_kind(true: str, declared: str, kind: str, where: str) -> str:
    """Return the MIME type to use when the detected type differs from the declared type."""
    declared_kind = _kind(declared) if kind == "file" else kind
    if _box(true) and declared_kind in {"audio", "video"}:
        return f"{declared_kind}/{_box(true)}"
    if _kind(true) not in {kind, declared_kind} and not (kind == "file" and declared in _UNTOLD):
        raise MediaError(f"{where}: declared as {declared!r}, but the content is {true}; use a block for that type")
    return true


def _kind(media_type: str) -> str:
    kind = media_type.partition("/")[0]
    return kind if kind in {"image", "audio", "video"} else "file"


def _box(media_type: str) -> str:
    box = media_type.partition("/")[2]
    return box if box in _BOXES else ""


def usual_type(media_type: str) -> str:
    """Return the canonical name of a MIME type without its parameters."""
    name = media_type.partition(";")[0].strip().lower()
    return _NAMES.get(name, name)


def _named(media_type: str) -> str:
    """Return a MIME type's canonical name; unknown types, and text types with parameters, are returned unchanged."""
    name = usual_type(media_type)
    return media_type if name not in _NAMES or (";" in media_type and _is_text(name)) else name


@read_only
@dataclass(frozen=True, slots=True)
class MediaResolver:
    """The directories and hosts from which media may be loaded. Without a resolver, no media is loaded.

    A resolver is stateless and keeps no connections, so threads can share it.

    Args:
        roots: The directories from which files may be read, including subdirectories. The paths are resolved when the
            resolver is created. Relative paths are resolved against the current directory, ``~`` is not expanded, and
            symbolic links are followed.
        hosts: The hosts whose http(s) URLs may be fetched or sent to a provider. Each entry is a host name, an IP
            address, or a wildcard such as ``*.example.com`` for all subdomains. A host name must resolve to public IP
            addresses or to IP addresses in ``hosts``; ``localhost`` may also resolve to a loopback address.
        max_bytes: The maximum size of one file or response, in bytes.
        timeout: The time limit in seconds for fetching one URL, including redirects; at most one day.

    Raises:
        MediaError: A root is not a directory, a host is invalid, or a limit is not a positive number.
    """

    roots: Sequence[str | PathLike[str]] = ()
    hosts: Sequence[str] = ()
    max_bytes: int = 20 * 2**20
    timeout: float = 10.0

    def __post_init__(self) -> None:
        for name in ("roots", "hosts"):
            given = getattr(self, name)
            if not isinstance(given, list | tuple):
                raise MediaError(f"{name} must be a list or tuple, not {type(given).__name__}")
        object.__setattr__(self, "roots", tuple(map(_root, self.roots)))
        object.__setattr__(self, "hosts", tuple(map(checked_host, self.hosts)))
        _check_limits(self.max_bytes, self.timeout)

    def check(self, url: str, where: str) -> None:
        """Check that a URL may be sent to a provider, without fetching it.

        Args:
            url: The URL.
            where: The location of the URL to show in error messages, such as ``messages[2].content[1]``.

        Raises:
            MediaError: The URL is not http(s), contains credentials, or refers to a host that ``hosts`` doesn't allow.
                Private hosts must be listed in ``hosts``.
        """
        check_url(url, where, self.hosts)

    def load(self, source: URLSource, where: str) -> Base64Source:
        """Load content from a file or URL.

        Args:
            source: A local path, a ``file:`` URL or an http(s) URL, with its MIME type if it is known.
            where: The location of the source to show in error messages, such as ``messages[2].content[1]``.

        Returns:
            The content, with its detected MIME type or, for text, its declared type.

        Raises:
            MediaError: Access is not allowed, the content can't be loaded within the limits, or the content contradicts
                its declared type.
        """
        return self._load(source, where, Deadline(self.timeout))

    async def aload(self, source: URLSource, where: str) -> Base64Source:
        """Async version of :meth:`load` that runs in a thread. Cancelling the task shuts down the connection."""
        import asyncio  # noqa: PLC0415 - slow, and needed only for async calls

        deadline = Deadline(self.timeout)
        try:
            return await asyncio.to_thread(self._load, source, where, deadline)
        except asyncio.CancelledError:
            deadline.stop()
            raise

    def _load(self, source: URLSource, where: str, deadline: Deadline) -> Base64Source:
        url = source.url
        if is_local(url):
            data = _read(url, where, [os.fspath(root) for root in self.roots], self.max_bytes)
            types = {"media_type": source.media_type, "ending": media_type_of(url)}
        elif scheme_of(url) in {"http", "https"}:
            data, content_type, final = fetch(
                url, where, FetchLimits(self.hosts, self.max_bytes, self.timeout), deadline
            )
            types = {"media_type": source.media_type, "Content-Type": content_type}
            if usual_type(content_type or "") in _UNTOLD:
                # Use the URL's unreliable file extension only if the Content-Type is missing or generic.
                types["ending"] = media_type_of(final)
        else:
            raise url_error(where, url, "is neither a path nor an http(s) URL; pass a URL or a path such as './name'")
        return Base64Source(_true_type(data, types, where, url), b64encode(data).decode("ascii"))


def _true_type(data: bytes, types_given: dict[str, str | None], where: str, url: str) -> str:
    """Return the MIME type of the content, and check it against the declared types."""
    if not data:
        raise url_error(where, url, "is empty; pass a source with content")
    true = sniff_type(data[:_HEAD])
    types = {who: usual_type(text) for who, text in types_given.items() if text and usual_type(text) not in _UNTOLD}
    for who, declared in types.items():
        if not (_is_text(declared) if true is None else declared == true or _box(declared) == _box(true) != ""):
            bytes_are = f"is {true}" if true else "is not"
            raise url_error(
                where,
                url,
                f"is declared as {declared[:_HEAD]!r} by its {who}, but the content {bytes_are}; correct the "
                "declaration or the content",
            )
    if true is None and not types:
        raise url_error(
            where,
            url,
            "has an unknown type: neither its content nor its extension identifies the type; pass media_type=",
        )
    if true is None and not _is_utf8(data):
        raise url_error(where, url, "is declared as text, but is not valid UTF-8; encode it as UTF-8")
    return next(iter(types.values()), true or "")


def _is_text(media_type: str) -> bool:
    return media_type == "application/json" or media_type.startswith("text/")


def _is_utf8(data: bytes) -> bool:
    try:
        return "\0" not in data.decode("utf-8")
    except UnicodeDecodeError:
        return False


def _check_limits(size: object, seconds: object) -> None:
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise MediaError(f"max_bytes must be a positive integer, not {size!r}")
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not 0 < seconds <= _DAY:
        raise MediaError(f"timeout must be a positive number of seconds up to {_DAY}, not {seconds!r}")


def _root(given: object) -> str:
    if isinstance(given, str | PathLike) and (text := os.fsdecode(cast("str | PathLike[str]", given))):
        path = os.path.realpath(text)
        if os.path.isdir(path):  # noqa: PTH112 - pathlib is slow to import
            return path
    raise MediaError(f"roots contains {given!r}, which is not a directory; pass directory paths ('~' is not expanded)")


def _read(url: str, where: str, roots: Sequence[str], max_bytes: int) -> bytes:
    """Read a file in one of the allowed directories."""
    if not roots:
        raise url_error(where, url, "is a local path; allow its directory with MediaResolver(roots=[...])")
    try:
        given = _path_of(url, where)
        path = "" if names_other_machine(given, roots) else os.path.realpath(given)
        root = next((root for root in roots if path.startswith(root.rstrip(os.sep) + os.sep)), None)
        if root is None:
            raise url_error(where, url, f"is not in {' or '.join(roots)}; add its directory to roots=")
        return read_regular(path, max_bytes, root)
    except OSError as error:
        advice = "increase max_bytes= of the media resolver" if error.errno == EFBIG else "fix the cause"
        raise url_error(where, url, f"cannot be read: {error.strerror}; {advice} or pass another path") from error


def _path_of(url: str, where: str) -> str:
    path = url
    if scheme_of(url) == "file":
        found = _FILE_URL.fullmatch(url)
        if not found:
            raise url_error(where, url, "is not a local file URL; expected 'file:///path' with ? and # percent-encoded")
        from urllib.parse import unquote  # noqa: PLC0415 - slow, and needed only for file: URLs

        path = unquote(found[1], sys.getfilesystemencoding(), "surrogateescape")
        if os.path.splitdrive(path[1:])[0].endswith(":"):  # a Windows path such as /C:/a.png
            path = path[1:]
    if "\0" in path:
        raise url_error(where, url, "contains a null byte; remove it")
    return path
