"""Compiled arithmetic that training needs besides `arithmetic.py`: sums onto what is there, and derivatives.

Knows no policy. As there, numbers lie in flat float32 arrays, a matrix is named by where it begins and how far apart
its rows are; row lengths are multiples of sixteen.
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np

from exactk.engine.lanes import (
    add,
    divide,
    exponential,
    hyperbolic_tangent,
    inner,
    larger,
    load,
    multiply,
    multiply_add,
    repeat,
    sigmoid,
    smaller,
    spread,
    store,
    subtract,
    total,
    where_positive,
)

ZERO, ONE, TWO, MOST = np.float32(0), np.float32(1), np.float32(2), np.float32(40)


@inner
@no_type_check
def clear(x, at, size):
    """Zeros."""
    for i in range(at, at + size):
        x[i] = ZERO


@inner
@no_type_check
def product_onto(x, x_at, x_step, num_rows, depth, w, w_at, w_step, columns, out, out_at, out_step):
    """out += x @ w; rows go in fours, so the last may be spare ones; 32 columns at a time, as long as there are."""
    for r in range(0, num_rows, 4):
        x0 = x_at + r * x_step
        x1, x2, x3 = x0 + x_step, x0 + 2 * x_step, x0 + 3 * x_step
        o0 = out_at + r * out_step
        o1, o2, o3 = o0 + out_step, o0 + 2 * out_step, o0 + 3 * out_step
        c = 0
        while c + 32 <= columns:
            a0, a1, a2, a3 = load(out, o0 + c), load(out, o1 + c), load(out, o2 + c), load(out, o3 + c)
            b0, b1 = load(out, o0 + c + 16), load(out, o1 + c + 16)
            b2, b3 = load(out, o2 + c + 16), load(out, o3 + c + 16)
            at = w_at + c
            for k in range(depth):
                left, right = load(w, at), load(w, at + 16)
                at += w_step
                value = repeat(x, x0 + k)
                a0, b0 = multiply_add(value, left, a0), multiply_add(value, right, b0)
                value = repeat(x, x1 + k)
                a1, b1 = multiply_add(value, left, a1), multiply_add(value, right, b1)
                value = repeat(x, x2 + k)
                a2, b2 = multiply_add(value, left, a2), multiply_add(value, right, b2)
                value = repeat(x, x3 + k)
                a3, b3 = multiply_add(value, left, a3), multiply_add(value, right, b3)
            store_pair(out, o0 + c, a0, b0)
            store_pair(out, o1 + c, a1, b1)
            store_pair(out, o2 + c, a2, b2)
            store_pair(out, o3 + c, a3, b3)
            c += 32
        if c < columns:
            a0, a1, a2, a3 = load(out, o0 + c), load(out, o1 + c), load(out, o2 + c), load(out, o3 + c)
            at = w_at + c
            for k in range(depth):
                left = load(w, at)
                at += w_step
                a0 = multiply_add(repeat(x, x0 + k), left, a0)
                a1 = multiply_add(repeat(x, x1 + k), left, a1)
                a2 = multiply_add(repeat(x, x2 + k), left, a2)
                a3 = multiply_add(repeat(x, x3 + k), left, a3)
            store(out, o0 + c, a0)
            store(out, o1 + c, a1)
            store(out, o2 + c, a2)
            store(out, o3 + c, a3)


@inner
@no_type_check
def store_pair(x, at, left, right):
    """Two registers side by side."""
    store(x, at, left)
    store(x, at + 16, right)


@inner
@no_type_check
def outer_onto(y, y_at, y_step, outs, x, x_at, x_step, columns, num_rows, g, g_at, g_step):
    """g[o] += sum_r y[r, o] x[r]: the gradient of a matrix from those of what it made and what it was given.

    `outs` go in fours: the last rows of g may be spare ones.
    """
    for o in range(0, outs, 4):
        g0 = g_at + o * g_step
        g1, g2, g3 = g0 + g_step, g0 + 2 * g_step, g0 + 3 * g_step
        c = 0
        while c + 32 <= columns:
            a0, a1, a2, a3 = load(g, g0 + c), load(g, g1 + c), load(g, g2 + c), load(g, g3 + c)
            b0, b1 = load(g, g0 + c + 16), load(g, g1 + c + 16)
            b2, b3 = load(g, g2 + c + 16), load(g, g3 + c + 16)
            y_row, x_row = y_at + o, x_at + c
            for _ in range(num_rows):
                left, right = load(x, x_row), load(x, x_row + 16)
                value = repeat(y, y_row)
                a0, b0 = multiply_add(value, left, a0), multiply_add(value, right, b0)
                value = repeat(y, y_row + 1)
                a1, b1 = multiply_add(value, left, a1), multiply_add(value, right, b1)
                value = repeat(y, y_row + 2)
                a2, b2 = multiply_add(value, left, a2), multiply_add(value, right, b2)
                value = repeat(y, y_row + 3)
                a3, b3 = multiply_add(value, left, a3), multiply_add(value, right, b3)
                y_row += y_step
                x_row += x_step
            store_pair(g, g0 + c, a0, b0)
            store_pair(g, g1 + c, a1, b1)
            store_pair(g, g2 + c, a2, b2)
            store_pair(g, g3 + c, a3, b3)
            c += 32
        if c < columns:
            a0, a1, a2, a3 = load(g, g0 + c), load(g, g1 + c), load(g, g2 + c), load(g, g3 + c)
            y_row, x_row = y_at + o, x_at + c
            for _ in range(num_rows):
                left = load(x, x_row)
                a0 = multiply_add(repeat(y, y_row), left, a0)
                a1 = multiply_add(repeat(y, y_row + 1), left, a1)
                a2 = multiply_add(repeat(y, y_row + 2), left, a2)
                a3 = multiply_add(repeat(y, y_row + 3), left, a3)
                y_row += y_step
                x_row += x_step
            store(g, g0 + c, a0)
            store(g, g1 + c, a1)
            store(g, g2 + c, a2)
            store(g, g3 + c, a3)


@inner
@no_type_check
def rows_onto(y, y_at, y_step, num_rows, columns, g, g_at):
    """g += the sum of the rows: a bias's gradient."""
    for c in range(0, columns, 16):
        sums = load(g, g_at + c)
        for r in range(num_rows):
            sums = add(sums, load(y, y_at + r * y_step + c))
        store(g, g_at + c, sums)


