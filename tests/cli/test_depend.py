"""`brickwork depend`: from a file of logits, or a model and images, to a map; and requests that are wrong."""

import json
from functools import partial

import numpy as np
import pytest
from PIL import Image

import brickwork
from brickwork import zoo
from brickwork.dependencies.sources import read_logits
from brickwork.errors import BadFile


@pytest.fixture
def run(run):
    """Run `brickwork depend …` in this process: (exit code, stdout, stderr)."""
    return partial(run, "depend")


@pytest.fixture
def logits(tmp_path):
    rng = np.random.default_rng(0)
    values = (rng.normal(size=(200, 3)) @ rng.normal(size=(3, 6)) + 0.3 * rng.normal(size=(200, 6))).astype("f4")
    path = tmp_path / "l.npz"
    np.savez(path, logits=values, labels=values.argmax(1), classes=np.array(list("abcdef")))
    np.save(tmp_path / "l.npy", values)
    np.save(tmp_path / "y.npy", values.argmax(1))
    (tmp_path / "names.txt").write_text("\n".join("abcdef") + "\n")
    return path


def test_from_logits_to_a_map(run, logits, tmp_path):
    code, out, err = run("fit", logits, "--max-dependencies", 2, "--holdout", 0.3, "--out", tmp_path / "m", "--json")
    assert code == 0, err
    data = json.loads(out)
    assert data["folder"] == str(tmp_path / "m") and len(data["classes"]) == 6
    assert max(len(entry["depends_on"]) for entry in data["classes"]) <= 2
    code, out, _ = run("show", tmp_path / "m")
    assert code == 0 and "6 classes within one network" in out
    code, out, _ = run("show", tmp_path / "m", "--class", "b", "--class", 2)
    assert out.startswith("b ≈ ") and "\nc ≈ " in out
    shown = json.loads(run("show", tmp_path / "m", "--class", "b", "--json")[1])
    assert [entry["name"] for entry in shown["classes"]] == ["b"]
    assert run("fit", logits, "--out", tmp_path / "m")[0] == 2
    assert run("fit", logits, "--out", tmp_path / "m", "--force")[0] == 0
    code, out, _ = run(
        "fit",
        tmp_path / "l.npy",
        "--labels",
        tmp_path / "y.npy",
        "--names",
        tmp_path / "names.txt",
        "--targets",
        logits,
        "--loss",
        "decision",
        "--selection",
        "greedy",
        "--max-dependencies",
        2,
        "--out",
        tmp_path / "between",
    )
    assert code == 0 and "between two networks" in out


def test_a_page_and_a_graph(run, logits, tmp_path):
    folder = tmp_path / "m"
    assert run("fit", logits, "--max-dependencies", 2, "--out", folder)[0] == 0
    page, graph = tmp_path / "new" / "p.html", tmp_path / "g.svg"
    code, out, err = run("show", folder, "--logits", logits, "--out", page, "--json")
    assert code == 0 and json.loads(out)["file"] == str(page), err
    first = page.read_bytes()
    assert first.startswith(b"<!doctype html>") and b'"scatter":{"rows":200' in first
    code, out, _ = run("show", folder, "--class", "b", "--out", graph)
    assert code == 0 and out.startswith("b ≈ ") and out.endswith(f"saved in {graph}\n")
    assert graph.read_bytes().count(b'class="t target"') == 2  # its plate and its name
    code, _, err = run("show", folder, "--out", page)
    assert code == 2 and "exists already" in err and page.read_bytes() == first
    assert run("show", folder, "--out", page, "--force")[0] == 0 and b'"scatter":null' in page.read_bytes()
    wrong = tmp_path / "w.html"
    for arguments, message in (
        (["--out", tmp_path / "w.png"], "w.png; it must end in .html or .svg."),
        (["--out", tmp_path], f"--out is {tmp_path}; it must end in .html or .svg."),
        (["--out", graph / "w.html"], "is not a folder"),
        (["--logits", logits], "--logits is for the page"),
        (["--out", wrong, "--targets", logits], "only beside --logits"),
        (["--out", wrong, "--logits", logits, "--targets", logits], "takes no --targets"),
        (["--out", wrong, "--logits", tmp_path / "y.npy"], "have shape (200,)"),
        (["--out", wrong, "--class", "z"], "'z'"),
    ):
        code, out, err = run("show", folder, *arguments)
        assert code == 2 and message in err and out == "" and err.count("\n") == 1, err
    assert sorted(p.name for p in tmp_path.iterdir() if p.suffix in (".html", ".png")) == []
    code, _, err = run("fit", logits, "--logits", logits, "--out", tmp_path / "n")
    assert (
        code == 2
        and "no such option '--logits'; it belongs to brickwork depend show" in err
        and not (tmp_path / "n").exists()
    )


