"""The last check before surgery hands a module out: both sides computed, on random numbers.

Labels prove that channels meet the right partners. What labels cannot see (a constant that follows the width,
a branch taken by it, an order within one unit) shows here. Parameters are drawn afresh, so that a zero or an
untrained layer hides nothing; the caller's weights and data are not used. Small networks are computed in
float64, large ones in float32, where convolution is many times faster.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from brickwork.blueprint.record import as_call
from brickwork.blueprint.room import Room
from brickwork.copying import copy_module
from brickwork.errors import Unsupported
from brickwork.outputs import logits_of

if TYPE_CHECKING:
    from brickwork.blueprint.plan import Blueprint

#: relative to the largest output; float32 rounding over a hundred layers stays well below its bound
_TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}
_SMALL = 50_000_000  # multiply-adds up to which float64 costs next to nothing

#: how parameters and images are drawn: of either sign; of one, for a root or a logarithm; the network's own, a little changed;
#: these, and where a cut is stood for by zeros, only layers have them: by a gain of 0 a forward may divide
Drawn = Literal["any", "positive", "own", "own, zeros in layers"]
DRAWN: tuple[Drawn, ...] = ("any", "positive", "own", "own, zeros in layers")
Sides = tuple[Callable[[], Tensor], Callable[[], Tensor]]  # what is to be proved, and what it is to give


def precision(bp: Blueprint, model: nn.Module) -> torch.dtype:
    """float64 where it is cheap or the model's own; grouped convolution has no fast float64 form on a CPU."""
    if any(p.dtype == torch.float64 for p in model.parameters()):
        return torch.float64
    grouped = any(s.kind == "conv" and s.groups > 1 for s in bp.sites)
    return torch.float64 if bp.count().macs <= _SMALL and not grouped else torch.float32


def scrambled(
    model: nn.Module, seed: int, dtype: torch.dtype, drawn: Mapping[int, Tensor] | None = None, how: Drawn = "any"
) -> nn.Module:
    """A copy on the CPU with parameters and normalisation statistics drawn afresh, in eval mode.

    drawn: what is drawn already, by the id of the model's tensor.
    """
    memo: dict[int, Any] = {}
    variances = {id(m.running_var) for m in model.modules() if getattr(m, "running_var", None) is not None}
    means = {id(m.running_mean) for m in model.modules() if getattr(m, "running_mean", None) is not None}
    # were biases mostly above zero, rectifiers of a narrow layer would let everything pass, and a lost one could not be seen
    around_zero = means | {id(p) for name, p in model.named_parameters() if name.rpartition(".")[2] == "bias"}
    tensors = [*model.parameters(), *model.buffers()]
    drawn = {} if drawn is None else drawn
    noise = _Noise(seed, dtype, [t.numel() for t in tensors if id(t) not in drawn])
    for tensor in tensors:
        new: Any = None
        if tensor.is_floating_point():
            if id(tensor) in drawn:
                new = drawn[id(tensor)]
            elif how.startswith("own"):  # by factors, which leave every sign; two copies of one network must differ
                new = noise(tensor.shape, 0.1, 1.0).mul_(tensor.detach().to("cpu", dtype))
            elif isinstance(tensor, nn.Parameter) or id(tensor) in means:
                centre = 0.6 if tensor.dim() < 2 and id(tensor) not in around_zero else 0.0
                new = noise(tensor.shape, _spread(tensor), centre)
                new = new.abs_() if how == "positive" else new
            elif id(tensor) in variances:
                new = noise(tensor.shape, 0.5, 1.0)
        if new is None:  # kept, in memory of its own: a forward may write to it, and a proof blanks what goes
            new = tensor.detach().to("cpu", dtype if tensor.is_floating_point() else tensor.dtype, copy=True)
        new = new.to(dtype) if tensor.is_floating_point() else new
        memo[id(tensor)] = nn.Parameter(new, requires_grad=False) if isinstance(tensor, nn.Parameter) else new
    twin = copy_module(model, memo).eval()
    for module in twin.modules():  # plain tensor attributes follow, or types would mix
        for name, value in list(vars(module).items()):
            if isinstance(value, Tensor) and value.is_floating_point():
                setattr(module, name, value.detach().cpu().to(dtype))
    return twin