@inner
@no_type_check
def masked_by(x, at, by, by_at, size):
    """x where `by` is above zero, else zero: back through a ReLU."""
    for i in range(0, size, 16):
        store(x, at + i, where_positive(load(x, at + i), load(by, by_at + i)))


@inner
@no_type_check
def normalised(x, at, other, other_at, num_rows, width, w, gain_at, hat, hat_at, scale_at, out, out_at):
    """Layer norm of row + other row into `out`; what it normalised and by how much is kept for the way back."""
    inverse = ONE / np.float32(width)
    for r in range(num_rows):
        row, second, kept = at + r * width, other_at + r * width, hat_at + r * width
        sums = spread(ZERO)
        for i in range(0, width, 16):
            value = add(load(x, row + i), load(other, second + i))
            store(hat, kept + i, value)
            sums = add(sums, value)
        mean = spread(total(sums) * inverse)
        sums = spread(ZERO)
        for i in range(0, width, 16):
            value = subtract(load(hat, kept + i), mean)
            store(hat, kept + i, value)
            sums = multiply_add(value, value, sums)
        scale = ONE / np.sqrt(total(sums) * inverse + np.float32(1e-5))
        hat[scale_at + r] = scale
        for i in range(0, width, 16):
            value = multiply(load(hat, kept + i), spread(scale))
            store(hat, kept + i, value)
            result = multiply_add(value, load(w, gain_at + i), load(w, gain_at + width + i))
            store(out, out_at + r * width + i, result)


@inner
@no_type_check
def back_through_norm(y, at, num_rows, width, w, gain_at, hat, hat_at, scale_at, g):
    """Gradients at a layer norm's output become those at its input, in place; gain and shift get theirs in g."""
    inverse = ONE / np.float32(width)
    for r in range(num_rows):
        row, kept = at + r * width, hat_at + r * width
        sums, along = spread(ZERO), spread(ZERO)
        for i in range(0, width, 16):
            value, normal = load(y, row + i), load(hat, kept + i)
            store(g, gain_at + i, multiply_add(value, normal, load(g, gain_at + i)))
            store(g, gain_at + width + i, add(value, load(g, gain_at + width + i)))
            value = multiply(value, load(w, gain_at + i))
            store(y, row + i, value)
            sums = add(sums, value)
            along = multiply_add(value, normal, along)
        mean, share = spread(total(sums) * inverse), spread(total(along) * inverse)
        scale = spread(hat[scale_at + r])
        for i in range(0, width, 16):
            value = subtract(load(y, row + i), mean)
            value = subtract(value, multiply(share, load(hat, kept + i)))
            store(y, row + i, multiply(value, scale))


