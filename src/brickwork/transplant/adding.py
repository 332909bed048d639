"""A network's halves become parts of a net: as they are, or a task module learned on categories of the net."""

from collections.abc import Sequence

from torch import nn

from brickwork.data import ImageData
from brickwork.errors import RequestError
from brickwork.options import takes
from brickwork.transplant.growth import GrownNet, add_learned_task, added
from brickwork.transplant.net import TransplantNet
from brickwork.transplant.options import LearnTaskOptions
from brickwork.transplant.parts import grown_by, input_shape_of
from brickwork.words import sides


@takes(LearnTaskOptions)
def add(
    net: TransplantNet | None,
    model: nn.Module,
    *,
    at: str | None = None,
    carry: Sequence[str] = (),
    category: str | None = None,
    task: str | None = None,
    on: Sequence[str] = (),
    data: Sequence[ImageData] = (),
    input_shape: Sequence[int] | None = None,
    progress: bool = True,
    options: LearnTaskOptions,
) -> GrownNet:
    """The net (None: a new one) with both halves of `model` more, or the one that is given a name; no part of it changes.

    at: the layer behind which the network is cut; carry: layers whose output goes past the cut too. on: categories that a
    task alone is for; with `data`, labelled images of each, it is learned on their features, by the options of learning.
    input_shape: channels, height and width of a new net's images, where the model does not say.

    >>> from brickwork import zoo
    >>> first = add(None, zoo.build("lenet", seed=0), at="pool1", category="dog", task="classify").net
    >>> both = add(first, zoo.build("lenet", seed=1), at="pool1", category="cat", task="cats").net
    >>> list(both.categories), list(both.tasks), list(both.routes)
    (['dog', 'cat'], ['classify', 'cats'], [('dog', 'classify'), ('cat', 'cats')])
    """
    if net is None:
        net = TransplantNet(_shape(input_shape_of(model), input_shape))
    elif input_shape is not None:
        raise RequestError("`input_shape` is for a new net; one that grows knows its images.")
    if not data:
        for name in options.changed():
            raise RequestError(f"`{name}` is for a task that is learned on `data`; nothing else is learned here.")
        grown = grown_by(net, model, at=at, carry=carry, category=category, task=task, on=on)
        return GrownNet(grown, {}, options, added(net, grown))
    if task is None or at is None or category is not None:
        raise RequestError("a task is learned on `data` alone; give `task`, `at` and `on`, and no `category`.")
    return add_learned_task(net, model, task, at=at, carry=carry, on=on, data=data, progress=progress, options=options)


def _shape(known: Sequence[int] | None, given: Sequence[int] | None) -> Sequence[int]:
    if given is not None and len(given) != 3:
        raise RequestError(f"`input_shape` takes channels, height and width, as in 3x32x32, not {given}.")
    if known is not None and given is not None and tuple(known) != tuple(given):
        raise RequestError(f"the model takes images of {sides(known)}, not {sides(given)}; leave `input_shape` out.")
    if known is None and given is None:
        raise RequestError("the model does not say which images it takes; give `input_shape`, as in 3x32x32.")
    return known or given or ()
