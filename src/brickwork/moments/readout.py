"""What a layer reads of images, and a linear layer on it in closed form: how much features tell of classes."""

import torch
from torch import Tensor, nn

from brickwork.data.streamed import Images
from brickwork.moments.gram import Moments
from brickwork.moments.ridge import solve_ridge
from brickwork.prediction import logit_batches


def read_features(model: nn.Module, layer: str, images: Images, output: str | int | None = None) -> Tensor:
    """What a layer reads (n, d), float64 on the CPU; means over places where it reads several.

    output: which of the things that the model returns holds the logits.
    """
    seen: list[Tensor] = []

    def keep(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        read = inputs[0].double().cpu()
        if read.ndim > 2:  # channels are last where a linear layer reads them
            read = read.flatten(1, -2).mean(1) if isinstance(module, nn.Linear) else read.flatten(2).mean(2)
        seen.append(read)

    hook = model.get_submodule(layer).register_forward_pre_hook(keep)
    try:
        for _ in logit_batches(model, images, 250, None, output):
            pass
    finally:
        hook.remove()
    return torch.cat(seen)


def linear_answers(x: Tensor, labels: Tensor, count: int, x_new: Tensor, *, ridge: float = 1e-2) -> Tensor:
    """Answers (m, count) on new features (m, d) of a ridge regression from features (n, d) to labels of `count` classes.

    >>> x = torch.eye(3).repeat(4, 1)
    >>> linear_answers(x, torch.arange(3).repeat(4), 3, torch.eye(3)).argmax(1).tolist()
    [0, 1, 2]
    """
    target = torch.nn.functional.one_hot(labels.long(), count).to(x)
    fit = solve_ridge(Moments.empty(x.shape[1], count, x.device).add(x, target), ridge=ridge)
    assert fit.bias is not None
    return x_new @ fit.weight.to(x_new) + fit.bias.to(x_new)
