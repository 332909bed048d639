"""Whatever a page or a stranger sends: an answer of the 400s in one sentence, no fault, no lost connection, little memory."""

from __future__ import annotations

import http.client
import io
import json
import random
import resource
import socket
import urllib.parse
import zipfile

import pytest

import brickwork
from brickwork import zoo

uvicorn = pytest.importorskip("uvicorn", reason="the extra [studio] is not installed")
TOKEN = "a-token"


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shelf")
    for name in ("a", "ü ☃", "line\nbreak"):
        model = zoo.build("lenet", num_classes=3, in_channels=1, seed=0)
        brickwork.save(model, folder / name)
    return folder


@pytest.fixture(scope="module")
def port(root, serve):
    with serve(root, TOKEN) as port:
        yield port


def ask(port, path, body=None, *, token=TOKEN, method=None, headers=None):
    """Status and the answer's detail; a lost connection raises."""
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    given = {"X-Token": token, "Content-Type": "application/json", **(headers or {})}
    line.request(method or ("GET" if body is None else "POST"), path, body, given)
    answer = line.getresponse()
    content = answer.read()
    line.close()
    return answer.status, content


def refused(answer):
    status, content = answer
    assert 400 <= status < 500, (status, content[:300])
    detail = json.loads(content)["detail"]
    assert isinstance(detail, str) and "\n" not in detail


PATHS = ["size", "build", "merge", "map", "curve", "add", "forget", "rename", "undelete"]
NAMES = [
    "\0",
    "a\0",
    "x" * 5000,
    "../" * 400,
    "\ud800",
    "a\nb",
    "\r\n",
    "ÿ☃",
    "",
    ".",
    "%00",
    "con",
    "a/" * 200,
    "~",
    "🧱" * 400,
]


@pytest.mark.parametrize("name", NAMES, ids=lambda n: ascii(n)[:20])
def test_names(port, name):
    quoted = urllib.parse.quote(name.encode("utf-8", "surrogatepass"))
    for path in ("card", "download"):
        refused(ask(port, f"/api/{path}?model={quoted}"))
    for part in ("model", "data", "classes", "name", "judge"):
        board = {
            "parts": [{"model": "a", "classes": ["0"], "data": "digits:A", "budget": 0.5}],
            "name": "n",
            "judge": "",
        }
        if part in ("name", "judge"):
            board[part] = name
            if part == "judge" and not name:
                continue
        else:
            board["parts"][0][part] = [name] if part == "classes" else name
        refused(ask(port, "/api/build", json.dumps(board)))


@pytest.mark.parametrize(
    "budget", ["NaN", "Infinity", "-Infinity", "1e999", "-1", "0", '"x"', "null", "[]", "1" * 5000]
)
def test_numbers(port, budget):
    part = {"model": "a", "classes": ["0"], "data": "digits:A", "budget": "HERE"}
    body = json.dumps({"parts": [part], "name": "n"}).replace('"HERE"', budget)
    for path in ("size", "build"):
        refused(ask(port, f"/api/{path}", body))
    if budget not in ("null", "-1", "0"):
        form = json.dumps({"merge": {"weights": ["HERE", 1]}}).replace('"HERE"', budget)
        refused(ask(port, "/api/board", form))
    refused(ask(port, f"/api/jobs/{urllib.parse.quote(budget)}"))


@pytest.mark.parametrize(
    "body", ["", "{", "[]", "null", "3", '"x"', "[" * 100_000, b"\xff\xfe", '{"parts": []}', "{" * 5000]
)
def test_bodies(port, body):
    refused(ask(port, "/api/size", body))


def test_a_folder_with_any_name_can_be_downloaded(port, root):
    for name in ("ü ☃", "line\nbreak"):
        status, content = ask(port, f"/api/download?model={urllib.parse.quote(name)}")
        assert status == 200 and f"{name}/config.json" in zipfile.ZipFile(io.BytesIO(content)).namelist()


