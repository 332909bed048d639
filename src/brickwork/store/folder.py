"""`save` and `load` of a model folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

import brickwork
from brickwork import zoo
from brickwork.atomic import check_output, file_hash, write_folder
from brickwork.devices import DeviceLike
from brickwork.errors import BadFile, BadModel, BrickworkError, MissingExtra, RequestError
from brickwork.limits import check_size
from brickwork.origin import Origin, attach, origin_of
from brickwork.store import weights as w
from brickwork.store.config import CONFIG, WEIGHTS, Config, OriginConfig, origin_config, read_config, write_config
from brickwork.store.replay import build_architecture, rebuild
from brickwork.store.valueless import shapes_of, valueless
from brickwork.tensor_file import inside
from brickwork.words import some_of
from brickwork.zoo.external import check_recorded

Factory = str | Callable[..., nn.Module]
Arch = Factory | Sequence[Factory]  # several, where a joined network has parts of several


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
    if not isinstance(model, nn.Module):
        way_on = (
            "call its own .save(folder)"
            if hasattr(model, "save")
            else "give the torch.nn.Module itself, not its tensors"
        )
        raise BadModel(f"what is to be saved is a {type(model).__name__}; {way_on}.")
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
    folder: str | Path, *, arch: Arch | None = None, device: DeviceLike = "cpu", allow_nonfinite: bool = False
) -> nn.Module:
    """The module of a model folder, in evaluation mode; every tensor accounted for, or one BadFile.

    `arch` is needed only where the folder does not name an architecture that Brickwork can build by itself:
    your own `package.module:factory`, or a function that returns the module. A joined network may need several, as a list;
    of a list those that the folder does not name are passed over.

    >>> import tempfile
    >>> from brickwork import zoo
    >>> folder = save(zoo.build("lenet", num_classes=3, seed=0), tempfile.mkdtemp() + "/model")
    >>> load(folder).fc3.out_features
    3
    """
    folder = Path(folder)
    config = read_config(folder)
    origin = config.origin()
    sources = _sources(folder, config, arch)
    state = _read_tensors(folder, config)
    if not allow_nonfinite:
        try:
            w.check_finite(state, str(folder))
        except BadModel as error:
            raise BadFile(str(error)) from error
    model = _build(folder, origin, sources)
    _fill(model, state, config.weights.tied, folder)
    attach(model, origin)
    return model.eval().to(device)


def build_module(config: OriginConfig, where: Path, *, arch: Arch | None = None) -> nn.Module:
    """The module that a record describes, without its weights; `where` is the folder that says so."""
    return _build(where, Origin.from_dict(config.model_dump()), _sources(where, config, arch))


def _sources(folder: Path, config: OriginConfig, arch: Arch | None) -> list[Factory]:
    """What to build for every network of a record, in its order: what it names, or what the caller gives for it.

    Code may be built only if the caller names the very same, or gives the function itself.
    """
    given: list[Factory] = [arch] if isinstance(arch, str) or callable(arch) else list(arch or ())
    leaves = [part for part in _all_parts(config) if not part.parts]
    named = {part.arch for part in leaves}
    if isinstance(arch, str) and None not in named and arch not in named:
        raise RequestError(f"{folder} holds a {' and a '.join(sorted(repr(n) for n in named))}, not a {arch!r}.")
    functions = [one for one in given if callable(one)]
    spare = iter(_spare(folder, leaves, [one for one in given if one not in named]))
    sources: list[Factory] = []
    for part in leaves:
        if part.arch is None:
            sources.append(next(spare))
        elif part.arch in given:
            sources.append(part.arch)
        elif zoo.needs_import(part.arch):
            sources.append(_function(folder, part.arch, functions))
        elif callable(arch) and part is config:
            sources.append(arch)  # the caller's own word against the folder's
        else:
            _check_recorded(folder, part)
            sources.append(part.arch)
    return sources


def _spare(folder: Path, leaves: Sequence[OriginConfig], spare: Sequence[Factory]) -> list[Factory]:
    """One for every network that does not say what it is: the only one given for all, or as many in their order."""
    unnamed = sum(part.arch is None for part in leaves)
    if unnamed and not spare:
        raise BadFile(
            f"{folder} does not say which architecture it holds (Brickwork did not build it); give `arch`, "
            "package.module:factory or in Python a function that returns the module."
        )
    if len(spare) not in (1, unnamed) and unnamed:
        raise RequestError(
            f"{folder} holds {unnamed} networks that do not say what they are, and {len(spare)} `arch` are given; give one for "
            "all, or one for each in their order."
        )
    return list(spare) * unnamed if len(spare) == 1 else list(spare)


def _function(folder: Path, name: str, functions: Sequence[Any]) -> Factory:
    """The function that the caller gives for an architecture of his own: the one of that name, or the only one."""
    fitting = [f for f in functions if f"{getattr(f, '__module__', '')}:{getattr(f, '__qualname__', '')}" == name]
    chosen = fitting or (functions if len(functions) == 1 else [])
    if not chosen:
        raise BadFile(
            f"{folder}/{CONFIG} names code to import, {name!r}; a folder cannot do that by itself. "
            f"If you trust it, give `arch` {name}."
        )
    return chosen[0]  # type: ignore[no-any-return]


def _check_recorded(folder: Path, part: OriginConfig) -> None:
    try:
        check_recorded(str(part.arch), part.args)
    except MissingExtra:
        raise
    except RequestError as error:
        raise BadFile(f"{folder}/{CONFIG}: {error}") from error


def networks_of(folder: str | Path) -> list[str | None]:
    """The architectures of a folder's networks: one, or those that were joined; None for one that is not named."""
    return [part.arch for part in _all_parts(read_config(folder)) if not part.parts]


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


