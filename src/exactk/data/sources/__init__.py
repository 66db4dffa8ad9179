"""Data sets of others, MovieLens and the authors' own files; here, what fetches their files over HTTP.

A file is checked against its checksum, resumed where it stopped, and missed in plain words. Knows nothing of what the
files hold.
"""

from __future__ import annotations

import hashlib
import http.client
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from exactk.atomic import atomic_folder
from exactk.errors import DataError

Progress = Callable[[int, int | None], None]  # bytes so far, bytes in all where known
_CHUNK = 1 << 16
_TIMEOUT = 30.0  # seconds


def download(
    url: str, target: Path, checksum: str, progress: Progress | None = None, attempts: int = 4
) -> Path:
    """Fetch `url` to `target`, which exists afterwards only if its checksum ("sha256:..." or "md5:...") is right.

    What arrived before a break stays in `target` + ".part"; the next attempt, or the next call, asks for the rest.
    """
    if target.is_file() and _digest(target, checksum) == checksum:
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    for attempt in range(attempts):
        held = part.stat().st_size if part.is_file() else 0
        try:
            whole = _fetch_rest(url, part, progress)
        except (OSError, http.client.HTTPException) as error:
            grown = part.is_file() and part.stat().st_size > held
            if isinstance(error, urllib.error.HTTPError) or (not grown and attempt + 1 == attempts):
                raise _unreachable(url, error) from error
            continue
        if whole:
            break
    else:
        raise DataError(
            f"{url} broke off after {part.stat().st_size:,} bytes, {attempts} times; "
            "run again to fetch the rest"
        )
    if _digest(part, checksum) != checksum:
        part.unlink()
        raise DataError(f"{url} is not the file it should be: its checksum is not {checksum}")
    part.replace(target)
    return target


def unpack(archive: Path, folder: Path) -> Path:
    """Extract a zip file into `folder`, which appears whole; an archive with one folder inside is that folder."""
    if not folder.is_dir():
        with atomic_folder(folder) as draft:
            try:
                with zipfile.ZipFile(archive) as opened:
                    opened.extractall(draft)
            except zipfile.BadZipFile as error:
                raise DataError(f"{archive} is damaged: {error}") from error
    inside = [path for path in folder.iterdir() if not path.name.startswith((".", "__"))]
    return inside[0] if len(inside) == 1 and inside[0].is_dir() else folder


def _fetch_rest(url: str, part: Path, progress: Progress | None) -> bool:
    """Append what is missing of `part`; False where the connection ended too early."""
    held = part.stat().st_size if part.is_file() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={held}-"} if held else {})
    try:
        answer = urllib.request.urlopen(request, timeout=_TIMEOUT)
    except urllib.error.HTTPError as error:
        with error:
            if error.code != 416:  # nothing beyond what we hold: it is whole, or the checksum will tell
                raise
        return True
    with answer:
        resumed = answer.status == 206
        received = held if resumed else 0
        length = answer.headers.get("Content-Length")
        total = received + int(length) if length else None
        with part.open("ab" if resumed else "wb") as file:
            while chunk := answer.read(_CHUNK):
                file.write(chunk)
                received += len(chunk)
                if progress:
                    progress(received, total)
    return total is None or received == total


def _digest(path: Path, checksum: str) -> str:
    kind = checksum.partition(":")[0]
    with path.open("rb") as file:
        # GroupLens publishes md5 sums; here they tell damage from health, not friend from foe.
        digest = hashlib.file_digest(file, lambda: hashlib.new(kind, usedforsecurity=False))
    return f"{kind}:{digest.hexdigest()}"


def _unreachable(url: str, error: Exception) -> DataError:
    host = urlsplit(url).hostname
    if isinstance(error, urllib.error.HTTPError):
        return DataError(f"{host} answered {error.code} ({error.reason}) for {url}")
    reason = getattr(error, "reason", error)
    return DataError(
        f"cannot reach {host} ({reason}). Without a connection, fetch {url} elsewhere and give its path as the source"
    )
