"""Journal: rows appended to a file, flushed to the disk in groups, rotated into Parquet; a crash loses nothing flushed.

Knows its schema, not what the rows mean. Two promises: a row appended has been handed to the operating system when
`append` returns, or once the future that it returned is done, so that a process killed the next moment takes nothing
along (a machine that loses its power may lose the last twentieth of a second); a row appended durably is on the disk
once its future is done.

Life of a file: NAME-STAMP-PID-N.jsonl is appended to (and locked by its process), closed when large or old, written as
the .parquet of the same stem, then removed. A reader that finds both ignores the .jsonl: the rename to .parquet is the
moment of truth.
"""

from __future__ import annotations

import fcntl
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.json as pj
import pyarrow.parquet as pq
from pydantic_core import to_json

from exactk.errors import DataError

log = logging.getLogger("exactk.serving")

LAZY_SECONDS = 0.05  # rows nobody waits for are flushed this often
MAX_PENDING = 100_000
COMPLAINT_SECONDS = 10.0
# A disk, or a busy machine, that takes longer for one write must not hold up the caller again ...
STALL_SECONDS = 0.02
ASIDE_SECONDS = 5.0  # ... for so long: the writing thread takes the rows meanwhile


class Journal:
    """Append from any thread. One thread writes what somebody waits for, flushes, and rotates."""

    def __init__(
        self,
        folder: Path,
        name: str,
        schema: pa.Schema,
        rotate_bytes: int,
        rotate_seconds: float,
        on_loss: Callable[[int], None] = lambda _: None,
    ) -> None:
        self.folder, self.name, self.schema = folder, name, schema
        self.rotate_bytes, self.rotate_seconds = rotate_bytes, rotate_seconds
        self.on_loss = on_loss
        folder.mkdir(parents=True, exist_ok=True)
        self._pending: list[bytes] = []
        self._durable: list[Future[None]] = []  # done once their rows are on the disk
        self._handed: list[Future[None]] = []  # done once their rows are with the system
        self._closing = False
        self._news = threading.Condition()
        self._count = 0
        self._unsaid, self._quiet_until = 0, 0.0
        self._file: _File | None = None
        # Of the open file; never held while the disk is waited for, but by `_write`.
        self._writing = threading.Lock()
        self._aside_until = 0.0
        self._shelving = ThreadPoolExecutor(1, thread_name_prefix=f"{name}-parquet")
        self._shelving.submit(shelve_abandoned, folder, name, schema)
        self._writer = threading.Thread(target=self._write_for_ever, name=f"{name}-journal", daemon=True)
        self._writer.start()

    def append(self, row: dict[str, Any]) -> Future[None] | None:
        """Hand this row to the system now; it reaches the disk within a moment. A full disk counts it as lost.

        Where the disk stands still, the row is not with the system before the future is done.
        """
        line = _line(row)
        started = time.monotonic()
        if started < self._aside_until:
            return self._put(line, self._handed)
        with self._writing:
            try:
                self._open_file().append(line)
            except OSError as error:
                self.on_loss(1)
                self._complain(1, error)
        if time.monotonic() - started > STALL_SECONDS:
            self._aside_until = time.monotonic() + ASIDE_SECONDS
        return None

    def append_durably(self, row: dict[str, Any]) -> Future[None]:
        """Keep this row; the future is done once it is on the disk, and fails with OSError if it cannot be."""
        return self._put(_line(row), self._durable)

    def close(self) -> None:
        """Flush what is pending and rotate the open file; called once, at shutdown."""
        with self._news:
            self._closing = True
            self._news.notify()
        self._writer.join()
        self._shelving.shutdown(wait=True)

    def _put(self, line: bytes, waiting: list[Future[None]]) -> Future[None]:
        future: Future[None] = Future()
        with self._news:
            full = self._closing or len(self._pending) >= MAX_PENDING
            if not full:
                self._pending.append(line)
                waiting.append(future)
                self._news.notify()
                return future
        self.on_loss(1)
        future.set_exception(OSError(f"the {self.name} journal takes no more rows"))
        return future

    def _write_for_ever(self) -> None:
        flushed = 0.0
        while True:
            with self._news:
                self._news.wait_for(lambda: self._pending or self._closing, timeout=LAZY_SECONDS)
                taken = self._pending.copy()
                self._pending.clear()
                closing = self._closing
                durable, handed = self._durable.copy(), self._handed.copy()
                self._durable.clear()
                self._handed.clear()
            if taken:
                self._write(taken, durable, handed)
            file = self._file
            is_due = closing or time.monotonic() - flushed >= LAZY_SECONDS
            if file is not None and (is_due or file.size >= self.rotate_bytes):
                self._flush_and_rotate(file, closing)
                flushed = time.monotonic()
            if closing:
                return

    def _write(self, taken: list[bytes], durable: list[Future[None]], handed: list[Future[None]]) -> None:
        failure: OSError | None = None
        with self._writing:
            try:
                file = self._open_file()
                before = file.size
                file.append(b"".join(taken))
                _finish(handed, None)
                if durable:
                    file.flush(before)
            except OSError as error:
                failure = error
                self.on_loss(len(taken))
                self._complain(len(taken), error)
        _finish(durable, failure)
        _finish([future for future in handed if not future.done()], failure)

    def _open_file(self) -> _File:
        """The file that is appended to; made when there is none, under a name that nobody has."""
        while self._file is None:
            self._count += 1
            stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
            path = self.folder / f"{self.name}-{stamp}-{os.getpid()}-{self._count}.jsonl"
            if not path.with_suffix(".parquet").exists():
                with suppress(FileExistsError):
                    self._file = _File(path)
        return self._file

    def _flush_and_rotate(self, file: _File, closing: bool) -> None:
        try:
            file.flush()
        except OSError as error:  # the rows are with the system still: later flushes may succeed
            self._complain(0, error)
        if closing or file.size >= self.rotate_bytes or file.age() >= self.rotate_seconds:
            with self._writing:
                self._file = None
            path = file.close()
            self._shelving.submit(shelve, path, self.schema)

    def _complain(self, rows: int, error: OSError) -> None:
        """Now and then, not for every write: a full disk may stay full for hours."""
        self._unsaid += rows
        if time.monotonic() >= self._quiet_until:
            log.error("%d rows of the %s journal could not be written: %s", self._unsaid, self.name, error)
            self._unsaid, self._quiet_until = 0, time.monotonic() + COMPLAINT_SECONDS


