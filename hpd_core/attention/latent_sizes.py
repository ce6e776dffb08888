"""Sizes of the parts of latent attention, and the choice of the form that takes fewer multiplications.

A head has R query rows that attend to C columns. Sizes are r (latent), n, d and v (a head's plain part, rotated part
and value):

    expanded    C r (n + v)  +  R C (n + d + v)      each column becomes a key and a value
    absorbed    R r (n + v)  +  R C (2 r + d)        each row meets the latents

So a few rows that see many columns are absorbed (values that grow), and many rows expanded (documents, and a prefix
that many prompts share): with DeepSeek's sizes up to 140 rows are absorbed before 800 columns.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from hpd_core.attention.kv_cache import LayerShape


@dataclass(frozen=True, slots=True)
class LatentSizes:
    """Sizes of a layer: number of heads; sizes of a latent, a head's plain and rotated part of a key, and a value."""

    heads: int
    latent: int
    plain: int
    rotated: int
    value: int

    @classmethod
    def of(cls, weight: Tensor, query: Tensor, key: Tensor) -> LatentSizes:
        """Infer the sizes from shapes.

        Args:
            weight: [H * (n + v), r], makes keys and values of latents.
            query: [..., H, n + d]
            key: [..., r + d], a token's cached latent.
        """
        heads, latent = query.shape[-2], weight.shape[1]
        rotated = key.shape[-1] - latent
        plain = query.shape[-1] - rotated
        return cls(heads, latent, plain, rotated, len(weight) // heads - plain)

    @property
    def expanded(self) -> LayerShape:
        """Shape of the expanded keys and values."""
        return LayerShape(self.heads, self.plain + self.rotated, self.value, self.heads)

    def is_absorbed(self, num_rows: int, num_columns: int) -> bool:
        """Return whether these rows need fewer multiplications with latents than with keys made of them."""
        of_weights = self.latent * (self.plain + self.value)
        absorbed = num_rows * (of_weights + num_columns * (2 * self.latent + self.rotated))
        return absorbed < num_columns * (of_weights + num_rows * (self.plain + self.rotated + self.value))
