"""Turn the dimensions within attention heads so that the first say most: then the last can go.

What a head answers depends on its queries and keys by their products alone, q·k = (qA)·(kA⁻ᵀ), and on its values by what the
last layer makes of them, mW = (mR)(R⁻¹W): any A and R leave the function as it is. Here A balances queries and keys, so that
the error of the scores after r dimensions is the least that any r could leave, and R the values and the last layer likewise.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from brickwork.blueprint.open_heads import open_attentions
from brickwork.copying import copy_module
from brickwork.errors import BadData
from brickwork.moments.processes import agreed

FLOOR = 1e-6  # of the mean variance: directions that hardly vary count as if they varied so much


@dataclass
class _Sums:
    """Second moments within the heads of one attention, (heads, d, d) each."""

    queries: Any = 0.0
    keys: Any = 0.0  # around the mean of an image's keys: what all keys share changes no weight
    mixed: Any = 0.0  # values as the weights mix them
    means: Any = 0.0  # of these
    rows: int = 0


def turn_heads(model: nn.Module, batches: Iterable[Tensor]) -> tuple[nn.Module, dict[str, Tensor]]:
    """The same function with the dimensions of its open heads in order, and by attention what each says, (heads, d), falling.

    What a dimension of queries and keys says is its share of the scores' squares. Unlabelled images are enough; the model
    given is left unchanged.
    """
    model = copy_module(model)
    sums = _collect(model, batches)
    energies: dict[str, Tensor] = {}
    for path, own in sums.items():
        if not own.rows:
            continue  # the network has it and does not call it
        module: Any = model.get_submodule(path)
        one, other, energy = _balanced(own.queries / own.rows, own.keys / own.rows)
        mean = own.means / own.rows
        basis, back = _whitened(own.mixed / own.rows - mean.unsqueeze(-1) * mean.unsqueeze(-2), _by_head(module))
        turned = {"q": one.mT, "k": other.mT, "v": basis.mT}
        with torch.no_grad():
            for name, turn in agreed(turned).items():
                _turn(getattr(module, name), turn)
            out = module.out.weight
            blocks = out.double().unflatten(1, (module.num_heads, -1)).permute(1, 2, 0)  # (heads, d, width)
            out.copy_((agreed(back) @ blocks).permute(2, 0, 1).flatten(1))
        energies[path] = agreed(energy)
    return model, energies


def _collect(model: nn.Module, batches: Iterable[Tensor]) -> dict[str, _Sums]:
    sums = {path: _Sums() for path in open_attentions(model)}
    hooks = []
    for path, own in sums.items():
        module: Any = model.get_submodule(path)
        hooks += [
            module.q.register_forward_hook(partial(_queries, own, module.num_heads)),
            module.k.register_forward_hook(partial(_keys, own, module.num_heads)),
            module.out.register_forward_pre_hook(partial(_mixed, own, module.num_heads)),
        ]
    try:
        with torch.no_grad():
            for number, images in enumerate(batches):
                model(images)
                for path, own in sums.items():
                    _check_finite(path, own, number)
    finally:
        for hook in hooks:
            hook.remove()
    return sums


def _check_finite(path: str, own: _Sums, number: int) -> None:
    for layer, total in (("q", own.queries), ("k", own.keys), ("out", own.mixed)):
        if not bool(torch.as_tensor(total).isfinite().all()):
            raise BadData(f"activations at {path}.{layer} became NaN or infinite in batch {number}")


def _heads(x: Tensor, heads: int) -> Tensor:
    """(images, tokens, heads · d) as (images, heads, tokens, d), in float32 at the least: squares of halves overflow."""
    x = x if x.dtype == torch.float64 else x.float()
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def _squares(x: Tensor) -> Tensor:
    return (x.mT @ x).double().sum(0)


def _queries(own: _Sums, heads: int, _module: nn.Module, _inputs: Any, made: Tensor) -> None:
    own.queries = own.queries + _squares(_heads(made, heads))
    own.rows += made.shape[0] * made.shape[1]


def _keys(own: _Sums, heads: int, _module: nn.Module, _inputs: Any, made: Tensor) -> None:
    keys = _heads(made, heads)
    own.keys = own.keys + _squares(keys - keys.mean(2, keepdim=True))


def _mixed(own: _Sums, heads: int, _module: nn.Module, inputs: Any) -> None:
    mixed = _heads(inputs[0], heads)
    own.mixed = own.mixed + _squares(mixed)
    own.means = own.means + mixed.double().sum((0, 2))


def _root(moment: Tensor) -> tuple[Tensor, Tensor]:
    """The symmetric root of a moment, and its inverse."""
    values, vectors = torch.linalg.eigh(moment)
    floor = FLOOR * values.mean(-1, keepdim=True).clamp(min=1e-12)
    root = values.clamp(min=floor).sqrt().unsqueeze(-2)
    return (vectors * root) @ vectors.mT, (vectors / root) @ vectors.mT


def _balanced(queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(A, A⁻ᵀ, squared singular values): the bases in which queries and keys are uncorrelated and equally large."""
    (left, left_back), (right, right_back) = _root(queries), _root(keys)
    u, values, v = torch.linalg.svd(left @ right)
    root = values.sqrt().unsqueeze(-2)
    return left_back @ (u * root), right_back @ (v.mT * root), values.square()


def _whitened(mixed: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
    """(R, R⁻¹): the basis in which the mixed values are uncorrelated and the rows of the last layer orthogonal."""
    root, back = _root(mixed)
    said = root @ last
    u = torch.linalg.eigh(said @ said.mT)[1].flip(-1)  # the largest first
    return back @ u, u.mT @ root


def _by_head(module: Any) -> Tensor:
    """The last layer's weight, (heads, d, width), float64."""
    return module.out.weight.detach().double().unflatten(1, (module.num_heads, -1)).permute(1, 2, 0)


def _turn(layer: nn.Linear, turn: Tensor) -> None:
    """In place: the rows of each head by a matrix, (heads, d, d)."""
    weight = layer.weight.double().unflatten(0, (len(turn), -1))
    layer.weight.copy_((turn @ weight).flatten(0, 1))
    if layer.bias is not None:
        layer.bias.copy_((turn @ layer.bias.double().unflatten(0, (len(turn), -1)).unsqueeze(-1)).reshape(-1))
