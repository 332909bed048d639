"""The tour, bricks: two digits cut out of each of three networks of different architecture, joined, and exported."""

from dataclasses import replace

import torch
from torch import nn

from brickwork.bricks import assemble, disassemble, routes
from brickwork.data.images import ImageData
from brickwork.export import export_model
from brickwork.origin import origin_of
from brickwork.outputs import accuracy_of
from brickwork.prediction import predict
from brickwork.report.bars import Bar, draw_bars
from brickwork.report.drawing import Drawing
from brickwork.report.routes import draw_routes
from brickwork.tour.halves import half, half_command
from brickwork.tour.stage import PartResult, Stage, as_options
from brickwork.zoo.summary import parameters_of

BUDGET, JOINED, SCORED = 0.25, "six", 60  # share that stays; the joined network; images of the picture of routes
#: architecture and its settings, where it was trained, what is taken
NETWORKS: dict[str, tuple[str, dict[str, int], str, tuple[str, str]]] = {
    "a": ("lenet", {}, "digits:A", ("0", "2")),
    "resnet": ("resnet8", {"width": 8}, "digits:4-7", ("4", "6")),
    "inception": ("inception_small", {"width": 4}, "digits:6-9", ("7", "9")),
}


def bricks(stage: Stage) -> PartResult:
    """Six digits out of three networks, joined into one, against the whole networks side by side; then plain torch."""
    parts, commands, nets = [], [half_command(stage, "a")], {}
    for name, (arch, own, data, classes) in NETWORKS.items():
        images = stage.digits(data)
        if name == "a":
            nets[name] = half(stage, "a")
        else:
            start, short = stage.start(f"start-{name}", arch, len(images.classes), **own), {"epochs": stage.epochs(6)}
            nets[name] = stage.trained(start, images, **short)
            stage.save(nets[name], name, data)
            how = f"{as_options({**stage.training, **short})} {stage.seeded} --out {name}"
            commands.append(stage.command(f"train @start-{name} {data} {how}"))
        part = disassemble(nets[name], list(classes), images, budget=BUDGET, progress=False)
        part.save(stage.folder / f"part-{name}", command="demo", data=data)
        parts.append(part)
        options = f"--classes {','.join(classes)} --data {data} --budget {BUDGET} --out part-{name}"
        commands.append(stage.command(f"disassemble @{name} {options}"))
    joined = assemble(parts)
    every = ",".join(name for _, _, _, classes in NETWORKS.values() for name in classes)
    stage.save(joined, JOINED, f"digits:{every}")
    six = stage.digits(f"digits:{every}")
    right, whole = stage.accuracy(joined, six), _side_by_side(nets, six)
    commands.append(stage.command(f"assemble {' '.join(f'part-{name}' for name in NETWORKS)} --out {JOINED}"))
    commands.append(stage.command(f"eval {JOINED} digits:{every}"))
    accuracy = draw_bars(
        "Six digits out of three networks",
        [
            Bar("parts of all three, joined", right, f"{right:.1%}"),
            Bar("the three whole networks side by side", whole, f"{whole:.1%}", 2),
        ],
        about="To get one network with the classes you want out of several that each know some of them.\n"
        "Share of test images of these six digits that are right. 0 and 2 come from a LeNet that knows 0 to 4, 4 and 6 from a "
        f"ResNet that knows 4 to 7, 7 and 9 from an Inception network that knows 6 to 9; {BUDGET:.0%} of each one's parameters "
        "stay, repaired on unlabelled images. Grey: the whole networks, asked for the same six.\n"
        f"Nothing was trained to join them, and cutting three quarters away costs {max(0.0, 100 * (whole - right)):.1f} points. "
        "No network has seen all of the others' digits.",
        part="bricks",
        cards=(("six digits from three networks, joined", f"{right:.1%}"),),
        command="\n".join(commands),
    )
    size, figure = _exported(stage, nets, joined)
    picture = draw_routes(routes(nets["a"], stage.digits("digits:A"), ["0", "2"], scored=SCORED))
    options = f"--data digits:A --classes 0,2 --scored {SCORED} --out routes.html"
    numbers = {"accuracy": right, "whole": whole, **size}
    return [accuracy, figure, replace(picture, command=stage.command(f"routes @a {options}"))], numbers


def _exported(stage: Stage, nets: dict[str, nn.Module], joined: nn.Module) -> tuple[dict[str, float], Drawing]:
    """The joined network as a Python file and its weights; how large it is beside the whole networks."""
    written = export_model(joined, stage.folder / "plain", to="torch")
    counts = {NETWORKS[name][0]: parameters_of(net) for name, net in nets.items()}
    most, own = sum(counts.values()), parameters_of(joined)
    kilobytes = sum(file.stat().st_size for file in (stage.folder / "plain").iterdir()) / 1000
    bars = [Bar(f"whole {name}", count / most, f"{count:,}", 2) for name, count in counts.items()]
    figure = draw_bars(
        "How large it is, and how it leaves",
        [*bars, Bar("all three", 1.0, f"{most:,}", 2), Bar("parts of all three, joined", own / most, f"{own:,}")],
        about="To ship the joined network without Brickwork.\n"
        "Parameters of the whole networks, and of the one made of their parts.\n"
        f"It is {own / most:.0%} of the three, and leaves as a Python file with its weights, {kilobytes:.0f} kB, that needs "
        f"torch alone; on random images its logits differ from the original's by {written.largest_difference:.1g} at most. "
        "With --to onnx it is an ONNX file.",
        part="bricks",
        cards=(("of the parameters, and it needs torch alone", f"{own / most:.0%}"),),
        command=stage.command(f"export @{JOINED} --to torch --out plain"),
    )
    return {"parameters": own / most, "kilobytes": kilobytes, "difference": written.largest_difference}, figure


def _side_by_side(nets: dict[str, nn.Module], images: ImageData) -> float:
    """Whole networks asked for the digits that are taken from each."""
    logits = []
    for name, net in nets.items():
        columns = [(origin_of(net).classes or ()).index(digit) for digit in NETWORKS[name][3]]
        logits.append(predict(net, images.test_images)[:, columns])
    return accuracy_of(torch.cat(logits, 1), images.test_labels)
