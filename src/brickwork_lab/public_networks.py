"""Networks that nobody here trained, from files of tensors, with modules written here by the tensors' names.

`../shared/tools/public_networks.py` fetches three of them; the others are files of the public repository
akamaster/pytorch_resnet_cifar10, as they lie in its folder `pretrained_models`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from torch import Tensor, nn
from torch.nn import functional as F

from brickwork.errors import RequestError, UnknownName
from brickwork.origin import Origin, Preprocessing, attach
from brickwork.store.importing import fill
from brickwork.store.weights import load_weights

#: which of ImageNet's classes Imagenette's are, in its order
IMAGENETTE = (0, 217, 482, 491, 497, 566, 569, 571, 574, 701)


class _Padded(nn.Module):
    """A shortcut without weights: every second place, and channels of zeros on both sides."""

    def __init__(self, more: int) -> None:
        super().__init__()
        self.more = more

    def forward(self, x: Tensor) -> Tensor:
        return F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.more // 2, self.more // 2))


class _Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int, padded: bool) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut: nn.Module = nn.Sequential()
        if stride > 1 or inputs != outputs:
            projected = nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            self.shortcut = _Padded(outputs - inputs) if padded else nn.Sequential(*projected)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))
        return (inner + self.shortcut(x)).relu()


class _ResNet(nn.Module):
    """Of CIFAR: three stages of 16, 32 and 64 channels, depth = 6 · blocks + 2."""

    def __init__(self, depth: int, padded: bool) -> None:
        super().__init__()
        blocks = (depth - 2) // 6
        self.conv1, self.bn1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16)

        def stage(inputs: int, outputs: int, stride: int) -> nn.Sequential:
            rest = (_Block(outputs, outputs, 1, padded) for _ in range(blocks - 1))
            return nn.Sequential(_Block(inputs, outputs, stride, padded), *rest)

        self.layer1, self.layer2, self.layer3 = stage(16, 16, 1), stage(16, 32, 2), stage(32, 64, 2)
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


_PLAIN = Preprocessing((32, 32), 3, (0.0,) * 3, (1.0,) * 3)
_IMAGENETS = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

#: name: (module, file, what the images of its set are prepared with)
NETWORKS: dict[str, tuple[Callable[[], nn.Module], str, Preprocessing]] = {
    "public-resnet56": (partial(_ResNet, 56, padded=False), "resnet56_cifar10.safetensors", _PLAIN),
    "public-vgg16": (_Vgg16, "vgg16_cifar10.safetensors", _PLAIN),
    "public-mobilenetv2": (_mobilenet, "mobilenet_v2_imagenet.safetensors", Preprocessing((224, 224), 3, *_IMAGENETS)),
    **{
        f"public-resnet{depth}-padded": (
            partial(_ResNet, depth, padded=True),
            file,
            Preprocessing((32, 32), 3, *_IMAGENETS),
        )
        for depth, file in ((20, "resnet20-12fca82f.th"), (32, "resnet32-d509ac18.th"), (56, "resnet56-4bfd9763.th"))
    },
}


def load(name: str, folder: str | Path | None) -> nn.Module:
    """A public network from the folder that holds its file."""
    if name not in NETWORKS:
        raise UnknownName("public network", name, NETWORKS)
    make, file, prepared = NETWORKS[name]
    path = Path(folder or ".") / file
    if not path.is_file():
        raise RequestError(f"{path} is not there; fetch the public networks into a folder and name it with `networks`.")
    model = make()
    fill(model, load_weights(path), path, [])
    attach(model, Origin(preprocessing=prepared))
    return model.eval()
