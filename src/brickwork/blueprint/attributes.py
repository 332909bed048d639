"""Numbers that modules keep beside their tensors (out_channels, groups, num_heads …), brought up to date.

Most are for show; `groups`, `normalized_shape` and head counts change what forward does. A guess here is
safe: surgery records the result again and refuses it if a single channel goes astray.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd

from brickwork.blueprint.parts import Parts

if TYPE_CHECKING:
    from brickwork.blueprint.building import Draft
    from brickwork.blueprint.plan import Blueprint

#: how public models call the number of heads, and the width of all heads together
HEADS = ("num_heads", "num_attention_heads", "n_heads", "n_head", "heads", "nhead", "num_key_value_heads")
CLASS_COUNTS = ("num_classes", "num_labels")
FEATURE_COUNTS = ("num_features", "head_hidden_size", "embed_dim")
WIDTHS = (
    "all_head_size",
    "attn_dim",
    "inner_dim",
    "embed_dim",
    "hidden_dim",
    "inner_size",
    "key_attn_dim",
    "val_attn_dim",
)


def patch_attributes(bp: Blueprint, old: nn.Module, new: nn.Module, draft: Draft, *, own: bool = True) -> None:
    """`own`: also guess at numbers in modules of somebody's own that equal a size that was cut; the draft is told of guesses."""
    grouped = {s.module: s for s in bp.sites if s.kind == "conv" and s.groups > 1}
    before = dict(old.named_modules())
    for path, module in list(new.named_modules()):
        if isinstance(module, Parts):
            module.settle()
        if isinstance(module, _ConvNd) and module.weight is not None:
            _patch_conv(module, path in grouped, draft.groups.get(path))
        elif isinstance(module, nn.Linear) and module.weight is not None:
            module.out_features, module.in_features = module.weight.shape
        elif isinstance(module, _NormBase):
            tensor = module.running_mean if module.running_mean is not None else module.weight
            if tensor is not None:
                module.num_features = tensor.shape[0]
        elif isinstance(module, nn.LayerNorm) and module.weight is not None:
            module.normalized_shape = tuple(module.weight.shape)
        elif isinstance(module, nn.GroupNorm) and module.weight is not None:
            module.num_channels = module.weight.shape[0]
        elif isinstance(module, nn.Embedding):
            module.num_embeddings, module.embedding_dim = module.weight.shape
        elif isinstance(module, nn.PReLU):
            module.num_parameters = module.weight.shape[0]
        elif isinstance(
            module, nn.RNNBase | nn.RNNCellBase
        ):  # what it remembers stays whole: it begins with plain zeros
            first = "weight_ih_l0" if isinstance(module, nn.RNNBase) else "weight_ih"
            module.input_size = module.get_parameter(first).shape[1]
        elif own:
            draft.guessed |= _patch_own(before.get(path), module)
        _patch_heads(bp, before.get(path), module, path, draft)
    _patch_classifier(bp, before, new)


def _patch_classifier(bp: Blueprint, before: dict[str, nn.Module], new: nn.Module) -> None:
    """What the modules around the last layer say of it: how many classes there are, and of how many features."""
    made = set(bp.output_units.tolist())
    last = next(
        (s for s in reversed(bp.sites) if s.kind == "linear" and s.makes is not None and made & {*s.makes}), None
    )
    layer = None if last is None else before.get(last.module)
    if last is None or not isinstance(layer, nn.Linear):
        return
    kept = dict(new.named_modules()).get(last.module)  # a part of which nothing is left is gone
    if not isinstance(kept, nn.Linear):
        return
    numbers = {
        **dict.fromkeys(CLASS_COUNTS, (layer.out_features, kept.out_features)),
        **dict.fromkeys(FEATURE_COUNTS, (layer.in_features, kept.in_features)),
    }
    parts = last.module.split(".")
    for path in (".".join(parts[:k]) for k in range(len(parts))):
        module = new.get_submodule(path)
        for name, (was, now) in numbers.items():
            if isinstance(vars(module).get(name), int) and vars(before[path])[name] == was:
                setattr(module, name, now)
        _patch_labels(module, before[path], kept.out_features)


def _patch_labels(module: nn.Module, old: nn.Module, count: int) -> None:
    """The number of labels in the configuration of a network of transformers; their names are the folder's to say."""
    config: Any = getattr(module, "config", None)
    if config is None or getattr(config, "num_labels", count) == count:
        return
    if config is getattr(old, "config", None):
        config = copy.deepcopy(config)
        module.config = config
    config.num_labels = count


def _patch_conv(module: _ConvNd, grouped: bool, groups: int | None) -> None:
    shape = module.weight.shape
    if groups is not None:
        module.groups = groups
    elif grouped:  # as many rows of the kernel in a group as before; depthwise: as many groups as channels are left
        rows = module.in_channels if module.transposed else module.out_channels
        module.groups = shape[0] // max(1, rows // module.groups)
    inside = shape[0] if module.transposed else shape[1] * module.groups
    outside = shape[1] * module.groups if module.transposed else shape[0]
    module.in_channels, module.out_channels = inside, outside


def _patch_heads(bp: Blueprint, old: nn.Module | None, module: nn.Module, path: str, draft: Draft) -> None:
    """Head counts of an attention module, where the heads of one of its own layers were cut."""
    if old is None or (path and not module._modules):  # nothing below it that could have heads
        return
    names = [n for n in (*HEADS, *WIDTHS) if isinstance(getattr(module, n, None), int)]
    if not names:
        return
    layers: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
    for site in bp.sites:
        axis = draft.axes[site.weight][0] if site.kind == "linear" and site.weight in draft.axes else None
        if (site.module.startswith(path + ".") or not path) and axis is not None and site.makes is not None:
            layer = site.module.rpartition(".parts.")[0] or site.module  # a joined layer's parts count together
            layers.setdefault(layer, []).append((site.makes, axis))
    for layer, pairs in layers.items():
        makes, axis = (np.concatenate(x) for x in zip(*pairs, strict=True))
        units, width = len(np.unique(makes)), len(makes)
        if units == width or len(axis) == width:
            continue
        kept = len(np.unique(axis))
        for name in names:
            value = getattr(old, name)
            if name in HEADS and value == units:
                setattr(module, name, kept)
            # of a module further out such a number is the width of something else
            elif name in WIDTHS and value % units == 0 and value <= width and layer.rpartition(".")[0] == path:
                setattr(module, name, value // units * kept)
        return


def _patch_own(old: nn.Module | None, module: nn.Module) -> bool:
    """A module of somebody's own that keeps the size of its tensors in a number or a tuple; whether one was changed."""
    if old is None or type(module) is not type(old) or type(module).__module__.startswith(("torch.", "brickwork.")):
        return False
    sizes: dict[int, int] = {}
    for name, tensor in module.named_parameters(recurse=False):
        for a, b in zip(old.get_parameter(name).shape, tensor.shape, strict=False):
            if a != b:
                sizes[a] = b
    guessed = False
    for name, value in list(vars(module).items()) if sizes else []:
        if isinstance(value, int) and not isinstance(value, bool) and value in sizes:
            setattr(module, name, sizes[value])
            guessed = True
        elif isinstance(value, tuple) and value and all(isinstance(v, int) for v in value):
            setattr(module, name, tuple(sizes.get(v, v) for v in value))
            guessed |= any(v in sizes for v in value)
    return guessed
