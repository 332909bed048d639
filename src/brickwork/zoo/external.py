"""Other people's models: timm, torchvision, transformers, and a function the user names.

Each takes (name, args) and gives (module, Origin). The same words work everywhere: `num_classes`,
`in_channels`, `image_size` and `pretrained` are translated into what the library calls them. Weights are
never fetched unless `pretrained=True` is given, and that is not recorded: a model folder holds its own.
"""

import contextlib
import functools
import importlib
import importlib.util
import inspect
import json
import os
import re
import sys
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from brickwork.devices import aligned
from brickwork.errors import BadFile, BadModel, BrickworkError, MissingExtra, RequestError, UnknownName
from brickwork.origin import Origin


@contextlib.contextmanager
def refusing(arch: str) -> Iterator[None]:
    """Turn what a factory raises on bad arguments into one sentence that names the architecture."""
    try:
        yield
    except BrickworkError:
        raise
    except ImportError as error:
        first = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise RequestError(f"{arch} needs a package that is not installed: {first.strip()}") from error
    except (TypeError, ValueError, AttributeError, RuntimeError, AssertionError, KeyError) as error:
        if "meta tensor" in str(
            error
        ):  # built for its shapes alone, and it looks at its values; nothing is wrong with it
            raise
        # Libraries with **kwargs report a wrong argument only from deep inside, in one of these ways.
        raise RequestError(f"{arch} cannot be built with these arguments: {error}") from error


#: arguments by which a library would read or fetch a file, or build a network of another library
_FETCHING = re.compile(
    r"pretrained_(cfg|backbone|strict|loc|custom|filter).*|weights.*|checkpoint.*|cache_dir|.*_(file|url|path|dir)|"
    r"backbone.*|use_(timm|pretrained).*|(hub|hf_hub|repo)_.*|model_args|architecture|auto_map|trust_remote_code"
)
_WORD = re.compile(r"[\w.+-]{0,64}")  # a layer's or a pooling's name; no path, no address


def _refuse_files(arch: str, args: dict[str, Any], known: Collection[str] | None = None) -> None:
    """Let through what describes a network, and nothing that opens or fetches: weights come in one way only.

    known: the arguments that the library's functions and classes for this network take; None where it says so itself.
    """
    for name, value in args.items():
        if _FETCHING.fullmatch(name):
            raise RequestError(
                f"{arch} does not take {name!r} here; pass pretrained=True for the published weights, "
                "or load a file with brickwork.store.load_weights."
            )
        if known is not None and name not in known:
            raise RequestError(f"{arch} cannot be built with the argument {name!r}, which it does not take.")
        if not _plain(value):
            raise RequestError(
                f"{arch} does not take {name} {str(value)[:60]!r} here; an argument is a number, true or false, a word, or a "
                "list or table of these."
            )


def _plain(value: Any) -> bool:
    if isinstance(value, str):
        return _WORD.fullmatch(value) is not None
    if isinstance(value, dict):
        return all(not _FETCHING.fullmatch(str(k)) and _plain(v) for k, v in value.items())
    if isinstance(value, list | tuple):
        return all(map(_plain, value))
    return value is None or isinstance(value, bool | int | float)


@functools.cache
def _taken(module: Any) -> frozenset[str]:
    """The names of all arguments of the functions and classes in the module that a library's network comes from."""
    names = {"num_classes", "in_channels", "image_size", "pretrained", "drop_rate", "drop_path_rate", "drop_block_rate"}
    family = module.__name__.rpartition(".")[0]  # a network of one file may be a class of another
    for member in vars(module).values():
        home = getattr(member, "__module__", "")
        of_family = isinstance(member, type) and issubclass(member, nn.Module) and home.startswith(f"{family}.")
        if callable(member) and (home == module.__name__ or of_family):
            with contextlib.suppress(TypeError, ValueError):
                names |= set(inspect.signature(member).parameters)
    return frozenset(names)


def check_recorded(arch: str, args: dict[str, Any]) -> None:
    """Refuse what a record may not name: it describes a network of a library, and opens or fetches nothing."""
    prefix, _, name = arch.partition(":")
    if prefix not in ("timm", "torchvision", "hf"):
        return
    _refuse_files(arch, args)
    if prefix == "hf" and not re.fullmatch(r"[a-z][\w-]*", name):  # a folder's name would be opened
        raise RequestError(f"{arch!r} is not the name of a transformers architecture")
    if args.get("pretrained"):
        raise RequestError(f"{arch} is not fetched here: the weights are in the folder")
    if prefix == "hf":
        _transformers(name, folders=False)


