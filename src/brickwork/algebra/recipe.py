"""A merge as a YAML file. Every mistake in it is reported at once, before a tensor is read.

# brickwork merge recipe.yaml --out merged
method: ties
base: zero
models: [a, b]
options: {density: 0.2, weights: [1, 0.5]}
layers:                             # the first pattern that fits a tensor's name decides
  - {match: "fc*", method: linear, options: {weights: [0.3, 0.7]}}
  - {match: "features.*", options: {weights: {from: [1, 0], to: [0, 1]}}}
bn: linear                          # batch-norm statistics: linear | keep
heads: refuse                       # tensors of other shapes: refuse | keep
seed: 0
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from brickwork.algebra.companions import other_tokenizers
from brickwork.algebra.methods import registry
from brickwork.algebra.options import MergeOptions
from brickwork.algebra.plan import MergeRule, Request
from brickwork.errors import RequestError
from brickwork.options import fields_of
from brickwork.recipes import read_yaml, unknown, unknown_entries

KEYS = ("method", "base", "models", "options", "layers", *fields_of(MergeOptions))
LAYER_KEYS = ("match", "method", "options")


@dataclass(frozen=True)
class MergeRecipe:
    request: Request
    models: tuple[Path, ...]
    base: Path | None

    def to_dict(self) -> dict[str, Any]:
        """As the YAML says it; read again, it gives the same merge."""
        last = self.request.rules[-1]
        result: dict[str, Any] = {"method": last.method, "models": [str(m) for m in self.models]}
        if self.base is not None:
            result["base"] = str(self.base)
        if last.options:
            result["options"] = dict(last.options)
        layers = [{"match": r.match, "method": r.method, "options": dict(r.options)} for r in self.request.rules[:-1]]
        if layers:
            result["layers"] = layers
        return {**result, **self.request.options.to_dict()}

    def notes(self) -> list[str]:
        """What may be meant and is said: weights that do not add up to 1 scale every tensor; other tokenizers."""
        plain = [
            r.options for r in self.request.rules if r.method == "linear" and r.options.get("normalize", "no") == "no"
        ]
        weights = [options["weights"] for options in plain if options.get("weights")]
        sums = [sum(some) for some in weights if not isinstance(some, dict)]
        scaled = "the weights add up to {0:g}, not 1, so every tensor is scaled by {0:g}; normalize=yes divides by it"
        return [*(scaled.format(one) for one in sums if abs(one - 1) > 1e-6), *other_tokenizers(self.models)]


def read_recipe(path: str | Path) -> MergeRecipe:
    """A recipe file; paths in it are relative to the file."""
    return make_recipe(read_yaml(path), Path(path).parent, str(path))


def make_recipe(entries: Any, where: Path = Path(), name: str = "the recipe") -> MergeRecipe:
    """Check everything a recipe says; one RequestError with all that is wrong."""
    problems = unknown_entries(entries, KEYS, name, "method:, models: and so on")
    models = entries.get("models")
    if not isinstance(models, list) or not models or not all(isinstance(m, str) for m in models):
        problems.append(f"models are {models!r}; they must be a list of files or folders")
        models = []
    base = entries.get("base")
    if base is not None and not isinstance(base, str):
        problems.append(f"base is {base!r}; it must be a file or folder")
        base = None
    method = entries.get("method", "linear")
    rules = []
    layers = entries.get("layers", [])
    if not isinstance(layers, list) or not all(isinstance(layer, Mapping) for layer in layers):
        problems.append(f"layers are {layers!r}; they must be a list of {{match, method, options}}")
        layers = []
    for number, layer in enumerate(layers):
        problems += [
            unknown(f"entry of layer rule {number + 1}", key, LAYER_KEYS) for key in layer if key not in LAYER_KEYS
        ]
        if not isinstance(layer.get("match"), str):
            problems.append(
                f"layer rule {number + 1} has match {layer.get('match')!r}; it must be a pattern, as in fc*"
            )
            continue
        rules.append(MergeRule(layer["match"], str(layer.get("method", method)), _options(layer, problems)))
    rules.append(MergeRule("*", str(method), _options(entries, problems)))
    options = MergeOptions(bn="linear")
    try:
        options = MergeOptions(**{name: entries[name] for name in fields_of(MergeOptions) if name in entries})
        options = replace(options, bn=options.statistics(images=False))
    except RequestError as error:
        problems.append(str(error).removesuffix("."))
    request = Request(tuple(rules), options)
    if models:
        problems += request.problems(len(models), base is not None)
    if len(models) == 1 and not problems and not request.changes_one:
        able = ", ".join(m.name for m in registry().values() if m.needs_base and m.models[0] == 1)
        problems.append(
            f"{method} of one model, {models[0]}, is that model; give two or more, or a method that works on one and a base "
            f"({able})"
        )
    paths = [where / m for m in models]
    problems += [f"{p} does not exist" for p in [*paths, *([where / base] if base else [])] if not p.exists()]
    if problems:
        raise RequestError(f"{name}: " + "; ".join(problems) + ".")
    return MergeRecipe(request, tuple(paths), where / base if base else None)


def _options(entries: Mapping[str, Any], problems: list[str]) -> dict[str, Any]:
    options = entries.get("options") or {}
    if isinstance(options, Mapping):
        return {str(k): v for k, v in options.items()}
    problems.append(f"options are {options!r}; they must be names with values")
    return {}
