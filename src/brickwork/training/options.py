"""The options of training: what a run computes, how it runs, and what a caller in Python may hook into it."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from brickwork.errors import OutputExists
from brickwork.options import Options, option, seed_option

OPTIMIZERS = ("sgd", "adam", "adamw", "muon")
SCHEDULES = ("cosine", "onecycle", "milestones", "constant")
AUGMENTATIONS = ("none", "flip", "crop", "crop+flip")
TRAINING, RUNNING = "The training", "How it runs"  # headings of the help
CHECKPOINT = "checkpoint.safetensors"  # in the folder of `checkpoint`
_RECIPE = "the architecture's recipe"


class TrainOptions(Options, panel=TRAINING):
    """What a training run computes. Two runs with equal options and data give the same weights on a CPU.

    What is None is decided by `brickwork.training.resolve`, from the architecture and the data.

    >>> TrainOptions(lr=-1, schedule="cosin")
    Traceback (most recent call last):
    ...
    brickwork.errors.RequestError: lr is -1; it must be above 0; schedule is 'cosin'; it must be one of cosine, \
onecycle, milestones, constant; did you mean 'cosine'?
    """

    epochs: int = option(
        default=None, at_least=0, help="Passes over the images; 0 leaves the network untrained.", default_text=_RECIPE
    )
    batch_size: int = option(default=None, at_least=1, help="Images per step.", default_text=_RECIPE)
    lr: float = option(default=None, above=0, help="Peak learning rate.", default_text=_RECIPE)
    optimizer: str = option(default=None, choices=OPTIMIZERS, help="Optimizer.", default_text=_RECIPE)
    schedule: str = option(default=None, choices=SCHEDULES, help="Learning rate over time.", default_text="onecycle")
    milestones: tuple[int, ...] = option(
        default=None, at_least=1, separator=",", help="Epochs at which the rate falls to a tenth, as in 30,45."
    )
    weight_decay: float = option(default=None, at_least=0, help="Weight decay.", default_text=_RECIPE)
    momentum: float = option(default=None, at_least=0, below=1, help="Momentum of sgd and muon.", default_text="0.9")
    nesterov: bool = option(default=None, help="Nesterov momentum of sgd.", default_text="on")
    label_smoothing: float = option(default=None, at_least=0, below=1, help="Label smoothing.", default_text=_RECIPE)
    augment: str = option(default=None, choices=AUGMENTATIONS, help="Augmentation.", default_text="what suits the data")
    precision: Literal["auto", "float32", "bf16"] = option(
        default="auto", help="Precision of the forward pass; auto is bf16 on a GPU."
    )
    seed: int = seed_option()

    def rules(self) -> Iterator[str]:
        if self.optimizer == "sgd" and self.nesterov and self.momentum == 0:
            yield "`nesterov` needs a `momentum` above 0"
        if self.schedule is not None and (self.schedule == "milestones") != bool(self.milestones):
            yield f"`milestones` are {self.milestones} with `schedule` {self.schedule!r}; give both or neither"
        if self.milestones and list(self.milestones) != sorted(set(self.milestones)):
            yield f"`milestones` are {self.milestones}; they must be rising epochs from 1"
        if self.milestones and self.epochs is not None and max(self.milestones) >= self.epochs:
            yield (
                f"`milestones` are {self.milestones} with `epochs` {self.epochs}, so the rate would not fall at "
                f"{max(self.milestones)}; they must be below the epochs"
            )


def _new_metrics(path: Path, given: Mapping[str, Any]) -> Path:
    """Refuse a file that is there, but for `force`, or where the run that wrote it goes on from its checkpoint."""
    checkpoint = given.get("checkpoint") if given.get("resume", True) else None
    goes_on = checkpoint is not None and (Path(checkpoint) / CHECKPOINT).exists()
    if path.exists() and not goes_on and not given.get("force"):
        raise OutputExists(path, "metrics")
    return path


class RunningOptions(Options, panel=RUNNING):
    """How a training run is carried out; but for rounding (channels_last, compile) none of it changes what is computed."""

    compile: bool = option(default=False, help="Compile the model with torch.compile.")
    record: bool = option(
        default=False, help="On a GPU: record one step as a CUDA graph and replay it; fast for small batches."
    )
    channels_last: bool | None = option(
        default=None, help="Channels-last memory format.", default_text="on a GPU, where the network takes it"
    )
    checkpoint: Path | None = option(
        default=None, help="Folder for a checkpoint after each epoch; the same command resumes."
    )
    resume: bool = option(default=True, help="Go on from the checkpoint, if there is one.")
    metrics: Path | None = option(default=None, help="File for one line of JSON per epoch.", check=_new_metrics)
    tensorboard: Path | None = option(default=None, help="Folder for TensorBoard curves.")

    def rules(self) -> Iterator[str]:
        if not self.resume and self.checkpoint is None:
            yield "`resume` is off without a `checkpoint`, which alone could be gone on from; give one, or leave it out"


class TrainHooks(Options):
    """Python's own: functions that take part in training."""

    loss: Callable[..., Any] | None = option(default=None, help="loss(logits, target) instead of cross-entropy.")
    penalty: Callable[..., Any] | None = option(
        default=None, help="penalty(images, logits, target), added to the loss."
    )
    before_step: Callable[..., Any] | None = option(
        default=None,
        help="before_step(step, steps) may change buffers of the model before each step, a recorded one too.",
    )
    validation: tuple[Any, ...] | None = option(default=None, help="(images, labels) or (images, labels, masks).")