def timm(name: str, args: dict[str, Any]) -> tuple[nn.Module, Origin]:
    """`timm:NAME`, any of timm's models."""
    from brickwork.zoo.torchvision_shim import import_torchvision

    try:
        import_torchvision()
        library = importlib.import_module("timm")
    except ModuleNotFoundError as error:
        raise MissingExtra("timm", "timm models") from error
    if not library.is_model(name.split(".")[0]):
        raise UnknownName("timm model", name, library.list_models())
    entry = library.models.model_entrypoint(name.split(".")[0])
    _refuse_files(f"timm:{name}", args, _taken(sys.modules[entry.__module__]) | {"img_size", "in_chans"})
    recorded = {k: v for k, v in args.items() if k != "pretrained"}
    words = {"in_channels": "in_chans", "image_size": "img_size"}
    with refusing(f"timm:{name}"):
        given = {words.get(k, k): v for k, v in recorded.items()}
        model = library.create_model(name, pretrained=bool(args.get("pretrained", False)), **given)
    side = given.get("img_size") or model.pretrained_cfg["input_size"][-1]
    height, width = (side, side) if isinstance(side, int) else side
    shape = (given.get("in_chans", 3), height, width)
    return model, Origin(arch=f"timm:{name}", args=recorded, input_shape=shape)


def torchvision(name: str, args: dict[str, Any]) -> tuple[nn.Module, Origin]:
    """`torchvision:NAME`, any of torchvision's registered models."""
    from brickwork.zoo.torchvision_shim import import_torchvision

    try:
        models = import_torchvision().models
    except ModuleNotFoundError as error:
        raise MissingExtra("timm", "torchvision models") from error
    segmenters = models.list_models(module=models.segmentation)
    known = sorted({*models.list_models(module=models), *segmenters})
    if name not in known:
        raise UnknownName("torchvision model", name, known)
    builder = models.get_model_builder(name)
    _refuse_files(f"torchvision:{name}", args, _taken(sys.modules[builder.__module__]))
    given = {k: v for k, v in args.items() if k != "pretrained"}
    if given.pop("in_channels", 3) != 3:
        raise BadModel(f"torchvision:{name} takes 3 image channels, not {args['in_channels']}.")
    weights = "DEFAULT" if args.get("pretrained") else None
    extra = inspect.signature(builder).parameters
    if "weights_backbone" in extra:  # segmentation models would fetch a backbone otherwise
        given.setdefault("weights_backbone", None)
    if name in ("googlenet", "inception_v3"):
        given.setdefault("init_weights", True)
        given.setdefault("aux_logits", False)
    with refusing(f"torchvision:{name}"):
        model = models.get_model(name, weights=weights, **given)
        if name in segmenters:
            model = MainOutput(model)
    side = 299 if name == "inception_v3" else 224
    recorded = {k: v for k, v in args.items() if k not in ("pretrained", "in_channels")}
    return model, Origin(arch=f"torchvision:{name}", args=recorded, input_shape=(3, side, side))


class MainOutput(nn.Module):
    """A torchvision segmentation model that returns the score tensor instead of a dictionary."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.model(x)["out"]


class LogitsOnly(nn.Module):
    """A transformers model that returns the logits tensor instead of an output object."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.model(pixel_values=x, return_dict=True).logits


def huggingface(name: str, args: dict[str, Any]) -> tuple[nn.Module, Origin]:
    """`hf:MODEL_TYPE` with config values as arguments, or `hf:FOLDER` with a config.json in it.

    The record always says `hf:MODEL_TYPE` and the config values that differ from the default, never a path.
    """
    library, known = _transformers(name)
    words = {"num_classes": "num_labels", "in_channels": "num_channels"}
    given = {words.get(k, k): v for k, v in args.items()}
    _refuse_files(f"hf:{name}", given)
    if name in known:  # before looking for a folder: a folder called "vit" here must not change what hf:vit is
        with refusing(f"hf:{name}"):
            config = library.AutoConfig.for_model(name)
            for key in given:
                if key.startswith("_") or not hasattr(config, key):
                    public = [k for k in sorted(config.to_dict()) if not k.startswith("_")]
                    raise UnknownName(f"config value of hf:{name}", key, public)
            config = library.AutoConfig.for_model(name, **given)
            config.architectures = (
                config.architectures or []
            )  # where a type has two classifiers, None is looked through
            model = library.AutoModelForImageClassification.from_config(config, trust_remote_code=False)
    elif Path(name).is_dir():
        model = _from_folder(library, Path(name), given)
    else:
        hint = "A folder with a config.json is taken too."
        raise UnknownName("transformers image classifier", name, sorted(known), hint)
    config = model.config
    side = getattr(config, "image_size", None) or 224
    height, width = (side, side) if isinstance(side, int) else (int(side[0]), int(side[1]))
    shape = (int(getattr(config, "num_channels", 3)), height, width)
    return LogitsOnly(model), Origin(
        arch=f"hf:{config.model_type}", args=_config_values(library, config), input_shape=shape
    )


#: an image classifier of transformers that is a network of another library, built from that library's own arguments
_WRAPPED = {"timm_wrapper": "a network of timm; build it as timm:NAME"}


def _transformers(name: str, *, folders: bool = True) -> tuple[Any, Collection[str]]:
    """The library and the types of image classifiers it has; refuses one of those that it wraps."""
    from brickwork.zoo.torchvision_shim import import_torchvision

    try:
        if importlib.util.find_spec("torchvision") is not None:  # transformers imports it where it is installed
            import_torchvision()
        library: Any = importlib.import_module("transformers")
    except ModuleNotFoundError as error:
        raise MissingExtra("hf", "transformers models") from error
    from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES as known

    if name in _WRAPPED:
        raise RequestError(f"hf:{name} is {_WRAPPED[name]}.")
    if not folders and name not in known:
        raise UnknownName("transformers image classifier", name, sorted(known))
    return library, known


