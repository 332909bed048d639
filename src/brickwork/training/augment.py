"""Training batches from images that stay on the device: picked, cropped and mirrored in one gather."""

from dataclasses import dataclass

import torch
from torch import Tensor

from brickwork.data.streamed import StreamedImages

PAD = 4  # pixels of shift in each direction, as usual for 32×32 images


@dataclass(frozen=True)
class Draw:
    """The order and the random shifts of one epoch, drawn at once: no random numbers inside the loop."""

    order: Tensor
    down: Tensor | None
    right: Tensor | None
    mirrored: Tensor | None


class Batches:
    """Images (N, H, W, C), labels and masks on one device; `take` gives an augmented batch.

    >>> two = torch.arange(2 * 8 * 8).reshape(2, 8, 8, 1)
    >>> batches = Batches(two, torch.tensor([0, 1]), augment="crop+flip")
    >>> images, labels, masks = batches.take(batches.draw(seed=0), slice(0, 2))
    >>> images.shape
    torch.Size([2, 1, 8, 8])
    """

    def __init__(
        self,
        images: Tensor | StreamedImages,
        labels: Tensor | None,
        masks: Tensor | None = None,
        *,
        augment: str,
        device: torch.device | None = None,
    ) -> None:
        """device: of the batches of images that are read when they are wanted; others stay where they lie."""
        self.count, self.height, self.width = images.shape[:3]
        self.crop, self.flip = "crop" in augment, "flip" in augment
        self.device = device or torch.device("cpu") if isinstance(images, StreamedImages) else images.device
        # Padded once: a crop is then nothing but an index.
        self.images = images if isinstance(images, StreamedImages) else self._padded(images)
        self.masks = self._pad(masks) if self.crop and masks is not None else masks
        self.labels = labels
        self.rows = torch.arange(self.height, device=self.device)
        self.columns = torch.arange(self.width, device=self.device)

    def draw(self, *, seed: int) -> Draw:
        """Order and shifts for one epoch. Drawn on the CPU, so that every device sees the same ones."""
        source = torch.Generator().manual_seed(seed)
        order = torch.randperm(self.count, generator=source)
        down = right = mirrored = None
        if self.crop:
            down, right = torch.randint(0, 2 * PAD + 1, (2, self.count), generator=source).to(self.device)
        if self.flip:
            mirrored = (torch.rand(self.count, generator=source) < 0.5).to(self.device)
        return Draw(order.to(self.device), down, right, mirrored)

    def take(self, draw: Draw, where: slice) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Images (B, C, H, W) in channels-last order, labels (B,), masks (B, H, W) of part of an epoch."""
        index = draw.order[where]
        labels = None if self.labels is None else self.labels[index]
        if not (self.crop or self.flip):
            picked = (index,)
        else:
            rows, columns = self.rows.expand(len(index), -1), self.columns.expand(len(index), -1)
            if draw.mirrored is not None:
                columns = torch.where(draw.mirrored[where, None], self.width - 1 - columns, columns)
            if draw.down is not None and draw.right is not None:
                rows, columns = rows + draw.down[where, None], columns + draw.right[where, None]
            picked = (index[:, None, None], rows[:, :, None], columns[:, None, :])  # type: ignore[assignment]
        masks = None if self.masks is None else self.masks[picked].long()
        if isinstance(self.images, StreamedImages):
            read = self._padded(self.images[index.cpu().numpy()].tensor().to(self.device))
            places = torch.arange(len(index), device=self.device)
            picked = (places.reshape(-1, *[1] * (picked[0].ndim - 1)), *picked[1:])
            return read[picked].permute(0, 3, 1, 2), labels, masks
        return self.images[picked].permute(0, 3, 1, 2), labels, masks

    def _padded(self, images: Tensor) -> Tensor:
        return self._pad(images) if self.crop else images

    def _pad(self, images: Tensor) -> Tensor:
        """Mirror the border outwards along axes 1 and 2; works for every dtype and size."""
        for axis, size in ((1, self.height), (2, self.width)):
            position = torch.arange(-PAD, size + PAD, device=images.device).abs()
            position = (size - 1 - (size - 1 - position).abs()).clamp(0, size - 1)
            images = images.index_select(axis, position)
        return images
