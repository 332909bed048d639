"""Official archives over HTTP, from a local server that can be made to fail."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import struct
import tarfile
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from brickwork import data
from brickwork.data import named
from brickwork.data.download import fetch
from brickwork.errors import JobFailed


class Server:
    """Serves bytes by path; `cut` closes the connection after so many bytes, once for each entry."""

    def __init__(self):
        self.files: dict[str, bytes] = {}
        self.cut: list[int] = []
        self.ranges: list[str | None] = []
        self.resumes = True
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                body = outer.files.get(self.path.lstrip("/"))
                asked = self.headers.get("Range")
                outer.ranges.append(asked)
                if body is None:
                    self.send_error(404)
                    return
                start = int(asked.removeprefix("bytes=").rstrip("-")) if asked and outer.resumes else 0
                if start >= len(body) > 0:
                    self.send_error(416)
                    return
                self.send_response(206 if start else 200)
                self.send_header("Content-Length", str(len(body) - start))
                self.end_headers()
                part = body[start:]
                if outer.cut:
                    part = part[: outer.cut.pop(0)]
                    self.close_connection = True
                self.wfile.write(part)

            def log_message(self, *args):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"


@pytest.fixture
def server():
    running = Server()
    yield running
    running.http.shutdown()
    running.http.server_close()
    running.thread.join()


def md5(body: bytes) -> str:
    return "md5:" + hashlib.md5(body).hexdigest()


BODY = bytes(range(256)) * 5000


def test_download(server, tmp_path):
    server.files["set.bin"] = BODY
    path = fetch(f"{server.url}/set.bin", tmp_path / "deep" / "set.bin", md5(BODY))
    assert path.read_bytes() == BODY
    assert [p.name for p in path.parent.iterdir()] == ["set.bin"]
    assert fetch(f"{server.url}/set.bin", path, "md5:not looked at again") == path
    assert len(server.ranges) == 1


def test_a_cut_connection_is_resumed(server, tmp_path):
    server.files["set.bin"] = BODY
    server.cut = [300_000, 100_000]
    path = fetch(f"{server.url}/set.bin", tmp_path / "set.bin", md5(BODY), wait=0)
    assert path.read_bytes() == BODY
    assert server.ranges == [None, "bytes=300000-", "bytes=400000-"]


def test_the_next_run_goes_on_where_the_last_one_stopped(server, tmp_path):
    server.files["set.bin"] = BODY
    server.cut = [1000, 1000]
    with pytest.raises(JobFailed, match=r"2,000 bytes are kept in .*set\.bin\.part; run the same command again"):
        fetch(f"{server.url}/set.bin", tmp_path / "set.bin", md5(BODY), attempts=2, wait=0)
    assert not (tmp_path / "set.bin").exists()
    assert fetch(f"{server.url}/set.bin", tmp_path / "set.bin", md5(BODY)).read_bytes() == BODY
    assert server.ranges[-1] == "bytes=2000-"


def test_a_server_that_cannot_resume_starts_over(server, tmp_path):
    server.files["set.bin"] = BODY
    server.cut, server.resumes = [1000], False
    assert fetch(f"{server.url}/set.bin", tmp_path / "set.bin", md5(BODY), wait=0).read_bytes() == BODY


def test_a_part_that_is_whole_already(server, tmp_path):
    server.files["set.bin"] = BODY
    (tmp_path / "set.bin.part").write_bytes(BODY)
    assert fetch(f"{server.url}/set.bin", tmp_path / "set.bin", md5(BODY)).read_bytes() == BODY


def test_a_wrong_checksum_leaves_nothing_behind(server, tmp_path):
    server.files["set.bin"] = BODY[:-1] + b"x"
    with pytest.raises(JobFailed, match=r"arrived with md5 .*, expected .*; it was deleted"):
        fetch(f"{server.url}/set.bin", tmp_path / "set.bin", md5(BODY))
    assert list(tmp_path.iterdir()) == []


def test_a_missing_file_says_what_to_do(server, tmp_path):
    with pytest.raises(JobFailed, match=r"answered 404 .* by hand"):
        fetch(f"{server.url}/gone.bin", tmp_path / "gone.bin", md5(BODY))


def serve(monkeypatch, server, name, files):
    """Put made-up archives behind a set's name, in the official format."""
    server.files |= files
    official = replace(named.OFFICIAL[name], files={file: md5(body) for file, body in files.items()})
    monkeypatch.setitem(named.OFFICIAL, name, official)


