"""An ONNX file in 8 bits, by onnxruntime's own quantiser, and what that costs: answers that change, bytes, time."""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brickwork.data.images import ImageData, drawn_images
from brickwork.data.pixels import as_input, check_raw, fitted
from brickwork.data.streamed import StreamedImages, unread
from brickwork.errors import BadModel, MissingExtra
from brickwork.evaluation import labels_among
from brickwork.origin import Origin, Preprocessing

CALIBRATION = 256  # images whose activations set the scales
JUDGED = 1000  # images on which answers are compared
TIMED = 30  # runs of one image, of which the median counts


def quantise(file: Path, images: Any, origin: Origin, raw: bool, any_batch: bool) -> dict[str, Any]:
    """Replace an ONNX file by one in 8 bits; what changed is measured in onnxruntime on images that set no scale.

    images: calibration images, and if they are an ImageData with a test split, those to judge on. origin: the network's.
    raw: the network takes pictures as they are.
    """
    prepared = origin.preprocessing
    try:
        import onnx
        from onnxruntime.quantization import QuantFormat, QuantType, quantize_static
        from onnxruntime.quantization.shape_inference import quant_pre_process
    except ImportError as error:
        raise MissingExtra("onnx", "int8") from error
    whole = images.train_images if isinstance(images, ImageData) else images
    calibration = drawn_images(unread(whole), CALIBRATION, 0)
    judged, labels, of = _judged(images, calibration, origin.classes)
    before = Session(file)
    with tempfile.TemporaryDirectory(prefix="brickwork-int8-") as folder:
        ready, small = Path(folder) / "ready.onnx", Path(folder) / "int8.onnx"
        batches = _batches(calibration, prepared, raw, any_batch)
        try:
            # no symbolic shapes: the program's are known; constants folded, so that weights are seen as weights
            quant_pre_process(str(file), str(ready), skip_symbolic_shape=True)
            quantize_static(
                str(ready),
                str(small),
                _Reader(batches),
                quant_format=QuantFormat.QDQ,
                activation_type=QuantType.QUInt8,
                weight_type=QuantType.QInt8,
                per_channel=True,
            )
        except Exception as error:  # onnxruntime has errors of many kinds
            raise BadModel(f"onnxruntime cannot write this network in 8 bits: {str(error).splitlines()[0]}.") from error
        said = {p.key: p.value for p in onnx.load(str(file)).metadata_props}
        model = onnx.load(str(small))
        del model.metadata_props[:]
        for key, value in {**said, "int8": json.dumps({"calibrated_on": len(calibration)})}.items():
            model.metadata_props.add(key=key, value=value)
        sizes = [file.stat().st_size]
        one = next(_batches(calibration[:1], prepared, raw, False))
        answers = [before.answers(_batches(judged, prepared, raw, any_batch))]
        times = [before.milliseconds(one)]
        onnx.save(model, str(file))
    after = Session(file)
    sizes.append(file.stat().st_size)
    answers.append(after.answers(_batches(judged, prepared, raw, any_batch)))
    times.append(after.milliseconds(one))
    known = labels is not None and answers[0].shape == labels.shape  # labels say nothing of the pixels of a segmenter
    right = [float((a == labels).mean()) for a in answers] if known else None
    return {
        "calibrated_on": len(calibration),
        "judged_on": len(judged),
        "of": of,
        "agreement": float((answers[0] == answers[1]).mean()),
        "accuracy": right,
        "bytes": sizes,
        "ms": times,
    }


def real_batches(images: Any, prepared: Preprocessing | None, raw: bool, any_batch: bool, most: int) -> list[Tensor]:
    """Some of the images that judge, as the exported network takes them."""
    if isinstance(images, ImageData):
        judged = _test_images(images)[0] if len(images.test_labels) else images.train_images
    else:
        judged = images
    judged = drawn_images(unread(judged), most, 0)
    return [torch.from_numpy(batch) for batch in _batches(judged, prepared, raw, any_batch)]


class Session:
    """An ONNX file in onnxruntime."""

    def __init__(self, file: Path) -> None:
        import onnxruntime

        settings = onnxruntime.SessionOptions()
        settings.log_severity_level = 3
        settings.intra_op_num_threads = torch.get_num_threads()
        self.run = onnxruntime.InferenceSession(str(file), settings, providers=["CPUExecutionProvider"]).run

    def answers(self, batches: Iterator[np.ndarray]) -> np.ndarray:
        """The class with the largest logit, for every image."""
        return np.concatenate([self.run(None, {"images": batch})[0].argmax(1) for batch in batches])

    def milliseconds(self, one: np.ndarray) -> float:
        times = []
        for _ in range(TIMED + 5):
            began = time.perf_counter()
            self.run(None, {"images": one})
            times.append(time.perf_counter() - began)
        return round(1000 * statistics.median(times[5:]), 4)


class _Reader:
    """What onnxruntime's calibration asks for batches."""

    def __init__(self, batches: Iterator[np.ndarray]) -> None:
        self.batches = batches

    def get_next(self) -> dict[str, np.ndarray] | None:
        batch = next(self.batches, None)
        return None if batch is None else {"images": batch}


def _judged(images: Any, calibration: Any, known: Sequence[str] | None) -> tuple[Any, np.ndarray | None, str]:
    """Images to compare on, their labels by the network's classes where they are known, and which images they are."""
    if isinstance(images, ImageData) and len(images.test_labels):
        judged, answers = _test_images(images)
        unlabelled = known is not None and not set(known) & set(images.classes)  # a folder of pictures, say
        unlabelled |= images.test_masks is not None and known == images.mask_classes
        return unread(judged), None if unlabelled else labels_among(known, images, answers), "test"
    return calibration, None, "calibration"


def _test_images(images: ImageData) -> tuple[Any, np.ndarray]:
    """Some of the test images, and their labels."""
    some = np.sort(np.random.default_rng(0).permutation(len(images.test_labels))[:JUDGED])
    return images.test_images[some], images.test_labels[some]


def _batches(
    images: Tensor | StreamedImages, prepared: Preprocessing | None, raw: bool, any_batch: bool
) -> Iterator[np.ndarray]:
    """Images as the exported network takes them."""
    size = 32 if any_batch else 1
    for start in range(0, len(images), size):
        part: Any = images[start : start + size]
        if raw:
            tensor = part.tensor() if isinstance(part, StreamedImages) else part
            check_raw(tensor)
            planes = tensor.permute(0, 3, 1, 2)
            planes = fitted(planes, prepared) if prepared is not None else planes
            yield np.ascontiguousarray(planes.permute(0, 2, 3, 1).numpy())
        else:
            yield as_input(part, prepared).to(torch.float32).numpy()
