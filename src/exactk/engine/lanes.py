"""Sixteen float32 numbers as one value in compiled code: what a vector register holds; and a shared counter.

Knows no network. The compiler turns these into the widest instructions the processor has; nothing is left to its guess.
"""
# ruff: noqa: ARG001, ARG005 (the signatures of intrinsics are numba's)

from __future__ import annotations

from functools import partial
from inspect import unwrap
from typing import Any, no_type_check

from llvmlite import ir  # type: ignore[import-untyped,unused-ignore]
from numba import njit, types
from numba.core.datamodel import models
from numba.core.datamodel.registry import register_default
from numba.extending import intrinsic

LANES = 16
_FLOAT = ir.FloatType()
_VECTOR = ir.VectorType(_FLOAT, LANES)
_INTEGERS = ir.VectorType(ir.IntType(32), LANES)
_FUSED = ("contract",)  # a product and the sum it goes into may be one instruction


def inner(kernel: Any) -> Any:
    """Compile a kernel that only kernels call: nothing for Python to enter by, nothing of its own on disk."""
    options: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return njit(nogil=True, error_model="numpy", **options)(unwrap(kernel))


class Lanes(types.Type):
    """numba's name for the vector."""

    def __init__(self) -> None:
        super().__init__(name="Lanes")


lanes = Lanes()
_primitive: Any = models.PrimitiveModel


@register_default(Lanes)
class _LanesModel(_primitive):  # type: ignore[misc]
    def __init__(self, manager: Any, fe_type: Any) -> None:
        super().__init__(manager, fe_type, _VECTOR)


def _constant(value: float) -> ir.Constant:
    return ir.Constant(_VECTOR, [ir.Constant(_FLOAT, value)] * LANES)


def _address(context, builder, array_type, array, index):
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(data, [index])


def _spread(builder, scalar):
    one = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), scalar, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(one, one, ir.Constant(_INTEGERS, [0] * LANES))


def _larger(builder, a, b):
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


def _smaller(builder, a, b):
    return builder.select(builder.fcmp_ordered("<", a, b), a, b)


def _where_positive(builder, a, b):
    return builder.select(builder.fcmp_ordered(">", b, _constant(0.0)), a, _constant(0.0))


def _multiply_add(builder, a, b, c):
    return builder.fadd(builder.fmul(a, b, flags=_FUSED), c, flags=_FUSED)


@intrinsic
@no_type_check
def load(typing_context, array, index):
    """array[index : index + 16]."""

    def code(context, builder, signature, args):
        at = _address(context, builder, signature.args[0], args[0], args[1])
        return builder.load(builder.bitcast(at, _VECTOR.as_pointer()), align=4)

    return lanes(array, types.int64), code


@intrinsic
@no_type_check
def store(typing_context, array, index, value):
    """array[index : index + 16] = value."""

    def code(context, builder, signature, args):
        at = _address(context, builder, signature.args[0], args[0], args[1])
        builder.store(args[2], builder.bitcast(at, _VECTOR.as_pointer()), align=4)
        return context.get_dummy_value()

    return types.void(array, types.int64, lanes), code


@intrinsic
@no_type_check
def repeat(typing_context, array, index):
    """array[index], sixteen times."""

    def code(context, builder, signature, args):
        at = _address(context, builder, signature.args[0], args[0], args[1])
        return _spread(builder, builder.load(at, align=4))

    return lanes(array, types.int64), code


@intrinsic
@no_type_check
def spread(typing_context, value):
    """One number, sixteen times."""

    def code(context, builder, signature, args):
        return _spread(builder, args[0])

    return lanes(types.float32), code


def _folded(builder, value, build):
    """All lanes into one, in four halvings."""
    for half in (8, 4, 2, 1):
        order = [(lane + half) % LANES for lane in range(LANES)]
        value = build(builder, value, builder.shuffle_vector(value, value, ir.Constant(_INTEGERS, order)))
    return builder.extract_element(value, ir.Constant(ir.IntType(32), 0))


def _exponential(builder, x):
    """e^x = 2^n e^r with n whole and |r| <= ln 2 / 2; the polynomial is Moshier's (Cephes), good to a bit or two."""
    x = _larger(builder, _smaller(builder, x, _constant(88.0)), _constant(-80.0))
    magic = _constant(12582912.0)  # 1.5 * 2^23: adding it rounds to a whole number
    n = builder.fsub(_multiply_add(builder, x, _constant(1.44269504), magic), magic)
    r = _multiply_add(builder, n, _constant(-0.693359375), x)
    r = _multiply_add(builder, n, _constant(2.12194440e-4), r)
    p = _constant(1.9875691500e-4)
    for coefficient in (
        1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1, 1.0, 1.0,
    ):  # fmt: skip
        p = _multiply_add(builder, p, r, _constant(coefficient))
    exponent = builder.shl(builder.fptosi(n, _INTEGERS), ir.Constant(_INTEGERS, [23] * LANES))
    return builder.bitcast(builder.add(builder.bitcast(p, _INTEGERS), exponent), _VECTOR)


def _power_of_two(builder, x):
    """2^x = 2^n 2^f with n whole and |f| <= 1/2; the polynomial, by Lawson's method, is off by 8 in 10^8."""
    x = _larger(builder, x, _constant(-126.0))
    magic = _constant(12582912.0)  # 1.5 * 2^23: the last bits of the sum are n
    n = builder.fadd(x, magic)
    f = builder.fsub(x, builder.fsub(n, magic))
    p = _constant(1.3276471960e-3)
    for coefficient in (9.6755415026e-3, 5.5507132751e-2, 2.4022119721e-1, 6.9314696706e-1, 1.0):
        p = _multiply_add(builder, p, f, _constant(coefficient))
    exponent = builder.shl(builder.bitcast(n, _INTEGERS), ir.Constant(_INTEGERS, [23] * LANES))
    return builder.bitcast(builder.add(builder.bitcast(p, _INTEGERS), exponent), _VECTOR)


