"""Data sets of others: what fetches their files over HTTP, and the authors' own; MovieLens lies beside.

A file is checked against its checksum, resumed where it stopped, and missed in plain words. The authors' files are
MovieLens cards with K=4, N=20 and K=10, N=50, read exactly as they are.
"""

from __future__ import annotations

import hashlib
import http.client
import ssl
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa

from exactk.atomic import atomic_folder, failed, sha256
from exactk.data.dataset import Dataset
from exactk.data.table import Meta
from exactk.data.writer import DatasetWriter
from exactk.errors import DataError

Progress = Callable[[int, int | None], None]  # bytes so far, bytes in all where known
_CHUNK = 1 << 16
_TIMEOUT = 30.0  # seconds
# Other OSErrors are of the disk.
_OF_THE_NET = (urllib.error.URLError, ConnectionError, TimeoutError, ssl.SSLError)


def download(
    url: str, target: Path, checksum: str, progress: Progress | None = None, attempts: int = 4
) -> Path:
    """Fetch `url` to `target`, which exists afterwards only if its checksum ("sha256:..." or "md5:...") is right.

    What arrived before a break stays in `target` + ".part"; the next attempt, or the next call, asks for the rest.
    """
    if target.is_file() and _digest(target, checksum) == checksum:
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise failed(target, error) from error
    part = target.with_name(target.name + ".part")
    for attempt in range(attempts):
        held = part.stat().st_size if part.is_file() else 0
        try:
            whole = _fetch_rest(url, part, progress)
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, OSError) and not isinstance(error, _OF_THE_NET):
                raise failed(target, error) from error
            grown = part.is_file() and part.stat().st_size > held
            if isinstance(error, urllib.error.HTTPError) or (not grown and attempt + 1 == attempts):
                raise _unreachable(url, error) from error
            continue
        if whole:
            break
    else:
        held = part.stat().st_size
        lost = f"{url} broke off after {held:,} bytes, {attempts} times"
        raise DataError(f"{lost}; run again to fetch the rest")
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


# The address of the paper's footnote; the pinned commit is the one that added the files.
REPOSITORY = "https://raw.githubusercontent.com/pangolulu/exact-k-recommendation"
COMMIT = "672f609167150f2c8c0d23ecc348ae9cb011d6f1"


@dataclass(frozen=True)
class Release:
    """One of the two published sets: where its files lie, what they hash to, what the paper's table says of it."""

    name: str
    K: int
    N: int
    folder: str
    suffix: str
    sha256: dict[str, str]
    paper: dict[str, int]


RELEASES = {
    "k4-n20": Release(
        name="k4-n20", K=4, N=20, folder="ml100k", suffix="",
        sha256={
            "dis_data_test.txt": "95f88c16e38e44cc2079fc4ee814d5c746a81493f0409287bc5ec72e262dc1be",
            "dis_data_train.txt": "2fe17c8bf20159bf6f153694703de64de66a15f88b7f9f548e22e8489c8a833c",
            "item_ids.txt": "0350c0046fcbc298e1f56ea6c135e2b072aa543c504c908ae6b9343bfd7cf74d",
            "rerank_data_test.txt": "b0c660208281e12b615ea697b9ddb6c11d6d871afc433fde5267e538865bbd0f",
            "rerank_data_train.txt": "f42835cb279143d5dfbc1de6da468f88a6347476639c5f66ddd748ea420d87bd",
            "user_ids.txt": "fc9529350a818e05a4dbf9f91d1639e0652425370217d9302bb198a3e6801d50",
        },
        paper={"users": 817, "cards": 40036, "items": 1630, "samples": 40036},
    ),
    "k10-n50": Release(
        name="k10-n50", K=10, N=50, folder="ml100k-10c", suffix="_10c",
        sha256={
            "dis_data_10c_test.txt": "d970a23fd2a78a8704533379c14ca1f71757f75e59514b09d0640184c65ed650",
            "dis_data_10c_train.txt": "c4782091860990eb85af91bdfbfa6db3005d537e4f0f11e6f56e361ff26aca77",
            "item_ids.txt": "19263ad47c1c2d284477ccece2c20f83fd490051e220562480d0f4676c4b484b",
            "rerank_data_10c_test.txt": "0870e0393076aa218646254cfb9c14e87a2887bae276057485df2e294f498993",
            "rerank_data_10c_train.txt": "72037078b064f3a4fbc14ddda57505b53742a3978ae57dae8f449485cccf0a08",
            "user_ids.txt": "d6e1096312f0391a3d3b70f5b4ddc6ed7b7a44543e961901dc74ebf88ea37f71",
        },
        paper={"users": 485, "cards": 33196, "items": 1649, "samples": 33198},
    ),
}  # fmt: skip


