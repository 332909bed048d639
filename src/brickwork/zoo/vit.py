"""A small vision transformer (Dosovitskiy et al. 2020), tensor names as in timm."""

import torch
import torch.nn.functional as F
from torch import nn

from brickwork.errors import RequestError
from brickwork.zoo.registry import architecture


class Attention(nn.Module):
    """Multi-head self-attention: one linear layer makes queries, keys and values of all heads."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads, self.head_dim = heads, dim // heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, tokens, _ = x.shape
        qkv = self.qkv(x).reshape(n, tokens, 3, self.heads, self.head_dim).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        out = F.scaled_dot_product_attention(q, k, v)
        return self.proj(out.transpose(1, 2).reshape(n, tokens, self.heads * self.head_dim))


class Mlp(nn.Module):
    """Linear, GELU, linear."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden)
        self.act = nn.GELU()
        self.fc2 = nn.Linear(hidden, dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc2(self.act(self.fc1(x)))


class Block(nn.Module):
    """Attention and MLP, each behind a LayerNorm and beside a shortcut."""

    def __init__(self, dim: int, heads: int, mlp_ratio: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=1e-6)
        self.attn = Attention(dim, heads)
        self.norm2 = nn.LayerNorm(dim, eps=1e-6)
        self.mlp = Mlp(dim, int(dim * mlp_ratio))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class PatchEmbed(nn.Module):
    """Cut the image into patches and map each to a token."""

    def __init__(self, in_channels: int, dim: int, patch_size: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(in_channels, dim, patch_size, patch_size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.proj(x).flatten(2).transpose(1, 2)


class ViT(nn.Module):
    """Patches, a class token, learned position embeddings, blocks, LayerNorm, linear on the class token."""

    def __init__(
        self,
        num_classes: int,
        in_channels: int,
        image_size: int,
        patch_size: int,
        dim: int,
        depth: int,
        heads: int,
        mlp_ratio: float,
    ) -> None:
        super().__init__()
        if image_size % patch_size:
            raise RequestError(f"image_size {image_size} is not a multiple of patch_size {patch_size}.")
        if dim % heads:
            raise RequestError(f"dim {dim} is not a multiple of heads {heads}.")
        self.patch_embed = PatchEmbed(in_channels, dim, patch_size)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos_embed = nn.Parameter(torch.zeros(1, 1 + (image_size // patch_size) ** 2, dim))
        self.blocks = nn.Sequential(*[Block(dim, heads, mlp_ratio) for _ in range(depth)])
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.head = nn.Linear(dim, num_classes)
        nn.init.trunc_normal_(self.pos_embed, std=0.02)
        nn.init.trunc_normal_(self.cls_token, std=0.02)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patch_embed(x)
        x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], dim=1) + self.pos_embed
        x = self.norm(self.blocks(x))
        return self.head(x[:, 0])


@architecture("vit_small")
def vit_small(
    num_classes: int = 10,
    in_channels: int = 3,
    image_size: int = 32,
    patch_size: int = 4,
    dim: int = 192,
    depth: int = 6,
    heads: int = 3,
    mlp_ratio: float = 2.0,
) -> nn.Module:
    """A small vision transformer with a class token and learned positions; a fixed image_size."""
    return ViT(num_classes, in_channels, image_size, patch_size, dim, depth, heads, mlp_ratio)