def _spread(tensor: Tensor) -> float:
    return 1.7 * (max(1, tensor.shape[1:].numel()) ** -0.5 if tensor.dim() > 1 else 0.3)


def draw_together(
    models: Sequence[Mapping[str, Tensor]], names: Iterable[str], dtype: torch.dtype
) -> list[dict[int, Tensor]]:
    """For each of some networks, numbers for those of its tensors that have the same shape in all, for `scrambled`.

    Those of one name lie side by side, so that joining them copies nothing, and layers of one spread read one table from
    different places, so that a proof writes a fraction of a network's size. Not to be written to.
    """
    noise = _Noise(0, dtype)
    tables: dict[float, Tensor] = {}
    result: list[dict[int, Tensor]] = [{} for _ in models]
    for number, name in enumerate(names):
        same = [tensors[name] for tensors in models]
        if same[0].dim() > 1 and isinstance(same[0], nn.Parameter) and len({t.shape for t in same}) == 1:
            spread, size = _spread(same[0]), same[0].numel()
            start = number * 7919 % 4001
            if spread not in tables or len(tables[spread]) < start + size * len(same):
                tables[spread] = noise(torch.Size([4001 + size * len(same)]), spread, 0.0)
            for p, tensor in enumerate(same):
                result[p][id(tensor)] = tables[spread][start + p * size :][:size].view(tensor.shape)
    return result


@functools.lru_cache(maxsize=1)
def _table() -> Tensor:
    return torch.empty(1_000_003, dtype=torch.float32).uniform_(-1, 1, generator=torch.Generator().manual_seed(0))


class _Noise:
    """Numbers from −1 to 1 out of one table, which is read on and on: drawing millions takes as long as the rest of a proof.

    The table's length is a prime, so that no two channels of a layer are alike.
    """

    def __init__(self, seed: int, dtype: torch.dtype, sizes: Sequence[int] = ()) -> None:
        self.table = _table()
        self.place = seed * 104_729 % len(self.table)
        self.room = Room(dtype, sizes)

    def __call__(self, shape: torch.Size, spread: float, centre: float) -> Tensor:
        numbers = self.room.take(shape)
        result = numbers.view(-1)
        done = 0
        while done < len(result):
            some = self.table[self.place : self.place + len(result) - done]
            torch.mul(some, spread, out=result[done : done + len(some)])
            done += len(some)
            self.place = (self.place + len(some)) % len(self.table)
        return numbers.add_(centre) if centre else numbers


def random_input(example: Any, seed: int, dtype: torch.dtype, *, positive: bool = False) -> Any:
    """Random numbers in the shape of an example; whole numbers stay within what any table has. positive: from 0 to 1."""
    rng = torch.Generator().manual_seed(seed)

    def draw(x: Any) -> Any:
        if not isinstance(x, Tensor):
            return x
        if x.is_floating_point():
            draw_numbers = torch.rand if positive else torch.randn
            return draw_numbers(x.shape, generator=rng, dtype=dtype)
        return torch.randint(0, 2, x.shape, generator=rng).to(x.dtype)

    return tree_map(draw, example)


MANY = 16  # rows of a tiny example


def thinned(example: Any, *, pixels: bool = True) -> list[Any]:
    """Fewer examples of a batch, and of large images fewer pixels, the fewest first; of tiny examples more.

    What a proof on numbers looks for does not depend on size. 64 by 64 pixels; a network that is made for larger images may
    still take every third pixel, say. Behind a narrow layer and a rectifier two rows of numbers may all pass, or none.
    """
    if not isinstance(example, Tensor) or example.dim() < 2:
        return []
    few = example[:1] if example.numel() > 50_000 else example[:2]  # one large image is enough
    if not pixels or example.dim() != 4 or min(example.shape[2:]) < 128:
        many = example[:1].expand(MANY, *example.shape[1:])
        return [many, few] if 0 < many.numel() <= 20_000 and len(few) < MANY else [few]
    step = min(example.shape[2:]) // 64
    return [few[:, :, :64, :64], few[:, :, ::step, ::step], few]


