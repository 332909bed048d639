"""Write a file or a folder whole or not at all.

Everything is written under a temporary name beside the target, flushed to disk, and renamed. A full disk,
an exception or Ctrl-C leaves what was there before, and nothing half-written under the final name.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import os
import re
import secrets
import shutil
import socket
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from brickwork.errors import JobFailed, OutputExists, RequestError
from brickwork.ownership import foreign

#: the disk said no: the request was right and the work failed
_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS}


LONGEST = 255  # bytes of a name, on every usual file system

_UMASK = os.umask(0)
os.umask(_UMASK)


@contextlib.contextmanager
def write_folder(path: str | Path, *, force: bool = False, owns: Sequence[str] = ("config.json",)) -> Iterator[Path]:
    """Yield an empty folder to write into; it becomes `path` when the block ends well.

    `force` replaces a folder that is empty or is one of ours (`ownership`, by the files in `owns`), and no other: a mistyped
    output must not delete somebody's photographs. The old folder is removed only after the new one is in place.
    """
    path = Path(path)
    check_output(path, force=force, owns=owns)
    _remove_leftovers(path)
    temporary = _beside(path, "tmp")
    with _explained(path):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary.mkdir()
            yield temporary
            _open_to_readers(temporary)
            _flush_tree(temporary)
            _put_in_place(temporary, path, force)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


@contextlib.contextmanager
def write_file(path: str | Path, *, force: bool = True) -> Iterator[Path]:
    """Yield a temporary name to write to; it becomes the file `path` when the block ends well."""
    path = Path(path)
    check_file(path, force=force)
    _remove_leftovers(path)
    temporary = _beside(path, "tmp")
    with _explained(path):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            yield temporary
            os.chmod(temporary, 0o666 & ~_UMASK)
            _flush(temporary)
            os.replace(temporary, path)
            _flush(path.parent)
        finally:
            temporary.unlink(missing_ok=True)


def write_text(path: str | Path, text: str, *, force: bool = True) -> None:
    """Write a text file whole or not at all."""
    with write_file(path, force=force) as draft:
        draft.write_text(text, encoding="utf-8")


def _open_to_readers(folder: Path) -> None:
    """The usual rights of a new file: some libraries write theirs for the owner alone."""
    for file in folder.rglob("*"):
        if file.is_file() and not file.is_symlink():
            os.chmod(file, 0o666 & ~_UMASK)


def check_output(path: str | Path, *, force: bool = False, owns: Sequence[str] = ("config.json",)) -> None:
    """Refuse an output folder before any work is done for it."""
    path = recovered(path)
    if not os.path.lexists(path):
        return _check_place(path)
    if not force:
        raise OutputExists(path)
    if path.is_symlink() or not path.is_dir():
        raise RequestError(f"{path} is not a folder; `force` replaces folders only. Choose another `out`.")
    why = foreign(path, owns)
    if why is not None:
        raise RequestError(
            f"{path} was not written by Brickwork alone ({why}), so `force` does not replace it. Choose another `out`, or "
            "remove it yourself."
        )
    return _check_place(path)


def check_file(path: str | Path, *, force: bool = False) -> None:
    """Refuse an output file before any work is done for it."""
    path = Path(path)
    with _explained(path):
        if path.is_dir():
            raise RequestError(f"{path} is a folder; a file is to be written there.")
        if path.exists() and not force:
            raise OutputExists(path)
    _check_place(path)


def _check_place(path: Path) -> None:
    """Refuse what cannot be written where it is to stand: found out by making a folder there and removing it again."""
    with _explained(path):
        if any(len(os.fsencode(part)) > LONGEST for part in path.parts):
            raise OSError(errno.ENAMETOOLONG, "too long")
        above = next(p for p in path.absolute().parents if p.exists())
        if not above.is_dir():
            raise RequestError(f"cannot write {path}: {above} is not a folder; choose another `out`.")
        probe = above / _beside(path, "tmp").name
        try:
            probe.mkdir()
            probe.rmdir()
        except FileNotFoundError as error:  # /proc and the like
            raise RequestError(f"cannot write {path}: nothing can be made in {above}; choose another `out`.") from error


def file_hash(path: Path) -> str:
    """sha256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def recovered(path: str | Path) -> Path:
    """The path of a folder that is to be opened. One that a killed run had moved aside gets its name back.

    Only where names cannot be exchanged in one step is there an instant in which nothing has the name.
    """
    path = Path(path)
    with contextlib.suppress(OSError):
        if not os.path.lexists(path):
            aside = [old for old in _leftovers(path) if old.suffix == ".old"]
            if aside:
                os.rename(max(aside, key=lambda old: old.stat().st_mtime), path)
    return path


