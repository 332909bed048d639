"""To and from the Hugging Face hub, through huggingface_hub's mixin, with the same strict loading."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from huggingface_hub import ModelHubMixin, snapshot_download
from torch import nn

from brickwork.store.config import CARD, CONFIG, WEIGHTS
from brickwork.store.folder import Arch, load, save


class Pretrained(ModelHubMixin):
    """A module on its way to or from the hub; what is stored is a plain model folder."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model

    def _save_pretrained(self, save_directory: Path) -> None:
        save(self.model, save_directory, force=True)

    @classmethod
    def _from_pretrained(
        cls,
        *,
        model_id: str,
        revision: str | None = None,
        cache_dir: str | Path | None = None,
        force_download: bool = False,
        local_files_only: bool = False,
        token: str | bool | None = None,
        arch: Arch | None = None,
        device: str = "cpu",
        **_: Any,
    ) -> Pretrained:
        folder = model_id
        if not Path(model_id).is_dir():
            folder = snapshot_download(
                model_id,
                revision=revision,
                cache_dir=cache_dir,
                force_download=force_download,
                local_files_only=local_files_only,
                token=token,
                allow_patterns=[CONFIG, WEIGHTS, CARD],
            )
        return cls(load(folder, arch=arch, device=device))


def push_to_hub(model: nn.Module, repo_id: str, **options: Any) -> str:
    """Upload a model folder of `model`; options are huggingface_hub's (private, token, branch, …)."""
    return str(Pretrained(model).push_to_hub(repo_id, **options))


def from_pretrained(name: str | Path, *, arch: Arch | None = None, device: str = "cpu", **options: Any) -> nn.Module:
    """A model from a hub repository or a local folder; options are huggingface_hub's (revision, token, …)."""
    return Pretrained.from_pretrained(str(name), arch=arch, device=device, **options).model