def proof_input(
    example: Any,
    dtype: torch.dtype,
    answer: Callable[[Any], Tensor],
    *,
    asked: Iterable[nn.Module],
    pixels: bool = True,
    how: Drawn = "any",
) -> tuple[Any, Tensor | None]:
    """Random numbers for a proof, as few as the network takes, and then what it answers to those. pixels: on fewer of them.

    asked: whom `answer` asks. What they note of an input that they do not take is taken back: transformers' Swin makes its
    windows as small as the smallest image it has seen, and then fits no larger one.
    """
    notes = [(vars(module), _noted(module)) for model in asked for module in model.modules()]
    for fewer in thinned(example, pixels=pixels):
        numbers = random_input(fewer, 1, dtype, positive=how != "any")
        try:
            said = answer(numbers)
        except Exception:  # a network of one size, or of batches, refuses another in its own way
            said = None
        if said is not None and said.numel():  # a network that halves its batch says nothing of one image
            return numbers, said
        for attributes, before in notes:
            attributes.update(before)
    return random_input(example, 1, dtype, positive=how != "any"), None


def _noted(module: nn.Module) -> dict[str, Any]:
    """The numbers and words that a module holds, which its forward may change."""
    return {name: value for name, value in vars(module).items() if isinstance(value, int | float | str | tuple)}


def run(model: nn.Module, example: Any, output: Any) -> Tensor:
    args, kwargs = as_call(example)
    with torch.no_grad():
        return logits_of(model(*args, **kwargs), output, guess=False)


def prove(sides: Callable[[Drawn], Sides], what: str) -> None:
    """Refuse unless both sides give the same numbers: drawn in one way after another until they are finite."""
    if not any(alike(*sides(how), what) for how in DRAWN):
        raise Unsupported(
            f"{what} cannot be proved: on random images the outputs are NaN or infinite, with parameters drawn at random, "
            "drawn positive, and the network's own; see what its forward divides by, or takes the root or logarithm of"
        )


def alike(new: Callable[[], Tensor], reference: Callable[[], Tensor], what: str) -> bool:
    """Refuse where two functions give other numbers; False where theirs are not finite, which says nothing."""
    try:
        left, right = new(), reference()
    except (RuntimeError, ValueError, TypeError, AssertionError, IndexError) as error:
        raise Unsupported(f"{what} cannot run: {type(error).__name__}: {str(error).splitlines()[0]}") from error
    if left.shape != right.shape:
        raise Unsupported(f"{what} gives shape {tuple(left.shape)}, where {tuple(right.shape)} was due")
    if not right.numel():
        raise Unsupported(f"{what} cannot be proved: the example gives no output; trace with a larger batch")
    if not bool(torch.isfinite(right).all()):
        return False
    scale = max(1e-6, float(right.abs().max()))
    worst = float((left - right).abs().max()) / scale
    if not worst < _TOLERANCE[right.dtype]:
        raise Unsupported(
            f"{what} is not exact (it differs by {worst:.1e} of the largest output): the forward depends on the width "
            "in a way that layouts do not show, such as a number or a choice computed from a channel count"
        )
    return True


def output_places(bp: Blueprint, lost: np.ndarray) -> tuple[int, Tensor] | None:
    """Where the output has channels: their axis, and the places that a cut leaves. lost: for every unit, whether it goes."""
    if bp.output_dim is None:
        return None
    return bp.output_dim, torch.from_numpy(np.flatnonzero(~lost[bp.output_units]))


def on_meta(model: nn.Module) -> bool:
    return any(t.is_meta for t in [*model.parameters(), *model.buffers()])