@inner
@no_type_check
def back_through_softmax(y, at, p, p_at, width, scale):
    """scale p (y - sum p y) in place of y: gradients at the probabilities become those at what they were made of."""
    sums = spread(ZERO)
    for i in range(0, width, 16):
        sums = multiply_add(load(y, at + i), load(p, p_at + i), sums)
    mean, factor = spread(total(sums)), spread(scale)
    for i in range(0, width, 16):
        value = multiply(subtract(load(y, at + i), mean), load(p, p_at + i))
        store(y, at + i, multiply(value, factor))


@inner
@no_type_check
def raised_double(x, at, size):
    """e^2x in place, for |x| up to 40, where tanh has long been 1."""
    low, high = spread(-MOST), spread(MOST)
    for i in range(at, at + size, 16):
        value = larger(smaller(load(x, i), high), low)
        store(x, i, exponential(add(value, value)))


@inner
@no_type_check
def back_through_additive(
    y,
    y_at,
    keys,
    keys_at,
    width,
    query,
    query_at,
    w,
    vector_at,
    depth,
    keys_g,
    keys_g_at,
    query_g,
    query_g_at,
    g,
):
    """Gradients y at the scores sum_d v_d tanh(key + query) of one row onto those of keys, query and v.

    Keys and query come as e^2x. With s = 1 / (1 + e^2(key + query)): tanh is 1 - 2 s, its derivative 4 s (1 - s).
    """
    one, two = spread(ONE), spread(TWO)
    for d in range(depth):
        raised = repeat(query, query_at + d)
        factor = spread(np.float32(4) * w[vector_at + d])
        for_query, for_vector = spread(ZERO), spread(ZERO)
        for n in range(0, width, 16):
            at = d * width + n
            s = divide(one, multiply_add(load(keys, keys_at + at), raised, one))
            value = load(y, y_at + n)
            for_vector = multiply_add(value, subtract(one, multiply(two, s)), for_vector)
            slope = multiply(multiply(value, factor), multiply(s, subtract(one, s)))
            store(keys_g, keys_g_at + at, add(slope, load(keys_g, keys_g_at + at)))
            for_query = add(for_query, slope)
        query_g[query_g_at + d] = total(for_query)
        g[vector_at + d] += total(for_vector)


@inner
@no_type_check
def cell_kept(x, gates_at, width, before_at, cell_at, curved_at, hidden_at):
    """An LSTM's row from gates i, f, g, o before their nonlinearity; all that the way back needs stays in place."""
    for i in range(0, width, 16):
        gate_in = sigmoid(load(x, gates_at + i))
        keep = sigmoid(load(x, gates_at + width + i))
        new = hyperbolic_tangent(load(x, gates_at + 2 * width + i))
        out = sigmoid(load(x, gates_at + 3 * width + i))
        cell = multiply_add(keep, load(x, before_at + i), multiply(gate_in, new))
        curved = hyperbolic_tangent(cell)
        store(x, gates_at + i, gate_in)
        store(x, gates_at + width + i, keep)
        store(x, gates_at + 2 * width + i, new)
        store(x, gates_at + 3 * width + i, out)
        store(x, cell_at + i, cell)
        store(x, curved_at + i, curved)
        store(x, hidden_at + i, multiply(out, curved))


@inner
@no_type_check
def back_through_cell(x, gates_at, width, before_at, curved_at, y, hidden_at, cell_at, to_at):
    """Gradients at a row's hidden vector and cell, in y, to those of its gates and, in place, of the cell before."""
    one = spread(ONE)
    for i in range(0, width, 16):
        gate_in, keep = load(x, gates_at + i), load(x, gates_at + width + i)
        new, out = load(x, gates_at + 2 * width + i), load(x, gates_at + 3 * width + i)
        curved, hidden = load(x, curved_at + i), load(y, hidden_at + i)
        slope = subtract(one, multiply(curved, curved))
        cell = multiply_add(multiply(hidden, out), slope, load(y, cell_at + i))
        store(y, to_at + i, multiply(multiply(cell, new), multiply(gate_in, subtract(one, gate_in))))
        held = multiply(cell, load(x, before_at + i))
        store(y, to_at + width + i, multiply(held, multiply(keep, subtract(one, keep))))
        store(
            y,
            to_at + 2 * width + i,
            multiply(multiply(cell, gate_in), subtract(one, multiply(new, new))),
        )
        shown = multiply(multiply(hidden, curved), multiply(out, subtract(one, out)))
        store(y, to_at + 3 * width + i, shown)
        store(y, cell_at + i, multiply(cell, keep))
