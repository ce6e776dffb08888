"""ALiBi: scores that grow by a slope per head with a key's position (BLOOM, MPT, Falcon RW), in every backend.

A softmax does not change if the same number is added to all of its scores. So ALiBi's penalty for the distance is a
bonus for the key's position, which does not depend on the query. It is stored in extra dimensions of the keys, which
queries multiply with the inverse of the scale. So kernels, caches and prefixes do not know of it.
"""

from __future__ import annotations

import torch
from torch import Tensor

EXTRA_SIZE = 8
"""Number of dimensions that keys grow by: three are used, and heads stay aligned."""


def with_key_bias(q: Tensor, k: Tensor, bias: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Extend queries and keys, so that their scores include the keys' bias.

    In half precision bias and inverse scale are sums of two numbers each. The product of the two small ones is omitted:
    it is below the resolution of fp32.

    Args:
        q, k: [1, H, T, D]
        bias: fp32 [T, H], added to the scores of a key after scaling.
        scale: factor of the scores.

    Returns:
        The same with `EXTRA_SIZE` more dimensions.
    """
    keys = k.new_zeros(*k.shape[:3], EXTRA_SIZE)
    large = bias.T.to(k.dtype)
    keys[..., 0] = keys[..., 2] = large
    keys[..., 1] = bias.T - large
    queries = torch.zeros(EXTRA_SIZE, dtype=torch.float32, device=q.device)
    queries[:2] = torch.tensor(1 / scale).to(q.dtype)
    queries[2] = 1 / scale - queries[0]
    return torch.cat([q, queries.to(q.dtype).expand(*q.shape[:3], -1)], -1), torch.cat([k, keys], -1)
