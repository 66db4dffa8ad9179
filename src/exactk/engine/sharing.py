"""The next piece of compiled work that several threads share: each piece is given to one of them.

Knows no work and no threads; `problem/threads.py` holds those.
"""
# ruff: noqa: ARG001 (the signatures of intrinsics are numba's)

from __future__ import annotations

from typing import no_type_check

from numba import types
from numba.extending import intrinsic


@no_type_check
def _place(context, builder, signature, args):
    array = context.make_array(signature.args[0])(context, builder, args[0])
    return builder.gep(array.data, [args[1]])


@intrinsic
@no_type_check
def taken(typing_context, counters, index):
    """A number nobody else is given: counters[index], and then one more is there."""

    def code(context, builder, signature, args):
        one = context.get_constant(types.int64, 1)
        return builder.atomic_rmw("add", _place(context, builder, signature, args), one, "seq_cst")

    return types.int64(counters, types.int64), code
