"""The transplant net: category modules, task modules, adapters between them, and a table of who reaches whom.

Growth gives a new net that shares the old parts; no part is ever changed, so what worked before works bit for bit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from brickwork.blueprint.splitting import Above, Below, Split
from brickwork.errors import BadModel, RequestError, UnknownName
from brickwork.html_table import facts_table
from brickwork.prediction import evaluating
from brickwork.store import state_hash
from brickwork.transplant.layout import Grid, Layout, grid_below, layouts_of
from brickwork.transplant.token_adapter import AnyAdapter, TokenAdapter
from brickwork.words import scores_text, sides, table

Route = tuple[str, str]  # (category, task)
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")  # of a category or a task
Shape = tuple[int, ...]  # channels, height, width of features; or tokens and their channels


@dataclass(frozen=True)
class CategoryPart:
    module: Below
    gives: Shape
    grid: Grid | None = None  # on which tokens lie


@dataclass(frozen=True)
class TaskPart:
    module: Above
    reads: Shape
    grid: Grid | None = None


class TransplantNet(nn.Module):
    """Forward by (category, task): net(images, "cat", "classify").

    >>> from brickwork import zoo
    >>> from brickwork.blueprint.splitting import split
    >>> dog, cat = (split(zoo.build("lenet", num_classes=1, seed=s).eval(), "pool1") for s in (0, 1))
    >>> net = TransplantNet((3, 32, 32)).add(dog, "dog", "classify").add(cat, "cat", "classify-cats")
    >>> from brickwork.transplant import Adapter
    >>> net = net.connect("cat", "classify", Adapter(6, 6))
    >>> net(torch.zeros(2, 3, 32, 32), "cat", "classify").shape, len(net.routes)
    (torch.Size([2, 1]), 3)
    """

    def __init__(self, input_shape: Sequence[int]) -> None:
        super().__init__()
        self.input_shape = tuple(int(n) for n in input_shape)  # channels, height, width of the images
        self.categories: dict[str, CategoryPart] = {}
        self.tasks: dict[str, TaskPart] = {}
        self.routes: dict[Route, AnyAdapter | None] = {}  # None: the modules were trained together
        self.notes: dict[Route, dict[str, Any]] = {}  # JSON values: how an adapter was learned, and what it is worth
        self.parts = nn.ModuleDict()

    # growing

    def add(self, halves: Split, category: str, task: str) -> TransplantNet:
        """A net with both halves of a network more: a category module and the task module it was trained with."""
        gives = self.shape_below(halves.below)
        grid = grid_below(halves.below, self.input_shape, gives)
        grown = self._grown()
        grown._new("category", category, self.categories)
        grown._new("task", task, self.tasks)
        grown.categories[category] = CategoryPart(halves.below, gives, grid)
        grown.tasks[task] = TaskPart(halves.above, gives, grid)
        grown.routes[category, task] = None
        return grown._settled()

    def add_category(self, category: str, below: Below) -> TransplantNet:
        """A net with a category module more, which reaches no task yet."""
        grown = self._grown()
        grown._new("category", category, self.categories)
        gives = self.shape_below(below)
        grown.categories[category] = CategoryPart(below, gives, grid_below(below, self.input_shape, gives))
        return grown._settled()

    def add_task(
        self,
        task: str,
        above: Above,
        categories: Iterable[str],
        *,
        reads: Sequence[int] | None = None,
        grid: Grid | None = None,
    ) -> TransplantNet:
        """A net with a task module more, learned on features of these categories as they are.

        reads, grid: the shape of its features and the grid of its tokens, where it comes from elsewhere and no category
        reaches it yet.
        """
        grown = self._grown()
        grown._new("task", task, self.tasks)
        names = list(categories)
        if not names and reads is None:
            raise RequestError("a task is learned on the features of one category or more; name them.")
        first = None if reads else self.category(names[0])
        grown.tasks[task] = (
            TaskPart(above, tuple(reads or ()), grid) if first is None else TaskPart(above, first.gives, first.grid)
        )
        for name in names:
            grown.check_route(name, task, None)
            grown.routes[name, task] = None
        return grown._settled()

    def connect(
        self,
        category: str,
        task: str,
        adapter: AnyAdapter | None,
        *,
        force: bool = False,
        note: Mapping[str, Any] | None = None,
    ) -> TransplantNet:
        """A net in which this category reaches this task through an adapter (None: directly)."""
        if (category, task) in self.routes and not force:
            raise RequestError(f"{category} reaches {task} already; give force=True to replace its adapter.")
        grown = self._grown()
        grown.check_route(category, task, adapter)
        grown.routes[category, task] = adapter
        grown.notes.pop((category, task), None)
        if note:
            grown.notes[category, task] = dict(note)
        return grown._settled()

    def without(self, *, category: str | None = None, task: str | None = None) -> TransplantNet:
        """A net with one part and its routes less; the parts are shared, so nothing else changes."""
        grown = self._grown()
        if category is not None:
            self.category(category)
            del grown.categories[category]
        if task is not None:
            self.task(task)
            del grown.tasks[task]
        grown.routes = {
            (c, t): adapter for (c, t), adapter in grown.routes.items() if c in grown.categories and t in grown.tasks
        }
        grown.notes = {route: note for route, note in grown.notes.items() if route in grown.routes}
        return grown._settled()

    # using

    def forward(self, images: Tensor, category: str, task: str) -> Any:
        if (category, task) not in self.routes:
            self.category(category), self.task(task)
            reached = [t for c, t in self.routes if c == category]
            raise RequestError(
                f"{category} does not reach {task}; it reaches {', '.join(reached) or 'nothing'}. Connect them first."
            )
        below, above = self.category(category).module, self.task(task).module
        return through(below, self.routes[category, task], above, images)

    def features(self, images: Tensor, category: str) -> tuple[Tensor, ...]:
        """What a category module gives: its features, and what is carried past the cut."""
        result = self.category(category).module(images)
        return result if isinstance(result, tuple) else (result,)

    def category(self, name: str) -> CategoryPart:
        if name not in self.categories:
            raise UnknownName("category", name, self.categories)
        return self.categories[name]

    def task(self, name: str) -> TaskPart:
        if name not in self.tasks:
            raise UnknownName("task", name, self.tasks)
        return self.tasks[name]

    def table(self) -> list[dict[str, Any]]:
        """Who reaches whom, and through what."""
        return [
            {"category": c, "task": t, "adapter": "none" if a is None else a.extra_repr()}
            for (c, t), a in self.routes.items()
        ]

    def to_dict(self) -> dict[str, Any]:
        """JSON values: parts with their shapes and sizes, and every route with what is known of it."""

        def part(module: nn.Module, shape: Shape) -> dict[str, Any]:
            return {"shape": list(shape), "parameters": sum(p.numel() for p in module.parameters())}

        return {
            "input_shape": list(self.input_shape),
            "categories": {name: part(p.module, p.gives) for name, p in self.categories.items()},
            "tasks": {name: part(p.module, p.reads) for name, p in self.tasks.items()},
            "routes": [{**row, **self.notes.get((row["category"], row["task"]), {})} for row in self.table()],
        }

    def __str__(self) -> str:
        """The parts, and which category reaches which task; `repr` shows the modules."""
        facts = self.to_dict()
        parts = [
            (kind, name, sides(part["shape"]), part["parameters"])
            for kind, entry in (("category", "categories"), ("task", "tasks"))
            for name, part in facts[entry].items()
        ]
        routes = [
            (
                *(r[k] for k in ("category", "task", "adapter")),
                r.get("way") or "–",
                *(scores_text(r.get(k)) for k in ("after", "teacher_test")),
            )
            for r in facts["routes"]
        ]
        known = table(["category", "task", "adapter", "way", "test", "teacher's test"], routes)
        return "\n".join(
            [
                f"images of {sides(self.input_shape)}",
                table(["part", "name", "features", "parameters"], parts),
                "",
                known if routes else "no category reaches a task yet; `connect` makes one",
            ]
        )

    def _repr_html_(self) -> str:
        rows = [(f"{row['category']} → {row['task']}", row["adapter"]) for row in self.table()]
        return facts_table([("images", sides(self.input_shape)), *rows])

    @property
    def options(self) -> dict[str, Any]:
        """How each adapter was learned, by "category → task"."""
        return {f"{c} → {t}": note.get("options") for (c, t), note in self.notes.items()}

    @property
    def provenance(self) -> dict[str, Any]:
        """Every part by the hash of its weights."""
        parts: dict[str, Any] = {**self.categories, **self.tasks}
        return {"command": "transplant", "inputs": {name: state_hash(part.module) for name, part in parts.items()}}

    def save(self, folder: str | Path, *, force: bool = False) -> Path:
        """Write the net as a folder."""
        from brickwork.transplant.folders import save_net

        return save_net(self, folder, force=force)

    @classmethod
    def load(cls, folder: str | Path, **options: Any) -> TransplantNet:
        """The net of a folder; options: arch and device, as in `brickwork.load`."""
        from brickwork.transplant.folders import load_net

        return load_net(folder, **options)

    # inside

    def _grown(self) -> TransplantNet:
        grown = TransplantNet(self.input_shape)
        grown.categories, grown.tasks, grown.routes = (dict(self.categories), dict(self.tasks), dict(self.routes))
        grown.notes = dict(self.notes)
        grown.training = self.training
        return grown

    def _settled(self) -> TransplantNet:
        """Every part once, so that devices, modes and parameters are those of an ordinary module."""
        kinds: Mapping[str, Mapping[Any, Any]] = {"category": self.categories, "task": self.tasks}
        for kind, parts in kinds.items():
            for name, part in parts.items():
                self.parts[_key(kind, name)] = part.module
        for (category, task), adapter in self.routes.items():
            if adapter is not None:
                self.parts[_key("adapter", f"{category} {task}")] = adapter
        return self

    def _new(self, kind: str, name: str, known: Mapping[str, Any]) -> None:
        if not NAME.fullmatch(name):
            raise RequestError(f"{name!r} is no name for a {kind}; use letters, digits, - and _.")
        if name in known:
            raise RequestError(
                f"there is a {kind} {name!r} already; the net has {', '.join(known)}. Give another name."
            )

    def shape_below(self, below: Below) -> Shape:
        """Of the features that a category module gives for one of this net's images."""
        like = next(below.parameters(), torch.zeros(()))
        try:
            with evaluating(below):
                result = below(torch.zeros(1, *self.input_shape, device=like.device, dtype=like.dtype))
        except RuntimeError as error:
            text = str(error).split("\n")[0]
            raise BadModel(f"the category module cannot take images of {self.input_shape}: {text}") from error
        return tuple((result[0] if isinstance(result, tuple) else result).shape[1:])

    def layouts(self, category: str, task: str) -> tuple[Layout, Layout]:
        """How the features lie that a category gives and a task reads; refused where they are neither maps nor tokens."""
        one, other = self.category(category), self.task(task)
        return layouts_of(one.gives, one.grid, other.reads, other.grid)

    def check_route(self, category: str, task: str, adapter: AnyAdapter | None) -> None:
        """Shapes that cannot meet are refused here, with what would join them."""
        gives, reads = self.category(category).gives, self.task(task).reads
        needs, has = self.task(task).module.carried, self.category(category).module.carried
        if tuple(needs) != tuple(has):
            raise RequestError(
                f"{task} reads {', '.join(needs) or 'nothing'} carried past the cut and {category} carries "
                f"{', '.join(has) or 'nothing'}; cut both networks alike."
            )
        if isinstance(adapter, TokenAdapter):
            joined = (adapter.source, adapter.target)
            if joined != self.layouts(category, task):
                raise RequestError(
                    f"{category} gives {sides(gives)} and {task} reads {sides(reads)}, and an adapter from {joined[0]} to "
                    f"{joined[1]} joins them not; give TokenAdapter(*net.layouts({category!r}, {task!r}))."
                )
            return
        if gives != reads and 2 in (len(gives), len(reads)):
            raise RequestError(
                f"{category} gives {sides(gives)} and {task} reads {sides(reads)}, and {_said(adapter)} joins them not; give "
                f"TokenAdapter(*net.layouts({category!r}, {task!r}))."
            )
        if adapter is not None and len(gives) != 3:
            raise RequestError(
                f"{category} gives tokens, {sides(gives)}, and an adapter of maps reads none; give "
                f"TokenAdapter(*net.layouts({category!r}, {task!r}))."
            )
        if gives[1:] != reads[1:]:
            raise RequestError(
                f"{category} gives maps of {sides(gives)} and {task} reads {sides(reads)}; an adapter changes channels, not "
                "sizes: cut the networks where their maps have one size."
            )
        made = gives[0] if adapter is None else adapter.channels[1]
        if (adapter is not None and adapter.channels[0] != gives[0]) or made != reads[0]:
            raise RequestError(
                f"{category} gives {sides(gives)}, {task} reads {sides(reads)}, and {_said(adapter)} joins them not; "
                f"give Adapter({gives[0]}, {reads[0]})."
            )


def _said(adapter: AnyAdapter | None) -> str:
    return "no adapter" if adapter is None else f"an adapter from {adapter.channels[0]} to {adapter.channels[1]}"


def through(below: Below, adapter: AnyAdapter | None, above: Above, images: Tensor) -> Any:
    """Images through a category module, an adapter (None: directly) and a task module."""
    result = below(images)
    features, *carried = result if isinstance(result, tuple) else (result,)
    return above(features if adapter is None else adapter(features), *carried, image=images)


def _key(kind: str, name: str) -> str:
    return f"{kind} {name}"
