"""`import_model`: weights that were trained elsewhere, as a module that every operation takes.

Files are read as tensors only. What they do not say (classes, how images are prepared) is asked for, and what does not fit
the architecture is refused by name.
"""

from __future__ import annotations

import contextlib
import fnmatch
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from brickwork import zoo
from brickwork.atomic import file_hash
from brickwork.errors import BadFile, BadModel, BrickworkError, RequestError
from brickwork.options import takes
from brickwork.origin import INTERPOLATIONS, Origin, Preprocessing, attach, origin_of
from brickwork.outputs import in_rows, logits_of
from brickwork.store.foreign import from_processor, from_timm, names_of, read_json
from brickwork.store.options import ImportOptions
from brickwork.store.weights import check_finite, load_weights, put_state
from brickwork.words import counted, sides, some_of
from brickwork.zoo.external import called, check_recorded, factory_of, misfits

PREFIXES = ("module.", "_orig_mod.", "model.", "net.")  # of DataParallel, torch.compile, Lightning and habit


@takes(ImportOptions)
def import_model(
    file: str | Path,
    *,
    arch: str | Callable[..., nn.Module] | None = None,
    args: Mapping[str, Any] | None = None,
    options: ImportOptions,
) -> nn.Module:
    """The network of a .pth, .pt or .safetensors file, or of a folder of transformers or timm, with all it needs to be used.

    arch builds it: a name (`timm:resnet18`, `package.module:factory`) with `args`, or a function; a folder says it itself.
    No code of a file is run. What was done to fit the weights in is in the module's provenance.

    >>> import tempfile
    >>> path = tempfile.mkdtemp() + "/net.pth"
    >>> torch.save({"state_dict": zoo.build("lenet", num_classes=2, seed=0).state_dict()}, path)
    >>> net = import_model(path, arch="lenet", classes=["cat", "dog"], mean=[0.5], std=[0.25])
    >>> net.brickwork_origin.classes, net.brickwork_origin.preprocessing.size
    (('cat', 'dog'), (32, 32))
    """
    file, given = Path(file), dict(args or {})
    notes: list[str] = []
    record: dict[str, Any] = {"file": file.name, "notes": notes}
    if file.is_dir():
        model, said = _folder(file, arch, given, options.skip, record)
        source = sorted(file.glob("*.safetensors"))[0]
    else:
        model, said = _file(file, arch, given, options, record)
        source = file
    check_finite(model.state_dict(), str(file))
    origin = origin_of(model)
    prepared = _preprocessing(options, said, origin, given, file)
    classes = options.classes or said.get("classes")
    prepared, outputs = _tried(model, prepared, arch or origin.arch, one_channel=origin.input_shape is None)
    shape = (prepared.channels, *(prepared.size or ()))
    if classes is None:
        classes = [str(number) for number in range(outputs)]
        notes.append("the classes are called by their numbers; `classes` gives them names")
    if len(classes) != outputs:
        raise BadModel(
            f"{file} has {counted(outputs, 'output')} and {counted(len(classes), 'class name')} ({some_of(classes, 5)}); "
            "give one name for each output, in their order."
        )
    record["sha256"] = file_hash(source)
    attach(
        model,
        Origin(
            arch=origin.arch,
            args=origin.args,
            input_shape=shape,
            classes=tuple(classes),
            preprocessing=prepared,
            provenance={"import": record},
        ),
    )
    return model.eval()


def _file(
    file: Path, arch: Any, args: dict[str, Any], options: ImportOptions, record: dict[str, Any]
) -> tuple[nn.Module, dict[str, Any]]:
    """A file of tensors in a network that `arch` builds."""
    if arch is None:
        raise RequestError(
            f"{file} holds tensors, not the network they belong to; give `arch`, as in timm:resnet18 or "
            "package.module:factory."
        )
    state = load_weights(file, key=options.key)
    known = isinstance(arch, str) and not zoo.needs_import(arch)
    if known and options.classes is not None:
        args.setdefault("num_classes", len(options.classes))
    model = zoo.build(arch, **args) if isinstance(arch, str) else _called(arch, args)
    try:
        fill(model, without(state, options.skip, file, record), file, record["notes"])
    except BadFile as error:
        raise BadFile(error.template + _count_hint(arch, args, options.classes)) from None
    return model, from_timm(getattr(model, "pretrained_cfg", None) or {}) if known else {}


