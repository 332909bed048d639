"""`brickwork treat`, `distil`, `transfer`, `adapt` and `forget`: a model folder tuned or matched, judged before and after."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from brickwork.bricks.options import AdaptOptions, DistilOptions, ForgetOptions, TransferOptions, TreatOptions
from brickwork.cli.command import Argument, Given, Report
from brickwork.cli.folders import accuracy, check_classes, hash_of, images_for, save
from brickwork.cli.parameters import Data, ModelFolder, OutFolder, Running, data_option, optional
from brickwork.errors import BadData, RequestError
from brickwork.options import Setting, refuse
from brickwork.words import counted, table

if TYPE_CHECKING:
    from torch import nn

    from brickwork.data import ImageData


def treat(model: ModelFolder, *, data: Data, out: OutFolder, run: Running, options: TreatOptions) -> Report:
    """Fine-tune a model folder, held to the route of each class.

    brickwork treat a --data digits:A --rule route --epochs 5 --out a-treated
    """
    from brickwork import store
    from brickwork.bricks import treat

    whole = store.load(model, arch=run.arch, device=run.where)
    images = images_for(whole, data, options.seed)
    result = treat(whole, images, options=options)
    judged = _judged(whole, result.model, images)
    facts = {"data": str(data), "source": hash_of(model), "rule": options.rule, "test_accuracy": judged["after"]}
    save(result.model, out, force=run.force, command="treat", **facts)
    report = {"folder": str(out), "model": str(model), "data": str(data), **judged, **result.to_dict()}
    text = f"{result.training}\n{options.rule}: {_line(judged)}\nsaved in {out}"
    return Report(report, text)


def distil(
    student: Annotated[Path, Argument("A model folder, best cut from the teachers.", "STUDENT")],
    *,
    teacher: Annotated[tuple[Path, ...], Setting("A model folder that knows some of the classes; repeatable.")],
    data: Data,
    out: OutFolder,
    labels: Annotated[bool, Setting("Learn from the labels too, or from the teachers alone.")] = True,
    run: Running,
    options: DistilOptions,
    given: Given,
) -> Report:
    """Train a student model folder towards what its teachers answer.

    Student and teachers stay as they are.

    brickwork distil small --teacher a --data digits:A --no-labels --out taught
    """
    from brickwork import store
    from brickwork.bricks import distil
    from brickwork.bricks.distillation import teacher_columns

    if not labels and "hard" in given:
        raise RequestError("`hard` weighs the labels, and --no-labels leaves them out; give one of them.")
    config, others = store.read_config(student), [store.read_config(folder) for folder in teacher]
    teacher_columns(config.origin().classes, [other.origin().classes for other in others])
    pupil = store.load(student, arch=run.arch, device=run.where)
    images = images_for(pupil, data, options.seed)
    answers = _numbers(pupil, images) if labels else None
    teachers = [store.load(folder, arch=run.arch, device=run.where) for folder in teacher]
    result = distil(pupil, teachers, images.train_images, answers, options=options)
    judged = _judged(pupil, result.model, images)
    facts = {
        "data": str(data),
        "source": config.weights.state_hash,
        "teachers": [other.weights.state_hash for other in others],
        "test_accuracy": judged["after"],
    }
    save(result.model, out, force=run.force, command="distil", **facts)
    report = {"folder": str(out), "student": str(student), "teachers": list(map(str, teacher)), "data": str(data)}
    text = f"{result.training}\n{_line(judged)}\nsaved in {out}"
    return Report({**report, **judged, **result.to_dict()}, text)


def transfer(
    model: ModelFolder,
    *,
    data: Data,
    out: OutFolder,
    routes: optional(data_option("Images the model knows, to find the routes on; without, --data itself.")) = None,
    run: Running,
    options: TransferOptions,
    given: Given,
) -> Report:
    """Train a model folder on images of another kind.

    What belongs to a class is held, so that it is not forgotten.

    brickwork transfer a --data grey-photos --routes photos --what independent --out a-grey
    """
    from brickwork import store
    from brickwork.bricks import transfer

    if options.what == "all":
        typed = [name for name in ("routes", "threshold", "attribution", "scored") if name in given]
        refuse([f"`{name}` is not used, as `what` all holds nothing; leave it out" for name in typed])
    whole = store.load(model, arch=run.arch, device=run.where)
    images = images_for(whole, data, options.seed)
    known = images_for(whole, routes, options.seed) if routes is not None else None
    result = transfer(whole, images, routes=known, options=options)
    judged = _judged(whole, result.model, images)
    facts = {"data": str(data), "source": hash_of(model), "what": options.what, "test_accuracy": judged["after"]}
    save(result.model, out, force=run.force, command="transfer", **facts)
    report = {"folder": str(out), "model": str(model), "data": str(data), "what": options.what, **judged}
    trained = f"{result.free:.1%} of the parameters trained; {_line(judged)}"
    return Report({**report, **result.to_dict()}, f"{result.training}\n{trained}\nsaved in {out}")


def adapt(
    model: ModelFolder,
    *,
    known: data_option("Images of the kind the model knows: a folder, an .npz, …"),
    new: data_option("The same things, image by image, of the new kind."),
    out: OutFolder,
    run: Running,
    options: AdaptOptions,
) -> Report:
    """Match a model folder to images of another kind.

    The images come in pairs, unlabelled: the kind the model knows, and the new one.

    brickwork adapt a --known photos --new grey-photos --out a-grey
    """
    from brickwork import store
    from brickwork.bricks import adapt

    whole = store.load(model, arch=run.arch, device=run.where)
    pair = [images_for(whole, spec, options.seed) for spec in (known, new)]
    _check_pairs(*pair)
    result = adapt(whole, *(images.train_images for images in pair), options=options)
    judged = _judged(whole, result, pair[1])
    count = min(options.images, len(pair[0].train_images))
    facts = {"known": str(known), "new": str(new), "images": count}
    save(result, out, force=run.force, command="adapt", **facts, source=hash_of(model), test_accuracy=judged["after"])
    text = f"matched on {counted(count, 'pair')}; {_line(judged)}\nsaved in {out}"
    return Report({"folder": str(out), "model": str(model), **facts, **judged}, text)


def forget(
    model: ModelFolder,
    *,
    classes: Annotated[str, Setting("Classes to forget, by number or name: 0-2, cat,dog.")],
    data: Data,
    out: OutFolder,
    run: Running,
    options: ForgetOptions,
) -> Report:
    """Make a network without some of its classes.

    In closed form, nothing is trained: the late layers come to treat images of these classes as if they were of others.
    Says what the network knew of them before and after, and what a linear probe can still recover.

    brickwork forget a --classes 3 --data digits --out a-without-3
    """
    from brickwork import store
    from brickwork.bricks import forget

    check_classes(model, classes)
    whole = store.load(model, arch=run.arch, device=run.where)
    images = images_for(whole, data, options.seed)
    result = forget(whole, classes, images, options=options)
    facts = {"data": str(data), "source": hash_of(model), "forgotten": list(result.forgotten)}
    save(result.model, out, force=run.force, command="forget", **facts, test_accuracy=result.after.retained)
    shares = [
        [
            about,
            *("-" if getattr(at, name) is None else f"{getattr(at, name):.2%}" for at in (result.before, result.after)),
        ]
        for name, about in FORGOTTEN.items()
    ]
    judged = result.used["judged"]
    seen = f"on {counted(judged['images'], 'image')} ({judged['of']})"
    text = "\n".join(
        [f"{', '.join(result.forgotten)} forgotten; {seen}", table(["", "before", "after"], shares), f"saved in {out}"]
    )
    return Report({"folder": str(out), "model": str(model), "data": str(data), **result.to_dict()}, text)


FORGOTTEN = {
    "retained": "accuracy on the other classes",
    "forgotten": "images of these classes answered by them",
    "probed": "the same by a linear probe of the features",
}


def _judged(before: nn.Module, after: nn.Module, images: ImageData) -> dict[str, float | None]:
    return {"before": accuracy(before, images), "after": accuracy(after, images)}


def _line(judged: dict[str, float | None]) -> str:
    if judged["before"] is None or judged["after"] is None:
        return "no test images of the model's classes to judge by"
    return f"accuracy on the test images: {judged['before']:.2%} before, {judged['after']:.2%} after"


def _numbers(model: Any, images: Any) -> Any:
    """The labels of the training images as numbers of the student's classes."""
    from brickwork.bricks.samples import class_numbers
    from brickwork.origin import origin_of

    known = origin_of(model).classes
    return class_numbers(images, known or images.classes, known is not None)


def _check_pairs(known: Any, new: Any) -> None:
    """As many images, and of the same class wherever both name one."""
    counts = [len(images.train_images) for images in (known, new)]
    if counts[0] != counts[1]:
        raise BadData(
            f"{known.name} has {counts[0]} training images and {new.name} {counts[1]}; they must come in pairs."
        )
    if set(known.classes) != set(new.classes):
        return
    for k, (a, b) in enumerate(zip(known.train_labels, new.train_labels, strict=True)):
        if known.classes[a] != new.classes[b]:
            raise BadData(
                f"training image {k} is {known.classes[a]!r} in {known.name} and {new.classes[b]!r} in {new.name}; "
                "they must come in pairs, in the same order."
            )
