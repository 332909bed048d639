"""The operations of a recipe, checked against the net as it will stand when each of them is done."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from brickwork.errors import BrickworkError, RequestError
from brickwork.options import Options, fields_of
from brickwork.recipes import unknown
from brickwork.transplant.net import NAME
from brickwork.transplant.options import NO_OWN, WAYS, AdapterOptions, LearnTaskOptions

Kind = TypeVar("Kind", bound=Options)
LEARNING = [name for name in fields_of(LearnTaskOptions) if name != "seed"]
ADD_KEYS = ("add", "category", "task", "learned_on", "data", *LEARNING)
CONNECT_KEYS = ("connect", "task", "data", "teacher", "force", *fields_of(AdapterOptions))


@dataclass(frozen=True)
class GrowthStep:
    """One operation: add (a category, a task or both) or connect."""

    kind: str
    network: str | None
    category: str | None
    task: str | None
    on: tuple[str, ...]
    data: tuple[str, ...]
    options: AdapterOptions | LearnTaskOptions
    teacher: str | None = None
    force: bool = False

    def to_dict(self) -> dict[str, Any]:
        facts = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "options"}
        return {**facts, "options": self.options.to_dict()}

    def __str__(self) -> str:
        if self.kind == "connect":
            way = self.options.to_dict()["way"]
            return f"connect {self.category} → {self.task}" + (f" by {way}" if way else "")
        parts = [f"category {self.category}"] if self.category else []
        parts += [f"task {self.task}" + (f" on {', '.join(self.on)}" if self.on else "")] if self.task else []
        return f"add {' and '.join(parts)} of {self.network}"


@dataclass
class Stand:
    """What the net has at a point of the recipe, and what is wrong with the recipe until there."""

    networks: Mapping[str, Any]
    categories: set[str]
    tasks: set[str]
    routes: dict[tuple[str, str], bool]  # whether through an adapter
    seed: int
    problems: list[str]

    def new(self, at: str, kind: str, name: Any, known: set[str]) -> bool:
        if not isinstance(name, str) or not NAME.fullmatch(name):
            self.problems.append(f"{at}: {name!r} is no name for a {kind}; use letters, digits, - and _")
            return False
        if name in known:
            self.problems.append(f"{at}: there is a {kind} {name!r} already")
        known.add(name)
        return True

    def there(self, at: str, kind: str, name: Any, known: Iterable[str]) -> bool:
        if isinstance(name, str) and name in known:
            return True
        missing = f"give the {kind}, one of {', '.join(sorted(known)) or 'none so far'}"
        self.problems.append(f"{at}: {missing if name is None else unknown(kind, name, sorted(known))}")
        return False


def ops_of(entries: Any, stand: Stand, where: Path) -> list[GrowthStep]:
    """All operations, each of which changes `stand`."""
    problems = stand.problems
    if not isinstance(entries, list) or not entries or not all(isinstance(op, Mapping) for op in entries):
        problems.append(f"grow is {entries!r}; it must be a list of {{add: …}} and {{connect: …}}")
        return []
    result = []
    for number, op in enumerate(entries, 1):
        at = f"step {number}"
        if ("add" in op) == ("connect" in op):
            problems.append(f"{at} says {', '.join(map(str, op)) or 'nothing'}; it must say add: or connect:")
            continue
        keys = ADD_KEYS if "add" in op else CONNECT_KEYS
        problems += [f"{at}: {unknown('entry', key, keys)}" for key in op if key not in keys]
        made = _add(at, op, stand) if "add" in op else _connect(at, op, stand)
        if made is not None:
            result.append(_resolved(made, where))
            problems += [f"{at}: {text}" for text in _bad_data(result[-1].data)]
    return result


def _add(at: str, op: Mapping[str, Any], stand: Stand) -> GrowthStep | None:
    network, category, task = op["add"], op.get("category"), op.get("task")
    known = stand.there(at, "network", network, stand.networks)
    before = set(stand.categories)
    good = category is None or stand.new(at, "category", category, stand.categories)
    good &= task is None or stand.new(at, "task", task, stand.tasks)
    if category is None and task is None:
        stand.problems.append(f"{at}: give the category, the task, or both, a name")
    on = _names(op.get("learned_on"))
    data = _names(op.get("data"))
    if (on or data) and (category is not None or task is None):
        stand.problems.append(f"{at}: learned_on and data are for a task alone; leave category out, or them")
    good &= len([name for name in on if stand.there(at, "category", name, before)]) == len(on)
    if data and not on and category is None:
        stand.problems.append(f"{at}: data without learned_on; say on which categories' features the task is learned")
    elif data and len(data) not in (1, len(on)):
        stand.problems.append(f"{at}: {len(on)} categories and {len(data)} data; give one for all, or one for each")
    learning = {key: op[key] for key in LEARNING if key in op}
    if learning and not data:
        stand.problems.append(f"{at}: {next(iter(learning))} is for a task that is learned; give data too")
    options = _options(at, LearnTaskOptions, {"seed": stand.seed, **learning}, stand) or LearnTaskOptions()
    if not good:
        return None
    for name in on or ([category] if category and task else []):
        stand.routes[name, str(task)] = False
    if not known:
        return None
    if data and len(data) == 1:
        data = data * len(on)
    return GrowthStep("add", network, category, task, tuple(on), tuple(data), options)


def _connect(at: str, op: Mapping[str, Any], stand: Stand) -> GrowthStep | None:
    category, task, teacher = op["connect"], op.get("task"), op.get("teacher")
    good = stand.there(at, "category", category, stand.categories)
    good &= stand.there(at, "task", task, stand.tasks)
    data = _names(op.get("data"))
    if len(data) > 1:
        stand.problems.append(f"{at}: data are {data}; an adapter is learned on one data set")
    known = {name: op[name] for name in fields_of(AdapterOptions) if name in op}
    options = _options(at, AdapterOptions, {"seed": stand.seed, **known}, stand)
    options, good_options = options or AdapterOptions(), options is not None
    likely = options.resolved(images=bool(data))  # of tokens only the net knows, so a way left open stays open
    if good_options:
        stand.problems += [f"{at}: {text.replace('`', '')}" for text in likely.needs(data=bool(data))]
    force = op.get("force", False)
    if not isinstance(force, bool):
        stand.problems.append(f"{at}: force is {force!r}; it must be true or false")
    if not good:
        return None
    if (category, task) in stand.routes and not force:
        stand.problems.append(f"{at}: {category} reaches {task} already; say force: true to replace its adapter")
    reached = [t for (c, t), adapted in stand.routes.items() if c == category and not adapted and t != task]
    if teacher is not None and teacher not in reached:
        stand.problems.append(f"{at}: {category} came without {teacher!r}, so that cannot be its teacher")
    if good_options and teacher is None and not reached and "teacher" in WAYS[likely.way].needs:
        stand.problems.append(
            f"{at}: {category} came with no other task, so it has no teacher; use direct-learn with labels"
        )
    own = [c for (c, t), adapted in stand.routes.items() if t == task and not adapted and c != category]
    if good_options and "own" in WAYS[likely.way].needs and not own:
        stand.problems.append(f"{at}: {NO_OWN.format(task=task, way=likely.way)}")
    stand.routes[category, str(task)] = True
    return GrowthStep("connect", None, category, task, (), tuple(data), options, teacher, bool(force))


def _options(at: str, kind: type[Kind], entries: Mapping[str, Any], stand: Stand) -> Kind | None:
    """The options of a step; None where they are wrong, which is reported."""
    try:
        return kind.from_dict(entries)
    except RequestError as error:
        stand.problems.append(f"{at}: {str(error).removesuffix('.')}")
        return None


def _names(value: Any) -> list[str]:
    return [str(name) for name in value] if isinstance(value, list) else [] if value is None else [str(value)]


def _resolved(op: GrowthStep, where: Path) -> GrowthStep:
    """Files and folders of images are relative to the recipe, as models are."""
    return replace(op, data=tuple(str(where / spec) if _is_file(spec, where) else spec for spec in op.data))


def _is_file(spec: str, where: Path) -> bool:
    bare = re.split(r"[:@]", spec, maxsplit=1)[0]
    return (
        bool(bare)
        and not Path(bare).is_absolute()
        and ("/" in bare or bare.endswith(".npz"))
        and (where / bare).exists()
    )


def _bad_data(specs: Iterable[str]) -> list[str]:
    from brickwork import data as data_sets

    problems = []
    for spec in dict.fromkeys(specs):
        try:
            data_sets.check(spec)
        except BrickworkError as error:
            problems.append(str(error).rstrip("."))
    return problems
