"""Rolling counts kept up with the log: what all workers showed and heard, as it stands on the disk.

Knows the log's tables and the counts, no service. Every worker reads the same journals, its own among them, so that all
count the same, also after a restart: counts are those of the model folder, and of the log since then.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from exactk.data.rolling import RollingCounts, Shown
from exactk.serving.log import FEEDBACK, IMPRESSIONS, is_on_card, moment_of
from exactk.serving.log.journal import completed, rows_of_lines

log = logging.getLogger("exactk.serving")

ROWS = 4096  # read together
REMEMBERED = 200_000  # of the latest requests who asked, of the latest clicks that they were counted
_FLAGS = ("integer_ids", "integer_users", "integer_items")
READ = {
    "impressions": pa.schema([
        IMPRESSIONS.field(name) for name in ("request_id", "user_id", "card", "timestamp", *_FLAGS)
    ]),
    "feedback": pa.schema([FEEDBACK.field(name) for name in ("request_id", "clicked", "clicked_item", "timestamp")]),
}  # fmt: skip


class CountedSoFar(NamedTuple):
    """How far a journal was read: rows, and bytes of lines while it is no Parquet yet."""

    rows: int = 0
    size: int = 0
    is_done: bool = False


class LogCounts:
    """Follows a log folder and counts what is new in it; `catch_up` is called from one thread at a time.

    Clicks and impressions may come in any order: a click waits for its impression where it must be known who asked.
    """

    def __init__(self, folder: Path, counts: RollingCounts, whole_items: bool) -> None:
        """`whole_items`: the model's item ids are whole numbers; the log has all ids as text."""
        self.folder, self.counts, self._since = folder, counts, counts.as_of
        self._whole_items = whole_items
        self._places: dict[str, CountedSoFar] = {}
        self._users: dict[str, Any] = {}  # who asked, by request
        self._waiting: dict[str, list[str]] = {}  # clicked items of requests not met yet
        self._clicked: dict[tuple[str, str], None] = {}

    def catch_up(self) -> int:
        """Count what was shown and clicked since the last look; how many rows of the log that were."""
        paths = [path for path in self.folder.glob("*-*") if path.name.startswith(tuple(READ))]
        stems = {path.stem for path in paths if path.suffix}
        rows = 0
        for stem in sorted(stems, key=lambda stem: stem.partition("-")[::-1]):  # in order of time
            name = stem.partition("-")[0]
            for table in self._news(stem, READ[name]):
                self.counts.update(self._shown(table) if name == "impressions" else self._clicks(table))
                rows += len(table)
        return rows

    def _news(self, stem: str, wanted: pa.Schema) -> Iterator[pa.Table]:
        """What is new in a journal, a piece at a time."""
        place = self._places.get(stem, CountedSoFar())
        parquet, lines = (self.folder / f"{stem}.{ending}" for ending in ("parquet", "jsonl"))
        try:
            if place.is_done:
                return
            if parquet.exists():
                yield from self._of_parquet(parquet, wanted, place)
                self._places[stem] = CountedSoFar(is_done=True)
                return
            with lines.open("rb") as file:
                file.seek(place.size)
                data = file.read()
            whole = data[: data.rfind(b"\n") + 1]
            table = rows_of_lines(whole, wanted)
            self._places[stem] = CountedSoFar(place.rows + len(table), place.size + len(whole))
            for first in range(0, len(table), ROWS):
                yield table.slice(first, ROWS)
        except FileNotFoundError:
            return  # it is being turned into Parquet, or was removed
        except (OSError, pa.ArrowException) as error:
            log.error("journal %s cannot be counted: %s", stem, error)
            self._places[stem] = CountedSoFar(is_done=True)

    def _of_parquet(self, path: Path, wanted: pa.Schema, place: CountedSoFar) -> Iterator[pa.Table]:
        with pq.ParquetFile(path) as file:
            if self._since is not None:
                moments = file.read(columns=["timestamp"])["timestamp"]
                if (pc.max(moments).as_py() or 0) <= self._since:
                    return
            held = [name for name in wanted.names if name in file.schema_arrow.names]
            first = 0
            for batch in file.iter_batches(ROWS, columns=held):
                table = pa.Table.from_batches([batch])
                unread = table.slice(max(0, place.rows - first))
                first += len(table)
                if len(unread):
                    yield completed(unread, wanted)

    def _shown(self, table: pa.Table) -> Iterator[Shown]:
        """What was shown after the counts of the model folder end."""
        for row in table.to_pylist():
            if self._since is not None and row["timestamp"] <= self._since:
                continue
            whole_user = row["integer_users"] or row["integer_ids"]
            user = int(row["user_id"]) if whole_user else row["user_id"]
            if self.counts.by_user:
                _remember(self._users, row["request_id"], user)
            clicked = self._waiting.pop(row["request_id"], ())
            yield Shown(user, self._ids(row["card"]), self._ids(clicked))

    def _clicks(self, table: pa.Table) -> Iterator[Shown]:
        """Clicks on items of cards, each once, of requests that belong to this stretch of time."""
        for row in table.to_pylist():
            request_id, item = row["request_id"], row["clicked_item"]
            if not row["clicked"] or item is None or (request_id, item) in self._clicked:
                continue
            moment = moment_of(request_id)
            late = moment is None or (self._since is not None and moment <= self._since)
            if late or not is_on_card(request_id, item):
                continue
            _remember(self._clicked, (request_id, item), None)
            if not self.counts.by_user:
                yield Shown(None, clicked=self._ids([item]))
            elif request_id in self._users:
                yield Shown(self._users[request_id], clicked=self._ids([item]))
            else:
                _remember(self._waiting, request_id, [*self._waiting.get(request_id, ()), item])

    def _ids(self, texts: Any) -> list[Any]:
        return [int(item) for item in texts] if self._whole_items else list(texts)


def _remember(held: dict[Any, Any], key: Any, value: Any) -> None:
    held[key] = value
    if len(held) > REMEMBERED:
        del held[next(iter(held))]
