"""How large the parts of latent attention are, and which of its two forms takes fewer multiplications.

A head, of R query rows that attend to C columns, by sizes r (latent), n, d and v (of a head's plain part, rotated part
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
    """Of a layer: its heads, and the numbers of a latent, of a head's plain and rotated part of a key, of a value."""

    heads: int
    latent: int
    plain: int
    rotated: int
    value: int

    @classmethod
    def of(cls, weight: Tensor, query: Tensor, key: Tensor) -> LatentSizes:
        """Of the matrix that makes keys and values, [H * (n + v), r], a query [..., H, n + d] and what is kept of a
        token, [..., r + d]."""
        heads, latent = query.shape[-2], weight.shape[1]
        rotated = key.shape[-1] - latent
        plain = query.shape[-1] - rotated
        return cls(heads, latent, plain, rotated, len(weight) // heads - plain)

    @property
    def expanded(self) -> LayerShape:
        """Of keys and values."""
        return LayerShape(self.heads, self.plain + self.rotated, self.value, self.heads)

    def is_absorbed(self, num_rows: int, num_columns: int) -> bool:
        """Whether fewer multiplications are needed where these rows attend to latents than to keys made of them."""
        of_weights = self.latent * (self.plain + self.value)
        absorbed = num_rows * (of_weights + num_columns * (2 * self.latent + self.rotated))
        return absorbed < num_columns * (of_weights + num_rows * (self.plain + self.rotated + self.value))