def _sigmoid(builder, x):
    one = _constant(1.0)
    raised = _exponential(builder, builder.fsub(_constant(0.0), x))
    return builder.fdiv(one, builder.fadd(one, raised))


def _hyperbolic_tangent(builder, x):
    """1 - 2 / (1 + e^2x)."""
    one, raised = _constant(1.0), _exponential(builder, builder.fadd(x, x))
    return builder.fsub(one, builder.fdiv(_constant(2.0), builder.fadd(one, raised)))


def _of_lanes(name, count, build, result=lanes):
    """An intrinsic of so many vectors, built by `build(builder, *vectors)`."""

    def code(context, builder, signature, args):
        return build(builder, *args)

    made = result(*[lanes] * count), code
    typed = {1: lambda _, a: made, 2: lambda _, a, b: made, 3: lambda _, a, b, c: made}[count]
    typed.__name__ = name
    return intrinsic(typed)


add = _of_lanes("add", 2, lambda builder, a, b: builder.fadd(a, b, flags=_FUSED))
subtract = _of_lanes("subtract", 2, lambda builder, a, b: builder.fsub(a, b, flags=_FUSED))
multiply = _of_lanes("multiply", 2, lambda builder, a, b: builder.fmul(a, b, flags=_FUSED))
divide = _of_lanes("divide", 2, lambda builder, a, b: builder.fdiv(a, b))
larger = _of_lanes("larger", 2, _larger)
smaller = _of_lanes("smaller", 2, _smaller)
where_positive = _of_lanes("where_positive", 2, _where_positive)  # a where b is above 0, else 0
multiply_add = _of_lanes("multiply_add", 3, _multiply_add)  # a * b + c, rounded once
total = _of_lanes(
    "total", 1, lambda builder, a: _folded(builder, a, lambda b, x, y: b.fadd(x, y)), types.float32
)
largest = _of_lanes("largest", 1, lambda builder, a: _folded(builder, a, _larger), types.float32)
exponential = _of_lanes("exponential", 1, _exponential)  # of x in -80..88, and at those ends beyond
power_of_two = _of_lanes("power_of_two", 1, _power_of_two)  # of x to 127, and at -126 below
sigmoid = _of_lanes("sigmoid", 1, _sigmoid)
hyperbolic_tangent = _of_lanes("hyperbolic_tangent", 1, _hyperbolic_tangent)


def _sixteen(context, builder, address, index, step, shrinks):
    """Sixteen rows, each `step` behind the one before; with `shrinks` that is one less each time."""
    rows, one = [], context.get_constant(types.int64, 1)
    for _ in range(LANES):
        rows.append(builder.load(builder.bitcast(address(index), _VECTOR.as_pointer()), align=4))
        index = builder.add(index, step)
        step = builder.sub(step, one) if shrinks else step
    return rows


def _turned(builder, rows):
    """Rows to columns: for each bit of a place, what is exchanged is that bit of the row and that of the lane."""
    for bit in (1, 2, 4, 8):
        low = [lane if not lane & bit else LANES + lane - bit for lane in range(LANES)]
        high = [lane + bit if not lane & bit else LANES + lane for lane in range(LANES)]
        for r in [r for r in range(LANES) if not r & bit]:
            a, b = rows[r], rows[r | bit]
            rows[r] = builder.shuffle_vector(a, b, ir.Constant(_INTEGERS, low))
            rows[r | bit] = builder.shuffle_vector(a, b, ir.Constant(_INTEGERS, high))
    return rows


def _stored(context, builder, address, index, step, rows):
    for row in rows:
        builder.store(row, builder.bitcast(address(index), _VECTOR.as_pointer()), align=4)
        index = builder.add(index, step)
    return context.get_dummy_value()


def _of_blocks(name, shrinks, build):
    """An intrinsic from sixteen rows of one place to sixteen of another: (array, from, its step, to, its step)."""

    def code(context, builder, signature, args):
        array, source, source_step, target, target_step = args
        address = partial(_address, context, builder, signature.args[0], array)
        rows = _sixteen(context, builder, address, source, source_step, shrinks)
        return _stored(context, builder, address, target, target_step, build(builder, rows))

    def typed(_, array, source, source_step, target, target_step):
        return types.void(array, *[types.int64] * 4), code

    typed.__name__ = name
    return intrinsic(typed)


def _mirrored(builder, rows):
    """What lies above the diagonal also below it, and 0 on it."""
    truth, turned, whole = ir.IntType(1), _turned(builder, list(rows)), []
    chosen = ir.VectorType(truth, LANES)
    for r in range(LANES):
        above = ir.Constant(chosen, [truth(int(lane > r)) for lane in range(LANES)])
        below = ir.Constant(chosen, [truth(int(lane < r)) for lane in range(LANES)])
        rest = builder.select(below, turned[r], _constant(0.0))
        whole.append(builder.select(above, rows[r], rest))
    return whole


turn_block = _of_blocks("turn_block", False, _turned)
turn_shrinking_block = _of_blocks("turn_shrinking_block", True, _turned)
mirror_shrinking_block = _of_blocks("mirror_shrinking_block", True, _mirrored)


@intrinsic
@no_type_check
def take_next(typing_context, counters, index):
    """A number no other thread is given: counters[index], and then one more is there."""

    def code(context, builder, signature, args):
        one = context.get_constant(types.int64, 1)
        at = _address(context, builder, signature.args[0], args[0], args[1])
        return builder.atomic_rmw("add", at, one, "seq_cst")

    return types.int64(counters, types.int64), code
