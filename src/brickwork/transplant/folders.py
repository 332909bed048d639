"""Transplant nets as folders: every part once, category and task modules as ordinary model folders."""

import json
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, ValidationError
from torch import Tensor

from brickwork import store
from brickwork.atomic import check_output, file_hash, recovered, write_folder
from brickwork.blueprint.splitting import Above, Below
from brickwork.devices import DeviceLike
from brickwork.errors import BadFile, BadModel, RequestError
from brickwork.results import check_format
from brickwork.store.weights import read_safetensors, write_safetensors
from brickwork.tensor_file import inside
from brickwork.transplant.adapter import Adapter
from brickwork.transplant.layout import Grid, grid_from
from brickwork.transplant.net import NAME, CategoryPart, Shape, TaskPart, TransplantNet
from brickwork.transplant.token_adapter import AnyAdapter, TokenAdapter

CONFIG, ADAPTERS, FORMAT = "transplant.json", "adapters.safetensors", "brickwork.transplant/1"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Part(_Strict):
    shape: list[int]
    grid: list[int] | None = None  # on which tokens lie


class _Tokens(_Strict):
    """What an adapter that reads or makes tokens is, beside its layers; the layouts are those of its parts."""

    resize: str
    prefix: str
    positive: bool


class _Route(_Strict):
    category: str
    task: str
    adapter: bool
    channels: list[int] | None = None  # read and made
    layers: int | None = None
    kernel: int | None = None
    tokens: _Tokens | None = None
    note: dict[str, Any] | None = None


class _Config(_Strict):
    format: int | str
    image: list[int]
    categories: dict[str, _Part]
    tasks: dict[str, _Part]
    routes: list[_Route]
    adapters_sha256: str | None = None


def save_net(net: TransplantNet, folder: str | Path, *, force: bool = False) -> Path:
    """Write a transplant net; the net is left as it is."""
    folder = Path(folder)
    check_output(folder, force=force, owns=(CONFIG,))
    tensors: dict[str, Tensor] = {}
    routes: list[dict[str, Any]] = []
    for (category, task), adapter in net.routes.items():
        row: dict[str, Any] = {"category": category, "task": task, "adapter": adapter is not None}
        if adapter is not None:
            first: Any = adapter.convs[0]
            row |= {"channels": list(adapter.channels), "layers": len(adapter.convs), "kernel": first.kernel_size[0]}
            if isinstance(adapter, TokenAdapter):
                row["tokens"] = {name: getattr(adapter, name) for name in _Tokens.model_fields}
            tensors |= {f"{category}/{task}/{name}": value for name, value in adapter.state_dict().items()}
        if (category, task) in net.notes:
            row["note"] = net.notes[category, task]
        routes.append(row)
    config: dict[str, Any] = {
        "format": FORMAT,
        "image": list(net.input_shape),
        "routes": routes,
        "categories": {name: _part(part.gives, part.grid) for name, part in net.categories.items()},
        "tasks": {name: _part(part.reads, part.grid) for name, part in net.tasks.items()},
    }
    with write_folder(folder, force=force, owns=(CONFIG,)) as temporary:
        for kind, parts in (("categories", net.categories), ("tasks", net.tasks)):
            for name, part in parts.items():
                store.save(part.module, temporary / kind / name)
        if tensors:
            write_safetensors(tensors, temporary / ADAPTERS, {"format": "pt"})
            config["adapters_sha256"] = file_hash(temporary / ADAPTERS)
        (temporary / CONFIG).write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    return folder


def _part(shape: Shape, grid: Grid | None) -> dict[str, Any]:
    return {"shape": list(shape), **({} if grid is None else {"grid": list(grid)})}


def reads_tokens(folder: str | Path, category: str, task: str) -> bool:
    """Whether one of these parts of a net folder gives or reads tokens; no tensor is read."""
    config = read_net_config(recovered(folder))
    parts = [config.categories.get(category), config.tasks.get(task)]
    return any(part is not None and len(part.shape) == 2 for part in parts)


