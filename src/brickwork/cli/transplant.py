"""`brickwork transplant add|connect|tune|list|export|show|run`: grow a net of category and task modules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from brickwork.cli.command import Argument, Given, Report, make_group
from brickwork.cli.parameters import (
    Arch,
    OptionalData,
    OutFolder,
    OutPicture,
    Reading,
    Running,
    data_option,
    out_folder,
)
from brickwork.cli.printing import log, typed_line
from brickwork.errors import RequestError
from brickwork.options import Setting, fields_of, option, parse_shape, refuse
from brickwork.transplant.options import WAYS, AdapterOptions, CompareOptions, LearnTaskOptions, TuneOptions
from brickwork.words import counted, scores_text, sides, table

if TYPE_CHECKING:
    from brickwork.transplant import TransplantNet

CONFIG = "transplant.json"  # marks the folder of a net
Net = Annotated[Path, Argument("A transplant net.", "NET")]
OutNet = out_folder("The net to write.", CONFIG)
Category = Annotated[str, Setting("Name of a category.")]
Categories = Annotated[tuple[str, ...], Setting("Name of a category; repeatable.")]
TaskName = Annotated[str, Setting("Name of a task.")]
Teacher = Annotated[str | None, Setting("A task that the category reaches.", default_text="the one that it came with")]


class NetRunning(Running):
    """Where and on what a net grows."""

    data: tuple[str, ...] = option(default=(), help="Images of each category that the task is learned on; repeatable.")


SeveralData = data_option(
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
    from brickwork import data as data_sets
    from brickwork import store
    from brickwork.transplant import TransplantNet, add
    from brickwork.transplant.growth import images_for
    from brickwork.transplant.parts import input_shape_of

    # Everything that can be refused is refused here, before a tensor or an image is read.
    half = store.read_config(model).origin().steps[-1:]
    is_part = bool(half) and half[0].get("op") == "split"
    _check(model, is_part, category, task, only, run.data, to, at)
    for name in [n for n in fields_of(LearnTaskOptions) if n in given and not run.data]:
        raise RequestError(f"`{name}` is for a task that is learned on `data`; nothing else is learned here.")
    if to is not None and input_shape is not None:
        raise RequestError("`input_shape` is for a new net; one that grows knows its images.")
    specs, where = [data_sets.check(spec) for spec in run.data], run.where
    net = None if to is None else TransplantNet.load(to, arch=run.arch, device=where)
    network = store.load(model, arch=run.arch, device=where)
    if net is None:
        net = TransplantNet(_input_shape(model, input_shape_of(network), input_shape))
    images = [images_for(net, spec, options.seed) for spec in specs]
    task_alone = only == "task" or (is_part and task is not None)
    named: dict[str, Any] = {"on": category} if task_alone else {"category": category[0]}
    done = add(net, network, at=at, carry=carry, task=task, data=images, options=options, **named)
    done.net.save(out, force=run.force)
    return _added(out, model, net, done.net, done.note)


def _check(
    folder: Path,
    is_part: bool,
    categories: Sequence[str],
    task: str | None,
    only: str | None,
    data: Sequence[str],
    to: Path | None,
    at: str | None,
) -> None:
    """What goes together."""
    if is_part and only is not None:
        raise RequestError(f"{folder} is one half already; leave `only` out.")
    if not is_part and at is None:
        raise RequestError(f"{folder} is a whole network; give `at`, the layer behind which it is cut.")
    if only == "task" or (is_part and task is not None):
        if task is None:
            raise RequestError("`only` task needs `task`, its name.")
        if data and len(data) != len(categories):
            raise RequestError(f"{len(categories)} `category` and {len(data)} `data`; give one `data` per category.")
        if data and is_part:
            raise RequestError("a task is learned from a whole network, with `only` task; a part comes as it is.")
        if (data or categories) and to is None:
            raise RequestError("the categories of `only` task are those of a net; give it with `to`.")
        return
    if data:
        raise RequestError("`data` is for a task that is learned on categories of a net; give `only` task with it.")
    if len(categories) != 1:
        raise RequestError(f"`category` is given {len(categories)} times; a network brings one category, so give one.")
    if only == "category" and task is not None:
        raise RequestError("`only` category adds no task; leave `task` out.")
    if only is None and not is_part and task is None:
        raise RequestError("`task` is missing; give the upper half a name, or add `only` category.")


def _input_shape(folder: Path, known: tuple[int, ...] | None, given: tuple[int, ...] | None) -> tuple[int, ...]:
    if given is not None and len(given) != 3:
        raise RequestError(f"`input_shape` takes channels, height and width, as in 3x32x32, not {given}.")
    if known is None and given is None:
        raise RequestError(f"{folder} does not say which images it takes; give `input_shape`, as in 3x32x32.")
    if known is not None and given is not None and known != given:
        raise RequestError(f"{folder} takes images of {sides(known)}, not {sides(given)}; leave `input_shape` out.")
    return known or given or ()


def _added(out: Path, folder: Path, net: TransplantNet, grown: TransplantNet, note: dict[str, Any]) -> Report:
    new: dict[str, list[Any]] = {
        "categories": [name for name in grown.categories if name not in net.categories],
        "tasks": [name for name in grown.tasks if name not in net.tasks],
        "routes": [list(route) for route in grown.routes if route not in net.routes],
    }
    parts = [f"category {name}" for name in new["categories"]] + [f"task {name}" for name in new["tasks"]]
    count = f"categories: {len(grown.categories)}, tasks: {len(grown.tasks)}, routes: {len(grown.routes)}"
    lines = [f"{' and '.join(parts)} of {folder} added; {count}"]
    lines += [
        f"learned on {name}: {scores_text(known.get('after'))} of the test images right" for name, known in note.items()
    ]
    report = {"folder": str(out), "model": str(folder), "added": new, "learned": note}
    return Report(report, "\n".join([*lines, f"saved in {out}"]))


def connect(
    net: Net,
    *,
    category: Category,
    task: TaskName,
    out: OutNet,
    data: OptionalData = None,
    teacher: Teacher = None,
    run: Running,
    options: AdapterOptions,
    given: Given,
) -> Report:
    """Plug a category module into a task module it never saw.

    What worked before stays as it is, bit for bit.

    brickwork transplant connect net2 --category cat --task classify --data digits --way closed-form --out net3
    """
    from brickwork.transplant import TransplantNet, connect
    from brickwork.transplant.folders import reads_tokens
    from brickwork.transplant.growth import images_for

    tokens = reads_tokens(net, category, task)
    options = options.resolved(images=data is not None, tokens=tokens)
    refuse(options.needs(data=data is not None, given=given, tokens=tokens))
    loaded = TransplantNet.load(net, arch=run.arch, device=run.where)
    images = None
    if data is not None:
        loaded.category(category), loaded.task(task)  # names first: images take longer
        images = images_for(loaded, data, options.seed)
    done = connect(loaded, category, task, data=images, teacher=teacher, force=run.force, options=options)
    done.net.save(out, force=run.force)
    note = done.note
    if note.get("judged_by") == "position":
        log(f"{task} has other class names than {data}; its outputs stand for the classes in their order.")
    used = f"{note['labels']} labelled and {note['images']} unlabelled images"
    if note["looks"] > note["labels"] + note["images"]:
        used += f", {note['looks']} views and blends of them"
    taught = f", taught by {note['teacher']}" if "teacher" in WAYS[options.way].needs else ""
    lines = [f"{category} → {task} by {options.way}{taught}: {used}"]
    if note.get("after"):
        scores = {"before": note["before"], "after": note["after"], note["teacher"]: note["teacher_test"]}
        lines.append(
            "test images right: " + ", ".join(f"{name} {scores_text(value)}" for name, value in scores.items())
        )
    else:
        lines.append("no test images that the task can be judged by")
    report = {"folder": str(out), "net": str(net), "category": category, "task": task, **note}
    return Report(report, "\n".join([*lines, f"saved in {out}"]))


def tune(
    net: Net,
    *,
    category: Categories,
    task: TaskName,
    data: SeveralData,
    out: OutNet,
    run: Running,
    options: TuneOptions,
) -> Report:
    """Train parts of a net together on some routes.

    It says which routes answer differently now.

    brickwork transplant tune net --category dog --category cat --task classify --data digits --out tuned
    """
    from brickwork.transplant import TransplantNet, tune
    from brickwork.transplant.growth import images_for

    pairs = _pairs(category, data)
    loaded = TransplantNet.load(net, arch=run.arch, device=run.where)
    for name in category:
        loaded.category(name)
    loaded.task(task)
    routes = [(name, task, images_for(loaded, spec, options.seed)) for name, spec in pairs]
    done = tune(loaded, routes, options=options)
    done.net.save(out, force=run.force)
    rows = [(r["category"], r["task"], *(scores_text(r[k]) for k in ("before", "after"))) for r in done.note["routes"]]
    changed = ", ".join(f"{c} → {t}" for c, t in done.note["changed"])
    shown = table(["category", "task", "before", "after"], rows)
    text = f"{shown}\nother answers than before: {changed}\nsaved in {out}"
    return Report({"folder": str(out), "net": str(net), **done.note}, text)


def list_(net: Net, *, arch: Arch = None) -> Report:
    """List the parts of a net, and which category reaches which task.

    brickwork transplant list net3
    """
    from brickwork.transplant import TransplantNet

    facts = TransplantNet.load(net, arch=arch).to_dict()
    parts = [
        (kind, name, sides(part["shape"]), part["parameters"])
        for kind, entry in (("category", "categories"), ("task", "tasks"))
        for name, part in facts[entry].items()
    ]
    routes = [
        (
            r["category"],
            r["task"],
            r["adapter"],
            r.get("way") or "–",
            scores_text(r.get("after")),
            scores_text(r.get("teacher_test")),
        )
        for r in facts["routes"]
    ]
    known = table(["category", "task", "adapter", "way", "test", "teacher's test"], routes)
    text = [
        f"{net}: images of {sides(facts['input_shape'])}",
        table(["part", "name", "features", "parameters"], parts),
        "",
        known if routes else "no category reaches a task yet; connect them: brickwork transplant connect",
    ]
    return Report({"folder": str(net), **facts}, "\n".join(text))


def export(
    net: Net,
    *,
    out: OutFolder,
    category: Annotated[str | None, Setting("Name of a category.")] = None,
    task: Annotated[str | None, Setting("Name of a task.")] = None,
    run: Reading,
) -> Report:
    """Write a part as a model folder.

    With --category and --task: the ordinary network that a category and its own task are.

    brickwork transplant export net3 --category cat --out part
    """
    from brickwork import store
    from brickwork.transplant import TransplantNet
    from brickwork.transplant.parts import alone
    from brickwork.zoo.summary import parameters_of

    if category is None and task is None:
        raise RequestError("transplant export needs `category`, `task`, or both for the network that they are.")
    part = alone(TransplantNet.load(net, arch=run.arch), category=category, task=task)
    store.save(part, out, force=run.force, provenance={"command": "transplant export", "net": str(net)})
    what = " → ".join(name for name in (category, task) if name is not None)
    count = parameters_of(part)
    report = {"folder": str(out), "net": str(net), "category": category, "task": task, "parameters": count}
    return Report(report, f"{what}: {counted(count, 'parameter')}, saved in {out}")


def show(
    net: Net,
    *,
    category: Categories,
    task: TaskName,
    data: SeveralData,
    out: OutPicture,
    layer: Annotated[
        str | None, Setting("Layer of the task module to look at.", default_text="what its last layer reads")
    ] = None,
    teacher: Teacher = None,
    run: Running,
    options: CompareOptions,
    given: Given,
) -> Report:
    """Compare ways to learn an adapter, as a picture.

    Adapters are learned and none is kept; drawn is where each puts the images, and how often it is wrong.

    brickwork transplant show net3 --category cat --task classify --data digits --way back-distill --way direct-learn
    --labels 10 --out page.html
    """
    from brickwork.report.transplant_ways import draw_ways
    from brickwork.transplant import TransplantNet

    plans = options.plans(given)
    loaded = TransplantNet.load(net, arch=run.arch, device=run.where)
    drawing, facts, text = draw_ways(
        loaded, _pairs(category, data), task, plans, layer=layer, teacher=teacher, seed=options.seed
    )
    replace(drawing, command=typed_line()).save(out, force=run.force)
    return Report({"file": str(out), "net": str(net), **facts}, f"{text}\nsaved in {out}")


def run(
    recipe: Annotated[Path, Argument("A recipe.yaml.", "RECIPE")],
    *,
    out: OutNet,
    checkpoint: Annotated[
        Path | None, Setting("Folder to resume from.", default_text="beside --out, under .partial")
    ] = None,
    run: Running,
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
    return Report(
        {"folder": str(out), "recipe": str(recipe), "steps": notes, **net.to_dict()}, f"{text}\nsaved in {out}"
    )


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