def test_a_download_follows_no_link_out_of_the_folder(port, root):
    card = root / "a" / "README.md"
    text = card.read_text()
    card.unlink()
    card.symlink_to("/etc/passwd")
    try:
        status, content = ask(port, "/api/download?model=a")
        assert status == 422 and b"outside the folder" in content and b"root:" not in content
    finally:
        card.unlink()
        card.write_text(text)


@pytest.mark.parametrize("arch", ["hf:..", "hf:timm_wrapper", "torchvision:fcn_resnet50"])
def test_the_size_of_a_strangers_network_opens_nothing_else(port, root, arch):
    folder = brickwork.save(zoo.build("lenet", num_classes=3, in_channels=1, seed=0), root / "strange", force=True)
    config = json.loads((folder / "config.json").read_text())
    args = (
        {"architecture": "local-dir:/etc"}
        if "timm" in arch
        else {"weights_backbone": "DEFAULT"}
        if "fcn" in arch
        else {}
    )
    (folder / "config.json").write_text(json.dumps({**config, "arch": arch, "args": args, "classes": ["a", "b", "c"]}))
    refused(ask(port, "/api/card?model=strange"))
    board = {"parts": [{"model": "strange", "classes": ["a"], "data": "digits:A"}], "name": "n"}
    refused(ask(port, "/api/size", json.dumps(board)))


def test_nothing_is_read_without_the_token(port):
    """1500 MB without a token were read into memory before the refusal."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for token, wanted in (("wrong", 403), (TOKEN, 413)):
        for chunked in (False, True):
            with socket.create_connection(("127.0.0.1", port), timeout=30) as line:
                length = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {1500 * 10**6}"
                head = f"POST /api/size HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Token: {token}\r\n{length}\r\n\r\n"
                line.sendall(head.encode())
                sent, answer = 0, b""
                try:
                    while sent < 200 * 10**6:
                        piece = bytes(1 << 20)
                        line.sendall(b"100000\r\n" + piece + b"\r\n" if chunked else piece)
                        sent += len(piece)
                except OSError:
                    pass  # the studio has hung up
                try:
                    answer = line.recv(100)
                except ConnectionResetError:
                    continue
                assert str(wanted).encode() in answer.split(b"\r\n")[0]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 150_000


def test_random_requests(port):
    """Seeded: words of the API in wrong places, and bytes."""
    rng = random.Random(0)
    values = [
        None,
        0,
        -1,
        1e308,
        "a",
        "0",
        "digits:A",
        [],
        {},
        [[]],
        True,
        "\0",
        "x" * 3000,
        ["0"] * 50,
        {"a": {"b": []}},
    ]
    keys = ["parts", "name", "judge", "model", "classes", "data", "budget", "weights", "base", "", "\0", "__proto__"]

    def made(deep):
        if deep == 0 or rng.random() < 0.3:
            return rng.choice(values)
        if rng.random() < 0.5:
            return {rng.choice(keys): made(deep - 1) for _ in range(rng.randrange(4))}
        return [made(deep - 1) for _ in range(rng.randrange(4))]

    for _ in range(300):
        body = json.dumps(made(4)).encode()
        if rng.random() < 0.3:
            place = rng.randrange(len(body))
            body = body[:place] + bytes([rng.randrange(256)]) + body[place + 1 :]
        refused(ask(port, f"/api/{rng.choice(PATHS)}", body))
    for _ in range(200):
        path = "/api/" + "".join(
            rng.choice(["models", "jobs", "/", "..", "%00", "%ff", "?model=", "a", "&", "%0a"]) for _ in range(5)
        )
        status, _ = ask(port, path, headers={"X-Odd": "ÿ"}, method=rng.choice(["GET", "POST", "PUT", "DELETE", "HEAD"]))
        assert status < 500
    assert ask(port, "/api/models")[0] == 200
