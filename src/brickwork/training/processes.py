"""The processes of one training run: a single one, or several under torchrun through lightning-fabric."""

import atexit
import os
from typing import Any

import torch
from torch import Tensor, nn

from brickwork.devices import DeviceLike, pick
from brickwork.errors import MissingExtra, RequestError


class ProcessGroup:
    """This process alone."""

    rank, size = 0, 1

    def __init__(self, device: DeviceLike | None = None) -> None:
        self.device = pick(device)

    def wrap(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[nn.Module, Any]:
        return model, optimizer

    def backward(self, loss: Tensor) -> None:
        loss.backward()

    def total(self, value: Tensor) -> Tensor:
        """The sum over all processes."""
        return value

    def wait(self) -> None:
        """Until every process is here."""


class FabricProcessGroup(ProcessGroup):
    """One of several processes that torchrun started; gradients are averaged over all of them."""

    def __init__(self, device: DeviceLike | None = None) -> None:
        try:
            from lightning_fabric import Fabric
        except ImportError:
            raise MissingExtra("ddp", "runs of more than one process") from None
        kind = pick("auto" if device is None else str(device).split(":")[0]).type
        local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        nodes = int(os.environ["WORLD_SIZE"]) // local
        self.fabric = Fabric(accelerator=kind, devices=local, num_nodes=nodes, strategy="ddp", precision="32-true")
        self.fabric.launch()
        atexit.register(_leave)
        self.rank, self.size = self.fabric.global_rank, self.fabric.world_size
        self.device = self.fabric.device

    def wrap(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[nn.Module, Any]:
        return self.fabric.setup(model, optimizer, move_to_device=False)

    def backward(self, loss: Tensor) -> None:
        self.fabric.backward(loss)

    def total(self, value: Tensor) -> Tensor:
        return self.fabric.all_reduce(value, reduce_op="sum")  # type: ignore[return-value]

    def wait(self) -> None:
        self.fabric.barrier()


def _leave() -> None:
    """Give the group back before Python ends: gloo's threads, still running then, now and then abort the process."""
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def join_processes(device: DeviceLike | None, batch_size: int) -> ProcessGroup:
    """The processes that the environment asks for: torchrun sets WORLD_SIZE."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        return ProcessGroup(device)
    if batch_size % size:
        raise RequestError(f"batch_size is {batch_size}; with {size} processes it must be a multiple of {size}.")
    return FabricProcessGroup(device)
