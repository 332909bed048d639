"""`save` and `load` of a model folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

import brickwork
from brickwork import zoo
from brickwork.atomic import check_output, file_hash, write_folder
from brickwork.errors import BadFile, BadModel, BrickworkError, MissingExtra, RequestError
from brickwork.limits import check_size
from brickwork.origin import Origin, attach, origin_of
from brickwork.store import weights as w
from brickwork.store.config import CONFIG, WEIGHTS, Config, OriginConfig, origin_config, read_config, write_config
from brickwork.store.replay import replay
from brickwork.store.valueless import valueless
from brickwork.tensor_file import inside
from brickwork.zoo.external import called, check_recorded

Arch = str | Callable[..., nn.Module]


def save(
    model: nn.Module,
    folder: str | Path,
    *,
    force: bool = False,
    provenance: Mapping[str, Any] | None = None,
    allow_nonfinite: bool = False,
) -> Path:
    """Write `model` as a folder: weights, config.json, card. The model is left as it is.

    `provenance` (JSON values: command, data, seed, metrics) is added to what the model's Origin says.

    >>> import tempfile
    >>> from brickwork import zoo
    >>> folder = save(zoo.build("lenet", seed=0), tempfile.mkdtemp() + "/model", provenance={"data": "digits"})
    >>> sorted(file.name for file in folder.iterdir())
    ['README.md', 'config.json', 'model.safetensors']
    """
    folder = Path(folder)
    check_output(folder, force=force)
    model = getattr(model, "_orig_mod", model)  # torch.compile's wrapper renames every tensor
    origin = origin_of(model)
    origin = replace(origin, provenance={**origin.provenance, **(provenance or {})})
    state = w.state_of(model)
    if not allow_nonfinite:
        w.check_finite(state, f"cannot save {folder}")
    _check_fits(origin, state)
    tied = w.tied_names(state)
    stored = {name: value for name, value in state.items() if name not in tied}
    _check_json(origin)
    with write_folder(folder, force=force) as temporary:
        path = temporary / WEIGHTS
        w.write_safetensors(stored, path, {"format": "pt", "brickwork": brickwork.__version__})
        weights = {
            "file": WEIGHTS,
            "sha256": file_hash(path),
            "state_hash": w.state_hash(state),
            "tensors": w.describe(stored),
            "tied": tied,
        }
        write_config(temporary, origin, weights)
    return folder


def _check_json(origin: Origin) -> None:
    """Refuse a record that is not JSON before anything is written."""
    try:
        origin_config(origin)
    except (TypeError, ValueError) as error:
        raise RequestError(f"the provenance or steps of the model are not JSON values: {error}.") from error


def load(
    folder: str | Path, *, arch: Arch | None = None, device: str | torch.device = "cpu", allow_nonfinite: bool = False
) -> nn.Module:
    """The module of a model folder, in evaluation mode; every tensor accounted for, or one BadFile.

    `arch` is needed only where the folder does not name an architecture that Brickwork can build by itself:
    your own `package.module:factory`, or a function that returns the module.

    >>> import tempfile
    >>> from brickwork import zoo
    >>> folder = save(zoo.build("lenet", num_classes=3, seed=0), tempfile.mkdtemp() + "/model")
    >>> load(folder).fc3.out_features
    3
    """
    folder = Path(folder)
    config = read_config(folder)
    origin = config.origin()
    source = _source(folder, config, arch)
    state = _read_tensors(folder, config)
    if not allow_nonfinite:
        try:
            w.check_finite(state, str(folder))
        except BadModel as error:
            raise BadFile(str(error)) from error
    model = _build(folder, origin, source)
    _fill(model, state, config.weights.tied, folder)
    attach(model, origin)
    return model.eval().to(device)


def build_module(config: OriginConfig, where: Path, *, arch: Arch | None = None) -> nn.Module:
    """The module that a record describes, without its weights; `where` is the folder that says so."""
    return _build(where, Origin.from_dict(config.model_dump()), _source(where, config, arch))


def _source(folder: Path, config: OriginConfig, arch: Arch | None) -> Arch | None:
    """What to build: the folder's own architecture, or the caller's where the folder may not decide."""
    named = config.arch
    parts = _all_parts(config)
    if isinstance(arch, str) and named is not None and arch not in [part.arch for part in parts]:
        raise RequestError(f"{folder} holds a {named!r}, not a {arch!r}.")
    for part in parts:
        # Code may be named only if the caller names the very same, or gives the function itself.
        allowed = arch == part.arch if isinstance(arch, str) and part.arch else arch is not None and part is config
        if part.arch is not None and zoo.needs_import(part.arch) and not allowed:
            raise BadFile(
                f"{folder}/{CONFIG} names code to import, {part.arch!r}; a folder cannot do that by itself. "
                f"If you trust it, give `arch` {part.arch}."
            )
        if part.arch is not None and not allowed:
            try:
                check_recorded(part.arch, part.args)
            except MissingExtra:
                raise
            except RequestError as error:
                raise BadFile(f"{folder}/{CONFIG}: {error}") from error
        if part.arch is None and not part.parts and not allowed:
            raise BadFile(
                f"{folder} does not say which architecture it holds (Brickwork did not build it); "
                "give arch='package.module:factory' or a function that returns the module."
            )
    return named if config.parts else arch or named


def _all_parts(config: OriginConfig) -> list[OriginConfig]:
    return [config, *(inner for part in config.parts for inner in _all_parts(part))]


def _read_tensors(folder: Path, config: Config) -> w.State:
    path = folder / config.weights.file
    if not path.is_file():
        raise BadFile(f"{folder} has no {path.name}.")
    state = w.read_safetensors(inside(path), config.weights.sha256)
    expected = {name: t.model_dump() for name, t in config.weights.tensors.items()}
    _compare(w.describe(state), expected, f"{path}", f"{CONFIG} lists")
    return state


def _build(folder: Path, origin: Origin, source: Arch | None) -> nn.Module:
    if origin.steps or origin.parts:
        _check_size(folder, origin, source)
        model = None if origin.parts else _new(source, origin)
        try:
            return replay(model, origin)
        except BrickworkError:
            raise
        except (KeyError, TypeError, AttributeError, ValueError, IndexError, RuntimeError, AssertionError) as error:
            what = f"{type(error).__name__}: {error}"
            raise BadFile(f"{folder}/{CONFIG} records surgery that cannot be done again ({what}).") from error
    try:
        with valueless():
            model = _new(source, origin)
        if complete_in_state(model):
            return model
    except BrickworkError:
        raise
    except Exception:  # a factory that computes with its weights; the plain way decides
        _check_size(folder, origin, source)
    return _new(source, origin)


def _check_size(folder: Path, origin: Origin, source: Arch | None) -> None:
    """Refuse a record that would take far more memory than the folder holds; known from shapes and numbers alone."""
    stored = sum(file.stat().st_size for file in folder.glob("*") if file.is_file())
    check_size(f"{folder}/{CONFIG}", _bytes_of(origin, source), stored)


def _bytes_of(origin: Origin, source: Arch | None) -> int:
    """About what a record takes when it is done again: the network as it was, and what steps add to it."""
    total = sum(_bytes_of(part, part.arch) for part in origin.parts)
    counts = [step.get(name) for step in origin.steps for name in ("new", "width")]
    if not origin.parts and isinstance(source, str) and not zoo.needs_import(source):
        try:
            with valueless():
                built = zoo.build(source, **origin.args)
            total += sum(value.numel() * value.element_size() for value in built.state_dict().values())
        except BrickworkError:
            raise
        except Exception:  # it computes with its weights, and cannot be built without them
            counts += origin.args.values()
    return total + ROW * sum(n for n in counts if isinstance(n, int))


ROW = 4 * 2048  # bytes of a class that is added: one number for each feature


def _new(source: Arch | None, origin: Origin) -> nn.Module:
    if isinstance(source, str):
        return zoo.build(source, seed=0, **origin.args)
    assert source is not None
    return called(source, None, origin.args)[0]


def complete_in_state(model: nn.Module) -> bool:
    """Whether the state dict is all there is: other tensors would stay on the meta device, without values."""
    names = {id(v) for v in model.state_dict(keep_vars=True).values()}
    for module in model.modules():
        held = [*module._buffers.values(), *module._parameters.values(), *vars(module).values()]
        if any(isinstance(v, torch.Tensor) and id(v) not in names for v in held):
            return False
    return True


def _fill(model: nn.Module, state: w.State, tied: dict[str, str], folder: Path) -> None:
    own = model.state_dict()
    full = {**state, **{alias: state[name] for alias, name in tied.items() if name in state}}
    shapes = {name: {"shape": list(value.shape)} for name, value in own.items()}
    _compare({k: {"shape": list(v.shape)} for k, v in full.items()}, shapes, str(folder), "the architecture has")
    model.load_state_dict(full, strict=True, assign=True)
    for alias, name in tied.items():
        parent, _, leaf = alias.rpartition(".")
        source_parent, _, source_leaf = name.rpartition(".")
        value = getattr(model.get_submodule(source_parent), source_leaf)
        setattr(model.get_submodule(parent), leaf, value)


def _check_fits(origin: Origin, state: w.State) -> None:
    """A module that was changed by hand no longer fits its record; better to say so now than at loading."""
    if origin.arch is None or origin.steps or origin.parts:
        return
    try:
        with valueless():
            built = zoo.build(origin.arch, **origin.args)
    except Exception:  # not buildable without values; loading will check the real thing
        return
    shapes = {name: {"shape": list(value.shape)} for name, value in built.state_dict().items()}
    mine = {name: {"shape": list(value.shape)} for name, value in state.items()}
    try:
        _compare(mine, shapes, "the model", f"{origin.arch} has")
    except BadFile as error:
        raise BadModel(
            f"the model was changed since it was built: {error} To save it all the same, remove its record "
            "(del model.brickwork_origin) and load it with arch=."
        ) from error


def _compare(found: Mapping[str, Any], expected: Mapping[str, Any], where: str, says: str) -> None:
    """One sentence for the first of: missing tensors, extra tensors, a wrong shape, a wrong dtype."""
    missing = [name for name in expected if name not in found]
    extra = [name for name in found if name not in expected]
    if missing:
        raise BadFile(f"{where} lacks {_some(missing)}, which {says}.")
    if extra:
        raise BadFile(f"{where} has {_some(extra)}, which is not among what {says}.")
    for name, wanted in expected.items():
        for key in wanted:
            if found[name][key] != wanted[key]:
                raise BadFile(f"{where}: {name} has {key} {found[name][key]}, but {says} {wanted[key]}.")


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
