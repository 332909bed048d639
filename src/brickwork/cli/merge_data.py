"""`brickwork merge MODEL… --method match --data X --data Y --out MERGED`: the methods that look at images."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from brickwork.cli.common import emit, table
from brickwork.errors import BadData, RequestError
from brickwork.words import counted

if TYPE_CHECKING:
    import numpy as np
    from torch import nn

    from brickwork.data import ImageData


def merge_on_data(
    models: Sequence[Path],
    out: Path,
    *,
    method: str,
    base: Path | None,
    data: Sequence[str],
    split: str,
    images: int,
    weights: Sequence[float] | None,
    options: dict[str, Any],
    arch: str | None,
    seed: int,
    device: str,
    force: bool,
    as_json: bool,
) -> None:
    """Everything that can be refused is refused before a tensor or an image is read."""
    from brickwork.algebra.data_methods import find

    chosen = find(method)
    if "seed" in options:
        raise RequestError("seed is an option of its own; give --seed instead of --arg seed.")
    options = {**options, **({"seed": seed} if "seed" in chosen.options else {})}
    chosen.check(len(models), len(data), base=base is not None, weights=weights or None, options=options)
    if len(models) == 1 and not chosen.needs_base:
        raise RequestError(f"{method} of one model, {models[0]}, is that model; give two or more.")
    if images < 1 or seed < 0:
        raise RequestError(f"images is {images} and seed {seed}; images must be 1 or more, seed 0 or more.")
    folders = [*models, *([base] if base else [])]
    if out.resolve() in {folder.resolve() for folder in folders}:
        raise RequestError(f"{out} is one of the models to merge; choose another --out.")

    from brickwork import data as images_of
    from brickwork import store
    from brickwork.algebra import merge_on
    from brickwork.algebra.agreement import refuse_differences
    from brickwork.algebra.inputs import refuse_other_sizes
    from brickwork.atomic import check_output
    from brickwork.cli.merge import tell_names
    from brickwork.devices import pick
    from brickwork.origin import origin_of

    check_output(out, force=force)
    where = pick(device)
    specs = [images_of.check(spec, split=split) for spec in data]
    hashes = {str(folder): store.read_config(folder).weights.state_hash for folder in folders}

    loaded = [store.load(folder, arch=arch, device=where) for folder in folders]
    nets = loaded[: len(models)]
    named = zip(folders, loaded, strict=True)
    refuse_differences({str(f): {n: tuple(t.shape) for n, t in m.state_dict().items()} for f, m in named})
    refuse_other_sizes([origin_of(net).preprocessing for net in nets], models)
    sets = [_load(nets[0], spec, split, seed) for spec in specs]
    given = [_some(nets, one, split, images, seed, labels=chosen.needs_labels) for one in sets]
    merged = merge_on(
        nets, given, method, base=loaded[-1] if base else None, weights=weights or None, progress=not as_json, **options
    )
    judged = {str(spec): _accuracy(nets, merged, one) for spec, one in zip(specs, sets, strict=True)}
    facts = {
        "command": "merge",
        "models": {str(m): hashes[str(m)] for m in models},
        **({"base": {str(base): hashes[str(base)]}} if base else {}),
        "data": [str(spec) for spec in specs],
        "split": split,
        "seed": seed,
        "test_accuracy": judged,
    }
    store.save(merged, out, force=force, provenance=facts)
    tell_names(models)
    found = origin_of(merged).provenance["merge"]
    emit({"folder": str(out), **facts, **found}, _text(models, found, judged, out), as_json=as_json)


def _load(model: nn.Module, spec: Any, split: str, seed: int) -> ImageData:
    from brickwork import data as images_of
    from brickwork.origin import origin_of

    origin = origin_of(model)
    size, channels = None, None
    if origin.preprocessing is not None:
        size, channels = origin.preprocessing.size, origin.preprocessing.channels
    elif origin.input_shape is not None and len(origin.input_shape) == 3:
        channels, *sides = origin.input_shape
        size = (sides[0], sides[1])
    return images_of.load(spec, seed=seed, split=split, size=size, channels=channels)


def _some(nets: Sequence[nn.Module], one: ImageData, split: str, count: int, seed: int, *, labels: bool) -> Any:
    """At most `count` images of a set, drawn with the seed; with their labels as numbers of outputs if wanted."""
    from brickwork.cli.brick_folders import some_of

    raw, answers, _ = one.split(split)
    if len(raw) == 0:
        raise BadData(f"{one.name} has no {split} images; choose another --split or --data.")
    if not labels:
        return some_of(raw, count, seed)
    outputs = _outputs(nets, one)
    if outputs is None:
        raise BadData(
            f"the classes of {one.name} are neither those of a model nor among the first model's; select classes, as in "
            f"{one.name.split(':')[0]}:0-4."
        )
    return some_of(raw, count, seed), some_of(outputs[answers], count, seed)


def _outputs(nets: Sequence[nn.Module], one: ImageData) -> np.ndarray | None:
    """Which output stands for each class of a data set: that of its name; None where no model says.

    Where the classes are just those of one of the models, its own order is right for all: they share their outputs.
    """
    import numpy as np

    from brickwork.origin import origin_of

    known = [origin_of(net).classes for net in nets]
    if known[0] is None or one.classes in known:
        return np.arange(len(one.classes))
    if set(one.classes) <= set(known[0]):
        return np.array([known[0].index(name) for name in one.classes])
    return None


def _accuracy(nets: Sequence[nn.Module], merged: nn.Module, one: ImageData) -> float | None:
    """On the test images, prepared as the merged network prepares them; None without any."""
    from brickwork.evaluation import predict

    outputs = _outputs(nets, one)
    if outputs is None or len(one.test_images) == 0:
        return None
    found = predict(merged, one.test_images).argmax(1).numpy()
    return float((found == outputs[one.test_labels]).mean())


def _text(models: Sequence[Path], found: dict[str, Any], judged: dict[str, float | None], out: Path) -> str:
    lines = []
    if "coefficients" in found:
        names = [path.name for path in models]
        rows = [(layer, *(f"{c:.3f}" for c in row)) for layer, row in found["coefficients"].items()]
        lines += [table(["layer", *names], rows), "entropy {:.4f} before, {:.4f} after".format(*found["entropy"])]
    if "used" in found:
        used = ", ".join(str(models[k]) for k in found["used"])
        lines.append(f"{len(found['used'])} of {len(models)} used: {used}; accuracy {found['accuracy']:.2%}")
    told = ", ".join(f"{name} {'–' if value is None else f'{value:.2%}'}" for name, value in judged.items())
    looked = " + ".join(map(str, found["images"]))
    lines.append(f"{counted(len(models), 'model')} merged on {looked} images; accuracy on the test images: {told}")
    return "\n".join([*lines, f"saved in {out}"])
