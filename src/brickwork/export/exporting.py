"""`export_model`: a network as a file that runs without Brickwork, compared with the module before it is called written."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from brickwork.atomic import check_file, check_output, write_file, write_folder
from brickwork.data.datasets import images_of
from brickwork.data.images import ImageData
from brickwork.errors import BadModel, JobFailed, MissingExtra, RequestError
from brickwork.export.library import LIBRARIES, check_library, write_library
from brickwork.export.options import ENDINGS, ExportOptions
from brickwork.export.plain import NAME, write_plain
from brickwork.export.quantising import quantise, real_batches
from brickwork.options import takes
from brickwork.origin import Origin, Preprocessing, check_module, origin_of
from brickwork.outputs import logits_of
from brickwork.ownership import RECORD
from brickwork.prediction import eval_mode
from brickwork.words import counted, sides

MOST = 2**31 - 2**20  # bytes of weights in one ONNX file
REAL = 64  # images of the data that are compared
TOLERANCE = 1e-3  # of the largest logit: other kernels add in another order


@dataclass(frozen=True)
class Exported:
    """What was written, and how far its logits are from the module's."""

    path: Path
    to: str
    classes: tuple[str, ...] | None
    checked_with: str  # onnxruntime, torch, …
    images: int  # that it was compared on
    real: int  # of them from `data`; the others are random
    largest_difference: float
    batch: str  # "any" or "1"
    takes: str  # what goes in, in words
    int8: dict[str, Any] | None = None  # what 8 bits change: agreement, accuracy, bytes, milliseconds

    def to_dict(self) -> dict[str, Any]:
        """JSON values only."""
        return {
            **self.__dict__,
            "path": str(self.path),
            "classes": None if self.classes is None else list(self.classes),
        }

    def __str__(self) -> str:
        differ = "differs" if self.images == 1 else "differ"
        before = " before it was brought to 8 bits" if self.int8 else ""
        return (
            f"takes {self.takes}; {self._compared()} in {self.checked_with} {differ} from the module by at most "
            f"{self.largest_difference:.1e}{before}\n{self._eight_bits()}written: {self.path}"
        )

    def _compared(self) -> str:
        random = counted(self.images - self.real, "random image")
        return f"{counted(self.real, 'image')} of the data and {random}" if self.real else random

    def _eight_bits(self) -> str:
        if self.int8 is None:
            return ""
        facts = self.int8
        accuracy = "" if facts["accuracy"] is None else "accuracy {:.2%} → {:.2%}, ".format(*facts["accuracy"])
        (large, small), (slow, fast) = facts["bytes"], facts["ms"]
        return (
            f"8 bits: the same answer for {facts['agreement']:.2%} of {counted(facts['judged_on'], facts['of'] + ' image')}, "
            f"{accuracy}{large:,} → {small:,} bytes, {slow:.2f} → {fast:.2f} ms per image\n"
        )


class Deployed(nn.Module):
    """A network that takes images and gives logits alone; with a preprocessing, raw images (N, H, W, C) uint8."""

    def __init__(self, model: nn.Module, preprocessing: Preprocessing | None, output: str | int | None = None) -> None:
        super().__init__()
        self.model, self.output = model, output
        self.prepares = preprocessing is not None
        self.scale: Tensor
        self.shift: Tensor
        if preprocessing is not None:
            mean, std = preprocessing.mean or (0.0,), preprocessing.std or (1.0,)
            like = next((p for p in model.parameters() if p.is_floating_point()), torch.empty(0))
            numbers = {"scale": [1 / (255 * s) for s in std], "shift": [-m / s for m, s in zip(mean, std, strict=True)]}
            for name, values in numbers.items():
                self.register_buffer(name, torch.tensor(values, dtype=like.dtype).view(1, -1, 1, 1))

    def forward(self, images: Tensor) -> Tensor:
        if self.prepares:
            planes = images.permute(0, 3, 1, 2).contiguous()  # a forward may `view` them
            images = planes.to(self.scale.dtype) * self.scale + self.shift
        return logits_of(self.model(images), self.output)