def tar_of(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, body in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(body)
            tar.addfile(info, io.BytesIO(body))
    return buffer.getvalue()


def cifar_rows(labels: list[list[int]], source: np.random.Generator) -> tuple[bytes, np.ndarray]:
    pixels = source.integers(0, 256, (len(labels), 3, 32, 32), dtype=np.uint8)
    rows = np.concatenate([np.array(labels, np.uint8), pixels.reshape(len(labels), -1)], axis=1)
    return rows.tobytes(), pixels.transpose(0, 2, 3, 1)


def test_cifar10_archive_becomes_an_npz(server, tmp_path, monkeypatch):
    source, files, images = np.random.default_rng(0), {}, []
    for name in [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]:
        files[f"cifar-10-batches-bin/{name}"], pixels = cifar_rows([[3], [7]], source)
        images.append(pixels)
    serve(monkeypatch, server, "cifar10", {"cifar-10-binary.tar.gz": tar_of(files)})
    found = data.load("cifar10", root=tmp_path, mirror=server.url)
    assert found.classes[3] == "cat" and len(found.classes) == 10
    assert np.array_equal(found.train_images, np.concatenate(images[:5]))
    assert found.test_labels.tolist() == [3, 7]
    assert [p.name for p in tmp_path.rglob("*") if p.is_file()] == ["cifar10.npz"]
    server.files.clear()
    assert len(data.load("cifar10:cat", root=tmp_path).train_labels) == 5


def test_cifar100_archive_takes_the_fine_labels(server, tmp_path, monkeypatch):
    source = np.random.default_rng(0)
    train, images = cifar_rows([[1, 0], [0, 2]], source)
    test, _ = cifar_rows([[1, 1]], source)
    files = {"train.bin": train, "test.bin": test, "fine_label_names.txt": b"apple\nbear\nseal\n"}
    archive = tar_of({f"cifar-100-binary/{name}": body for name, body in files.items()})
    serve(monkeypatch, server, "cifar100", {"cifar-100-binary.tar.gz": archive})
    monkeypatch.setenv("BRICKWORK_MIRROR", server.url + "/")
    monkeypatch.setenv("BRICKWORK_DATA", str(tmp_path))
    found = data.load("cifar100")
    assert found.classes == ("apple", "bear", "seal")
    assert found.train_labels.tolist() == [0, 2] and found.test_labels.tolist() == [1]
    assert np.array_equal(found.train_images, images)


@pytest.mark.parametrize(("name", "third"), [("mnist", "2"), ("fashion_mnist", "pullover")])
def test_mnist_archives(server, tmp_path, monkeypatch, name, third):
    def idx(array: np.ndarray) -> bytes:
        return gzip.compress(
            bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()
        )

    images = np.random.default_rng(0).integers(0, 256, (4, 28, 28), dtype=np.uint8)
    labels = np.array([2, 1, 0, 2], np.uint8)
    bodies = [idx(images), idx(labels), idx(images[:2]), idx(labels[:2])]
    serve(monkeypatch, server, name, dict(zip(named.OFFICIAL[name].files, bodies, strict=True)))
    found = data.load(name, root=tmp_path, mirror=server.url)
    assert found.classes[2] == third and found.shape == (28, 28, 1)
    assert np.array_equal(found.train_images[..., 0], images)
    assert found.test_labels.tolist() == [2, 1]


def test_official_checksums_are_kept_with_a_mirror(server, tmp_path):
    server.files["cifar-10-binary.tar.gz"] = b"another file"
    with pytest.raises(JobFailed, match="expected c32a1d4ab5d03f1284b67883e8d87530"):
        data.load("cifar10", root=tmp_path, mirror=server.url)
    assert not (tmp_path / "cifar10.npz").exists()


def test_the_command_lists_and_fetches(server, tmp_path, monkeypatch, run):
    row = cifar_rows([[3]], np.random.default_rng(0))[0]
    files = [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]
    serve(monkeypatch, server, "cifar10", {"cifar-10-binary.tar.gz": tar_of(dict.fromkeys(files, row))})
    monkeypatch.setenv("BRICKWORK_DATA", str(tmp_path))

    def listed():
        return {row["name"]: row["state"] for row in json.loads(run("data", "list", "--json")[1])["sets"]}

    assert listed() == {"cifar10": "to be fetched", "cifar100": "to be fetched", "digits": "embedded"} | dict.fromkeys(
        ("mnist", "fashion_mnist"), "to be fetched"
    )
    (tmp_path / "folder.npz").mkdir()
    (tmp_path / "gone.npz").symlink_to(tmp_path / "nowhere")
    assert not {"folder", "gone"} & set(listed())
    (tmp_path / "folder.npz").rmdir()
    (tmp_path / "gone.npz").unlink()
    code, _, error = run("data", "fetch", "cifar10", "cifar11", "--mirror", server.url)
    assert (
        code == 2 and "'cifar11'" in error and "cifar10" in error and not list(tmp_path.iterdir())
    )  # nothing is begun
    code, text, _ = run("data", "fetch", "cifar10", "digits", "--mirror", server.url)
    assert code == 0 and str(tmp_path / "cifar10.npz") in text and listed()["cifar10"] == "0.0 MB"