def _finish(waiting: Sequence[Future[None]], failure: OSError | None) -> None:
    for future in waiting:
        if failure is None:
            future.set_result(None)
        else:
            future.set_exception(failure)


def _line(row: dict[str, Any]) -> bytes:
    return to_json(row, inf_nan_mode="null") + b"\n"  # a line break within a text is written as \\n


class _File:
    """One open journal file: what was appended before a failed write stays whole."""

    def __init__(self, path: Path) -> None:
        self.path, self.size, self._born = path, 0, time.monotonic()
        self._flushed = 0
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # a living process owns this file
            is_ours = os.path.samestat(os.fstat(self._descriptor), path.stat())
        except (BlockingIOError, FileNotFoundError):
            is_ours = False
        if (
            not is_ours
        ):  # before it was locked, another process took it for abandoned, and removes what is empty
            os.close(self._descriptor)
            raise FileExistsError(path)

    def age(self) -> float:
        return time.monotonic() - self._born

    def append(self, data: bytes) -> None:
        try:
            done = 0
            while done < len(data):
                done += os.pwrite(self._descriptor, data[done:], self.size + done)
        except OSError:
            os.ftruncate(self._descriptor, self.size)  # a torn row must not stand before later ones
            raise
        self.size += len(data)

    def flush(self, undo_to: int | None = None) -> None:
        """Wait until the disk has everything; where it fails, take back what was appended since `undo_to`."""
        size = self.size
        if size == self._flushed:
            return
        try:
            os.fdatasync(self._descriptor)
        except OSError:
            if undo_to is not None:
                os.ftruncate(self._descriptor, undo_to)
                self.size = undo_to
            raise
        self._flushed = size

    def close(self) -> Path:
        os.close(self._descriptor)
        return self.path


def shelve(journal: Path, schema: pa.Schema) -> None:
    """Turn a closed journal into Parquet of the same stem and remove it; on failure the journal stays for later."""
    part = journal.with_suffix(".parquet")
    draft = journal.with_suffix(".part")
    try:
        if not part.exists():
            table = read_journal(journal, schema)
            if len(table):
                pq.write_table(table, draft, compression="zstd")
                _flush(draft)
                draft.rename(part)
                _flush(journal.parent)
        journal.unlink()
    except (OSError, pa.ArrowException) as error:
        draft.unlink(missing_ok=True)
        log.error("journal %s could not be turned into Parquet, it stays: %s", journal.name, error)


def shelve_abandoned(folder: Path, name: str, schema: pa.Schema) -> None:
    """Turn the journals that dead processes left behind; those of living ones are locked and stay."""
    for journal in sorted(folder.glob(f"{name}-*.jsonl")):
        try:
            descriptor = os.open(journal, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # another worker was quicker
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shelve(journal, schema)
        except BlockingIOError:
            pass
        finally:
            os.close(descriptor)


def read_journal(journal: Path, schema: pa.Schema) -> pa.Table:
    """All whole rows of a journal; a last line torn by a crash was never acknowledged and is left out."""
    data = journal.read_bytes()
    return rows_of_lines(data[: data.rfind(b"\n") + 1], schema)


def rows_of_lines(lines: bytes, schema: pa.Schema) -> pa.Table:
    """Whole lines of a journal as the columns of a schema, which may be fewer than the lines have."""
    if not lines:
        return schema.empty_table()
    # One block: a row longer than the default block would be refused.
    how = pj.ReadOptions(use_threads=False, block_size=len(lines) + 1)
    what = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    table = pj.read_json(pa.BufferReader(lines), how, what)
    return table.select(schema.names).cast(schema)


def read_all(folder: Path, name: str, schema: pa.Schema) -> pa.Table:
    """Every row ever kept under this name."""
    tables = [table for _, table in tables_in(folder, name, schema)]
    return pa.concat_tables([schema.empty_table(), *tables])


def tables_in(folder: Path, name: str, schema: pa.Schema) -> Iterator[tuple[str, pa.Table]]:
    """The same, a journal at a time, each with its stem: shelved parts, then those still open or abandoned."""
    parts = sorted(folder.glob(f"{name}-*.parquet"))
    shelved = {path.stem for path in parts}
    journals = [path for path in sorted(folder.glob(f"{name}-*.jsonl")) if path.stem not in shelved]
    for path in (*parts, *journals):
        try:
            is_part = path.suffix == ".parquet"
            table = completed(pq.read_table(path), schema) if is_part else read_journal(path, schema)
            table.validate(full=True)  # bytes that are no text would be met by whoever reads them
        except (pa.ArrowException, OSError, KeyError, UnicodeDecodeError) as error:
            raise DataError(f"{path} is damaged: {error}; move it away to build without it") from error
        yield path.stem, table


def completed(held: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows of a log of before, whose columns that came later are empty."""
    for each in schema:
        if each.name not in held.column_names:
            held = held.append_column(each, pa.nulls(len(held), each.type))
    return held.select(schema.names).cast(schema)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