def _build(folder: Path, origin: Origin, sources: Sequence[Factory]) -> nn.Module:
    source = None if origin.parts else sources[0]
    if origin.steps or origin.parts:
        _check_size(folder, origin, source)
        try:
            return rebuild(origin, sources)
        except BrickworkError:
            raise
        except (KeyError, TypeError, AttributeError, ValueError, IndexError, RuntimeError, AssertionError) as error:
            what = f"{type(error).__name__}: {error}"
            raise BadFile(f"{folder}/{CONFIG} records surgery that cannot be done again ({what}).") from error
    assert source is not None
    try:
        with valueless():
            model = build_architecture(source, origin.args)
        if complete_in_state(model):
            return model
    except BrickworkError:
        raise
    except Exception:  # a factory that computes with its weights; the plain way decides
        _check_size(folder, origin, source)
    return build_architecture(source, origin.args)


def _check_size(folder: Path, origin: Origin, source: Factory | None) -> None:
    """Refuse a record that would take far more memory than the folder holds; known from shapes and numbers alone."""
    stored = sum(file.stat().st_size for file in folder.glob("*") if file.is_file())
    check_size(f"{folder}/{CONFIG}", bytes_of(origin, source), stored)


def bytes_of(origin: Origin, source: Factory | None) -> int:
    """About what a record takes when it is done again: the network as it was, and what steps add to it."""
    total = sum(bytes_of(part, part.arch) for part in origin.parts)
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
    w.put_state(model, full, assign=True)
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
        known = shapes_of(origin.arch, origin.args)
    except Exception:  # loading will say what is wrong with it
        return
    shapes = {name: {"shape": list(shape)} for name, shape in known.items()}
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
        raise BadFile(f"{where} lacks {some_of(missing)}, which {says}.")
    if extra:
        raise BadFile(f"{where} has {some_of(extra)}, which is not among what {says}.")
    for name, wanted in expected.items():
        for key in wanted:
            if found[name][key] != wanted[key]:
                raise BadFile(f"{where}: {name} has {key} {found[name][key]}, but {says} {wanted[key]}.")