def _count_hint(arch: Any, args: dict[str, Any], classes: Sequence[str] | None) -> str:
    """How a factory of the user's own is told the number of classes, where it takes one and none was given."""
    if classes is None or "num_classes" in args or (isinstance(arch, str) and not zoo.needs_import(arch)):
        return ""
    factory = factory_of(arch) if isinstance(arch, str) else arch
    with contextlib.suppress(ValueError, TypeError):  # a factory without a signature
        if "num_classes" in inspect.signature(factory).parameters:
            return f" Of {counted(len(classes), 'class')}: `arg` num_classes={len(classes)}."
    return ""


def _called(factory: Callable[..., nn.Module], args: dict[str, Any]) -> nn.Module:
    model, origin = called(factory, None, args)
    attach(model, origin)
    return model


def _folder(
    folder: Path, arch: Any, args: dict[str, Any], skip: Sequence[str], record: dict[str, Any]
) -> tuple[nn.Module, dict[str, Any]]:
    """A folder of transformers, or of timm as it lies on the hub."""
    if not (folder / "config.json").is_file():
        raise BadFile(
            f"{folder} has no config.json; a folder to import is one of transformers or timm, else give a file."
        )
    facts = read_json(folder / "config.json")
    if "brickwork" in facts:
        raise RequestError(f"{folder} is a model folder of Brickwork already; every command takes it as it is.")
    if arch is not None:
        raise RequestError(f"{folder} says itself what it holds; leave out `arch`.")
    if not any(folder.glob("*.safetensors")):
        raise BadFile(
            f"{folder} has no .safetensors file; save it with save_pretrained(…, safe_serialization=True), or give a .pth "
            "file and `arch`."
        )
    if "architecture" in facts:
        args = {**_timm_arguments(facts, folder), **args}
        args.setdefault("num_classes", int(facts.get("num_classes") or facts["pretrained_cfg"]["num_classes"]))
        model = zoo.build(f"timm:{facts['architecture']}", **args)
        [weights] = sorted(folder.glob("*.safetensors"))[:1]
        fill(model, without(load_weights(weights), skip, weights, record), weights, record["notes"])
        said = from_timm(facts.get("pretrained_cfg") or {})
        return model, {**said, **({"classes": facts["label_names"]} if facts.get("label_names") else {})}
    if skip:
        raise RequestError(
            f"`skip` leaves tensors of a file out, and {folder} is read by transformers; leave `skip` out."
        )
    _refuse(folder, *misfits(folder))  # transformers would make up the missing ones
    model = zoo.build(f"hf:{folder}", **args)
    config: Any = getattr(model.model, "config", None)
    classes, twice = names_of(config.id2label)
    if twice:
        record["notes"].append(f"classes of one name were numbered: {some_of(twice, 5)}")
    settings = folder / "preprocessor_config.json"
    said = from_processor(read_json(settings)) if settings.is_file() else {}
    return model, {**said, "classes": classes}


