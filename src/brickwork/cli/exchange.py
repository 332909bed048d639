"""`brickwork import` and `export`: networks from elsewhere, and to elsewhere."""

from pathlib import Path
from typing import Annotated

from brickwork import store
from brickwork.cli.command import Argument, Report
from brickwork.cli.folders import images_for
from brickwork.cli.parameters import ArchArguments, Force, ModelFolder, OutFolder, Reading, data_option, optional
from brickwork.export.options import ExportOptions
from brickwork.options import Setting
from brickwork.origin import origin_of
from brickwork.store.options import ImportOptions
from brickwork.words import counted

Builds = Annotated[
    str | None, Setting("What the weights belong to: timm:resnet18, package.module:factory, …", metavar="ARCH")
]


def import_model(
    file: Annotated[Path, Argument(".pth, .pt or .safetensors, or a folder of transformers or timm.", "FILE|FOLDER")],
    *,
    out: OutFolder,
    arch: Builds = None,
    arg: ArchArguments = None,
    force: Force = False,
    options: ImportOptions,
) -> Report:
    """Make a model folder of weights that were trained elsewhere.

    A file is read as tensors; no code in it is run. Weights that do not fit the architecture are refused by name.

    brickwork import net.pth --arch mynet:Net --classes names.txt --mean 0.5 --std 0.25 --size 32 --out net
    """
    model = store.import_model(file, arch=arch, args=arg, options=options)
    store.save(model, out, force=force, provenance={"command": "import"})
    origin = origin_of(model)
    notes = origin.provenance["import"]["notes"]
    facts = {k: v for k, v in origin.to_dict().items() if k in ("arch", "args", "classes", "preprocessing")}
    parameters = sum(value.numel() for value in model.parameters())
    text = f"{counted(len(origin.classes or ()), 'class')}, {parameters:,} parameters, {origin.preprocessing}"
    text = "\n".join([text, *(f"note: {note}." for note in notes)])
    return Report.saved(out, {"file": file, **facts, "notes": notes, "parameters": parameters}, text)


def export_model(
    model: ModelFolder,
    *,
    out: Annotated[
        Path, Setting("File to write (.onnx, .pt2), or folder (torch, transformers, timm).", metavar="PATH")
    ],
    data: optional(
        data_option("Images to compare on; with --int8, scales are set on training images, and test images judge.")
    ) = None,
    run: Reading,
    options: ExportOptions,
) -> Report:
    """Write a model folder for use without Brickwork.

    Class names and preprocessing go with it, and it is compared with the model on random images, and on those of
    --data, before it is there.

    brickwork export net --to onnx --dynamic-batch --out net.onnx

    brickwork export net --to torch --out plain

    brickwork export part --to transformers --out part-hf

    brickwork export net --to onnx --int8 --data pics --out net8.onnx
    """
    from brickwork.export.exporting import export_model

    network = run.load(model)
    result = export_model(network, out, data=images_for(network, data, 0), force=run.force, options=options)
    return Report({"model": model, "data": data, **result.to_dict()}, str(result))
