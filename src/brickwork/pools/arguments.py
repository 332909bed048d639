"""Whether two networks of one architecture were built alike: layers of the same shapes need not mean the same network."""

from typing import Any

from brickwork import zoo
from brickwork.errors import BadModel
from brickwork.origin import Origin
from brickwork.zoo.registry import REGISTRY

#: arguments that make no other network: those that show in the shapes, which are compared, or only in the first values
HARMLESS = ("num_classes", "num_labels", "in_channels", "num_channels", "pretrained", "seed", "initializer_range")
_ABSENT = object()


def same_arguments(mine: Origin, theirs: Origin, outputs: tuple[int, int]) -> None:
    """Refuse a network that was built like a pool's but for an argument, by its name; outputs: of the two heads.

    A task rebuilds into the pool's network with other values, so one with other heads of attention, or another
    activation, would come back as something else. Dropout is let pass: a rebuilt network is in evaluation mode.
    """
    if mine.arch is None or mine.arch != theirs.arch:
        return
    usual = REGISTRY[mine.arch].defaults if mine.arch in REGISTRY else {}
    ours, others = {**usual, **mine.args}, {**usual, **theirs.args}
    for name in sorted({*ours, *others}):
        one, two = ours.get(name, _ABSENT), others.get(name, _ABSENT)
        if one == two or name in HARMLESS or "drop" in name:
            continue
        # a factory of the user's may call its number of classes anything
        if zoo.needs_import(mine.arch) and one in (outputs[0], _ABSENT) and two in (outputs[1], _ABSENT):
            continue
        raise BadModel(
            f"the network is a {mine.arch} built {_built(name, two)}, and the pool's was built {_built(name, one)}: another "
            "network, though its layers have the same shapes. Build it with the pool's arguments, or make a pool from it."
        )


def _built(name: str, value: Any) -> str:
    return f"without {name}" if value is _ABSENT else f"with {name}={value!r}"
