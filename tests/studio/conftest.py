"""The studio on a port of its own."""

import socket
import threading
import time
from contextlib import contextmanager

import pytest

uvicorn = pytest.importorskip("uvicorn")


@contextmanager
def served(root, token):
    """Serve a folder; gives the port."""
    from brickwork.studio import make_app

    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(make_app(root, token), log_level="critical"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        while not server.started:
            time.sleep(0.02)
        yield listening.getsockname()[1]
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def serve():
    return served
