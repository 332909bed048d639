"""`brickwork studio FOLDER`: a local page to put classes of trained networks together."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from brickwork.cli.common import DebugOption, Device, DeviceOption, log
from brickwork.errors import RequestError


def command(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Where the model folders are, and where new ones go.")
    ],
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 0,
    device: DeviceOption = Device.auto,
    debug: DebugOption = False,
) -> None:
    """A page on this machine: drag classes of networks onto a board, press Build, download the network.

    It listens on 127.0.0.1 alone, answers only to the token in the address it prints, and reads and writes nothing
    outside FOLDER.
    """
    import secrets
    import socket

    from brickwork.devices import pick

    if not folder.is_dir():
        raise RequestError(f"{folder} is no folder; give the one that holds your model folders.")
    where = pick(str(device))

    import uvicorn

    from brickwork.studio import make_app  # says what to install where something is missing

    token = secrets.token_urlsafe(24)
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind(("127.0.0.1", port))
        except OSError as error:
            raise RequestError(f"port {port} cannot be used ({error}); choose another, or 0 for any.") from error
        typer.echo(f"http://127.0.0.1:{listening.getsockname()[1]}/?token={token}")
        log("Open this address in a browser; Ctrl-C ends the studio.")
        config = uvicorn.Config(make_app(folder, token, str(where)), log_level="warning")
        uvicorn.Server(config).run(sockets=[listening])
