"""One request, one program: GAttN's encoder as a Triton kernel, and the product of matrices that all kernels share.

Knows neither modules nor batches; `cuda.py` packs the weights and launches it.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-incomplete-defs, ignore-errors

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def vector(weights, offset, size: tl.constexpr):
    """`size` numbers in a row."""
    return tl.load(weights + offset + tl.arange(0, size))


@triton.jit
def halves(x):
    """x as a sum of two float16 numbers, good to 22 bits; |x| must be below 65,504."""
    high = x.to(tl.float16)
    return high, (x - high.to(tl.float32)).to(tl.float16)


@triton.jit
def product(high, low, right_high, right_low):
    """(high + low) @ (right_high + right_low) in float32, on tensor cores, less what is below float32's rounding."""
    return tl.dot(high, right_high, tl.dot(low, right_high, tl.dot(high, right_low)))


@triton.jit
def times(
    high, low, split, half_size, offset, rows: tl.constexpr, columns: tl.constexpr, stride: tl.constexpr
):
    """A product with a [rows, columns] tile of the weights, whose high halves lie `half_size` before their low ones."""
    r, c = tl.arange(0, rows), tl.arange(0, columns)
    at = split + offset + r[:, None] * stride + c[None, :]
    return product(high, low, tl.load(at), tl.load(at + half_size))


@triton.jit
def raised(x):
    """e^2x, for |x| up to 40: 1 - 2 / (1 + e^2x) is 1 in float32 long before."""
    return tl.exp(2 * tl.minimum(tl.maximum(x, -40.0), 40.0))


@triton.jit
def _normed(x, weights, offset, D: tl.constexpr):
    """Layer norm over the last axis."""
    centred = x - (tl.sum(x, 1) / D)[:, None]
    variance = tl.sum(centred * centred, 1) / D
    scale = vector(weights, offset, D)
    shift = vector(weights, offset + D, D)
    return centred * (1 / tl.sqrt(variance + 1e-5))[:, None] * scale[None, :] + shift[None, :]


@triton.jit
def _attended(
    nodes, split, half_size, offset, present,
    D: tl.constexpr, H: tl.constexpr,
):  # fmt: skip
    """Multi-head self-attention with one shared projection per head, joined (eq. 6, 7)."""
    DH: tl.constexpr = D // H
    joined = tl.zeros_like(nodes)
    high, low = halves(nodes)
    for h in range(H):
        head, rest = halves(times(high, low, split, half_size, offset + h * DH, D, DH, D))  # N d
        # Softmax by powers of two.
        scores = product(head, rest, tl.trans(head), tl.trans(rest)) * (1.4426950408889634 / DH**0.5)  # N N
        scores = tl.where(present[None, :], scores, -3.4e38)
        scores = tl.exp2(scores - tl.max(scores, 1)[:, None])
        sums = tl.sum(scores, 1)
        scores_high, scores_low = halves(scores)
        mixed = product(scores_high, scores_low, head, rest) * (1 / sums)[:, None]
        mixed_high, mixed_low = halves(mixed)
        join = offset + D * D + h * DH * D
        joined += times(mixed_high, mixed_low, split, half_size, join, DH, D, D)
    return joined


@triton.jit
def _encoded(
    nodes, weights, split, half_size, present,
    D: tl.constexpr, H: tl.constexpr, FF: tl.constexpr, L: tl.constexpr,
):  # fmt: skip
    """The linear map to the width (eq. 5) and L encoder layers (eq. 6 to 8)."""
    high, low = halves(nodes)
    nodes = times(high, low, split, half_size, 0, D, D, D) + vector(weights, D * D, D)[None, :]
    offset = D * D + D
    for _ in range(L):  # unrolled it would not fit the instruction cache
        joined = _attended(nodes, split, half_size, offset, present, D, H)
        offset += 2 * D * D
        nodes = _normed(nodes + joined, weights, offset, D)
        offset += 2 * D
        high, low = halves(nodes)
        hidden = times(high, low, split, half_size, offset, D, FF, FF)
        high, low = halves(tl.maximum(hidden + vector(weights, offset + D * FF, FF)[None, :], 0.0))
        offset += D * FF + FF
        narrow = times(high, low, split, half_size, offset, FF, D, D)
        narrow += vector(weights, offset + FF * D, D)[None, :]
        offset += FF * D + D
        nodes = _normed(nodes + narrow, weights, offset, D)
        offset += 2 * D
    return nodes


@triton.jit
def encode_kernel(
    item_table, item_index, user_table, user_index, present_mask, weights, split, half_size, encoded,
    num_candidates,
    NP: tl.constexpr, D: tl.constexpr, H: tl.constexpr, FF: tl.constexpr, L: tl.constexpr,
    POINTER: tl.constexpr,
):  # fmt: skip
    """What the decoder asks of one request, encoded [B, 4, NP * D].

    The nodes h [NP, D]; W_D3's part of them that a glimpse sums [NP, D]; the keys of glimpse and pointer as e^2x,
    turned [D, NP], so that the decoder's sums over D stay within a thread.
    """
    b = tl.program_id(0).to(tl.int64)
    n, d = tl.arange(0, NP), tl.arange(0, D)
    inside = n < num_candidates
    present = tl.load(present_mask + b * num_candidates + n, mask=inside, other=0) != 0

    # x_i = ReLU(W_S x_s + W_U x_u + b): both halves were projected once for the whole catalogue (eq. 4).
    item = tl.load(item_index + b * num_candidates + n, mask=inside, other=0).to(tl.int64)
    user = tl.load(user_index + b).to(tl.int64)
    nodes = tl.load(item_table + item[:, None] * D + d[None, :])
    nodes = tl.maximum(nodes + tl.load(user_table + user * D + d)[None, :], 0.0)
    nodes = _encoded(nodes, weights, split, half_size, present, D, H, FF, L)

    out = encoded + b * (4 * NP * D)
    straight, turned = n[:, None] * D + d[None, :], n[:, None] + d[None, :] * NP
    tl.store(out + straight, nodes)
    high, low = halves(nodes)
    tl.store(out + NP * D + straight, times(high, low, split, half_size, POINTER + 3 * D * D, D, D, D))
    glimpse = times(high, low, split, half_size, POINTER + D * D, D, D, D)
    tl.store(out + 2 * NP * D + turned, raised(glimpse))
    pointer = times(high, low, split, half_size, POINTER + 4 * D * D, D, D, D)
    tl.store(out + 3 * NP * D + turned, raised(pointer))
