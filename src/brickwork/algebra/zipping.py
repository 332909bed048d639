"""ZipIt! (Stoica et al. 2024, arXiv 2305.03053) for two networks of one architecture.

In every channel space the channels of both networks together are paired by how alike they answer, across the networks or
within one of them, and a pair becomes one channel, the mean of the two: what only one network knows need not be averaged
with something else. Layers that read the space give each of the two the common channel. The outputs are the means of the
networks' outputs.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from brickwork.algebra.alignment import BATCH, recalibrated
from brickwork.algebra.inputs import ModelTask, seen_by
from brickwork.algebra.likeness import correlations, ranks
from brickwork.algebra.repairing import refuse_unrepairable, response_statistics, set_responses
from brickwork.algebra.states import like
from brickwork.blueprint.plan import CLASSES, Blueprint, Layout, trace
from brickwork.errors import BadModel
from brickwork.progress import bar

#: for every space, which channel of the merged network each channel becomes; one list per network
Homes = dict[str, tuple[np.ndarray, np.ndarray]]


def zipped(
    models: list[nn.Module],
    tasks: list[ModelTask],
    *,
    progress: bool,
    within: float = 1.0,
    batch_size: int = BATCH,
    repair: bool = False,
) -> tuple[nn.Module, dict[str, Any]]:
    """Channels of both networks paired and merged, then statistics of all the images together."""
    bp = trace(models[0], tasks[0].images[:2])
    _refuse_unzippable(bp, models[0])
    if repair:
        refuse_unrepairable(models[0], tasks[0].images[:2])
    seen = [seen_by(model, models[0], tasks) for model in models]
    with bar("zipping", 3, show=progress) as advance:
        blocks = []
        for i, j in ((0, 0), (0, 1), (1, 1)):
            blocks.append(correlations(models[i], models[j], seen[i], seen[j]))
            advance()
    homes: Homes = {CLASSES: (np.arange(bp.spaces[CLASSES]),) * 2} if CLASSES in bp.spaces else {}
    alone = {}
    for space in blocks[0]:
        a, ab, b = (block[space] for block in blocks)
        pairs = pair_channels(np.block([[a, ab], [ab.T, b]]), _kinds(bp, space), within)
        homes[space] = _homes(pairs, bp.kinds(space, groups=True))
        alone[space] = int(sum(j < bp.spaces[space] for _, j in pairs))
    merged = like(models[0], _merged_state(bp, models, homes), {})
    facts = {"within_a_network": alone}
    if not repair:
        return recalibrated(merged, tasks, batch_size=batch_size), facts
    wanted: dict[str, Tensor] = {}
    for number, model in enumerate(models):
        for path, found in response_statistics(model, seen[number]).items():
            home = _targets(bp, bp.axes[f"{path}.bias"][0], homes, number)
            part = found if home is None else torch.zeros_like(found).index_add(1, home.to(found.device), found)
            wanted[path] = wanted.get(path, 0) + part / 2
    return set_responses(merged, wanted, tasks, progress), facts


def pair_channels(likeness: np.ndarray, kinds: np.ndarray, within: float) -> list[tuple[int, int]]:
    """Pairs of the channels of two networks, 0 to n − 1 and n to 2n − 1, the most alike first, all of them paired.

    kinds: channels of different numbers are not paired. within: which share of a network's channels may be paired among
    themselves.

    >>> alike = np.array([[1, 0.9, 0.1, 0.1], [0.9, 1, 0.2, 0.1], [0.1, 0.2, 1, 0.3], [0.1, 0.1, 0.3, 1]])
    >>> pair_channels(alike, np.zeros(4), 1.0), pair_channels(alike, np.zeros(4), 0.0)
    ([(0, 1), (2, 3)], [(1, 2), (0, 3)])
    """
    size = len(likeness) // 2
    one, two = np.triu_indices(2 * size, 1)
    fit = kinds[one] == kinds[two]
    one, two = one[fit], two[fit]
    same = two - one == size  # of equals, channels at the same place first
    order = np.lexsort((two, one, ~same, -likeness[one, two]))
    free = np.ones(2 * size, bool)
    left = [int(within * size) // 2] * 2  # pairs within each network
    pairs: list[tuple[int, int]] = []
    for strict in (True, False):  # what the share leaves over is paired all the same
        for k in order:
            if len(pairs) == size:
                return pairs
            i, j = int(one[k]), int(two[k])
            if not (free[i] and free[j]):
                continue
            inside = (i < size) == (j < size)
            if inside and strict:
                if not left[i >= size]:
                    continue
                left[i >= size] -= 1
            free[i] = free[j] = False
            pairs.append((i, j))
    return pairs


def _kinds(bp: Blueprint, space: str) -> np.ndarray:
    """Numbers of what may be paired, for both networks; a channel that cannot move is paired with itself alone."""
    kinds = bp.kinds(space, groups=True).astype(np.int64)
    for number, channel in enumerate(bp.space(space).fixed):
        kinds[channel] = -1 - number
    return np.concatenate([kinds, kinds])


def _homes(pairs: Sequence[tuple[int, int]], kinds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where each channel goes: to the place of the first network's, or where one of its kind has become free."""
    size = len(kinds)
    home = np.full(2 * size, -1)
    for i, j in pairs:
        if i < size:
            home[[i, j]] = i
    free = sorted(set(range(size)) - set(home[home >= 0].tolist()))
    for i, j in pairs:
        if i >= size:
            place = next(k for k in free if kinds[k] == kinds[i - size])
            free.remove(place)
            home[[i, j]] = place
    return home[:size], home[size:]