@takes(ExportOptions)
def export_model(
    model: nn.Module,
    out: str | Path,
    *,
    data: Any = None,
    force: bool = False,
    output: str | int | None = None,
    options: ExportOptions,
) -> Exported:
    """Write a network as ONNX, as a torch.export program, or as a Python file with its weights that needs torch alone.

    A network of transformers or timm can also be written as the folder that its library loads.

    Class names and preprocessing go with it. What was written is read again and compared with the module on random images.
    data: unlabelled images, or an ImageData, whose test images are taken: to compare on as well, and for `int8`, which sets its
    scales on the training images.

    >>> import tempfile
    >>> from brickwork import zoo
    >>> written = export_model(zoo.build("lenet", num_classes=2, seed=0), tempfile.mkdtemp() + "/net", to="torch")
    >>> sorted(file.name for file in written.path.iterdir())
    ['network.py', 'weights.safetensors']
    """
    check_module(model)
    out, origin = Path(out), origin_of(model)
    if options.int8 and data is None:
        raise RequestError("`int8` sets its scales on images; give `data`.")
    given = data if data is None or isinstance(data, ImageData) else images_of(data)
    _check(out, origin, options, force)
    if options.to in LIBRARIES:
        return _to_library(model, out, given, output, options, force)
    eight: dict[str, Any] | None = None
    whole = Deployed(model, origin.preprocessing if options.with_preprocessing else None, output)
    home = next((p.device for p in model.parameters()), torch.device("cpu"))
    with eval_mode(whole), _on_cpu(whole, home):
        inputs = {n: example(origin, n, options.with_preprocessing, model) for n in (1, 2, 3)}
        program, any_batch = _program(whole, inputs, options)
        facts = _facts(origin, options)
        shown = _shown(inputs if any_batch else {1: inputs[1]}, given, model, options, any_batch)
        with torch.no_grad():
            expected = [whole(images) for images in shown]
        if options.to == "torch":
            with write_folder(out, force=force, owns=(NAME,)) as draft:
                how = write_plain(program, draft, facts, any_batch)
                difference = _compare(how, shown, expected, out)
            how_named = "torch"
        else:
            with write_file(out, force=force) as file:
                write = _write_onnx if options.to == "onnx" else _write_pt2
                how, how_named = write(program, file, facts, inputs[2 if any_batch else 1])
                difference = _compare(how, shown, expected, out)
                if options.int8:
                    eight = quantise(file, given, origin, options.with_preprocessing, any_batch)
    return Exported(
        path=out,
        to=options.to,
        classes=origin.classes,
        checked_with=how_named,
        images=sum(map(len, expected)),
        real=_real(given, expected, any_batch),
        largest_difference=difference,
        batch="any" if any_batch else "1",
        takes=_takes(inputs[1], options, any_batch),
        int8=eight,
    )


def _to_library(
    model: nn.Module, out: Path, given: Any, output: str | int | None, options: ExportOptions, force: bool
) -> Exported:
    """The folder of the library that a network came from, read again by that library."""
    origin, args = origin_of(model), check_library(model, options.to)
    home = next((p.device for p in model.parameters()), torch.device("cpu"))
    with eval_mode(model), _on_cpu(model, home), quiet():
        inputs = {n: example(origin, n, False, model) for n in (1, 2, 3)}
        shown = _shown(inputs, given, model, options, True)
        with torch.no_grad():
            expected = [logits_of(model(images), output) for images in shown]
        with write_folder(out, force=force, owns=(RECORD,)) as draft:
            run = write_library(model, draft, options.to, args)
            difference = _compare(run, shown, expected, out)
    return Exported(
        path=out,
        to=options.to,
        classes=origin.classes,
        checked_with=options.to,
        images=sum(map(len, expected)),
        real=_real(given, expected, True),
        largest_difference=difference,
        batch="any",
        takes=_takes(inputs[1], options, True),
    )


