"""The workbench: networks that are exported, uploaded and asked about an image."""

from __future__ import annotations

import http.client
import io
import pickle
import time
import urllib.parse
import zipfile

import pytest
import torch
from PIL import Image
from safetensors.torch import save
from workbench import TOKEN, ask, finished, query, refused

import brickwork
from brickwork import store, zoo
from brickwork.errors import RequestError
from brickwork.studio.shelf import Shelf

# ---- names, deleting, exporting


def test_rename_delete_and_undo(port, place):
    models = place / "models"
    brickwork.save(zoo.build("lenet", num_classes=3, in_channels=1, seed=0), models / "group" / "old")
    assert ask(port, "/api/rename", {"model": "group/old", "to": "new"})[1] == {"model": "group/new"}
    number = ask(port, "/api/delete", {"model": "group/new"})[1]["number"]
    assert not (models / "group" / "new").exists()
    state = ask(port, "/api/state")[1]
    assert state["deleted"][0] == {"number": number, "model": "group/new"}
    assert "group/new" not in {m["name"] for m in state["models"]}
    refused(ask(port, f"/api/download?model=.deleted/{number}/group/new"), "no model folder")
    brickwork.save(zoo.build("lenet", num_classes=2, in_channels=1, seed=0), models / "group" / "new")
    refused(ask(port, "/api/undelete", {"number": number}), "there already")
    second = ask(port, "/api/delete", {"model": "group/new"})[1]["number"]
    assert second != number and ask(port, "/api/undelete", {"number": number})[1] == {"model": "group/new"}
    assert len(store.read_config(models / "group" / "new").classes or "123") == 3
    refused(ask(port, "/api/undelete", {"number": number}), "nothing deleted")
    assert ask(port, "/api/delete", {"model": "group/new"})[0] == 200


@pytest.mark.parametrize(
    "name", ["../secret", "/etc", "", ".", "nothing", "\0", "a\nb", "x" * 600, "🧱" * 300, ".deleted"]
)
def test_names_that_lead_elsewhere(port, place, name):
    for path, body in (
        ("/api/rename", {"model": name, "to": "z"}),
        ("/api/rename", {"model": "a", "to": name}),
        ("/api/delete", {"model": name}),
        ("/api/export", {"model": name, "to": "onnx"}),
        ("/api/export", {"model": "a", "to": name}),
    ):
        if (path, name, body.get("to")) != ("/api/rename", "nothing", "nothing"):
            refused(ask(port, path, body))
    quoted = urllib.parse.quote(name)
    refused(ask(port, f"/api/exported?file={quoted}"))
    refused(ask(port, f"/api/try?model={quoted}", raw=b"x"))
    refused(ask(port, f"/api/import?name={quoted}{'/' if name == 'nothing' else ''}&arch=lenet", raw=b"x"))
    assert (place / "models" / "a").is_dir() and (place / "secret").is_dir()


def test_the_hidden_folder_is_no_way_out(tmp_path):
    brickwork.save(zoo.build("lenet", num_classes=3, in_channels=1, seed=0), tmp_path / "models" / "net")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "models" / ".deleted").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RequestError, match="not inside"):
        Shelf(tmp_path / "models").delete("net")
    assert (tmp_path / "models" / "net").is_dir() and not list((tmp_path / "elsewhere").iterdir())


def test_an_export_runs_elsewhere(port, place):
    onnxruntime = pytest.importorskip("onnxruntime")
    job = finished(port, ask(port, "/api/export", {"model": "a", "to": "onnx"}))
    assert job["state"] == "done" and job["made"] == "exported/a.onnx", job
    status, content = ask(port, f"/api/exported?file={job['made']}")
    x = torch.rand(3, 1, 16, 16)
    [found] = onnxruntime.InferenceSession(content).run(None, {"images": x.numpy()})
    with torch.no_grad():
        expected = brickwork.load(place / "models" / "a")(x).numpy()
    assert status == 200 and abs(found - expected).max() < 1e-4
    job = finished(port, ask(port, "/api/export", {"model": "mine", "to": "torch"}))
    status, content = ask(port, f"/api/exported?file={job['made']}")
    assert set(zipfile.ZipFile(io.BytesIO(content)).namelist()) == {"mine/network.py", "mine/weights.safetensors"}
    for wrong in ("a/config.json", "a", "exported", "exported/../a/config.json", "exported/none.onnx"):
        refused(ask(port, f"/api/exported?file={wrong}"))


def test_without_onnx_plain_torch_is_offered(port, monkeypatch):
    from brickwork.studio import exchange

    real = exchange.importlib.util.find_spec
    monkeypatch.setattr(exchange.importlib.util, "find_spec", lambda name: None if name == "onnx" else real(name))
    assert ask(port, "/api/state")[1]["formats"] == ["torch"]
    refused(ask(port, "/api/export", {"model": "a", "to": "onnx"}), "choose torch")


# ---- files that come in