class SynthesiseOptions(Options):
    """Calibration images made from a network's own batch-norm statistics."""

    images: int | None = option(
        default=None, at_least=2, help="Number of images.", default_text="500, or two per class"
    )
    steps: int = option(default=100, at_least=1, help="Gradient steps per batch of images.")
    batch_size: int = option(default=100, at_least=2, help="Images that are made together, whose statistics count.")
    lr: float = option(default=0.1, above=0, help="Learning rate of the pixels, from 0 to 1.")
    size: int | None = option(
        default=None, at_least=1, help="Height and width of the images.", default_text="the model's"
    )
    output: str | int | None = option(default=None, help="Which output holds the logits, where there are several.")
    seed: int = seed_option()


class FineTuneOptions(Options, panel=TRAINING):
    """Fine-tuning a trained network for a few epochs, as paper 2 does: plain SGD, no augmentation; AdamW for transformers."""

    epochs: int = option(default=5, at_least=1, help="Passes over the images.")
    lr: float | None = option(
        default=None, above=0, help="Peak learning rate.", default_text="0.01 by sgd, 1e-4 by adamw, 0.002 by muon"
    )
    batch_size: int = option(default=128, at_least=1, help="Images per step.")
    optimizer: str | None = option(
        default=None,
        choices=OPTIMIZERS,
        help="Optimizer.",
        default_text="sgd; adamw for networks with layer norms and no batch norms",
    )
    schedule: str = option(
        default="cosine", choices=("cosine", "onecycle", "constant"), help="Learning rate over time."
    )
    weight_decay: float = option(default=5e-4, at_least=0, help="Weight decay.")
    augment: str = option(default="none", choices=AUGMENTATIONS, help="Augmentation.")
    seed: int = seed_option()

    def training(self, model: Any) -> dict[str, Any]:
        """As keyword arguments of `train`, with optimizer and rate decided for a network.

        An epoch of SGD at 0.01 left a small ViT of the digits, that learned from itself, 31 % right of 91; AdamW at 1e-4, 91.
        """
        kinds = " ".join(type(module).__name__ for module in model.modules())
        optimizer = self.optimizer or (
            "adamw" if ("LayerNorm" in kinds or "RMSNorm" in kinds) and "BatchNorm" not in kinds else "sgd"
        )
        lr = self.lr or {"sgd": 0.01, "muon": 0.002}.get(optimizer, 1e-4)
        chosen = {name: getattr(self, name) for name in FineTuneOptions.__dataclass_fields__}
        return chosen | {"optimizer": optimizer, "lr": lr}