def test_from_a_model(run, tmp_path):
    model = zoo.build("lenet", num_classes=10, seed=0)
    folder = brickwork.save(model, tmp_path / "net")
    code, out, err = run("fit", folder, "--data", "digits@20", "--out", tmp_path / "m", "--json", "--device", "cpu")
    assert code == 0, err
    data = json.loads(out)
    assert data["rows_fitted"] == 140 and data["measured_on"] == "60 rows held out of the fit"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A network that says that it was trained on the digits."""
    folder = tmp_path_factory.mktemp("trained") / "net"
    return brickwork.save(zoo.build("lenet", num_classes=10, seed=0), folder, provenance={"data": "digits"})


@pytest.mark.parametrize(
    ("how", "split", "fitted", "measured", "noted"),
    [
        ([], "test", 251, "108 rows held out of the fit", False),
        (["--holdout", 0], "test", 359, "the rows of the fit themselves", False),
        (["--split", "train"], "train", 1438, "rows that the fit did not see", True),
        (["--split", "train", "--holdout", 0.2], "train", 1151, "287 rows held out of the fit", True),
        (["--split", "all"], "all", 1258, "539 rows held out of the fit", True),
    ],
)
def test_the_split_is_chosen_and_said(run, trained, tmp_path, how, split, fitted, measured, noted):
    """Within one network and between two, whose rows are of the same images."""
    for more in ([], ["--targets", trained]):
        asked = (
            "fit",
            trained,
            "--data",
            "digits",
            "--max-dependencies",
            2,
            *how,
            *more,
            "--out",
            tmp_path / "m",
            "--force",
        )
        code, out, err = run(*asked)
        assert code == 0, err
        which = "all of them" if split == "all" else f"its {split} split"
        assert f"fitted on {fitted:,} images of digits ({which})" in out and f"(measured on {measured})" in out
        assert ("was trained on such images" in out) == noted
    found = brickwork.DependencyMap.load(tmp_path / "m")
    assert found.provenance["split"] == split and found.provenance["data"] == "digits"
    assert found.facts["rows_fitted"] == fitted and found.facts["measured_on"] == measured


def test_a_pile_that_no_network_was_made_from_is_used_whole(run, trained, tmp_path):
    """Of two networks, one of which was, neither is shown images that the other knows."""
    noise = np.random.default_rng(0).integers(0, 255, (10, 20, 8, 8, 3), dtype=np.uint8)
    for name, pictures in enumerate(noise):
        (tmp_path / "pics" / str(name)).mkdir(parents=True)
        for k, picture in enumerate(pictures):
            Image.fromarray(picture).save(tmp_path / "pics" / str(name) / f"{k}.png")
    knows = brickwork.save(
        zoo.build("lenet", num_classes=10, seed=0), tmp_path / "k", provenance={"data": str(tmp_path / "pics")}
    )
    for other, split, rows in ((trained, "all", 200), (knows, "test", 40)):
        asked = ("fit", trained, "--targets", other, "--data", tmp_path / "pics", "--max-dependencies", 2, "--force")
        code, out, err = run(*asked, "--out", tmp_path / "m", "--json")
        assert code == 0, err
        report = json.loads(out)
        assert report["split"] == split and report["rows_fitted"] + report["rows_measured"] == rows


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fit", "{logits}"], "--out is missing: folder to write the map to"),
        (["fit", "{logits}", "--out", "{out}", "--lam", "-1"], "λ must be above 0"),
        (["fit", "{logits}", "--out", "{out}", "--data", "digits"], "--data is for model folders"),
        (["fit", "{logits}", "--out", "{out}", "--split", "test"], "--split is for model folders"),
        (
            ["fit", "{logits}", "--out", "{out}", "--class", "a"],
            "no such option '--class'; it belongs to brickwork depend show",
        ),
        (["fit", "none.npz", "--out", "{out}"], "none.npz is no file of logits"),
        (["fit", "{folder}", "--out", "{out}"], "give --data"),
        (["fit", "{logits}", "--out", "{out}", "--targets", "{folder}", "--data", "digits"], "not one of each"),
        (["fit", "{logits}", "--out", "{out}", "--loss", "plane"], "plane"),
        (["fit", "{logits}", "--out", "{out}", "--names", "{logits}"], "cannot be read as a text"),
        (["show", "{folder}"], "is no dependency map"),
    ],
)
def test_wrong_requests(run, logits, tmp_path, arguments, message):
    places = {"logits": logits, "folder": tmp_path, "out": tmp_path / "m"}
    code, out, err = run(*(a.format(**places) for a in arguments))
    assert code == 2 and message in err and out == ""
    assert not (tmp_path / "m").exists()


def test_files_of_logits(logits, tmp_path):
    assert read_logits(logits).names == tuple("abcdef")
    logits.write_bytes(logits.read_bytes()[:200])
    with pytest.raises(BadFile, match="copy it again"):
        read_logits(logits)
    np.savez(tmp_path / "other.npz", images=np.zeros(3))
    with pytest.raises(BadFile, match="no array called 'logits'"):
        read_logits(tmp_path / "other.npz")


def test_add_classes(run, tmp_path):
    from brickwork import data
    from brickwork.training import train

    images = data.load("digits:A@20", size=16, channels=1)
    model = zoo.build("lenet", num_classes=5, in_channels=1, seed=0)
    train(
        model, images.train_images, images.train_labels, classes=images.classes, epochs=2, device="cpu", progress=False
    )
    brickwork.save(model, tmp_path / "a")
    known = ("--base-data", "digits:A@10")
    code, out, err = run("add", tmp_path / "a", "--data", "digits:5-6@10", *known, "--out", tmp_path / "b", "--json")
    assert code == 0, err
    assert json.loads(out)["classes"] == list("0123456")
    assert len(brickwork.load(tmp_path / "b").brickwork_origin.classes) == 7
    code, out, err = run(
        "add", tmp_path / "b", "--data", "digits:7@5", *known, "--how", "ridge", "--out", tmp_path / "c"
    )
    assert code == 0 and "8 classes, 1 of them new" in out, err
    for wrong, said in (
        (("add", tmp_path / "a"), "--data is missing: images: digits:A"),
        (("add", tmp_path / "a", "--data", "digits:4-5@5", "--out", tmp_path / "d"), "knows '4' already"),
        (("add", tmp_path / "a", "--data", "digits:5@5", "--out", tmp_path / "d"), "one new class alone"),
        (
            ("add", tmp_path / "a", "--data", "digits:5@5", "--class", "5", "--out", tmp_path / "d"),
            "no such option '--class'",
        ),
        (("show", tmp_path / "a", "--base-data", "digits:A"), "it belongs to brickwork depend add"),
        (
            ("add", tmp_path / "a", "--data", "digits:5@5", "--on", "branch", "--out", tmp_path / "d"),
            "give --base-data",
        ),
        (
            ("add", tmp_path / "a", "--data", "digits:5@5", *known, "--epochs", "2", "--out", tmp_path / "d"),
            "--epochs is for --on branch",
        ),
        (
            (
                "add",
                tmp_path / "a",
                "--data",
                "digits:5@5",
                *known,
                "--on",
                "branch",
                "--how",
                "ridge",
                "--out",
                tmp_path / "d",
            ),
            "leave --how and --strength out",
        ),
        (
            (
                "add",
                tmp_path / "a",
                "--data",
                "digits:5@5",
                *known,
                "--on",
                "branch",
                "--epochs",
                "0",
                "--out",
                tmp_path / "d",
            ),
            "--epochs is",
        ),
    ):
        code, out, err = run(*wrong)
        assert code == 2 and said in err and not (tmp_path / "d").exists(), err