def build_published(
    out: Path | str,
    source: Path | str | None = None,
    release: str | None = None,
    cache: Path | str | None = None,
    repository: str = REPOSITORY,
    progress: Progress | None = None,
) -> Dataset:
    """Write a dataset folder from the authors' files at `source`, or fetched from their repository.

    Each sample becomes two impressions of one request: the positive card (clicked, its first item the clicked one)
    and the negative card that follows it in the reward estimator's file, both over the sample's candidates.
    """
    if source is None:
        chosen = RELEASES[_known(release or "k4-n20")]
        folder = Path(cache or Path(out).absolute().parent / "exactk-published") / chosen.name
        for file, digest in chosen.sha256.items():
            url = f"{repository}/{COMMIT}/data/{chosen.folder}/{file}"
            download(url, folder / file, f"sha256:{digest}", progress)
    else:
        folder, chosen = _located(Path(source), release)
    altered = [name for name, digest in chosen.sha256.items() if sha256(folder / name) != digest]
    provenance = {
        "source": "published", "release": chosen.name, "repository": repository, "commit": COMMIT,
        "altered_files": altered, "card_order": "as in the authors' files: the positive item first",
        "paper": chosen.paper,
    }  # fmt: skip
    meta = Meta(K=chosen.K, N=chosen.N, split={"by": "authors"}, provenance=provenance)
    with DatasetWriter(out, meta) as writer:
        writer.write_items(pa.table({"item_id": _ids(folder / "item_ids.txt")}))
        writer.write_users(pa.table({"user_id": _ids(folder / "user_ids.txt")}))
        for part in ("train", "test"):
            rows = list(_impressions(folder, chosen.suffix, part))
            writer.write_impressions(pa.Table.from_pylist(rows))
    return Dataset.open(out)


def _known(release: str) -> str:
    if release not in RELEASES:
        raise DataError(f"there is no published set {release!r}: choose {' or '.join(RELEASES)}")
    return release


def _located(source: Path, release: str | None) -> tuple[Path, Release]:
    """The folder with the files: the source itself or a folder of the release's name below it."""
    wanted = [RELEASES[_known(release)]] if release else list(RELEASES.values())
    for chosen in wanted:
        for folder in (source, source / chosen.name, source / chosen.folder):
            if (folder / f"rerank_data{chosen.suffix}_train.txt").is_file():
                missing = [name for name in chosen.sha256 if not (folder / name).is_file()]
                if missing:
                    raise DataError(f"{folder}: {', '.join(missing)} missing")
                return folder, chosen
    names = ", ".join(f"rerank_data{chosen.suffix}_train.txt" for chosen in wanted)
    raise DataError(f"{source} holds none of the authors' files ({names})")


def _ids(path: Path) -> list[int]:
    try:
        return list(map(int, path.read_text().split()))
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: {error}") from error


def _impressions(folder: Path, suffix: str, part: str) -> Iterator[dict[str, Any]]:
    """Positive and negative card of each sample, in file order."""
    samples = _lines(folder / f"rerank_data{suffix}_{part}.txt")
    judged_file = folder / f"dis_data{suffix}_{part}.txt"
    judged = _lines(judged_file)
    for number, (user, card, candidates) in enumerate(samples):
        for line, label in ((2 * number, [1]), (2 * number + 1, [0])):
            if line >= len(judged) or judged[line][0] != user or judged[line][2] != label:
                raise DataError(
                    f"{judged_file}: line {line + 1} is not the card labelled {label[0]} of its sample"
                )
            shown = judged[line][1]
            if label == [1] and shown != card:
                raise DataError(f"{judged_file}: line {line + 1} is not the card of sample {number + 1}")
            yield {
                "request_id": f"{part}-{number}",
                "user_id": user[0],
                "candidates": candidates,
                "card": shown,
                "clicked": label == [1],
                "clicked_item": shown[0] if label == [1] else None,
                "split": part,
            }
    if len(judged) != 2 * len(samples):
        raise DataError(f"{judged_file}: {len(judged)} cards, {2 * len(samples)} were expected")


def _lines(path: Path) -> list[tuple[list[int], list[int], list[int]]]:
    """Three tab-separated lists of numbers per line."""
    read = []
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    for line, text in enumerate(lines, 1):
        fields = text.split("\t")
        if len(fields) != 3:
            raise DataError(f"{path}: line {line} has {len(fields)} tab-separated fields, not 3")
        try:
            first, second, third = (list(map(int, field.split(","))) for field in fields)
        except ValueError as error:
            raise DataError(f"{path}: line {line}: {error}") from error
        read.append((first, second, third))
    return read
