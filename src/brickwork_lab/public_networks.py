"""Networks that nobody here trained, from files of tensors: `../shared/tools/public_networks.py` fetches them.

Their modules are written here with the tensor names of the files.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import Tensor, nn

from brickwork.errors import RequestError, UnknownName
from brickwork.origin import Origin, Preprocessing, attach

#: which of ImageNet's classes Imagenette's are, in its order
IMAGENETTE = (0, 217, 482, 491, 497, 566, 569, 571, 574, 701)


class _Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        same = stride == 1 and inputs == outputs
        projected = [nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)]
        self.shortcut = nn.Sequential(*([] if same else projected))

    def forward(self, x: Tensor) -> Tensor:
        inner = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))
        return (inner + self.shortcut(x)).relu()


def _stage(inputs: int, outputs: int, stride: int) -> nn.Sequential:
    return nn.Sequential(_Block(inputs, outputs, stride), *(_Block(outputs, outputs, 1) for _ in range(8)))


class _ResNet56(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16)
        self.layer1, self.layer2, self.layer3 = _stage(16, 16, 1), _stage(16, 32, 2), _stage(32, 64, 2)
        self.linear = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.bn1(self.conv1(x)).relu()
        for layer in (self.layer1, self.layer2, self.layer3):
            x = layer(x)
        return self.linear(x.mean((2, 3)))


class _Vgg16(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inputs = 3
        for outputs, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
            for k in range(count):
                behind = nn.MaxPool2d(2) if k == count - 1 else nn.Identity()
                layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(), behind]
                inputs = outputs
        self.features = nn.Sequential(*layers)
        head = [nn.Identity(), nn.Linear(512, 512), nn.BatchNorm1d(512), nn.ReLU(), nn.Identity(), nn.Linear(512, 10)]
        self.classifier = nn.Sequential(*head)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x).flatten(1))


def _mobilenet() -> nn.Module:
    from brickwork.zoo.torchvision_shim import import_torchvision

    import_torchvision()
    from torchvision.models import mobilenet_v2

    return mobilenet_v2()


#: name: (module, file, what the images of its set are prepared with)
NETWORKS: dict[str, tuple[Any, str, Preprocessing]] = {
    "public-resnet56": (_ResNet56, "resnet56_cifar10", Preprocessing((32, 32), 3, (0.0,) * 3, (1.0,) * 3)),
    "public-vgg16": (_Vgg16, "vgg16_cifar10", Preprocessing((32, 32), 3, (0.0,) * 3, (1.0,) * 3)),
    "public-mobilenetv2": (
        _mobilenet,
        "mobilenet_v2_imagenet",
        Preprocessing((224, 224), 3, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    ),
}


def load(name: str, folder: str | Path | None) -> nn.Module:
    """A public network from the folder that holds its file."""
    if name not in NETWORKS:
        raise UnknownName("public network", name, NETWORKS)
    make, file, prepared = NETWORKS[name]
    path = Path(folder or ".") / f"{file}.safetensors"
    if not path.is_file():
        raise RequestError(f"{path} is not there; fetch the public networks into a folder and name it with `networks`.")
    model: nn.Module = make()
    model.load_state_dict(load_file(path))
    attach(model, Origin(preprocessing=prepared))
    return model.eval()
