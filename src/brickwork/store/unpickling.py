"""A .pth that a page sent, as plain tensors: read by a process of its own, with bounded memory and time.

torch's reader runs no code of such a file, but a few bytes of a pickle can ask for any amount of memory.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from brickwork.errors import BadFile, BrickworkError

SECONDS, TIMES = 120, 4  # of its time, and the memory it may take: so many times the file, and MORE
MORE = 1 << 30


def as_safetensors(file: Path) -> Path:
    """The tensors of a .pth in a .safetensors beside it; BadFile where it holds something else, or too much."""
    out = file.with_suffix(".safetensors")
    command = [sys.executable, "-P", "-m", "brickwork.store.unpickling", str(file), str(out)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=2 * SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise BadFile(f"{file} takes too long to read.") from None
    if done.returncode == 2:
        raise BadFile(done.stdout.strip())
    if done.returncode != 0:
        raise BadFile(f"{file} cannot be read with {TIMES} times its size in memory; save it as .safetensors.")
    return out


def main(file: Path, out: Path) -> None:
    """In the process of its own."""
    import resource

    from safetensors.torch import save_file

    from brickwork.store.weights import load_weights

    with open("/proc/self/statm" if sys.platform == "linux" else "/dev/null") as statm:
        taken = int((statm.read().split() or ["0"])[0]) * resource.getpagesize()
    if taken:  # elsewhere a process does not say what torch has taken already
        most = taken + TIMES * file.stat().st_size + MORE
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    try:
        save_file({name: value.clone().contiguous() for name, value in load_weights(file).items()}, out)
    except BrickworkError as error:
        print(error)
        sys.exit(2)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
