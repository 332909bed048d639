"""`export --to onnx --int8`: onnxruntime's quantiser, measured on images that set no scale."""

import json

import numpy as np
import pytest
from PIL import Image

import brickwork
from brickwork import data, zoo
from brickwork.errors import BadData, BadModel, RequestError

onnxruntime = pytest.importorskip("onnxruntime")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("int8") / "net"
    net = zoo.build("lenet", num_classes=5, seed=0)
    brickwork.train(net, data.load("digits:A@100"), epochs=8, progress=False)
    brickwork.save(net, folder)
    return folder


@pytest.mark.parametrize("words", [(), ("--dynamic-batch", "--with-preprocessing")])
def test_eight_bits_are_smaller_and_answer_alike(run, trained, tmp_path, words):
    out = tmp_path / "net8.onnx"
    code, text, err = run(
        "export", trained, "--to", "onnx", "--int8", "--data", "digits:A", *words, "--out", out, "--json"
    )
    assert code == 0, err
    facts = json.loads(text)["int8"]
    images = data.load("digits:A", size=32)
    assert facts["of"] == "test" and facts["judged_on"] == len(images.test_labels) and facts["calibrated_on"] == 256
    assert facts["agreement"] > 0.97 and facts["accuracy"][1] > facts["accuracy"][0] - 0.03
    assert out.stat().st_size == facts["bytes"][1] < 0.5 * facts["bytes"][0] and min(facts["ms"]) > 0
    session = onnxruntime.InferenceSession(str(out), providers=["CPUExecutionProvider"])
    known = session.get_modelmeta().custom_metadata_map
    assert (
        json.loads(known["classes"]) == ["0", "1", "2", "3", "4"] and json.loads(known["int8"])["calibrated_on"] == 256
    )
    if words:  # pictures as they are, any number of them
        logits = session.run(None, {"images": np.asarray(images.test_images)})[0]
        assert float((logits.argmax(1) == images.test_labels).mean()) == pytest.approx(facts["accuracy"][1])


def test_in_python_with_plain_images(trained, tmp_path):
    net, images = brickwork.load(trained), data.load("digits:A", size=32)
    found = brickwork.export_model(net, tmp_path / "x.onnx", to="onnx", int8=True, data=images.train_images[:50])
    assert found.int8["of"] == "calibration" and found.int8["accuracy"] is None and found.int8["calibrated_on"] == 50
    assert "8 bits: the same answer for" in str(found)


def test_a_folder_of_pictures_without_labels_will_do(run, trained, tmp_path):
    (tmp_path / "flat").mkdir()
    for number, image in enumerate(data.load("digits:A", size=32).train_images[:40]):
        Image.fromarray(image).save(tmp_path / "flat" / f"{number}.png")
    flat = ("--data", tmp_path / "flat")
    code, text, err = run("export", trained, "--to", "onnx", "--int8", *flat, "--out", tmp_path / "x.onnx", "--json")
    assert code == 0, err
    facts = json.loads(text)["int8"]
    assert facts["accuracy"] is None and facts["of"] == "test" and 0 < facts["agreement"] <= 1
    told = "Pictures without a folder per class count as one class"
    assert told in run("eval", trained, tmp_path / "flat")[2]
    assert told in run("compress", trained, *flat, "--budget", 0.5, "--out", tmp_path / "half")[2]
    assert run("compress", trained, *flat, "--labels", "network", "--keep", 0.9, "--out", tmp_path / "half")[0] == 0


def test_eight_bits_need_images_and_onnx(run, trained, tmp_path):
    code, _, err = run("export", trained, "--to", "onnx", "--int8", "--out", tmp_path / "x.onnx")
    assert code == 2 and "give --data" in err
    code, _, err = run("export", trained, "--to", "pt2", "--int8", "--data", "digits:A", "--out", tmp_path / "x.pt2")
    assert code == 2 and "--int8 is not used by --to pt2" in err
    with pytest.raises(RequestError, match=r"give `?data"):
        brickwork.export_model(brickwork.load(trained), tmp_path / "x.onnx", to="onnx", int8=True)
    assert not list(tmp_path.iterdir())


def test_classes_in_another_order_are_found_by_name(trained, tmp_path):
    net, images = brickwork.load(trained), data.load("digits:A", size=32)
    given = [images, images.select([4, 2, 0, 1, 3])]
    found = [
        brickwork.export_model(net, tmp_path / f"{k}.onnx", to="onnx", int8=True, data=one).int8["accuracy"]
        for k, one in enumerate(given)
    ]
    assert found[0][0] == pytest.approx(found[1][0]) and found[0][0] > 0.8
    with pytest.raises(BadData, match="does not know '9'"):
        brickwork.export_model(net, tmp_path / "x.onnx", to="onnx", int8=True, data=data.load("digits:1,9", size=32))


def test_what_onnxruntime_cannot_run_is_refused_in_a_sentence(trained, tmp_path):
    with pytest.raises(BadModel, match="bring it to float32"):
        brickwork.export_model(brickwork.load(trained).double(), tmp_path / "x.onnx", to="onnx")
