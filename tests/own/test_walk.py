"""The walk of docs/own-models.md: its commands as they stand, and what they print but for the numbers."""

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

PAGE = Path(__file__).parents[2] / "docs" / "own-models.md"


def commands() -> list[tuple[str, str]]:
    """(command, what it prints), in their order."""
    [block] = re.findall(r"<!-- walk -->\n```text\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    parts = re.split(r"^\$ (.*)\n", block, flags=re.MULTILINE)[1:]
    return list(zip(parts[::2], parts[1::2], strict=True))


def without_numbers(text: str) -> str:
    """Numbers, hashes and the spaces that line them up may differ from machine to machine."""
    return re.sub(r"\s*(\b[0-9a-f]{16}\b|[0-9][0-9.,e+-]*%?)", " #", text).strip()


def test_the_walk_from_weights_to_onnx(run, here):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    walk = commands()
    assert [line.split()[1] for line, _ in walk] == ["import", "eval", "disassemble", "eval", "export"]
    scores = []
    for line, printed in walk:
        code, out, err = run(*shlex.split(line)[1:])
        assert code == 0, err
        assert without_numbers(out) == without_numbers(printed), line
        scores += [float(number) for number in re.findall(r"images: accuracy ([\d.]+)%", out)]
    assert len(scores) == 2 and min(scores) > 90
    net = onnxruntime.InferenceSession("two.onnx")
    names = json.loads(net.get_modelmeta().custom_metadata_map["classes"])
    right = []
    for path in sorted([*(here / "pics/test/zero").iterdir(), *(here / "pics/test/three").iterdir()]):
        with Image.open(path) as image:
            [logits] = net.run(None, {"images": np.array(image.convert("RGB"))[None]})
        right.append(names[logits[0].argmax()] == path.parent.name)
    assert len(right) > 60 and abs(100 * np.mean(right) - scores[1]) < 0.01  # the same as Brickwork says of the folder
