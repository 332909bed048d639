"""The studio on a port of its own."""

import shutil
import socket
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # helpers beside the tests are imported by their bare names
uvicorn = pytest.importorskip("uvicorn")

import workbench  # noqa: E402
from PIL import Image  # noqa: E402

from brickwork import data, store, zoo  # noqa: E402
from brickwork.studio import build as studio_build  # noqa: E402
from brickwork.studio.shelf import Shelf  # noqa: E402
from brickwork.training import train  # noqa: E402


@contextmanager
def served(shelf, token):
    """Serve a folder, or a Shelf; gives the port."""
    from brickwork.studio import make_app

    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(make_app(shelf, token), log_level="critical"))
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


@pytest.fixture(scope="session")
def bench(tmp_path_factory):
    """models/: two halves of the digits, the first half again, and a network of one's own; pics/: images beside them."""
    place = tmp_path_factory.mktemp("bench")
    (place / "studio_own_net.py").write_text(workbench.OWN)
    sys.path.insert(0, str(place))
    for name, half, seed, arch in (
        ("a", "A", 0, "lenet"),
        ("b", "B", 1, "lenet"),
        ("again", "A", 2, "lenet"),
        ("mine", "A", 3, "studio_own_net:net"),
    ):
        images = data.load(f"digits:{half}", size=16, channels=1)
        own = arch.startswith("studio")
        model = zoo.build(arch, seed=seed) if own else zoo.build(arch, num_classes=5, in_channels=1, seed=seed)
        pixels, labels = images.train_images, images.train_labels
        train(model, pixels, labels, epochs=3, classes=images.classes, device="cpu", progress=False, seed=seed)
        store.save(model, place / "models" / name, provenance={} if own else {"data": f"digits:{half}"})
    some = data.load("digits:A@30", size=16, channels=1)
    for split in ("train", "test"):
        pixels, labels, _ = some.split(split)
        for k, (image, label) in enumerate(zip(pixels, labels, strict=True)):
            folder = place / "pics" / split / some.classes[label]
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image[:, :, 0]).save(folder / f"{k}.png")
    (place / "secret").mkdir()
    yield place
    sys.path.remove(str(place))


@pytest.fixture(scope="module")
def place(bench, tmp_path_factory):
    """A bench of the module's own: the networks are trained once."""
    return Path(shutil.copytree(bench, tmp_path_factory.mktemp("place") / "bench"))


@pytest.fixture(scope="module")
def shelf(place):
    return Shelf(place / "models", place / "pics", ("studio_own_net:net",))


@pytest.fixture(scope="module")
def port(shelf, serve):
    with serve(shelf, workbench.TOKEN) as port:
        yield port


@pytest.fixture
def page(port):
    assert workbench.ask(port, "/api/board", {})[0] == 200
    return f"http://127.0.0.1:{port}/?token={workbench.TOKEN}"


@pytest.fixture
def held(monkeypatch):
    """Cutting waits until it is let go."""
    begun, go, cut = threading.Event(), threading.Event(), studio_build.disassemble

    def slow(*args, **options):
        begun.set()
        assert go.wait(60)
        return cut(*args, **options)

    monkeypatch.setattr(studio_build, "disassemble", slow)
    yield begun, go
    go.set()