def _remove_leftovers(path: Path) -> None:
    """What killed runs left beside the path."""
    for left in _leftovers(path):
        with contextlib.suppress(OSError):
            shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()


def _leftovers(path: Path) -> list[Path]:
    """Temporary names beside the path whose process, on this machine, is no more."""
    prefix = _prefix(path)
    result = []
    with contextlib.suppress(OSError):
        for entry in path.parent.iterdir():
            match = re.fullmatch(r"(\d+)-[0-9a-f]{8}\.(tmp|old)", entry.name.removeprefix(prefix))
            if match and entry.name.startswith(prefix) and not _alive(int(match[1])):
                result.append(entry)
    return result


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        pass
    return True


def _prefix(path: Path) -> str:
    """How temporary names of a path begin: with this machine, since only here can its processes be looked up."""
    name, machine = path.name or path.resolve().name, hashlib.sha256(socket.gethostname().encode()).hexdigest()[:6]
    short = name if len(name.encode()) <= 180 else f"{name[:40]}-{hashlib.sha256(name.encode()).hexdigest()[:16]}"
    return f".{short}.{machine}-"


def _beside(path: Path, kind: str) -> Path:
    return path.parent / f"{_prefix(path)}{os.getpid()}-{secrets.token_hex(4)}.{kind}"


def _put_in_place(temporary: Path, path: Path, force: bool) -> None:
    if not (force and path.exists()):
        if os.path.lexists(path):  # somebody was faster; rename would replace an empty folder silently
            raise OutputExists(path)
        os.rename(temporary, path)
        _flush(path.parent)
        return
    if _exchange(temporary, path):  # the old folder has the temporary name now, which is removed
        _flush(path.parent)
        return
    old = _beside(path, "old")
    os.rename(path, old)
    try:
        os.rename(temporary, path)
    except BaseException:  # Ctrl-C included: between the two renames nothing is under the final name
        os.rename(old, path)
        raise
    _flush(path.parent)
    shutil.rmtree(old, ignore_errors=True)


def _exchange(one: Path, two: Path) -> bool:
    """Exchange two names in one step; False where the system cannot (Linux can, on most of its file systems)."""
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None) if sys.platform == "linux" else None
    if renameat2 is None:
        return False
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    return renameat2(here, os.fsencode(one), here, os.fsencode(two), ctypes.c_uint(exchange)) == 0


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """One sentence for a disk that is full, broken or closed to us."""
    try:
        yield
    except OSError as error:
        if error.errno in _DISK:
            raise JobFailed(
                f"cannot write {path}: {os.strerror(error.errno or 0)}; what was there before is unchanged."
            ) from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EEXIST, errno.ENAMETOOLONG):
            raise RequestError(f"cannot write {path}: {os.strerror(error.errno)}; choose another `out`.") from error
        raise


def _flush_tree(folder: Path) -> None:
    for root, _, files in os.walk(folder):
        for name in files:
            _flush(Path(root) / name)
        _flush(Path(root))


def _flush(path: Path) -> None:
    """Have the bytes (of a folder: the names in it) on the disk before the next rename relies on them."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EBADF):  # some network file systems cannot flush a folder
            raise
    finally:
        os.close(handle)
