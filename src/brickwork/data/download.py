"""Fetch one file over HTTP: resumed where it stopped, checked by its checksum, in place only when whole."""

from __future__ import annotations

import hashlib
import http.client
import os
import time
import urllib.error
import urllib.request
from pathlib import Path

from brickwork.errors import JobFailed
from brickwork.progress import bar

BLOCK = 1 << 20


def fetch(url: str, path: Path, checksum: str, *, attempts: int = 5, wait: float = 1.0, progress: bool = True) -> Path:
    """Download to `path`, unless it is there. `checksum` reads 'md5:…' or 'sha256:…'.

    What has arrived is kept as `path`.part, so that a cut connection, or the next run, goes on from there.
    """
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    for attempt in range(attempts):
        try:
            _continue(url, part, progress)
            break
        except urllib.error.HTTPError as error:
            if error.code == 416 and part.exists():  # asked beyond the end: the checksum will tell whether it is whole
                break
            raise JobFailed(
                f"{url} answered {error.code} {error.reason}; put the file at {path} by hand, or name "
                "another address in BRICKWORK_MIRROR."
            ) from error
        except (OSError, http.client.HTTPException) as error:
            if attempt == attempts - 1:
                have = part.stat().st_size if part.exists() else 0
                raise JobFailed(
                    f"downloading {url} stopped {attempts} times, last by: {error}. {have:,} bytes are kept "
                    f"in {part}; run the same command again to go on from there."
                ) from error
            time.sleep(wait * 2**attempt)
    algorithm, _, expected = checksum.partition(":")
    result = _digest(part, algorithm)
    if result != expected:
        part.unlink()
        raise JobFailed(
            f"{url} arrived with {algorithm} {result}, expected {expected}; it was deleted. "
            "Run the same command to download it again; if it repeats, the address serves another file."
        )
    os.replace(part, path)
    return path


def _continue(url: str, part: Path, progress: bool) -> None:
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    with urllib.request.urlopen(request, timeout=60) as answer:
        if answer.status != 206:  # the server does not resume: from the start
            have = 0
        length = answer.headers.get("Content-Length")
        total = have + int(length) if length else None
        with part.open("ab" if have else "wb") as file, bar(Path(url).name, total, show=progress, unit="bytes") as step:
            step(have)
            while block := answer.read(BLOCK):
                file.write(block)
                step(len(block))
    # http.client reports a short read only when it is asked for everything at once
    if total is not None and part.stat().st_size < total:
        raise ConnectionError(f"the connection closed after {part.stat().st_size:,} of {total:,} bytes")


def _digest(path: Path, algorithm: str) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False)).hexdigest()
