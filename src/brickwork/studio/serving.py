"""The studio's page on this machine, until it is stopped."""

import secrets
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

from brickwork.errors import RequestError
from brickwork.studio.app import make_app
from brickwork.studio.shelf import Shelf


def serve(
    folder: Path,
    *,
    data: Path | None = None,
    arch: Sequence[str] = (),
    port: int = 0,
    device: str = "cpu",
    tell: Callable[[str], object] = print,
) -> None:
    """Answer on 127.0.0.1 alone, to whoever has the token of the address that is told."""
    if not folder.is_dir():
        raise RequestError(f"{folder} is no folder; give the one that holds your model folders.")
    if data is not None and not data.is_dir():
        raise RequestError(f"`data` is {data}, which is no folder; give one that holds images.")
    import uvicorn  # here, so that what is missing is told by brickwork.studio.app

    token = secrets.token_urlsafe(24)
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind(("127.0.0.1", port))
        except OSError as error:
            raise RequestError(f"port {port} cannot be used ({error}); choose another, or 0 for any.") from error
        tell(f"http://127.0.0.1:{listening.getsockname()[1]}/?token={token}")
        config = uvicorn.Config(make_app(Shelf(folder, data, tuple(arch)), token, device), log_level="warning")
        uvicorn.Server(config).run(sockets=[listening])
