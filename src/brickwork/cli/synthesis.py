"""`brickwork synthesise`: calibration images for people who have none."""

from brickwork.cli.command import Report
from brickwork.cli.parameters import ModelFolder, Running, out_file
from brickwork.training.options import SynthesiseOptions


def synthesise(
    model: ModelFolder, *, out: out_file("File to write, made.npz.", ".npz"), run: Running, options: SynthesiseOptions
) -> Report:
    """Make calibration images from what a model folder's batch norms remember of the images it was trained on.

    They can be given as --data wherever labels are not used: to repair a part, to merge, to quantise. Accuracy on
    them says nothing.

    brickwork synthesise a --out made.npz
    """
    from brickwork import store
    from brickwork.data.arrays import save_npz
    from brickwork.training import synthesise

    network = store.load(model, arch=run.arch, device=run.where)
    images = synthesise(network, options=options)
    save_npz(images, out, force=run.force)
    height, width, channels = images.shape
    facts = {"images": len(images.train_labels), "shape": [height, width, channels], "classes": len(images.classes)}
    text = f"{facts['images']} images of {height}×{width}×{channels} for {facts['classes']} classes; saved in {out}"
    return Report({"file": str(out), "model": str(model), **facts, "options": options.to_dict()}, text)
