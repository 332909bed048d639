"""`brickwork treat`, `distil`, `transfer`, `adapt` and `forget`: a model folder tuned or matched, judged before and after."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import brickwork
from brickwork import store
from brickwork.bricks.options import AdaptOptions, DistilOptions, ForgetOptions, TransferOptions, TreatOptions
from brickwork.cli.command import Argument, Given, Report
from brickwork.cli.folders import accuracy, check_classes, hash_of, images_for
from brickwork.cli.parameters import Data, ModelFolder, OutFolder, Running, data_option, optional
from brickwork.errors import RequestError
from brickwork.options import Setting, refuse
from brickwork.words import counted

if TYPE_CHECKING:
    from torch import nn

    from brickwork.data import ImageData


def treat(model: ModelFolder, *, data: Data, out: OutFolder, run: Running, options: TreatOptions) -> Report:
    """Fine-tune a model folder, held to the route of each class.

    brickwork treat a --data digits:A --rule route --epochs 5 --out a-treated
    """
    whole = run.load(model)
    images = images_for(whole, data, options.seed)
    result = brickwork.treat(whole, images, options=options)
    facts = {"data": str(data), "rule": options.rule}
    text = f"{result.training}\n{options.rule}: "
    return _saved("treat", run, (model, out), (whole, result.model, images), facts, result.to_dict(), text)


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
    from brickwork.bricks.distillation import teacher_columns
    from brickwork.bricks.samples import class_numbers

    if not labels and "hard" in given:
        raise RequestError("`hard` weighs the labels, and --no-labels leaves them out; give one of them.")
    known, others = store.read_config(student).origin().classes, [store.read_config(folder) for folder in teacher]
    teacher_columns(known, [other.origin().classes for other in others])
    pupil = run.load(student)
    images = images_for(pupil, data, options.seed)
    answers = class_numbers(images, known or images.classes, known is not None) if labels else None
    teachers = [run.load(folder) for folder in teacher]
    result = brickwork.distil(pupil, teachers, images.train_images, answers, options=options)
    facts = {"data": str(data), "teachers": [other.weights.state_hash for other in others]}
    about = {"teachers": list(map(str, teacher)), **result.to_dict()}
    return _saved("distil", run, (student, out), (pupil, result.model, images), facts, about, f"{result.training}\n")


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
    typed = [
        name for name in ("routes", "threshold", "attribution", "scored") if name in given and options.what == "all"
    ]
    refuse([f"`{name}` is not used, as `what` all holds nothing; leave it out" for name in typed])
    whole = run.load(model)
    images, known = (images_for(whole, spec, options.seed) for spec in (data, routes))
    result = brickwork.transfer(whole, images, routes=known, options=options)
    facts = {"data": str(data), "what": options.what}
    text = f"{result.training}\n{result.free:.1%} of the parameters trained; "
    return _saved("transfer", run, (model, out), (whole, result.model, images), facts, result.to_dict(), text)


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
    whole = run.load(model)
    pair = [images_for(whole, spec, options.seed) for spec in (known, new)]
    result = brickwork.adapt(whole, *pair, options=options)
    count = min(options.images, len(pair[0].train_images))
    facts = {"known": str(known), "new": str(new), "images": count}
    return _saved(
        "adapt", run, (model, out), (whole, result, pair[1]), facts, {}, f"matched on {counted(count, 'pair')}; "
    )


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
    check_classes(model, classes)
    whole = run.load(model)
    result = brickwork.forget(whole, classes, images_for(whole, data, options.seed), options=options)
    facts = {"data": str(data), "source": hash_of(model), "forgotten": list(result.forgotten)}
    run.save(result.model, out, "forget", **facts, test_accuracy=result.after.retained)
    return Report.saved(out, {"model": model, "data": data, **result.to_dict()}, result)


def _saved(
    command: str,
    run: Running,
    folders: tuple[Path, Path],
    nets: tuple[nn.Module, nn.Module, ImageData],
    facts: dict[str, Any],
    result: dict[str, Any],
    text: str,
) -> Report:
    """The network before and after judged on images, the one after saved, both told: `text`, then how often each is right."""
    model, out = folders
    before, after = (accuracy(net, nets[2]) for net in nets[:2])
    run.save(nets[1], out, command, **facts, source=hash_of(model), test_accuracy=after)
    judged = "no test images of the model's classes to judge by"
    if before is not None and after is not None:
        judged = f"accuracy on the test images: {before:.2%} before, {after:.2%} after"
    about = {"student" if command == "distil" else "model": str(model), **facts, "before": before, "after": after}
    return Report.saved(out, {**about, **result}, f"{text}{judged}")