def test_uploaded_weights_are_a_network(port, place):
    net = zoo.build("lenet", num_classes=3, in_channels=1, seed=4)
    weights = save({name: value.contiguous() for name, value in net.state_dict().items()})
    path = query(name="brought", classes="cat, dog,fox", size=16)
    status, told = ask(port, query(name="brought", classes="cat, dog,fox"), raw=weights)
    assert status == 200 and told["model"] == "imported/brought", (told, path)
    model = brickwork.load(place / "models" / "imported" / "brought")
    assert model.brickwork_origin.classes == ("cat", "dog", "fox")
    refused(ask(port, query(name="brought"), raw=weights), "there already")
    own = zoo.build("studio_own_net:net", seed=0)
    weights = save({name: value.contiguous() for name, value in own.state_dict().items()})
    given = {"name": "brought-own", "arch": "studio_own_net:net", "classes": "0,1,2,3,4", "size": "16"}
    assert ask(port, query(**given), raw=weights)[0] == 200
    assert not list((place / "models").glob(".upload-*"))


class Bomb:
    def __reduce__(self):
        return (open, ("/tmp/never", "w"))


@pytest.mark.parametrize(
    ("given", "raw", "told"),
    [
        ({}, b"", "the file"),
        ({}, b"nonsense", "the file"),
        ({}, pickle.dumps(Bomb()), "the file"),
        ({}, (1 << 40).to_bytes(8, "little") + b"{}", "the file"),
        ({}, save({"w": torch.zeros(2)}), "does not fit the architecture"),
        ({"arch": "os:system"}, b"x", "code, which a page cannot name"),
        ({"arch": "lenett"}, b"x", "no architecture"),
        ({"arch": "hf:../.."}, b"x", "hf:"),
        ({"arch": "timm:hf-hub:user/net"}, b"x", ""),
        ({"mean": "nan"}, b"x", "mean is"),
        ({"std": "a,b"}, b"x", "std is"),
        ({"classes": "a,a"}, b"x", "classes is"),
        ({"classes": "/etc/passwd,"}, b"x", "classes is"),
        ({"size": "-3"}, b"x", "size"),
        ({"shell": "rm"}, b"x", "shell"),
        ({"name": "../out"}, b"x", "no name for a folder"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_wrong_uploads_are_refused_and_leave_nothing(port, place, given, raw, told):
    answer = ask(port, query(**given), raw=raw)
    refused(answer, told)
    assert str(place) not in answer[1]["detail"]
    assert not list((place / "models").glob(".upload-*")) and not (place / "models" / "imported" / "n").exists()


@pytest.mark.parametrize(("path", "most"), [("/api/import?name=n&arch=lenet", 1 << 30), ("/api/try?model=a", 1 << 25)])
def test_files_are_bounded_before_they_are_read(port, path, most):
    refused(ask(port, path, raw=b"x", headers={"Content-Length": str(most + 1)}), "too much")
    assert ask(port, path, raw=b"x", token="wrong", headers={"Content-Length": str(most + 1)})[0] == 403


def test_a_file_that_does_not_say_how_long_it_is(port, place, monkeypatch):
    from brickwork.studio import gate

    monkeypatch.setitem(gate.FILES, "/api/import", 1000)
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    line.request("POST", query(), (bytes(400) for _ in range(5)), {"X-Token": TOKEN}, encode_chunked=True)
    answer = line.getresponse()
    assert answer.status == 413 and b"too much" in answer.read()
    line.close()
    assert not list((place / "models").glob(".upload-*"))


def test_slow_uploads_are_bounded_and_leave_nothing_when_they_end(port, place):
    slow = [http.client.HTTPConnection("127.0.0.1", port, timeout=30) for _ in range(4)]
    for k, line in enumerate(slow):
        line.putrequest("POST", query(name=f"slow{k}"))
        for head in (("X-Token", TOKEN), ("Content-Length", "1000")):
            line.putheader(*head)
        line.endheaders(b"x")
    hidden = lambda: len(list((place / "models").glob(".upload-*")))  # noqa: E731
    until = time.monotonic() + 20
    while hidden() < 4 and time.monotonic() < until:
        time.sleep(0.02)
    refused(ask(port, query(), raw=b"x"), "4 files are being uploaded")
    assert ask(port, "/api/models")[0] == 200  # others are answered meanwhile
    for line in slow:
        line.close()
    while hidden() and time.monotonic() < until:
        time.sleep(0.02)
    assert hidden() == 0
    refused(ask(port, query(), raw=b"x"), "the file")


def test_an_image_is_shown_to_a_network(port, place):
    picture = next((place / "pics" / "test" / "0").iterdir()).read_bytes()
    for model in ("a", "mine"):
        status, told = ask(port, f"/api/try?model={model}", raw=picture)
        assert status == 200 and len(told["answers"]) == 3 and told["answers"][0][0] in "01234"
        assert told["seen"].startswith("data:image/png")
    large = io.BytesIO()
    Image.new("1", (9000, 9000)).save(large, "PNG")
    for wrong in (b"", b"no image", picture[:60], large.getvalue()):
        refused(ask(port, "/api/try?model=a", raw=wrong), "Pillow")


@pytest.mark.parametrize(
    "path",
    [
        "state",
        "jobs",
        "board",
        "merge",
        "export",
        "rename",
        "delete",
        "undelete",
        "import",
        "try",
        "exported",
        "card",
        "curve",
        "map",
        "add",
        "forget",
    ],
)
def test_nothing_is_said_without_the_token(port, path):
    assert ask(port, f"/api/{path}", token="")[0] == 403 == ask(port, f"/api/{path}", {}, token="wrong")[0]
    assert ask(port, f"/api/{path}", headers={"Host": "evil.example"})[0] == 403