def _check(out: Path, origin: Origin, options: ExportOptions, force: bool) -> None:
    ending = ENDINGS[options.to]
    if ending and out.suffix.lower() != ending:
        raise RequestError(f"`out` is {out}; by `to` {options.to} it must end in {ending}.")
    if not ending and out.suffix:
        raise RequestError(f"`out` is {out}; by `to` {options.to} a folder is written, whose name has no ending.")
    if origin.input_shape is None and (origin.preprocessing is None or origin.preprocessing.size is None):
        raise BadModel(
            "the network does not say which images it takes; train or import it, or attach an Origin with its input_shape."
        )
    if options.with_preprocessing and origin.preprocessing is None:
        raise BadModel("the network does not say how its images are prepared; leave out `with_preprocessing`.")
    if ending:
        check_file(out, force=force)
    else:
        check_output(out, force=force, owns=(NAME if options.to == "torch" else RECORD,))


@contextmanager
def _on_cpu(model: nn.Module, home: torch.device) -> Iterator[None]:
    """What is written knows no GPU."""
    model.cpu()
    try:
        yield
    finally:
        model.to(home)


def example(origin: Origin, count: int, raw: bool, model: nn.Module) -> Tensor:
    """Random images as the exported network takes them."""
    draw = torch.Generator().manual_seed(count)
    prepared, shape = origin.preprocessing, origin.input_shape or ()
    if prepared is not None and prepared.size is not None:
        shape = (prepared.channels, *prepared.size)
    images = torch.randint(0, 256, (count, *shape[1:], shape[0]), dtype=torch.uint8, generator=draw)
    if raw:
        return images
    kind = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
    given = images.movedim(-1, 1).contiguous().to(kind) / 255  # also of sounds, volumes and tables
    if prepared is None or not prepared.mean:
        return given
    mean, std = (torch.tensor(v, dtype=kind).view(-1, 1, 1) for v in (prepared.mean, prepared.std))
    return (given - mean) / std


def _program(whole: nn.Module, inputs: dict[int, Tensor], options: ExportOptions) -> tuple[Any, bool]:
    """The network as torch.export sees it, for any number of images or for one."""
    failed: Exception | None = None
    if options.dynamic_batch or options.to == "torch":
        try:
            with quiet():
                shapes = ({0: torch.export.Dim("batch", min=1, max=65536)},)
                return torch.export.export(whole, (inputs[2],), dynamic_shapes=shapes), True
        except Exception as error:  # torch.export has errors of many kinds; for one image it may work
            failed = error
    try:
        with quiet():
            program = torch.export.export(whole, (inputs[1],))
    except Exception as error:
        raise BadModel(f"torch.export cannot write this network down: {_first_line(error)}.") from error
    if failed is not None and options.dynamic_batch:
        what = _first_line(failed)
        raise BadModel(
            f"the network's forward fixes the number of images ({what}); leave out `dynamic_batch`."
        ) from failed
    return program, False


def _first_cause(error: BaseException) -> BaseException:
    """What an exporter ran into, below what each of its stages says of it."""
    return error if error.__cause__ is None else _first_cause(error.__cause__)


def _first_line(error: BaseException) -> str:
    text = " ".join((str(error).strip() or "no message").splitlines()[0].split())
    return f"{type(error).__name__}: {text.removesuffix('.')}"


