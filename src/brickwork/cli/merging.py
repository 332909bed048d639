"""`brickwork merge MODEL… --out MERGED`: on weights alone, on images (`--method match --data X …`), or by a recipe.yaml."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from brickwork.algebra.options import MergeOptions, MergeSearchOptions
from brickwork.cli.command import Argument, Given, Report
from brickwork.cli.parameters import DEVICE, Reading, optional, out_file, picture_suffix
from brickwork.cli.printing import log, typed_line
from brickwork.errors import RequestError, UnknownName
from brickwork.options import Options, Setting, fields_of, option
from brickwork.words import counted, table

# the registries hold these names, but reading them would import numpy; a test compares the two
METHODS = (
    "linear, slerp, task_arithmetic*, ties*, dare*, della*, breadcrumbs*, model_stock*, tsv*, iso_c*, iso_cts*, wudi*; with "
    "--data, on model folders: match, regmean, regmean++, fisher, rebasin, zipit, adamerging*, and with labels greedy_soup. "
    "* needs --base."
)


OutCurve = out_file("Picture of the search: .html, .svg, .png, or .json for report.", picture_suffix)


class ImagesOptions(Options):
    """What a method that looks at images is given."""

    data: tuple[str, ...] = option(
        default=(),
        help="Images; repeatable. One per model for match, regmean, regmean++ and fisher; of others, for batch-norm statistics, "
        "--repair or --search.",
    )
    split: Literal["test", "train"] = option(default="train", help="Which images of --data.")
    images: int = option(default=2000, at_least=1, help="Images of each --data, at most.")
    device: str = option(default="auto", help=DEVICE)


def merge(
    models: Annotated[
        tuple[Path, ...],
        Argument("safetensors files or folders, or one recipe.yaml; none: list the methods.", "MODEL...|RECIPE"),
    ] = (),
    *,
    out: Annotated[Path | None, Setting("Folder to write.", metavar="FOLDER")] = None,
    method: Annotated[str, Setting(f"Method: {METHODS}")] = "linear",
    base: Annotated[Path | None, Setting("What the models were trained from.", metavar="MODEL")] = None,
    weight: Annotated[tuple[float, ...], Setting("Weight of a model; once per model.")] = (),
    arg: Annotated[dict[str, Any] | None, Setting("Option of the method, as in --arg density=0.2; repeatable.")] = None,
    curve: optional(OutCurve) = None,
    run: Reading,
    options: MergeOptions,
    searching: MergeSearchOptions,
    images: ImagesOptions,
    given: Given,
) -> Report:
    """Merge models of one architecture, by weights or on images.

    Without --data memory for a few tensors is enough, and torch is not needed.

    brickwork merge a b --base zero --method ties --arg density=0.2 --out ab

    brickwork merge a b --method match --data digits:A --data digits:B --out ab

    brickwork merge a b --search weights=0:1 --score worst --data digits:A --data digits:B --split test --out ab
    """
    for_files = [name for name in fields_of(MergeOptions) if name in given]
    for_images = [name for name in (*fields_of(ImagesOptions), *fields_of(MergeSearchOptions), "arch") if name in given]
    if not given:
        return _list_methods()
    if not models:
        raise RequestError("there is nothing to merge; give files or folders, or a recipe.yaml.")
    if out is None:
        raise RequestError("`out` is missing; give the folder to write, as in --out merged.")
    if len(models) == 1 and models[0].suffix in (".yaml", ".yml"):
        for name in [n for n in ("method", "base", "weight", "arg", *for_files) if n in given]:
            raise RequestError(f"a recipe says `{name}` itself; write it there.")
        for name in for_images:
            raise RequestError(f"`{name}` is not used by a recipe, which looks at weights alone; leave it out.")
        return _merge_files(models, None, out, run.force)
    method = method.replace("-", "_")
    if searching.search is None and curve is not None:
        raise RequestError("`curve` is the picture of a search, and there is none; give `search`, or leave it out.")
    if searching.search is not None and not images.data:
        raise RequestError("`search` compares merges on labelled images, and none are given; give some (`data`).")
    _refuse_unused(method, for_files, for_images)
    chosen = {**({"weights": list(weight)} if weight else {}), **(arg or {})}
    from brickwork.algebra.data_methods import DATA_METHODS, find

    if method not in DATA_METHODS:
        options.statistics(images=bool(images.data))
    if method in DATA_METHODS or images.data:
        for name in [name for name in ("seed", "repair") if name in chosen]:
            raise RequestError(f"{name} is an option of its own; give `{name}` instead of --arg {name}.")
        if searching.search is not None:
            return _search(list(models), out, (method, base, chosen, options, searching), images, run, curve)
        own: dict[str, Any] = {"seed": options.seed} if "seed" in find(method).options else {}
        own |= {"bn": options.bn} if options.bn is not None else {}
        own |= {"repair": True} if options.repair else {}
        return _merge_on_images(
            list(models), out, (method, base, {**chosen, **own}), images, run.arch, options.seed, run.force
        )
    entries = {"method": method, "models": [str(m) for m in models], "options": chosen, **options.to_dict()}
    return _merge_files(models, {**entries, **({"base": str(base)} if base else {})}, out, run.force)


def _merge_files(models: Sequence[Path], entries: dict[str, Any] | None, out: Path, force: bool) -> Report:
    from brickwork.algebra.agreement import other_names
    from brickwork.algebra.companions import other_tokenizers
    from brickwork.algebra.recipe import make_recipe, read_recipe
    from brickwork.algebra.streaming import OWNS, merge_files
    from brickwork.atomic import check_output

    check_output(out, force=force, owns=OWNS)
    recipe = read_recipe(models[0]) if entries is None else make_recipe(entries, name="the request")
    result = merge_files(recipe, out, force=force)
    for line in other_names(recipe.models):
        log(line)
    notes = [*_unnormalised(recipe.request.rules), *other_tokenizers(recipe.models)]
    text = "\n".join([str(result), *(f"note: {note}." for note in notes)])
    return Report({**result.to_dict(), "recipe": recipe.to_dict(), "notes": notes}, text)


def _unnormalised(rules: Sequence[Any]) -> list[str]:
    """A weighted sum whose weights do not add up to 1 scales every tensor; it may be meant, and is said."""
    sums = [
        sum(rule.options["weights"])
        for rule in rules
        if rule.method == "linear" and rule.options.get("weights") and rule.options.get("normalize", "no") == "no"
        if not isinstance(rule.options["weights"], dict)
    ]
    return [
        f"the weights add up to {total:g}, not 1, so every tensor is scaled by {total:g}; --arg normalize=yes divides by it"
        for total in sums
        if abs(total - 1) > 1e-6
    ]


def _refuse_unused(method: str, for_files: Sequence[str], for_images: Sequence[str]) -> None:
    """An option that the method has no use for is refused, not ignored."""
    from brickwork.algebra.data_methods import DATA_METHODS
    from brickwork.algebra.methods import registry

    if method not in DATA_METHODS and method not in registry():
        raise UnknownName("merge method", method, [*registry(), *DATA_METHODS])
    if method in DATA_METHODS:
        common = {"seed", "repair"} if "repair" in DATA_METHODS[method].every_option else {"seed"}
        others, what = [n for n in for_files if n not in common], "images"
    elif "data" in for_images:  # for batch-norm statistics, or responses
        others, what = (
            [n for n in for_files if n not in ("seed", "bn", "repair")],
            "weights, with images for batch norms",
        )
    else:
        others, what = list(for_images), "weights alone"
    for name in others:
        own = method in DATA_METHODS and name in DATA_METHODS[method].options
        instead = f"give --arg {name}=…" if own else "leave it out"
        raise RequestError(f"`{name}` is not used by `method` {method}, which looks at {what}; {instead}.")


def _list_methods() -> Report:
    """Every method, what it needs, its options with their defaults."""
    from brickwork.algebra.data_methods import DATA_METHODS
    from brickwork.algebra.methods import registry

    rows: list[dict[str, Any]] = [
        {
            "name": m.name,
            "base": m.needs_base,
            "data": False,
            "labels": False,
            "options": dict(m.options),
            "about": m.about,
            "paper": m.paper,
        }
        for m in registry().values()
    ]
    rows += [
        {
            "name": m.name,
            "base": m.needs_base,
            "data": True,
            "labels": m.needs_labels,
            "options": {n: o.default for n, o in m.options.items() if n not in ("seed", "repair")}
            | ({"weights": None} if m.weighted else {}),
            "about": m.about,
            "paper": m.paper,
        }
        for m in DATA_METHODS.values()
    ]
    lines = [
        (
            r["name"],
            ", ".join(n for n in ("base", "data", "labels") if r[n]) or "–",
            " ".join(n if v is None else f"{n}={v}" for n, v in r["options"].items()),
            r["about"],
        )
        for r in rows
    ]
    return Report({"methods": rows}, table(["method", "needs", "options", "what"], lines))


def _merge_on_images(
    models: list[Path],
    out: Path,
    request: tuple[str, Path | None, dict[str, Any]],
    given: ImagesOptions,
    arch: Any,
    seed: int,
    force: bool,
    search: MergeSearchOptions | None = None,
    merging: MergeOptions | None = None,
) -> Report:
    """Everything that can be refused is refused before a tensor or an image is read."""
    from brickwork.algebra.data_methods import find

    method, base, options = request
    chosen = find(method)
    weights = options.pop("weights", None)
    chosen.check(len(models), len(given.data), base=base is not None, weights=weights, options=options)
    if len(models) == 1 and not chosen.needs_base:
        raise RequestError(f"{method} of one model, {models[0]}, is that model; give two or more.")
    if out.resolve() in {folder.resolve() for folder in [*models, *([base] if base else [])]}:
        raise RequestError(f"{out} is one of the models to merge; choose another `out`.")

    from brickwork import data as data_sets
    from brickwork import store
    from brickwork.algebra.agreement import other_names
    from brickwork.algebra.merge_folders import MergeTask, merge_folders
    from brickwork.atomic import check_output
    from brickwork.devices import pick
    from brickwork.origin import origin_of

    check_output(out, force=force)
    specs = [data_sets.check(spec, split=given.split) for spec in given.data]
    task = MergeTask(method, weights, options, given.split, given.images, seed, search, merging or MergeOptions())
    merged, facts = merge_folders(models, base, specs, task, arch=arch, device=pick(given.device))
    store.save(merged, out, force=force, provenance={"command": "merge", **facts})
    for line in other_names(models):
        log(line)
    result = origin_of(merged).provenance["merge"]
    report = {"folder": str(out), "command": "merge", **facts, **result}
    return Report(report, _text(models, result, facts, out))


def _search(
    models: list[Path],
    out: Path,
    task: tuple[str, Path | None, dict[str, Any], MergeOptions, MergeSearchOptions],
    images: ImagesOptions,
    run: Reading,
    curve: Path | None,
) -> Report:
    from brickwork.algebra.searching import check_search

    method, base, chosen, options, searching = task
    check_search(method, len(models), len(images.data), base is not None, options, searching, chosen)
    known = _merge_on_images(
        models, out, (method, base, chosen), images, run.arch, options.seed, run.force, searching, options
    )
    if curve is None:
        return known
    from brickwork.algebra.search_result import MergeSearch
    from brickwork.report.search import draw_search

    drawing = draw_search(MergeSearch.from_dict(known.data), known.data["images"])
    replace(drawing, command=typed_line()).save(curve, force=run.force)
    return Report({**known.data, "curve": str(curve)}, f"{known.text}\ncurve in {curve}")


def _text(models: Sequence[Path], facts: dict[str, Any], folders: dict[str, Any], out: Path) -> str:
    lines = []
    if "coefficients" in facts:
        names = [path.name for path in models]
        rows = [(layer, *(f"{c:.3f}" for c in row)) for layer, row in facts["coefficients"].items()]
        lines += [table(["layer", *names], rows), "entropy {:.4f} before, {:.4f} after".format(*facts["entropy"])]
    if "search" in facts:
        from brickwork.algebra.search_result import MergeSearch

        lines.append(str(MergeSearch.from_dict(facts)))
    if "used" in facts:
        used = ", ".join(str(models[k]) for k in facts["used"])
        lines.append(f"{len(facts['used'])} of {len(models)} used: {used}; accuracy {facts['accuracy']:.2%}")
    scores = ", ".join(
        f"{name} {'–' if value is None else f'{value:.2%}'}" for name, value in folders["test_accuracy"].items()
    )
    looked = " + ".join(map(str, facts["images"]))
    judging = (
        "the test images that did not choose" if "search" in facts and folders["split"] == "test" else "the test images"
    )
    lines.append(f"{counted(len(models), 'model')} merged on {looked} images; accuracy on {judging}: {scores}")
    return "\n".join([*lines, f"saved in {out}"])
