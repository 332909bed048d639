"""`brickwork depend fit LOGITS_OR_MODEL --out MAP`, `depend show MAP` and `depend add MODEL --data NEW --out MODEL`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from brickwork.cli.actions import refuse_foreign
from brickwork.cli.common import (
    ArchOption,
    DebugOption,
    Device,
    DeviceOption,
    ForceOption,
    JsonOption,
    SeedOption,
    emit,
)


class Action(StrEnum):
    """What to do."""

    fit = "fit"
    show = "show"
    add = "add"


class How(StrEnum):
    """How new classes are fitted."""

    train = "train"
    ridge = "ridge"


class On(StrEnum):
    """What new classes are combinations of."""

    logits = "logits"
    features = "features"
    depths = "depths"
    branch = "branch"


class Loss(StrEnum):
    """How a class is fitted."""

    plain = "plain"
    balanced = "balanced"
    decision = "decision"


class Selection(StrEnum):
    """How dependencies are chosen."""

    lasso = "lasso"
    greedy = "greedy"


#: what each action takes, by the names of the parameters; everything else is refused, not ignored
EVERYWHERE = {"action", "source", "as_json", "debug"}
WORK = {"out", "seed", "device", "force"}
TAKES = {
    Action.fit: {
        "data",
        "targets",
        "labels",
        "names",
        "lam",
        "relative",
        "max_dependencies",
        "loss",
        "selection",
        "refit",
        "positive_weight",
        "holdout",
        "delta",
        "bootstrap",
        "null",
        "arch",
        *WORK,
    },
    Action.show: {"target", "logits", "targets", "out", "force"},
    Action.add: {"data", "base_data", "how", "on", "strength", "epochs", "arch", *WORK},
}


def command(
    context: typer.Context,
    action: Annotated[Action, typer.Argument(help="fit a map, show one, or add classes to a model.")],
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE", help="fit: a .npz or .npy of logits, or a model folder; show: a map; add: a model folder."
        ),
    ],
    data: Annotated[str | None, typer.Option(help="Images for a model: digits, cifar100, a folder, an .npz, …")] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="fit: folder to write the map to; show: a page (.html) or its graph (.svg); add: a model folder."
        ),
    ] = None,
    targets: Annotated[
        Path | None,
        typer.Option(help="Another network (logits of the same rows, or a model): fit its classes instead."),
    ] = None,
    labels: Annotated[Path | None, typer.Option(help="A .npy of labels, for logits without.")] = None,
    names: Annotated[Path | None, typer.Option(help="A text file with a class name a line.")] = None,
    lam: Annotated[float | None, typer.Option(help="λ of CovLasso.")] = None,
    relative: Annotated[bool, typer.Option("--relative", help="λ is a share of each class's λ_max.")] = False,
    max_dependencies: Annotated[
        int | None, typer.Option(help="At most so many others a class (10 if neither this nor --lam is given).")
    ] = None,
    loss: Annotated[
        Loss, typer.Option(help="plain: the paper's; balanced: positives weigh more; decision: keeps decisions.")
    ] = Loss.plain,
    selection: Annotated[Selection, typer.Option(help="Who enters: by lasso, or greedily.")] = Selection.lasso,
    refit: Annotated[bool, typer.Option("--refit", help="Fit again without λ on who was chosen.")] = False,
    positive_weight: Annotated[
        float | None, typer.Option(help="Weight of a class's own rows (balanced: 100, decision: 10).")
    ] = None,
    holdout: Annotated[
        float, typer.Option(help="Share of each class's rows to measure on, kept out of the fit.")
    ] = 0.0,
    delta: Annotated[float, typer.Option(help="δ of Definition 1.")] = 0.05,
    bootstrap: Annotated[int, typer.Option(help="Rounds of resampling: which dependencies survive.")] = 0,
    null: Annotated[int, typer.Option(help="Rounds of shuffling, 19 or more: what is noise.")] = 0,
    target: Annotated[
        list[str] | None, typer.Option("--class", help="show: this class's equation (repeatable).")
    ] = None,
    logits: Annotated[
        Path | None, typer.Option(help="show --out: what the map was fitted on, to plot correlation and coefficient.")
    ] = None,
    base_data: Annotated[
        str | None, typer.Option(help="add: images of the model's own classes, the more the better.")
    ] = None,
    how: Annotated[How, typer.Option(help="add: by cross-entropy over all classes, or in closed form.")] = How.train,
    on: Annotated[
        On,
        typer.Option(
            help="add: new classes out of the logits (the paper's), of what the last layer reads, of what several depths "
            "answer, or from a trained branch."
        ),
    ] = On.logits,
    strength: Annotated[
        float | None, typer.Option(help="add: of the L2 term; by default found by holding out.")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="add --on branch: by default a tenth of the recipe's, three at least.")
    ] = None,
    arch: ArchOption = None,
    seed: SeedOption = 0,
    device: DeviceOption = Device.auto,
    force: ForceOption = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Find which classes' logits are combinations of a few others', and what replacing them costs.

    brickwork depend fit logits.npz --loss decision --selection greedy --max-dependencies 20 --holdout 0.4 --out map

    brickwork depend fit a --data digits --out map

    brickwork depend show map --class 3

    brickwork depend show map --logits logits.npz --out page.html

    brickwork depend add a --data digits:5-9 --base-data digits:A --out ten
    """
    from brickwork.atomic import check_output
    from brickwork.dependencies import CovLasso, DependencyMap, fit_map
    from brickwork.devices import pick
    from brickwork.errors import RequestError

    refuse_foreign(context, action, TAKES, EVERYWHERE, {"target": "class"})
    if action == Action.add:
        from brickwork.cli.depend_add import add

        add(source, data, base_data, out, str(how), str(on), strength, epochs, arch, seed, str(device), force, as_json)
        return
    if action == Action.show:
        if out is not None:
            _check_page(out, force)
        if targets is not None and logits is None:
            raise RequestError("depend show takes --targets only beside --logits.")
        if logits is not None and out is None:
            raise RequestError("--logits is for the page: brickwork depend show MAP --logits LOGITS --out page.html")
        found = DependencyMap.load(source)
        wanted = [int(c) if c.isdecimal() and c not in found.targets else c for c in target or ()]
        errors = found.columns["rel_error"]
        told = [f"{found.equation(c)}  (relative error {errors[found._row(c)]:.2f})" for c in wanted]
        text = "\n".join(told) or str(found)
        entries = found.to_dict()
        if wanted:
            entries["classes"] = [entries["classes"][found._row(c)] for c in wanted]
        if out is not None:
            _draw(found, out, wanted, logits, targets, force)
            entries, text = {"file": str(out), **entries}, f"{text}\nsaved in {out}"
        emit({"folder": str(source), **entries}, text, as_json=as_json)
        return
    # Everything that can be refused is refused here, before a tensor or an image is read.
    if out is None:
        raise RequestError("depend fit needs --out, the folder to write the map to.")
    check_output(out, force=force, owns=("map.json",))
    where = str(pick(str(device)))
    if max_dependencies is None and lam is None:
        max_dependencies = 10
    model = CovLasso(
        lam=lam,
        relative=relative,
        max_dependencies=max_dependencies,
        loss=str(loss),
        selection=str(selection),
        refit=refit,
        positive_weight=positive_weight,
        device=where,
    )
    model.check()
    read = _Reader(data, labels, names, arch, where, seed)
    read.check(source, targets)
    fit, test, known = read(source)
    options: dict[str, Any] = {"names": known}
    if targets is not None:
        other, other_test, its_names = read(targets)
        options |= {"targets": other[0], "target_names": its_names}
        test = None if test is None or other_test is None else (*test, other_test[0])
    found = fit_map(
        *fit,
        model=model,
        test=test,
        holdout=holdout,
        delta=delta,
        bootstrap=bootstrap,
        null=null,
        seed=seed,
        progress=True,
        **options,
    )
    found.save(out, force=force)
    emit({"folder": str(out), **found.to_dict()}, f"{found}\nsaved in {out}", as_json=as_json)


