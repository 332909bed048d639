"""Run a recipe: one operation after another, with a checkpoint after each, so that a killed run goes on where it was."""

import contextlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from brickwork import store
from brickwork.atomic import check_output, write_file
from brickwork.devices import DeviceLike
from brickwork.errors import BadFile, BrickworkError, JobFailed, RequestError
from brickwork.transplant.folders import CONFIG, load_net, save_net
from brickwork.transplant.growth import add_learned_task, connect, images_for
from brickwork.transplant.net import TransplantNet
from brickwork.transplant.parts import grown_by, input_shape_of
from brickwork.transplant.recipe import GrowthRecipe
from brickwork.transplant.recipe_growth import GrowthStep

STATE = "progress.json"
Tell = Callable[[str], None]


def run_recipe(
    recipe: GrowthRecipe,
    out: str | Path,
    *,
    checkpoint: str | Path | None = None,
    arch: Any = None,
    device: DeviceLike = "cpu",
    force: bool = False,
    progress: bool = True,
    tell: Tell = lambda line: None,
) -> tuple[TransplantNet, list[dict[str, Any]]]:
    """Grow the net, write it to `out`, and say what was found at each step.

    checkpoint: a folder that holds the net after the last step that was done; the same recipe, or one that goes on
    differently after it, resumes there. It goes when the run is done.

    >>> import tempfile
    >>> from brickwork import store, zoo
    >>> from brickwork.transplant.recipe import make_recipe
    >>> place = Path(tempfile.mkdtemp())
    >>> _ = store.save(zoo.build("lenet", seed=0), place / "dog")
    >>> step = {"add": "dog", "category": "dog", "task": "classify"}
    >>> entries = {"networks": {"dog": {"model": "dog", "at": "pool1"}}, "grow": [step]}
    >>> net, notes = run_recipe(make_recipe(entries, place), place / "net")
    >>> list(net.categories), len(notes)
    (['dog'], 1)
    """
    out = Path(out)
    place = out.parent / f"{out.name}.partial" if checkpoint is None else Path(checkpoint)
    check_output(out, force=force, owns=(CONFIG,))
    if place.resolve() == out.resolve():
        raise RequestError(f"{place} is where the net is to be written; choose another `checkpoint`.")
    check_output(place, force=True, owns=(STATE,))
    net, notes = _resumed(recipe, place, arch, device, tell)
    for number in range(len(notes), len(recipe.grow)):
        op = recipe.grow[number]
        tell(f"step {number + 1} of {len(recipe.grow)}: {op}")
        try:
            net, note = _done(net, op, recipe, arch, device, progress)
        except BrickworkError as error:
            kept = (
                f" The {number} before it are kept in {place}; the same command goes on from there." if number else ""
            )
            raise _kind(error)(f"step {number + 1} ({op}): {error}{kept}") from error
        notes.append(note)
        if number + 1 < len(recipe.grow):
            _keep(place, recipe, net, notes)
    assert net is not None
    save_net(net, out, force=force)
    if place.is_dir():
        shutil.rmtree(place, ignore_errors=True)
    return net, notes


def _kind(error: BrickworkError) -> Callable[[str], BrickworkError]:
    """Of the same exit code; some errors are made of more than one sentence."""
    return RequestError if isinstance(error, RequestError) else JobFailed


def _done(
    net: TransplantNet | None, op: GrowthStep, recipe: GrowthRecipe, arch: Any, device: Any, progress: bool
) -> tuple[TransplantNet, dict[str, Any]]:
    if op.kind == "connect":
        assert net is not None and op.category is not None and op.task is not None
        data = images_for(net, op.data[0], op.options.seed) if op.data else None
        done = connect(
            net,
            op.category,
            op.task,
            options=op.options,
            data=data,
            teacher=op.teacher,
            force=op.force,
            progress=progress,
        )
        return done.net, {"step": str(op), **done.note}
    source = recipe.networks[str(op.network)]
    model = store.load(source.model, arch=arch, device=device)
    if net is None:
        shape = input_shape_of(model)
        if shape is None:
            raise RequestError(
                f"{source.model} does not say which images it takes; start from a net made by add with `input_shape`."
            )
        net = TransplantNet(shape)
    if op.data:
        learned = add_learned_task(
            net,
            model,
            str(op.task),
            at=source.at,
            carry=source.carry,
            on=op.on,
            data=[images_for(net, spec, op.options.seed) for spec in op.data],
            options=op.options,
            progress=progress,
        )
        return learned.net, {"step": str(op), "learned": learned.note}
    grown = grown_by(net, model, at=source.at, carry=source.carry, category=op.category, task=op.task, on=op.on)
    return grown, {"step": str(op)}


def _keep(place: Path, recipe: GrowthRecipe, net: TransplantNet, notes: list[dict[str, Any]]) -> None:
    """The net first, under the number of its step; the file that points at it last, whole or not at all."""
    count = len(notes)
    save_net(net, place / f"step-{count}", force=True)
    state = {"done": count, "recipe": recipe.fingerprint(count), "notes": notes}
    with write_file(place / STATE) as temporary:
        temporary.write_text(json.dumps(state, indent=1) + "\n", encoding="utf-8")
    for old in place.glob("step-*"):
        if old.name != f"step-{count}":
            shutil.rmtree(old, ignore_errors=True)


def _resumed(
    recipe: GrowthRecipe, place: Path, arch: Any, device: Any, tell: Tell
) -> tuple[TransplantNet | None, list[dict[str, Any]]]:
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, BadFile):
        state = json.loads((place / STATE).read_text(encoding="utf-8"))
        count = int(state["done"])
        if count <= len(recipe.grow) and state["recipe"] == recipe.fingerprint(count):
            net = load_net(place / f"step-{count}", arch=arch, device=device)
            tell(f"{count} of {len(recipe.grow)} steps are done already, kept in {place}")
            return net, list(state["notes"])
        tell(f"{place} was kept by another recipe; starting anew")
    return (None if recipe.start is None else load_net(recipe.start, arch=arch, device=device)), []
