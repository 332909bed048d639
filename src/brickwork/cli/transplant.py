"""`brickwork transplant add|connect|tune|list|export|show|run`: grow a net of category and task modules."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import brickwork
from brickwork import store
from brickwork.cli import parameters as p
from brickwork.cli.command import Argument, Given, Report, make_group
from brickwork.cli.printing import log
from brickwork.errors import RequestError
from brickwork.options import Setting, fields_of, option, parse_shape, refuse
from brickwork.origin import origin_of
from brickwork.transplant.options import AdapterOptions, CompareOptions, LearnTaskOptions, TuneOptions
from brickwork.words import counted, scores_text, table

CONFIG = "transplant.json"  # marks the folder of a net
Net = Annotated[Path, Argument("A transplant net.", "NET")]
OutNet = p.out_folder("The net to write.", CONFIG)
Category = Annotated[str, Setting("Name of a category.")]
Categories = Annotated[tuple[str, ...], Setting("Name of a category; repeatable.")]
TaskName = Annotated[str, Setting("Name of a task.")]
Teacher = Annotated[str | None, Setting("A task that the category reaches.", default_text="the one that it came with")]


class NetRunning(p.Running):
    """Where and on what a net grows."""

    data: tuple[str, ...] = option(default=(), help="Images of each category that the task is learned on; repeatable.")


SeveralData = p.data_option(
    "Images: digits, cifar100:fox,wolf, a folder, …; one for all categories, or one for each.", several=True
)


def add(
    model: Annotated[Path, Argument("A model folder or an exported part.", "MODEL")],
    *,
    out: OutNet,
    to: Annotated[Path | None, Setting("The net to grow; none: a new one begins.", metavar="NET")] = None,
    at: Annotated[str | None, Setting("The layer behind which the network is cut.")] = None,
    carry: Annotated[tuple[str, ...], Setting("A layer whose output goes past the cut too; repeatable.")] = (),
    category: Categories = (),
    task: Annotated[str | None, Setting("Name of the task.")] = None,
    only: Annotated[Literal["category", "task"] | None, Setting("One half of the network alone.")] = None,
    input_shape: Annotated[
        tuple[int, ...] | None,
        Setting(
            "Shape of the images, if the model does not say.", parse=parse_shape, metavar="CxHxW", also=("--input",)
        ),
    ] = None,
    run: NetRunning,
    options: LearnTaskOptions,
    given: Given,
) -> Report:
    """Add both halves of a network to a net, or one.

    With --data, the task is learned on categories of the net.

    brickwork transplant add dog --at pool1 --category dog --task classify --out net

    brickwork transplant add cat --at pool1 --category cat --task cats --to net --out net2
    """
    from brickwork.transplant.growth import images_for

    # Everything that can be refused is refused here, before a tensor or an image is read.
    half = store.read_config(model).origin().steps[-1:]
    is_part = bool(half) and half[0].get("op") == "split"
    task_alone = only == "task" or (is_part and task is not None)
    count, sets = len(category), len(run.data)
    if is_part and only is not None:
        raise RequestError(f"{model} is one half already; leave `only` out.")
    if not is_part and at is None:
        raise RequestError(f"{model} is a whole network; give `at`, the layer behind which it is cut.")
    of_task = {
        "`only` task needs `task`, its name": task is None,
        f"{count} `category` and {sets} `data`; give one `data` per category": sets not in (0, count),
        "a task is learned from a whole network, with `only` task; a part comes as it is": sets and is_part,
        "the categories of `only` task are those of a net; give it with `to`": (sets or count) and to is None,
    }
    of_category = {
        "`data` is for a task that is learned on categories of a net; give `only` task with it": sets,
        f"`category` is given {count} times; a network brings one category, so give one": count != 1,
        "`only` category adds no task; leave `task` out": only == "category" and task is not None,
        "`task` is missing; give the upper half a name, or add `only` category": not (only or is_part or task),
    }
    refuse([sentence for sentence, wrong in (of_task if task_alone else of_category).items() if wrong])
    for name in [n for n in fields_of(LearnTaskOptions) if n in given and not run.data]:
        raise RequestError(f"`{name}` is for a task that is learned on `data`; nothing else is learned here.")
    specs = [brickwork.data.check(spec) for spec in run.data]
    net = None if to is None else run.net(to)
    images = [] if net is None else [images_for(net, spec, options.seed) for spec in specs]
    named: dict[str, Any] = {"on": category} if task_alone else {"category": category[0]}
    named |= {"at": at, "carry": carry, "task": task, "input_shape": input_shape}
    done = brickwork.transplant.add(net, run.load(model), data=images, options=options, **named)
    done.save(out, force=run.force)
    new = {
        kind: [name for name in getattr(done.net, kind) if net is None or name not in getattr(net, kind)]
        for kind in ("categories", "tasks", "routes")
    }
    return Report.saved(out, {"model": str(model), "added": new, "learned": done.note}, done)


def connect(
    net: Net,
    *,
    category: Category,
    task: TaskName,
    out: OutNet,
    data: p.OptionalData = None,
    teacher: Teacher = None,
    run: p.Running,
    options: AdapterOptions,
    given: Given,
) -> Report:
    """Plug a category module into a task module it never saw.

    What worked before stays as it is, bit for bit.

    brickwork transplant connect net2 --category cat --task classify --data digits --way closed-form --out net3
    """
    from brickwork.transplant.folders import reads_tokens
    from brickwork.transplant.growth import images_for

    tokens = reads_tokens(net, category, task)
    options = options.resolved(images=data is not None, tokens=tokens)
    refuse(options.needs(data=data is not None, given=given, tokens=tokens))
    loaded = run.net(net)
    images = None
    if data is not None:
        loaded.category(category), loaded.task(task)  # names first: images take longer
        images = images_for(loaded, data, options.seed)
    about: dict[str, Any] = {"data": images, "teacher": teacher, "force": run.force}
    done = brickwork.transplant.connect(loaded, category, task, options=options, **about)
    done.save(out, force=run.force)
    if done.note.get("judged_by") == "position":
        log(f"{task} has other class names than {data}; its outputs stand for the classes in their order.")
    known, taught = (_names(done.net, name) for name in (task, done.note["teacher"]))
    if known and taught and set(known) != set(taught):
        log(
            f"{task} and its teacher {done.note['teacher']} tell other classes apart; their outputs are paired in their order."
        )
    return Report.saved(out, {"net": str(net), "category": category, "task": task, **done.note}, done)


def _names(net: Any, task: str | None) -> tuple[str, ...] | None:
    return None if task is None else origin_of(net.task(task).module).classes


def tune(
    net: Net,
    *,
    category: Categories,
    task: TaskName,
    data: SeveralData,
    out: OutNet,
    run: p.Running,
    options: TuneOptions,
) -> Report:
    """Train parts of a net together on some routes.

    It says which routes answer differently now.

    brickwork transplant tune net --category dog --category cat --task classify --data digits --out tuned
    """
    from brickwork.transplant.growth import images_for

    pairs = _pairs(category, data)
    loaded = run.net(net)
    for name in category:
        loaded.category(name)
    loaded.task(task)
    routes = [(name, task, images_for(loaded, spec, options.seed)) for name, spec in pairs]
    done = brickwork.transplant.tune(loaded, routes, options=options)
    done.save(out, force=run.force)
    return Report.saved(out, {"net": str(net), **done.note}, done)


def list_(net: Net, *, arch: p.Arch = None) -> Report:
    """List the parts of a net, and which category reaches which task.

    brickwork transplant list net3
    """
    loaded = brickwork.TransplantNet.load(net, arch=arch)
    return Report({"folder": str(net), **loaded.to_dict()}, f"{net}: {loaded}")


def export(
    net: Net,
    *,
    out: p.OutFolder,
    category: Annotated[str | None, Setting("Name of a category.")] = None,
    task: Annotated[str | None, Setting("Name of a task.")] = None,
    run: p.Reading,
) -> Report:
    """Write a part as a model folder.

    With --category and --task: the ordinary network that a category and its own task are.

    brickwork transplant export net3 --category cat --out part
    """
    from brickwork.transplant.parts import alone
    from brickwork.zoo.summary import parameters_of

    if category is None and task is None:
        raise RequestError("transplant export needs `category`, `task`, or both for the network that they are.")
    part = alone(run.net(net), category=category, task=task)
    run.save(part, out, "transplant export", net=str(net))
    what = " → ".join(name for name in (category, task) if name is not None)
    report = {"net": net, "category": category, "task": task, "parameters": parameters_of(part)}
    return Report.saved(out, report, f"{what}: {counted(parameters_of(part), 'parameter')}")


def show(
    net: Net,
    *,
    category: Categories,
    task: TaskName,
    data: SeveralData,
    out: p.OutPicture,
    layer: Annotated[
        str | None, Setting("Layer of the task module to look at.", default_text="what its last layer reads")
    ] = None,
    teacher: Teacher = None,
    run: p.Running,
    options: CompareOptions,
    given: Given,
) -> Report:
    """Compare ways to learn an adapter, as a picture.

    Adapters are learned and none is kept; drawn is where each puts the images, and how often it is wrong.

    brickwork transplant show net3 --category cat --task classify --data digits --way back-distill --way direct-learn
    --labels 10 --out page.html
    """
    from brickwork.report.transplant_ways import draw_ways

    plans = options.plans(given)
    drawing, facts, text = draw_ways(
        run.net(net), _pairs(category, data), task, plans, layer=layer, teacher=teacher, seed=options.seed
    )
    run.draw(drawing, out)
    return Report.saved(out, {"net": str(net), **facts}, text)


def run(
    recipe: Annotated[Path, Argument("A recipe.yaml.", "RECIPE")],
    *,
    out: OutNet,
    checkpoint: Annotated[
        Path | None, Setting("Folder to resume from.", default_text="beside --out, under .partial")
    ] = None,
    run: p.Running,
) -> Report:
    """Grow a net as a recipe says.

    A run that was stopped goes on after its last whole step.

    brickwork transplant run recipe.yaml --out net
    """
    from brickwork.transplant.recipe import read_recipe
    from brickwork.transplant.recipe_run import run_recipe

    plan = read_recipe(recipe)
    net, notes = run_recipe(
        plan, out, checkpoint=checkpoint, arch=run.arch, device=run.where, force=run.force, tell=log
    )
    text = table(["step", "test before", "after", "teacher's"], [_step_row(note) for note in notes])
    return Report.saved(out, {"recipe": str(recipe), "steps": notes, **net.to_dict()}, text)


def _step_row(note: dict[str, Any]) -> tuple[str, ...]:
    if "learned" in note:
        after = ", ".join(scores_text(known.get("after")) for known in note["learned"].values())
        return note["step"], "–", after, "–"
    return note["step"], *(scores_text(note.get(name)) for name in ("before", "after", "teacher_test"))


def _pairs(categories: Sequence[str], data: Sequence[Any]) -> list[tuple[str, Any]]:
    """Every category with its data: one for all, or one for each."""
    if len(data) not in (1, len(categories)):
        raise RequestError(
            f"{len(categories)} `category` and {len(data)} `data`; give one `data` for all, or one for each."
        )
    return list(zip(categories, list(data) * (len(categories) if len(data) == 1 else 1), strict=True))


GROUP = make_group(
    "transplant",
    "Plug category modules into task modules through small adapters.",
    (add, connect, tune, list_, export, show, run),
)