def _timm_arguments(facts: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The arguments that timm's folder was saved with, in our words; what may not be said there `zoo.build` refuses."""
    given: Any = facts.get("model_args") or {}
    if not isinstance(given, dict):
        raise BadFile(f"{folder}/config.json: model_args must be a JSON object, not a {type(given).__name__}.")
    words = {"in_chans": "in_channels", "img_size": "image_size"}
    args = {words.get(str(name), str(name)): value for name, value in given.items()}
    try:
        check_recorded(f"timm:{facts['architecture']}", args)
    except RequestError as error:
        raise BadFile(f"{folder}/config.json: {error}") from error
    return args


def without(state: Mapping[str, Tensor], skip: Sequence[str], file: Path, record: dict[str, Any]) -> dict[str, Tensor]:
    """The tensors of a file but for those of these names, with or without a wrapper's prefix; `record` says which."""
    left = dict(state)
    for pattern in skip:
        gone = [name for name in left if any(fnmatch.fnmatchcase(form, pattern) for form in _forms(name))]
        if not gone:
            raise RequestError(
                f"`skip` {pattern!r} fits none of the tensors of {file} that are left; it has {some_of(list(left), 10)}."
            )
        for name in gone:
            del left[name]
        record["notes"].append(f"{counted(len(gone), 'tensor')} left out by {pattern!r}: {some_of(gone, 5)}")
        record.setdefault("skipped", []).extend(gone)
    return left


def _forms(name: str) -> list[str]:
    """A name, and what is left of it as prefixes of wrappers are taken off.

    >>> _forms("module.model.fc.bias")
    ['module.model.fc.bias', 'model.fc.bias', 'fc.bias']
    """
    forms = [name]
    while prefix := next((p for p in PREFIXES if forms[-1].startswith(p)), None):
        forms.append(forms[-1].removeprefix(prefix))
    return forms


def fill(model: nn.Module, state: Mapping[str, Tensor], file: Path, notes: list[str]) -> None:
    """Put the tensors of a file into a network; every one has its place and every place its tensor, or nothing is done.

    Prefixes that wrappers put before all names are taken off, and said in `notes`.
    """
    own = model.state_dict()
    names, change = _renamed(list(state), set(own))
    if change:
        notes.append(change)
    given = dict(zip(names, state.values(), strict=True))
    counters = [n for n in own if n not in given and n.endswith("num_batches_tracked")]
    if counters:  # files of before torch 0.4.1 have none; nothing depends on them but averages without momentum
        notes.append(
            f"{counted(len(counters), 'counter')} of batches (num_batches_tracked) were missing and begin at 0"
        )
    missing = [name for name in own if name not in given and name not in counters]
    misshapen = [
        f"{name} ({sides(given[name].shape, 'one number')}, the network has {sides(own[name].shape, 'one number')})"
        for name in own
        if name in given and given[name].shape != own[name].shape
    ]
    unexpected = [name for name, ours in zip(state, names, strict=True) if ours not in own]  # as the file calls them
    _refuse(file, missing, unexpected, misshapen)
    kinds = {str(v.dtype).removeprefix("torch.") for n, v in given.items() if v.dtype != own[n].dtype}
    if kinds:
        notes.append(f"{' and '.join(sorted(kinds))} numbers were turned into the network's own type")
    put_state(model, {**own, **given})


def _refuse(where: Path, missing: list[str], unexpected: list[str], misshapen: list[str]) -> None:
    """One sentence of everything that does not fit."""
    said = [
        f"{what} {some_of(names, 5)}"
        for what, names in (
            ("lacks", missing),
            ("has, which the network has not,", unexpected),
            ("has in another shape", misshapen),
        )
        if names
    ]
    if said:
        raise BadFile(
            f"{where} does not fit the architecture: it {'; it '.join(said)}. Give the `arch` (and its `arg`) that the "
            f"weights were trained in{', or leave out by `skip` what the network does without' if unexpected else ''}."
        )


def _renamed(names: list[str], own: set[str]) -> tuple[list[str], str]:
    """The names without a wrapper's prefix, or with the one that our wrapper has, where that fits better."""
    best, change = names, ""
    candidate, taken = names, ""
    for _ in range(len(PREFIXES)):
        prefix = next((p for p in PREFIXES if candidate and all(n.startswith(p) for n in candidate)), None)
        if prefix is None:
            break
        candidate, taken = [n.removeprefix(prefix) for n in candidate], taken + prefix
        if len(own & set(candidate)) > len(own & set(best)):
            best, change = candidate, f"the prefix {taken!r} was taken off every name"
    inner = "model."  # zoo.external.LogitsOnly and MainOutput
    if own and all(n.startswith(inner) for n in own):
        wrapped = [inner + n for n in names]
        if len(own & set(wrapped)) > len(own & set(best)):
            return wrapped, ""
    return best, change


def _preprocessing(
    options: ImportOptions, said: Mapping[str, Any], origin: Origin, args: Mapping[str, Any], file: Path
) -> Preprocessing:
    """What was asked for, else what the library says; refused where neither does."""
    mean, std = options.mean or said.get("mean"), options.std or said.get("std")
    size = options.size or said.get("size") or (origin.input_shape or (0,))[1:]
    lacking = [name for name, value in (("mean", mean), ("std", std), ("size", size)) if not value]
    if lacking or not mean or not std:
        raise RequestError(
            f"{file} does not say how images are prepared; give {', '.join(f'`{name}`' for name in lacking)} (a mean of 0 and a "
            "std of 1 where images go in as 0..1)."
        )
    channels = max(len(mean), len(std))
    if channels == 1 and (origin.input_shape or (3,))[0] == 3 and args.get("in_channels", 3) == 3:
        channels = 3  # one number for all
    if {len(mean), len(std)} - {1, channels}:
        raise RequestError(f"`mean` has {len(mean)} numbers and `std` {len(std)}; give one each, or one per channel.")
    interpolation = options.interpolation or said.get("interpolation") or "bilinear"
    if interpolation not in INTERPOLATIONS:
        raise RequestError(
            f"{file} scales images by {interpolation}, which Brickwork does not have; give the nearest of "
            f"{', '.join(INTERPOLATIONS)} as `interpolation`."
        )
    height, width = int(size[0]), int(size[-1])
    scaled = options.resize or (said.get("resize") if options.size is None else None)
    resize = None if not scaled else int(scaled[0]) if len(scaled) == 1 else (int(scaled[0]), int(scaled[1]))
    low = (resize, resize) if isinstance(resize, int) else resize
    if low is not None and (low[0] < height or low[1] < width):
        raise RequestError(
            f"`resize` {low[0]}×{low[1]} is smaller than `size` {height}×{width}, which is cut out of it."
        )
    numbers = [tuple(float(v) for v in (list(given) * channels if len(given) == 1 else given)) for given in (mean, std)]
    return Preprocessing((height, width), channels, numbers[0], numbers[1], resize, interpolation)


def _tried(model: nn.Module, prepared: Preprocessing, arch: Any, *, one_channel: bool) -> tuple[Preprocessing, int]:
    """How images are prepared, and how many classes the network tells apart.

    one_channel: the architecture does not say how many channels it takes; one number for all may have been for one.
    """
    mean, std, size = prepared.mean or (), prepared.std or (), prepared.size or ()
    try:
        return prepared, _outputs(model, (prepared.channels, *size), arch)
    except BadModel:
        if not one_channel or prepared.channels != 3 or len({*mean}) > 1 or len({*std}) > 1:
            raise
        grey = replace(prepared, channels=1, mean=mean[:1], std=std[:1])
        with contextlib.suppress(BadModel):
            return grey, _outputs(model, (1, *size), arch)
        raise


def _outputs(model: nn.Module, shape: tuple[int, ...], arch: Any) -> int:
    """How many classes the network tells apart, found by running it on two images of noise."""
    noise = torch.rand(2, *shape, generator=torch.Generator().manual_seed(0))
    kind = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
    try:
        with torch.inference_mode():
            logits = in_rows(logits_of(model.eval()(noise.to(kind))))
    except BrickworkError:
        raise
    except Exception as error:  # whatever the network's own code raises
        what = str(error).strip().splitlines()[0] if str(error).strip() else "no message"
        name = arch if isinstance(arch, str) else getattr(arch, "__name__", "the network")
        raise BadModel(
            f"{name} does not take images of {sides(shape)} ({type(error).__name__}: {what}); "
            "give the `size`, and as many numbers in `mean` as it has channels."
        ) from error
    if logits.ndim not in (2, 4) or len(logits) != 2:
        raise BadModel(f"the network gives {tuple(logits.shape)} for two images; one row of logits an image is needed.")
    return int(logits.shape[1])