def load_net(folder: str | Path, *, arch: Any = None, device: DeviceLike = "cpu") -> TransplantNet:
    """The net of a folder, in evaluation mode. arch: as for `brickwork.load`, where modules need it."""
    folder = recovered(folder)
    config = read_net_config(folder)
    net = TransplantNet(config.image)
    for name, part in config.categories.items():
        module = _half(folder / "categories" / name, Below, arch)
        net.categories[name] = CategoryPart(module, tuple(part.shape), _grid(folder, part))
    for name, part in config.tasks.items():
        module = _half(folder / "tasks" / name, Above, arch)
        net.tasks[name] = TaskPart(module, tuple(part.shape), _grid(folder, part))
    tensors = _adapters(folder, config)
    for route in config.routes:
        if route.category not in net.categories or route.task not in net.tasks:
            raise BadFile(f"{folder}/{CONFIG}: a route from {route.category!r} to {route.task!r} leads nowhere.")
        adapter = _adapter(folder, net, route, tensors) if route.adapter else None
        try:
            net.check_route(route.category, route.task, adapter)
        except RequestError as error:
            raise BadFile(f"{folder}: {error}") from error
        net.routes[route.category, route.task] = adapter
        if route.note:
            net.notes[route.category, route.task] = route.note
    if tensors:
        raise BadFile(f"{folder}/{ADAPTERS} holds {sorted(tensors)[0]!r}, which no route uses.")
    return net._settled().eval().to(device)


def read_net_config(folder: Path) -> _Config:
    path = folder / CONFIG
    if not path.is_file():
        raise BadFile(f"{folder} is no transplant net: it has no {CONFIG}. `brickwork transplant add` makes one.")
    try:
        config = _Config.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise BadFile(f"{path}: {where or 'the file'}: {first['msg']}.") from error
    check_format(config.format, FORMAT, path, older=(1,))
    for name in (*config.categories, *config.tasks):
        if not NAME.fullmatch(name):
            raise BadFile(f"{path}: {name!r} is no name of a part.")
    return config


def _half(folder: Path, kind: type[Any], arch: Any) -> Any:
    module = store.load(folder, arch=arch)
    if not isinstance(module, kind):
        raise BadFile(f"{folder} holds a whole network, not the half {kind.__name__.lower()} a cut.")
    return module


def _adapters(folder: Path, config: _Config) -> dict[str, Tensor]:
    if config.adapters_sha256 is None:
        return {}
    path = folder / ADAPTERS
    if not path.is_file():
        raise BadFile(f"{path} is missing; {CONFIG} says that there are adapters.")
    return read_safetensors(inside(path), config.adapters_sha256)


def _grid(folder: Path, part: _Part) -> Grid | None:
    try:
        return grid_from(part.grid, part.shape)
    except BadModel as error:
        raise BadFile(f"{folder}/{CONFIG}: {error}") from error


def _adapter(folder: Path, net: TransplantNet, route: _Route, tensors: dict[str, Tensor]) -> AnyAdapter:
    if route.channels is None or len(route.channels) != 2 or route.layers is None or route.kernel is None:
        raise BadFile(f"{folder}/{CONFIG}: the adapter of {route.category} → {route.task} lacks its shape.")
    adapter: AnyAdapter
    if route.tokens is None:
        adapter = Adapter(route.channels[0], route.channels[1], layers=route.layers, kernel=route.kernel)
    else:
        try:
            sides = net.layouts(route.category, route.task)
            adapter = TokenAdapter(*sides, layers=route.layers, kernel=route.kernel, **route.tokens.model_dump())
        except (BadModel, RequestError) as error:
            raise BadFile(f"{folder}/{CONFIG}: {error}") from error
    prefix = f"{route.category}/{route.task}/"
    state = {name.removeprefix(prefix): tensors.pop(name) for name in list(tensors) if name.startswith(prefix)}
    first = next((value.dtype for name, value in state.items() if name.startswith("convs")), torch.float32)
    adapter.to(first)
    try:
        adapter.load_state_dict(state)
    except RuntimeError as error:
        text = " ".join(str(error).split())
        raise BadFile(f"{folder}/{ADAPTERS}: {text}") from error
    return adapter
