"""One request, one program: GAttN's encoder as a Triton kernel, and the product of matrices that all kernels share.

Knows neither modules nor batches; `cuda.py` packs the weights and launches it.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-incomplete-defs, ignore-errors

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def matrix(weights, offset, rows: tl.constexpr, columns: tl.constexpr, stride: tl.constexpr):
    """A [rows, columns] tile of a row-major matrix whose rows are `stride` apart."""
    r, c = tl.arange(0, rows), tl.arange(0, columns)
    return tl.load(weights + offset + r[:, None] * stride + c[None, :])


@triton.jit
def vector(weights, offset, size: tl.constexpr):
    """`size` numbers in a row."""
    return tl.load(weights + offset + tl.arange(0, size))


@triton.jit
def product(left, right):
    """left @ right to float32's precision, on tensor cores: three passes of tf32."""
    return tl.dot(left, right, input_precision="tf32x3")


@triton.jit
def reciprocal(x, FAST: tl.constexpr):
    """1 / x; the processor's own approximation, good to a bit, where FAST (Triton's interpreter knows no assembly)."""
    if FAST:
        result = tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        result = 1 / x
    return result


@triton.jit
def raised(x):
    """e^2x, for |x| up to 40: 1 - 2 / (1 + e^2x) is 1 in float32 long before."""
    return tl.exp(2 * tl.minimum(tl.maximum(x, -40.0), 40.0))


@triton.jit
def _normed(x, weights, offset, D: tl.constexpr):
    """Layer norm over the last axis."""
    mean = tl.sum(x, 1) / D
    centred = x - mean[:, None]
    variance = tl.sum(centred * centred, 1) / D
    scale = vector(weights, offset, D)
    shift = vector(weights, offset + D, D)
    return centred * (1 / tl.sqrt(variance + 1e-5))[:, None] * scale[None, :] + shift[None, :]


@triton.jit
def _attended(
    nodes, weights, offset, present,
    D: tl.constexpr, H: tl.constexpr,
):  # fmt: skip
    """Multi-head self-attention with one shared projection per head, joined (eq. 6, 7)."""
    DH: tl.constexpr = D // H
    joined = tl.zeros_like(nodes)
    for h in tl.static_range(H):
        head = product(nodes, matrix(weights, offset + h * DH, D, DH, D))  # N d
        scores = product(head, tl.trans(head)) * (1.0 / DH**0.5)  # N N
        scores = tl.where(present[None, :], scores, -3.4e38)
        scores = tl.exp(scores - tl.max(scores, 1)[:, None])
        mixed = product(scores, head) * (1 / tl.sum(scores, 1))[:, None]
        join = matrix(weights, offset + D * D + h * DH * D, DH, D, D)
        joined += product(mixed, join)
    return joined


@triton.jit
def _encoded(
    nodes, weights, offset, present,
    D: tl.constexpr, H: tl.constexpr, FF: tl.constexpr, L: tl.constexpr,
):  # fmt: skip
    """The linear map to the width (eq. 5) and L encoder layers (eq. 6 to 8)."""
    nodes = product(nodes, matrix(weights, offset, D, D, D))
    nodes += vector(weights, offset + D * D, D)[None, :]
    offset += D * D + D
    for _ in tl.static_range(L):
        joined = _attended(nodes, weights, offset, present, D, H)
        offset += 2 * D * D
        nodes = _normed(nodes + joined, weights, offset, D)
        offset += 2 * D
        hidden = product(nodes, matrix(weights, offset, D, FF, FF))
        hidden = tl.maximum(hidden + vector(weights, offset + D * FF, FF)[None, :], 0.0)
        offset += D * FF + FF
        narrow = product(hidden, matrix(weights, offset, FF, D, D))
        narrow += vector(weights, offset + FF * D, D)[None, :]
        offset += FF * D + D
        nodes = _normed(nodes + narrow, weights, offset, D)
        offset += 2 * D
    return nodes


@triton.jit
def encode_kernel(
    item_table, item_index, user_table, user_index, present_mask, weights, encoded, num_candidates,
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
    nodes = _encoded(nodes, weights, 0, present, D, H, FF, L)

    out = encoded + b * (4 * NP * D)
    straight, turned = n[:, None] * D + d[None, :], n[:, None] + d[None, :] * NP
    tl.store(out + straight, nodes)
    tl.store(
        out + NP * D + straight,
        product(nodes, matrix(weights, POINTER + 3 * D * D, D, D, D)),
    )
    glimpse = product(nodes, matrix(weights, POINTER + D * D, D, D, D))
    tl.store(out + 2 * NP * D + turned, raised(glimpse))
    pointer = product(nodes, matrix(weights, POINTER + 4 * D * D, D, D, D))
    tl.store(out + 3 * NP * D + turned, raised(pointer))