def _from_folder(library: Any, folder: Path, given: dict[str, Any]) -> nn.Module:
    """Weights too when the folder has them as safetensors; never remote code, never a pickle."""
    if not (folder / "config.json").is_file():
        raise BadFile(f"{folder} has no config.json; hf: needs a transformers folder or a model type.")
    auto: Any = library.AutoModelForImageClassification
    with contextlib.suppress(OSError, ValueError, AttributeError, RecursionError):
        kind = json.loads((folder / "config.json").read_text(encoding="utf-8")).get("model_type")
        if kind in _WRAPPED:
            raise RequestError(f"{folder} holds a {kind}, which is {_WRAPPED[kind]}.")
    with refusing(f"hf:{folder}"):
        if any(folder.glob("*.safetensors")):
            model = auto.from_pretrained(
                str(folder), local_files_only=True, trust_remote_code=False, use_safetensors=True, **given
            )
            for value in (*model.parameters(), *model.buffers()):
                value.data = aligned(value.data)
            return model
        try:
            config = library.AutoConfig.from_pretrained(
                str(folder), local_files_only=True, trust_remote_code=False, **given
            )
        except OSError as error:
            raise BadFile(f"{folder}/config.json is not a transformers configuration: {error}") from error
        return auto.from_config(config, trust_remote_code=False)


def misfits(folder: Path) -> tuple[list[str], list[str], list[str]]:
    """Tensors that a transformers folder lacks, has beyond its network, and has in another shape."""
    library, _ = _transformers("", folders=True)
    with refusing(f"hf:{folder}"):
        _, report = library.AutoModelForImageClassification.from_pretrained(
            str(folder), local_files_only=True, trust_remote_code=False, use_safetensors=True, output_loading_info=True
        )
    shapes = [str(entry[0] if isinstance(entry, tuple | list) else entry) for entry in report["mismatched_keys"]]
    return sorted(report["missing_keys"]), sorted(report["unexpected_keys"]), sorted(shapes)


def _config_values(library: Any, config: Any) -> dict[str, Any]:
    """What differs from the model type's default configuration, as JSON values."""
    values = json.loads(config.to_json_string(use_diff=False))
    default = json.loads(library.AutoConfig.for_model(config.model_type).to_json_string(use_diff=False))
    skip = (
        "model_type",
        "transformers_version",
        "architectures",
        "torch_dtype",
        "dtype",
        "auto_map",
        "id2label",
        "label2id",
        "num_labels",
    )
    kept = {
        k: v
        for k, v in values.items()
        if k not in skip and not k.startswith("_") and (k not in default or default[k] != v)
    }
    # The label tables have integer keys, which JSON would turn into text; their number is enough.
    return {**kept, "num_labels": config.num_labels}


def imported(arch: str, args: dict[str, Any]) -> tuple[nn.Module, Origin]:
    """`package.module:factory`: a function of the user's, called with the arguments."""
    return called(factory_of(arch), arch, args)


def _dotted(path: str) -> str:
    """
    >>> _dotted("./nets/mine.py")
    'nets.mine'
    """
    return ".".join(part for part in path.removesuffix(".py").split("/") if part not in ("", ".", ".."))


def factory_of(arch: str) -> Callable[..., Any]:
    """The function that `package.module:factory` names; the module is imported."""
    module_name, _, attribute = arch.partition(":")
    here = os.getcwd()
    # An installed script, unlike `python`, does not look into the working folder; people's own code is there.
    sys.path.append(here)
    try:
        module = importlib.import_module(module_name)
    except (ImportError, ValueError, TypeError) as error:
        named = f"{_dotted(module_name)}:{attribute or 'factory'}"
        hint = (
            f"; name it as Python imports it, {named}, from the working folder" if module_name.endswith(".py") else ""
        )
        raise RequestError(f"architecture {arch!r}: cannot import {module_name!r} ({error}){hint}.") from error
    finally:
        sys.path.reverse()
        sys.path.remove(here)  # the last one: ours
        sys.path.reverse()
    factory: Callable[..., Any] | None = getattr(module, attribute, None)
    if not callable(factory):
        public = [n for n in vars(module) if not n.startswith("_") and callable(getattr(module, n))]
        raise UnknownName(f"factory in {module_name}", attribute, public)
    return factory


def called(factory: Callable[..., Any], arch: str | None, args: dict[str, Any]) -> tuple[nn.Module, Origin]:
    """Call a user's factory, checking the arguments' names before and the result after."""
    what = arch or getattr(factory, "__name__", repr(factory))
    try:
        inspect.signature(factory).bind(**args)
    except TypeError as error:
        raise RequestError(f"{what} cannot be called with these arguments: {error}.") from error
    model = factory(**args)
    if not isinstance(model, nn.Module):
        raise BadModel(f"{what} returned a {type(model).__name__}, not a torch.nn.Module.")
    return model, Origin(arch=arch, args=args)
