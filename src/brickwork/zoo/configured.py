"""Widths that a library's own configuration can say, and the arguments that say them.

A network that was cut channel by channel has widths of its own in every layer. `ViTConfig`, timm's `create_model` or
torchvision's builders know a few numbers only: how many heads, how wide the stages. What is written down here is which numbers
those are; whether a network with other numbers is really a narrower one of the same layers is seen by building it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from brickwork.errors import RequestError

Values = Mapping[str, int]
MULTIPLIER = 32  # steps of a width multiplier


@dataclass(frozen=True)
class ConfiguredWidths:
    """The numbers that set a network's widths, as they stand, and what to give to `zoo.build` for others."""

    numbers: dict[str, int]
    arguments: Callable[[Values], dict[str, Any]]


def configured_widths(model: Any, arch: str) -> ConfiguredWidths:
    """Of a network that `zoo.build` made; RequestError where the library has no such numbers for it.

    >>> from brickwork import zoo
    >>> net = zoo.build("timm:resnet26", num_classes=2, seed=0)
    >>> widths = configured_widths(net, "timm:resnet26")
    >>> widths.arguments({**widths.numbers, "channels 1": 32, "base_width": 48})
    {'channels': [32, 128, 256, 512], 'base_width': 48}
    """
    prefix = arch.partition(":")[0]
    if prefix == "hf":
        config: Any = model.model.config
        if config.model_type in _CONFIGS:
            return _CONFIGS[config.model_type](config)
    elif prefix in _CLASSES:
        of_kind = _CLASSES[prefix].get(type(model).__name__)
        found = None if of_kind is None else of_kind(model)
        if found is not None:
            return found
    raise RequestError(
        f"`uniform` needs widths that a configuration can say, and {arch} ({type(getattr(model, 'model', model)).__name__}) has "
        f"none that are known here; known are {KNOWN}; leave `uniform` out."
    )


def _hf_transformer(config: Any) -> ConfiguredWidths:
    head = config.hidden_size // config.num_attention_heads  # heads go whole, so their width stays

    def arguments(values: Values) -> dict[str, Any]:
        heads = values["num_attention_heads"]
        return {
            "hidden_size": heads * head,
            "num_attention_heads": heads,
            "intermediate_size": values["intermediate_size"],
        }

    return ConfiguredWidths(
        {name: getattr(config, name) for name in ("num_attention_heads", "intermediate_size")}, arguments
    )


def _hf_resnet(config: Any) -> ConfiguredWidths:
    sizes = list(config.hidden_sizes)
    tied = config.embedding_size == sizes[0] and not config.downsample_in_first_stage  # no convolution in the shortcut
    numbers = _stages("hidden_sizes", sizes) | ({} if tied else {"embedding_size": config.embedding_size})

    def arguments(values: Values) -> dict[str, Any]:
        wide = _list("hidden_sizes", values)
        return {"hidden_sizes": wide, "embedding_size": wide[0] if tied else values["embedding_size"]}

    return ConfiguredWidths(numbers, arguments)


def _hf_stages(config: Any) -> ConfiguredWidths:
    return ConfiguredWidths(
        _stages("hidden_sizes", config.hidden_sizes), lambda values: {"hidden_sizes": _list("hidden_sizes", values)}
    )


def _hf_multiplier(config: Any) -> ConfiguredWidths:
    full = config.depth_multiplier
    return _multiplier("depth_multiplier", full)


def _timm_transformer(model: Any) -> ConfiguredWidths | None:
    block = model.blocks[0]
    if not hasattr(block, "attn") or not hasattr(getattr(block, "mlp", None), "fc1"):
        return None
    heads = block.attn.num_heads
    head = model.embed_dim // heads

    def arguments(values: Values) -> dict[str, Any]:
        wide, inner = values["num_heads"] * head, values["mlp"]
        ratio = inner / wide
        if int(wide * ratio) != inner:  # timm rounds down
            ratio = (inner + 0.5) / wide
        return {"embed_dim": wide, "num_heads": values["num_heads"], "mlp_ratio": ratio}

    return ConfiguredWidths({"num_heads": heads, "mlp": block.mlp.fc1.out_features}, arguments)


def _timm_resnet(model: Any) -> ConfiguredWidths | None:
    first = [stage[0] for stage in (model.layer1, model.layer2, model.layer3, model.layer4)]
    kind = type(first[0]).__name__
    if kind not in ("BasicBlock", "Bottleneck") or any(block.conv1.groups != 1 for block in first):
        return None
    wide = [(block.conv3 if kind == "Bottleneck" else block.conv2).out_channels // block.expansion for block in first]
    # a first stage without a convolution in its shortcut is as wide as the stem, which create_model takes no number for
    numbers = _stages("channels", wide)
    if first[0].downsample is None:
        del numbers["channels 1"]
    if kind == "Bottleneck":
        block, groups = first[0], first[0].conv2.groups
        numbers["base_width"] = round(64 * block.conv2.out_channels / groups / wide[0])

    def arguments(values: Values) -> dict[str, Any]:
        channels = {"channels": _list("channels", {"channels 1": wide[0], **values})}
        return channels | ({"base_width": values["base_width"]} if "base_width" in values else {})

    return ConfiguredWidths(numbers, arguments)


def _timm_convnext(model: Any) -> ConfiguredWidths:
    wide = [stage.blocks[0].conv_dw.out_channels for stage in model.stages]
    return ConfiguredWidths(_stages("dims", wide), lambda values: {"dims": _list("dims", values)})


def _torchvision_resnet(model: Any) -> ConfiguredWidths | None:
    """Only the layers within a block have a number, and only those of three layers."""
    if type(model.layer1[0]).__name__ != "Bottleneck":
        return None
    width = model.base_width
    return ConfiguredWidths({"width_per_group": width}, lambda values: {"width_per_group": values["width_per_group"]})


def _torchvision_mobilenet(model: Any) -> ConfiguredWidths:
    return _multiplier("width_mult", model.brickwork_origin.args.get("width_mult", 1.0))


def _multiplier(name: str, full: float) -> ConfiguredWidths:
    return ConfiguredWidths({name: MULTIPLIER}, lambda values: {name: full * values[name] / MULTIPLIER})


def _stages(name: str, sizes: Any) -> dict[str, int]:
    return {f"{name} {k}": int(size) for k, size in enumerate(sizes, 1)}


def _list(name: str, values: Values) -> list[int]:
    return [values[key] for key in sorted((k for k in values if k.startswith(f"{name} ")), key=_number)]


def _number(key: str) -> int:
    return int(key.rpartition(" ")[2])


_CONFIGS: dict[str, Callable[[Any], ConfiguredWidths]] = {
    "vit": _hf_transformer,
    "deit": _hf_transformer,
    "vit_msn": _hf_transformer,
    "resnet": _hf_resnet,
    "convnext": _hf_stages,
    "mobilenet_v1": _hf_multiplier,
    "mobilenet_v2": _hf_multiplier,
}
#: by library and class of the network
_CLASSES: dict[str, dict[str, Callable[[Any], ConfiguredWidths | None]]] = {
    "timm": {"VisionTransformer": _timm_transformer, "ResNet": _timm_resnet, "ConvNeXt": _timm_convnext},
    "torchvision": {"ResNet": _torchvision_resnet, "MobileNetV2": _torchvision_mobilenet},
}
KNOWN = "; ".join(
    [
        ", ".join(f"hf:{kind}" for kind in _CONFIGS),
        *(f"{library}'s {', '.join(kinds)}" for library, kinds in _CLASSES.items()),
    ]
)