def _check_page(out: Path, force: bool) -> None:
    """Refuse a picture that could not be written, before the map is read."""
    from brickwork.atomic import check_file
    from brickwork.report.dependencies import check_suffix

    check_suffix(out)
    check_file(out, force=force)


def _draw(found: Any, out: Path, classes: list[Any], logits: Path | None, targets: Path | None, force: bool) -> None:
    from brickwork.dependencies import logit_gram
    from brickwork.dependencies.sources import read_logits
    from brickwork.errors import RequestError
    from brickwork.report.dependencies import draw_dependencies

    moments = None
    if logits is not None:
        if found.facts.get("within") != (targets is None):
            needed = "takes no --targets" if found.facts.get("within") else "needs the --targets it was fitted to"
            raise RequestError(f"--logits of this map {needed}.")
        others = None if targets is None else read_logits(targets).logits
        moments = logit_gram(read_logits(logits).logits, others)
    draw_dependencies(found, classes=classes, moments=moments).save(out, force=force)


class _Reader:
    """Logits, labels and names of what was given: (fit rows), (test rows) or None, names."""

    def __init__(
        self, data: str | None, labels: Path | None, names: Path | None, arch: str | None, device: str, seed: int
    ) -> None:
        self.data, self.labels, self.names = data, labels, names
        self.arch, self.device, self.seed = arch, device, seed

    def check(self, *sources: Path | None) -> None:
        from brickwork import data as images_of
        from brickwork.errors import RequestError

        models = [s for s in sources if s is not None and s.is_dir()]
        if models and self.data is None:
            raise RequestError(f"{models[0]} is a model folder; give --data, the images whose logits are wanted.")
        if self.data is not None:
            images_of.check(self.data)
            if not models:
                raise RequestError("--data is for model folders; files of logits need none.")
        if models and (self.labels or self.names):
            raise RequestError("--labels and --names are for files of logits; --data brings its own.")
        if models and len(models) < len([s for s in sources if s is not None]):
            raise RequestError("give two files of logits or two model folders, not one of each.")

    def __call__(self, source: Path) -> tuple[tuple[Any, Any], tuple[Any, ...] | None, list[str] | None]:
        return self._run(source) if source.is_dir() else self._read(source)

    def _read(self, source: Path) -> tuple[tuple[Any, Any], tuple[Any, ...] | None, list[str] | None]:
        from brickwork.dependencies.gram import open_npy
        from brickwork.dependencies.sources import read_logits
        from brickwork.errors import BadFile

        file = read_logits(source)
        names = list(file.names) if file.names else None
        if self.names is not None:
            try:
                names = self.names.read_text(encoding="utf-8").split("\n")
            except (OSError, UnicodeDecodeError) as error:
                raise BadFile(f"{self.names} cannot be read as a text of class names: {error}.") from error
            names = names[:-1] if names[-1] == "" else names
        return (file.logits, file.labels if self.labels is None else open_npy(self.labels)), None, names

    def _run(self, folder: Path) -> tuple[tuple[Any, Any], tuple[Any, ...] | None, list[str] | None]:
        """A model's logits on the training images, to fit on, and on the test images, to measure on."""
        import numpy as np

        from brickwork import data as images_of
        from brickwork import store
        from brickwork.errors import BadData
        from brickwork.origin import origin_of
        from brickwork.prediction import predict

        assert self.data is not None
        model = store.load(folder, arch=self.arch, device=self.device)
        known = origin_of(model).classes
        images = images_of.load_for(origin_of(model).preprocessing, self.data, seed=self.seed)
        foreign = [name for name in images.classes if known is not None and name not in known]
        if foreign:
            raise BadData(
                f"{folder} does not know {', '.join(map(repr, foreign[:5]))} of {self.data}; its classes are "
                f"{', '.join((known or ())[:40])}."
            )
        order = np.arange(len(images.classes)) if known is None else [known.index(c) for c in images.classes]
        parts = []
        for split in ("train", "test"):
            raw, labels, _ = images.split(split)
            parts.append((predict(model, raw).numpy(), np.asarray(order)[labels]))
        return parts[0], parts[1], list(known) if known is not None else None
