"""The growth of a net as a YAML file. Every mistake in it is reported at once, before a tensor is read.

# brickwork transplant run recipe.yaml --out net
networks:                           # model folders, relative to this file, and the layer behind which each is cut
  dogs: {model: dog, at: pool1}
  cats: {model: cat, at: pool1}
grow:                               # in this order
  - {add: dogs, category: dog, task: classify}                          # a category and the task it brings
  - {add: cats, category: cat, task: cats}
  - {add: dogs, task: breeds, learned_on: [cat], data: "digits:A"}      # a task learned on existing categories
  - {connect: cat, task: classify, data: "digits:A", way: closed-form}  # existing ones
start: old-net                      # optional: a net to grow; without it a new one begins
seed: 0
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from brickwork.data.spec import parse
from brickwork.errors import BadFile, RequestError
from brickwork.recipes import read_yaml, unknown, unknown_entries
from brickwork.transplant.folders import read_net_config
from brickwork.transplant.recipe_growth import GrowthStep, Stand, ops_of

KEYS = ("networks", "grow", "start", "seed")
NETWORK_KEYS = ("model", "at", "carry")


@dataclass(frozen=True)
class Network:
    model: Path
    at: str
    carry: tuple[str, ...] = ()


@dataclass(frozen=True)
class GrowthRecipe:
    networks: dict[str, Network]
    grow: tuple[GrowthStep, ...]
    start: Path | None
    seed: int

    def fingerprint(self, count: int) -> str:
        """Of the first `count` operations and everything that they are made from; a checkpoint is known by it."""
        import hashlib

        from brickwork import store

        used = {op.network for op in self.grow[:count] if op.network}
        entries: dict[str, Any] = {
            "seed": self.seed,
            "start": None if self.start is None else _net(self.start),
            "data": {spec: _files(spec) for op in self.grow[:count] for spec in op.data},
            "grow": [op.to_dict() for op in self.grow[:count]],
            "networks": {
                name: [store.read_config(n.model).weights.state_hash, n.at, list(n.carry)]
                for name, n in sorted(self.networks.items())
                if name in used
            },
        }
        return hashlib.sha256(json.dumps(entries, sort_keys=True).encode()).hexdigest()


def _net(folder: Path) -> list[str]:
    """What a net folder holds: its table, with the adapters' hash, and the configuration of each part, with its weights'."""
    parts = sorted(folder.glob("*/*/config.json"))
    return [path.read_text(encoding="utf-8") for path in (folder / "transplant.json", *parts)]


def _files(spec: str) -> list[list[Any]]:
    """Size and time of the files that a spec names; none for named sets, which do not change."""
    result = []
    for part in map(Path, parse(spec).source.split("+")):
        for path in sorted(part.rglob("*")) if part.is_dir() else [part]:
            if path.is_file():
                result.append([str(path), path.stat().st_size, path.stat().st_mtime_ns])
    return result


def read_recipe(path: str | Path) -> GrowthRecipe:
    """A recipe file; paths in it are relative to the file."""
    return make_recipe(read_yaml(path), Path(path).parent, str(path))


def make_recipe(entries: Any, where: Path = Path(), name: str = "the recipe") -> GrowthRecipe:
    """Check everything a recipe says; one RequestError with all that is wrong."""
    problems = unknown_entries(entries, KEYS, name, "networks: and grow:")
    seed = entries.get("seed", 0)
    if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
        problems.append(f"seed is {seed!r}; it must be a whole number, 0 or more")
        seed = 0
    networks = _networks(entries.get("networks", {}), where, problems)
    start, categories, routes, tasks = _start(entries.get("start"), where, problems)
    grow = ops_of(entries.get("grow"), Stand(networks, categories, tasks, routes, seed, problems), where)
    used = {op.network for op in grow}
    if not problems:
        problems += [
            f"network {name!r} is never added; use it or leave it out" for name in networks if name not in used
        ]
    if problems:
        raise RequestError(f"{name}: " + "; ".join(problems) + ".")
    return GrowthRecipe({k: n for k, n in networks.items() if n is not None}, tuple(grow), start, seed)


def _networks(entries: Any, where: Path, problems: list[str]) -> dict[str, Network | None]:
    """By name; None for one that is wrong, so that its name is known all the same."""
    if not isinstance(entries, Mapping):
        problems.append(f"networks are {entries!r}; they must be names with {{model, at, carry}}")
        return {}
    return {str(name): _network(str(name), entry, where, problems) for name, entry in entries.items()}


def _network(name: str, entry: Any, where: Path, problems: list[str]) -> Network | None:
    from brickwork import store
    from brickwork.transplant.parts import check_cut

    if not isinstance(entry, Mapping):
        problems.append(f"network {name!r} is {entry!r}; it must be {{model: FOLDER, at: LAYER}}")
        return None
    before = len(problems)
    problems += [unknown(f"entry of network {name}", key, NETWORK_KEYS) for key in entry if key not in NETWORK_KEYS]
    for key in ("model", "at"):
        if not isinstance(entry.get(key), str):
            problems.append(f"network {name!r} has {key} {entry.get(key)!r}; it must be a text")
    carry = entry.get("carry", [])
    if not isinstance(carry, list) or not all(isinstance(c, str) for c in carry):
        problems.append(f"network {name!r} carries {carry!r}; it must be a list of layers")
    origin = None
    if isinstance(entry.get("model"), str):
        try:
            origin = store.read_config(where / entry["model"]).origin()
        except BadFile as error:
            problems.append(f"network {name!r}: {str(error).rstrip('.')}")
    if len(problems) > before or origin is None:
        return None
    result = Network(where / entry["model"], entry["at"], tuple(carry))
    problem = check_cut(origin, result.at, result.carry)
    if problem is not None:
        problems.append(f"network {name!r}: {problem}")
        return None
    return result


def _start(
    entries: Any, where: Path, problems: list[str]
) -> tuple[Path | None, set[str], dict[tuple[str, str], bool], set[str]]:
    """What a net to grow has already: categories, routes (whether through an adapter), tasks."""
    if entries is None:
        return None, set(), {}, set()
    if not isinstance(entries, str):
        problems.append(f"start is {entries!r}; it must be the folder of a transplant net")
        return None, set(), {}, set()
    try:
        config = read_net_config(where / entries)
    except BadFile as error:
        problems.append(str(error).rstrip("."))
        return None, set(), {}, set()
    routes = {(r.category, r.task): r.adapter for r in config.routes}
    return where / entries, set(config.categories), routes, set(config.tasks)