def _merged_state(bp: Blueprint, models: Sequence[nn.Module], homes: Homes) -> dict[str, Tensor]:
    """Half of each network's tensors, every axis with its channels where they go."""
    states = [model.state_dict() for model in models]
    grouped = {
        site.weight: site
        for site in bp.sites
        if site.kind == "conv" and site.groups > 1 and site.weight and bp.graph.tensors[site.weight].shape[1] > 1
    }
    result = {}
    for name, first in states[0].items():
        if not first.is_floating_point():
            result[name] = first.clone()
            continue
        axes: Sequence[Layout | None] = bp.axes.get(name, ())
        total = torch.zeros_like(first, dtype=torch.float64)
        for number, state in enumerate(states):
            tensor = state[name].detach().double().to(first.device)
            for dim, axis in enumerate(axes):
                home = _targets(bp, axis, homes, number)
                if home is not None:
                    tensor = torch.zeros_like(tensor).index_add(dim, home.to(tensor.device), tensor)
            if name in grouped:
                site = grouped[name]
                assert site.reads is not None
                home = _targets(bp, Layout(site.reads, ""), homes, number)
                tensor = tensor if home is None else _read_by_groups(tensor, home, site.groups)
            total += tensor / 2
        result[name] = total.to(first.dtype)
    return result


def _targets(bp: Blueprint, axis: Layout | None, homes: Homes, number: int) -> Tensor | None:
    """For every place of an axis the place it goes to; None where all stay."""
    if axis is None:
        return None
    result = np.arange(len(axis.units))
    for space, places, index in bp.places(axis.units):
        count = np.bincount(index, minlength=bp.spaces[space]).max()
        rank = ranks(index)
        where = np.full((bp.spaces[space], count), -1)
        where[index, rank] = places
        result[places] = where[homes[space][number][index], rank]
    return torch.from_numpy(result)


def _read_by_groups(weight: Tensor, home: Tensor, groups: int) -> Tensor:
    """The inputs of a grouped kernel are places within a group; channels stay within theirs."""
    size, rows = weight.shape[1], weight.shape[0] // groups
    result = torch.zeros_like(weight)
    for g in range(groups):
        mine = slice(g * rows, (g + 1) * rows)
        own = home[g * size : (g + 1) * size] - g * size
        result[mine] = torch.zeros_like(weight[mine]).index_add(1, own.to(weight.device), weight[mine])
    return result


def _refuse_unzippable(bp: Blueprint, model: nn.Module) -> None:
    """What is no sum over channels, by the name of the layer."""
    tensors: Mapping[str, Any] = bp.graph.tensors
    for site in bp.sites:
        if site.kind == "attention":
            where = site.module or "the top module"
            raise BadModel(f"{where} is attention, whose heads cannot be zipped; take rebasin or match.")
        if site.kind not in ("conv", "linear"):
            continue
        layer = model.get_submodule(site.module)
        plain = isinstance(layer, nn.Linear) or (isinstance(layer, _ConvNd) and not layer.transposed)
        if not plain or site.weight != f"{site.module}.weight" or site.weight not in tensors:
            raise BadModel(
                f"{site.called} is neither a plain convolution nor a linear layer, and cannot be zipped; take match."
            )