@contextmanager
def quiet() -> Iterator[None]:
    """Exporters speak much to the terminal; what matters is raised or compared."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _facts(origin: Origin, options: ExportOptions) -> dict[str, Any]:
    """What goes with the network, as JSON values."""
    prepared = None if origin.preprocessing is None else origin.preprocessing.to_dict()
    return {
        "classes": None if origin.classes is None else list(origin.classes),
        "preprocessing": json.loads(json.dumps(prepared)),
        "with_preprocessing": options.with_preprocessing,
    }


def _takes(one: Tensor, options: ExportOptions, any_batch: bool) -> str:
    shape = sides(one.shape[1:])
    count = "N" if any_batch else "1"
    return (
        f"{count}×{shape} uint8, height, width, channels"
        if options.with_preprocessing
        else f"{count}×{shape} prepared images"
    )


Runner = Any  # images (N, …) -> logits (N, classes)


def _shown(
    random: dict[int, Tensor], given: Any, model: nn.Module, options: ExportOptions, any_batch: bool
) -> list[Tensor]:
    """What module and file are compared on: random images, and real ones where there are any."""
    if given is None:
        return list(random.values())
    batches = real_batches(given, origin_of(model).preprocessing, options.with_preprocessing, any_batch, REAL)
    return [*random.values(), *(batch.to(random[1].dtype) for batch in batches)]


def _real(given: Any, expected: list[Tensor], any_batch: bool) -> int:
    return 0 if given is None else sum(map(len, expected)) - (6 if any_batch else 1)


def _compare(run: Runner, shown: list[Tensor], expected: list[Tensor], out: Path) -> float:
    """The largest difference of a logit; JobFailed where it is more than rounding."""
    largest = 0.0
    for images, logits in zip(shown, expected, strict=True):
        result = torch.as_tensor(run(images)).to(logits.dtype)
        if result.shape != logits.shape:
            raise JobFailed(
                f"{out} would give {tuple(result.shape)}, the network {tuple(logits.shape)}; nothing was written."
            )
        difference = float((result - logits).abs().max())
        if not difference <= TOLERANCE * max(1.0, float(logits.abs().max())):
            raise JobFailed(f"{out} would differ from the network by {difference:.2g} in a logit; nothing was written.")
        largest = max(largest, difference)
    return largest


def _write_pt2(program: Any, file: Path, facts: dict[str, Any], given: Tensor) -> tuple[Runner, str]:
    extra = {f"{name}.json": json.dumps(value, ensure_ascii=False) for name, value in facts.items()}
    named = file.with_suffix(".pt2")  # torch complains of every other ending
    with quiet():
        torch.export.save(program, named, extra_files=extra)
        named.rename(file)
        with file.open("rb") as stream:
            module = torch.export.load(stream).module()

    def run(images: Tensor) -> Tensor:
        with torch.no_grad():
            logits: Tensor = module(images)
        return logits

    return run, "torch"


def _write_onnx(program: Any, file: Path, facts: dict[str, Any], given: Tensor) -> tuple[Runner, str]:
    weights = sum(v.numel() * v.element_size() for v in program.state_dict.values())
    if weights > MOST:
        raise BadModel(f"the weights are {weights / 2**30:.1f} GB, more than one ONNX file holds; give `to` pt2.")
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise MissingExtra("onnx", "ONNX files") from error
    with quiet():
        try:
            written: Any = torch.onnx.export(
                program, (given,), dynamo=True, input_names=["images"], output_names=["logits"], verbose=False
            )
        except Exception as error:  # an operator without a counterpart, above all
            raise BadModel(
                f"the network cannot be written as ONNX: {_first_line(_first_cause(error))}; give `to` pt2 or torch."
            ) from error
        axis = written.model.graph.inputs[0].shape[0]
        if not isinstance(axis, int) and hasattr(
            written, "rename_axes"
        ):  # later than torch 2.8; until then it is s34, say
            written.rename_axes({axis: "batch"})
        for name, value in facts.items():
            written.model.metadata_props[name] = json.dumps(value, ensure_ascii=False)
        written.save(str(file), external_data=False)
    return _onnx_runner(file)


def _onnx_runner(file: Path) -> tuple[Runner, str]:
    """onnxruntime where it is installed, else the slow reference that comes with onnx."""
    session: Any
    try:
        import onnxruntime
    except ImportError:
        from onnx.reference import ReferenceEvaluator

        session, name = ReferenceEvaluator(str(file)), "onnx's reference evaluator"
    else:
        settings = onnxruntime.SessionOptions()
        settings.log_severity_level = 3
        settings.intra_op_num_threads = torch.get_num_threads()
        try:
            session = onnxruntime.InferenceSession(str(file), settings, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime has errors of many kinds; many operations it has in float32 alone
            why = str(error).splitlines()[0].removesuffix(".")
            raise BadModel(f"onnxruntime cannot run this network ({why}); bring it to float32 first.") from error
        name = "onnxruntime"

    def run(images: Tensor) -> np.ndarray:
        logits: np.ndarray = session.run(None, {"images": images.numpy()})[0]
        return logits

    return run, name
