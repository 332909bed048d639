"""`brickwork merge MODEL… --out MERGED`: on weights alone, on images (`--method match --data X …`), or by a recipe.yaml."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import brickwork
from brickwork.algebra.options import MergeOptions, MergeSearchOptions
from brickwork.atomic import check_output
from brickwork.cli.command import Argument, Given, Report, Result
from brickwork.cli.parameters import DEVICE, Reading, optional, out_file
from brickwork.cli.printing import log
from brickwork.errors import RequestError, UnknownName
from brickwork.options import Options, Setting, fields_of, option
from brickwork.origin import origin_of
from brickwork.words import counted, table

# the registries hold these names, but reading them would import numpy; a test compares the two
METHODS = (
    "linear, slerp, task_arithmetic*, ties*, dare*, della*, breadcrumbs*, model_stock*, tsv*, iso_c*, iso_cts*, wudi*; with "
    "--data, on model folders: match, regmean, regmean++, fisher, rebasin, zipit, adamerging*, and with labels greedy_soup. "
    "* needs --base."
)


OutCurve = out_file("Picture of the search: .html, .svg, .png, or .json for report.")


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
) -> Result:
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
    from brickwork.algebra.data_methods import DATA_METHODS

    chosen = {**({"weights": list(weight)} if weight else {}), **(arg or {})}
    if method not in DATA_METHODS:
        options.statistics(images=bool(images.data))
    if method in DATA_METHODS or images.data:
        report = _merge_on_images(list(models), base, out, (method, chosen), images, run, options, searching)
        return report if curve is None else _draw_search(report, curve, run)
    entries = {"method": method, "models": [str(m) for m in models], "options": chosen, **options.to_dict()}
    return _merge_files(models, {**entries, **({"base": str(base)} if base else {})}, out, run.force)


def _merge_files(models: Sequence[Path], entries: dict[str, Any] | None, out: Path, force: bool) -> Result:
    from brickwork.algebra.agreement import other_names
    from brickwork.algebra.recipe import make_recipe, read_recipe
    from brickwork.algebra.streaming import OWNS, merge_files

    check_output(out, force=force, owns=OWNS)
    recipe = read_recipe(models[0]) if entries is None else make_recipe(entries, name="the request")
    result = merge_files(recipe, out, force=force)
    for line in other_names(recipe.models):
        log(line)
    return result


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
        others = [n for n in for_files if n not in ("seed", "bn", "repair")]
        what = "weights, with images for batch norms"
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

    rows = [m.to_dict() for m in registry().values()] + [m.to_dict() for m in DATA_METHODS.values()]
    lines = [
        (
            row["name"],
            ", ".join(need for need in ("base", "data", "labels") if row[need]) or "–",
            " ".join(name if value is None else f"{name}={value}" for name, value in row["options"].items()),
            row["about"],
        )
        for row in rows
    ]
    return Report({"methods": rows}, table(["method", "needs", "options", "what"], lines))


def _merge_on_images(
    models: list[Path],
    base: Path | None,
    out: Path,
    request: tuple[str, dict[str, Any]],
    given: ImagesOptions,
    run: Reading,
    merging: MergeOptions,
    searching: MergeSearchOptions,
) -> Report:
    """Everything that can be refused is refused before a tensor or an image is read."""
    from brickwork.algebra.data_methods import find
    from brickwork.algebra.searching import check_search

    method, chosen = request
    for name in [name for name in ("seed", "repair") if name in chosen]:
        raise RequestError(f"{name} is an option of its own; give `{name}` instead of --arg {name}.")
    known, search = find(method), None if searching.search is None else searching
    if search is not None:
        check_search(method, len(models), len(given.data), base is not None, merging, search, chosen)
    else:
        chosen |= {"seed": merging.seed} if "seed" in known.options else {}
        chosen |= {"bn": merging.bn} if merging.bn is not None else {}
        chosen |= {"repair": True} if merging.repair else {}
    weights = chosen.pop("weights", None)
    known.check(len(models), len(given.data), base=base is not None, weights=weights, options=chosen)
    if len(models) == 1 and not known.needs_base:
        raise RequestError(f"{method} of one model, {models[0]}, is that model; give two or more.")
    if out.resolve() in {folder.resolve() for folder in [*models, *([base] if base else [])]}:
        raise RequestError(f"{out} is one of the models to merge; choose another `out`.")

    from brickwork.algebra.agreement import other_names
    from brickwork.algebra.merge_folders import MergeTask, merge_folders
    from brickwork.devices import pick

    check_output(out, force=run.force)
    specs = [brickwork.data.check(spec, split=given.split) for spec in given.data]
    task = MergeTask(method, weights, chosen, given.split, given.images, merging.seed, search, merging)
    merged, facts = merge_folders(models, base, specs, task, arch=run.arch, device=pick(given.device))
    run.save(merged, out, "merge", **facts)
    for line in other_names(models):
        log(line)
    result = origin_of(merged).provenance["merge"]
    return Report.saved(out, {"command": "merge", **facts, **result}, _text(models, result, facts))


def _draw_search(report: Report, curve: Path, run: Reading) -> Report:
    from brickwork.algebra.search_result import MergeSearch
    from brickwork.report.search import draw_search

    run.draw(draw_search(MergeSearch.from_dict(report.data), report.data["images"]), curve)
    return Report({**report.data, "curve": str(curve)}, f"{report.text}\ncurve in {curve}")


def _text(models: Sequence[Path], facts: dict[str, Any], folders: dict[str, Any]) -> str:
    lines, judging = [], "the test images"
    if "coefficients" in facts:
        names = [path.name for path in models]
        rows = [(layer, *(f"{c:.3f}" for c in row)) for layer, row in facts["coefficients"].items()]
        lines += [table(["layer", *names], rows), "entropy {:.4f} before, {:.4f} after".format(*facts["entropy"])]
    if "search" in facts:
        from brickwork.algebra.search_result import MergeSearch

        lines.append(str(MergeSearch.from_dict(facts)))
        judging += " that did not choose" if folders["split"] == "test" else ""
    if "used" in facts:
        used = ", ".join(str(models[k]) for k in facts["used"])
        lines.append(f"{len(facts['used'])} of {len(models)} used: {used}; accuracy {facts['accuracy']:.2%}")
    shares = {name: "–" if value is None else f"{value:.2%}" for name, value in folders["test_accuracy"].items()}
    scores = ", ".join(f"{name} {share}" for name, share in shares.items())
    looked = " + ".join(map(str, facts["images"]))
    lines.append(f"{counted(len(models), 'model')} merged on {looked} images; accuracy on {judging}: {scores}")
    return "\n".join(lines)
