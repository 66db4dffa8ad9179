"""Files and folders that appear whole or not at all: written beside their place, on the disk before they are there.

Knows nothing of what is inside them. Whoever writes them, they may be read by whom the umask lets read.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from exactk.errors import DataError

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


@contextmanager
def atomic_file(path: Path | str) -> Iterator[Path]:
    """Yield a place to write; on success it becomes `path`, on any failure `path` is untouched.

    A kill at any moment leaves the old file or the new one, whole. Two processes may write the same file: one stays.
    """
    target = _at_its_place(path, "file")
    draft = target.with_name(f".{target.name}.{os.getpid()}.writing")
    try:
        draft.touch()
        usual = draft.stat().st_mode & 0o777
        yield draft
        draft.chmod(usual)  # some writers put a private file in its place
        _flush(draft)
        os.replace(draft, target)
        _flush(target.parent)
    except OSError as error:
        raise failed(target, error) from error
    finally:
        draft.unlink(missing_ok=True)


def write_text(path: Path | str, text: str) -> None:
    """A small text file, whole or not at all."""
    with atomic_file(path) as draft:
        draft.write_text(text, encoding="utf-8")


@contextmanager
def atomic_folder(path: Path | str) -> Iterator[Path]:
    """Yield an empty folder to fill; on success it takes the place of `path`, on any failure `path` is untouched.

    What stood at `path` goes, whatever it held: see `check_replaceable`.
    """
    target = _at_its_place(path, "folder")
    draft = draft_folder(target)
    try:
        yield draft
        finish(draft)
        swap(draft, target)
        _flush(target.parent)
    except OSError as error:
        raise failed(target, error) from error
    finally:  # the draft that failed, or the old folder that was swapped out
        shutil.rmtree(draft, ignore_errors=True)


def failed(path: Path | str, error: Exception) -> DataError:
    """What a failing disk means for a file or folder."""
    return DataError(f"{path} could not be written ({error}); what stood there is unchanged")


def draft_folder(target: Path) -> Path:
    """A new folder beside a place, with the permissions that new folders have."""
    draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    draft.mkdir()
    return draft


def _at_its_place(path: Path | str, kind: str) -> Path:
    """Where a file or folder of this name stands: links are followed, never replaced."""
    target = Path(path)
    _make_parent(target)
    check_place(target, kind, target.is_file() if kind == "file" else target.is_dir())
    try:
        return followed(target)
    except OSError as error:
        raise failed(target, error) from error


def followed(path: Path) -> Path:
    """Where a link leads, a path that is none itself; links that lead in a ring lead nowhere."""
    target = Path(os.path.realpath(path))
    if target.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    return target


def _make_parent(target: Path) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise failed(target, error) from error


def check_place(target: Path, kind: str, fits: bool) -> None:
    """Refuse a place where something else stands: root may rename a file over /dev/null, and then it is gone."""
    if target.absolute().parent == Path("/dev") or (target.exists() and not fits):
        raise DataError(f"{target} is not a {kind}, so it is not overwritten")


def check_replaceable(target: Path, kind: str, marks: Sequence[str]) -> None:
    """Refuse to put a dataset, or a model, in the place of a folder that is neither empty nor one of its kind.

    `marks` are files that every folder of the kind has.
    """
    check_place(target, "folder", target.is_dir())
    if target.is_dir() and any(target.iterdir()) and not all((target / name).is_file() for name in marks):
        raise DataError(f"{target} exists and is not a {kind}; it will not be overwritten")


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


def finish(folder: Path) -> None:
    """Have every file below `folder` reach the disk, and be read by whom the umask lets read: some writers make
    private ones.
    """
    usual = folder.stat().st_mode & 0o666
    for root, _, files in os.walk(folder):
        for name in files:
            (Path(root) / name).chmod(usual)
            _flush(Path(root) / name)
        _flush(Path(root))


def sha256(path: Path) -> str:
    """Of a file's content, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


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
    paths = (_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second))
    return bool(rename(*paths, ctypes.c_uint(_RENAME_EXCHANGE)) == 0)
