"""Files and folders that appear whole or not at all: written beside their place, on the disk before they are there.

Knows nothing of what is inside them.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


@contextmanager
def atomic_file(path: Path | str) -> Iterator[Path]:
    """Yield a place to write; on success it becomes `path`, on any failure `path` is untouched.

    A kill at any moment leaves the old file or the new one, whole. Two processes may write the same file: one stays.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}.{os.getpid()}.writing")
    try:
        yield draft
        _flush(draft)
        os.replace(draft, target)
        _flush(target.parent)
    finally:
        draft.unlink(missing_ok=True)


def write_text(path: Path | str, text: str) -> None:
    """A small text file, whole or not at all."""
    with atomic_file(path) as draft:
        draft.write_text(text, encoding="utf-8")


@contextmanager
def atomic_folder(path: Path | str) -> Iterator[Path]:
    """Yield an empty folder to fill; on success it takes the place of `path`, on any failure `path` is untouched."""
    target = Path(path).absolute()
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent))
    try:
        draft.chmod(0o755)  # mkdtemp makes it private; a dataset is read by others
        yield draft
        flush_folder(draft)
        swap(draft, target)
        _flush(target.parent)
    finally:
        shutil.rmtree(
            draft, ignore_errors=True
        )  # the draft that failed, or the old folder that was swapped out


def swap(draft: Path, target: Path) -> None:
    """Put `draft` in the place of `target`; an old `target` ends up at `draft`."""
    if not target.exists():
        draft.rename(target)
    elif not _exchange(draft, target):
        # No atomic exchange on this file system: a crash between the two renames leaves the old folder beside.
        old = draft.with_suffix(".old")
        target.rename(old)
        draft.rename(target)
        old.rename(draft)


def flush_folder(folder: Path) -> None:
    """Have every file below `folder`, and the folders themselves, reach the disk."""
    for root, _, files in os.walk(folder):
        for name in files:
            _flush(Path(root) / name)
        _flush(Path(root))


def temporary_folder(name: str = "dataset") -> Path:
    """A place for a folder that lasts as long as this process; removed when the interpreter ends."""
    import atexit

    root = Path(tempfile.mkdtemp(prefix="exactk-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    return root / name


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EROFS):  # some file systems cannot flush folders
            raise
    finally:
        os.close(descriptor)


def _exchange(first: Path, second: Path) -> bool:
    """Swap two folders in one step where the kernel and file system can (Linux renameat2)."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):
        return False
    done = rename(
        _AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), ctypes.c_uint(_RENAME_EXCHANGE)
    )
    return bool(done == 0)
