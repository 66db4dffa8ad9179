"""Compiled arithmetic of a small network: products of matrices, softmax, layer norm, additive attention, LSTM.

Knows no policy: numbers lie in flat float32 arrays, and every matrix is named by where it begins and how far apart its
rows are. Row lengths are padded to sixteen; rows of a product go in fours, so buffers hold rows to spare.
"""

from __future__ import annotations

import numpy as np

from exactk.engine.lanes import (
    add,
    divide,
    exponential,
    hyperbolic_tangent,
    inner,
    larger,
    largest,
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
)

LARGE = np.float32(1e8)  # 1 - 2 / (1 + LARGE) is 1 in float32, and the product of four is still finite
ZERO, ONE = np.float32(0), np.float32(1)


@inner
def product(x, x_at, x_step, num_rows, depth, w, w_at, w_step, columns, bias, bias_at, out, out_at, out_step):
    """out = bias + x @ w. Four rows by 32 columns at a time stay in registers; the last rows may be spare ones."""
    for r in range(0, num_rows, 4):
        x0 = x_at + r * x_step
        x1, x2, x3 = x0 + x_step, x0 + 2 * x_step, x0 + 3 * x_step
        o = out_at + r * out_step
        c = 0
        while c + 32 <= columns:
            left, right = load(bias, bias_at + c), load(bias, bias_at + c + 16)
            a0, a1, a2, a3 = left, left, left, left
            b0, b1, b2, b3 = right, right, right, right
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
            store(out, o + c, a0)
            store(out, o + c + 16, b0)
            store(out, o + out_step + c, a1)
            store(out, o + out_step + c + 16, b1)
            store(out, o + 2 * out_step + c, a2)
            store(out, o + 2 * out_step + c + 16, b2)
            store(out, o + 3 * out_step + c, a3)
            store(out, o + 3 * out_step + c + 16, b3)
            c += 32
        if c < columns:
            left = load(bias, bias_at + c)
            a0, a1, a2, a3 = left, left, left, left
            at = w_at + c
            for k in range(depth):
                left = load(w, at)
                at += w_step
                a0 = multiply_add(repeat(x, x0 + k), left, a0)
                a1 = multiply_add(repeat(x, x1 + k), left, a1)
                a2 = multiply_add(repeat(x, x2 + k), left, a2)
                a3 = multiply_add(repeat(x, x3 + k), left, a3)
            store(out, o + c, a0)
            store(out, o + out_step + c, a1)
            store(out, o + 2 * out_step + c, a2)
            store(out, o + 3 * out_step + c, a3)


@inner
def add_product(x, x_at, x_step, x_next, num_rows, depth, w, w_at, w_step, columns, out, out_at, out_step):
    """out += x @ w, where x[r, k] lies at r * x_step + k * x_next: so it may be a transposed matrix, too."""
    for r in range(0, num_rows, 4):
        x0 = x_at + r * x_step
        x1, x2, x3 = x0 + x_step, x0 + 2 * x_step, x0 + 3 * x_step
        o0 = out_at + r * out_step
        o1, o2, o3 = o0 + out_step, o0 + 2 * out_step, o0 + 3 * out_step
        c = 0
        while c + 32 <= columns:
            a0, b0 = load(out, o0 + c), load(out, o0 + c + 16)
            a1, b1 = load(out, o1 + c), load(out, o1 + c + 16)
            a2, b2 = load(out, o2 + c), load(out, o2 + c + 16)
            a3, b3 = load(out, o3 + c), load(out, o3 + c + 16)
            at, k = w_at + c, 0
            for _ in range(depth):
                left, right = load(w, at), load(w, at + 16)
                value = repeat(x, x0 + k)
                a0, b0 = multiply_add(value, left, a0), multiply_add(value, right, b0)
                value = repeat(x, x1 + k)
                a1, b1 = multiply_add(value, left, a1), multiply_add(value, right, b1)
                value = repeat(x, x2 + k)
                a2, b2 = multiply_add(value, left, a2), multiply_add(value, right, b2)
                value = repeat(x, x3 + k)
                a3, b3 = multiply_add(value, left, a3), multiply_add(value, right, b3)
                at += w_step
                k += x_next
            store(out, o0 + c, a0)
            store(out, o0 + c + 16, b0)
            store(out, o1 + c, a1)
            store(out, o1 + c + 16, b1)
            store(out, o2 + c, a2)
            store(out, o2 + c + 16, b2)
            store(out, o3 + c, a3)
            store(out, o3 + c + 16, b3)
            c += 32
        if c < columns:
            a0, a1, a2, a3 = load(out, o0 + c), load(out, o1 + c), load(out, o2 + c), load(out, o3 + c)
            at, k = w_at + c, 0
            for _ in range(depth):
                left = load(w, at)
                a0 = multiply_add(repeat(x, x0 + k), left, a0)
                a1 = multiply_add(repeat(x, x1 + k), left, a1)
                a2 = multiply_add(repeat(x, x2 + k), left, a2)
                a3 = multiply_add(repeat(x, x3 + k), left, a3)
                at += w_step
                k += x_next
            store(out, o0 + c, a0)
            store(out, o1 + c, a1)
            store(out, o2 + c, a2)
            store(out, o3 + c, a3)


@inner
def read_row(x, at, size, table, features, row, b, n):
    """One row of inputs: the id's embedding, then the features. False: the table has no such row."""
    E = table.shape[1]
    if E > 0 and (row < 0 or row >= table.shape[0]):
        return False
    for e in range(E):
        x[at + e] = table[row, e]
    for f in range(size - E):
        x[at + E + f] = features[b, n, f]
    return True


@inner
def filled(x, at, size, value):
    """One number in a stretch of whole registers."""
    same = spread(np.float32(value))
    for i in range(at, at + size, 16):
        store(x, i, same)


@inner
def copied_rows(x, at, num_rows, width, w, w_at):
    """The same row of weights in every row."""
    for i in range(0, width, 16):
        value = load(w, w_at + i)
        for r in range(num_rows):
            store(x, at + r * width + i, value)


@inner
def add_rows(x, at, num_rows, width, w, w_at):
    """A row of weights added to every row."""
    for i in range(0, width, 16):
        value = load(w, w_at + i)
        for r in range(num_rows):
            store(x, at + r * width + i, add(load(x, at + r * width + i), value))


@inner
def rectify(x, at, size):
    """max(x, 0), in place."""
    zero = spread(ZERO)
    for i in range(at, at + size, 16):
        store(x, i, larger(load(x, i), zero))


@inner
def transposed(x, x_at, x_step, num_rows, columns, out, out_at, out_step):
    """out[c, r] = x[r, c]."""
    for r in range(num_rows):
        for c in range(columns):
            out[out_at + c * out_step + r] = x[x_at + r * x_step + c]


@inner
def softmax(x, at, width, scale, barred, barred_at):
    """softmax(scale * x + barred) of one row, in place; barred holds 0 or -inf."""
    most = spread(np.float32(-np.inf))
    factor = spread(scale)
    for i in range(0, width, 16):
        value = multiply_add(load(x, at + i), factor, load(barred, barred_at + i))
        store(x, at + i, value)
        most = larger(most, value)
    top = spread(largest(most))
    sums = spread(ZERO)
    for i in range(0, width, 16):
        value = exponential(subtract(load(x, at + i), top))
        store(x, at + i, value)
        sums = add(sums, value)
    share = spread(ONE / total(sums))
    for i in range(0, width, 16):
        store(x, at + i, multiply(load(x, at + i), share))


@inner
def normed(x, at, other_at, num_rows, width, true_width, w, mask_at, gain_at, shift_at):
    """Layer norm of row + other row, in place of the first; the mask keeps padding out of the deviation."""
    inverse = ONE / np.float32(true_width)
    for r in range(num_rows):
        row, other = at + r * width, other_at + r * width
        sums = spread(ZERO)
        for i in range(0, width, 16):
            value = add(load(x, row + i), load(x, other + i))
            store(x, row + i, value)
            sums = add(sums, value)
        mean = spread(total(sums) * inverse)
        sums = spread(ZERO)
        for i in range(0, width, 16):
            value = multiply(subtract(load(x, row + i), mean), load(w, mask_at + i))
            store(x, row + i, value)
            sums = multiply_add(value, value, sums)
        scale = spread(ONE / np.sqrt(total(sums) * inverse + np.float32(1e-5)))
        for i in range(0, width, 16):
            value = multiply(load(x, row + i), scale)
            store(x, row + i, multiply_add(value, load(w, gain_at + i), load(w, shift_at + i)))


@inner
def raised(x, at, size):
    """e^x in place; False if a number was beyond +-80, where e^x and e^y no longer stand for e^(x + y)."""
    most = spread(ZERO)
    for i in range(at, at + size, 16):
        value = load(x, i)
        most = larger(most, larger(value, subtract(spread(ZERO), value)))
        store(x, i, exponential(value))
    return largest(most) <= np.float32(80)


@inner
def additive_of_sums(keys, keys_at, width, query, query_at, w, vector_at, depth, out, out_at):
    """What `additive` computes, of 2 key and 2 query as they are: slower, and right for numbers of any size."""
    zero = spread(ZERO)
    for n in range(0, width, 16):
        sums = zero
        for d in range(depth):
            both = add(load(keys, keys_at + d * width + n), repeat(query, query_at + d))
            sums = multiply_add(repeat(w, vector_at + d), sigmoid(subtract(zero, both)), sums)
        store(out, out_at + n, sums)


@inner
def additive(keys, keys_at, width, query, query_at, w, vector_at, depth, out, out_at):
    """-2 sum_d v_d / (1 + e^(2 key + 2 query)): v^T tanh(key + query) less the sum of v, for every node.

    Keys and query come as e^2x, so that a tanh is one product; four fractions share one division:
    p/a + q/b = (pb + qa) / ab. `vector` holds -2 v.
    """
    one, large = spread(ONE), spread(LARGE)
    for n in range(0, width, 16):
        sums = spread(ZERO)
        at = keys_at + n
        for d in range(0, depth, 4):
            a = smaller(multiply_add(load(keys, at), repeat(query, query_at + d), one), large)
            b = smaller(multiply_add(load(keys, at + width), repeat(query, query_at + d + 1), one), large)
            ab = multiply(a, b)
            p = multiply_add(repeat(w, vector_at + d), b, multiply(repeat(w, vector_at + d + 1), a))
            a = smaller(multiply_add(load(keys, at + 2 * width), repeat(query, query_at + d + 2), one), large)
            b = smaller(multiply_add(load(keys, at + 3 * width), repeat(query, query_at + d + 3), one), large)
            cd = multiply(a, b)
            q = multiply_add(repeat(w, vector_at + d + 2), b, multiply(repeat(w, vector_at + d + 3), a))
            sums = add(sums, divide(multiply_add(p, cd, multiply(q, ab)), multiply(ab, cd)))
            at += 4 * width
        store(out, out_at + n, sums)


@inner
def lstm_cell(x, gates_at, width, cell_at, new_cell_at, new_hidden_at):
    """One row: gates i, f, g, o before their nonlinearity, and the cell before, to the new cell and hidden vector."""
    for i in range(0, width, 16):
        gate_in = sigmoid(load(x, gates_at + i))
        gate_keep = sigmoid(load(x, gates_at + width + i))
        new = hyperbolic_tangent(load(x, gates_at + 2 * width + i))
        gate_out = sigmoid(load(x, gates_at + 3 * width + i))
        cell = multiply_add(gate_keep, load(x, cell_at + i), multiply(gate_in, new))
        store(x, new_cell_at + i, cell)
        store(x, new_hidden_at + i, multiply(gate_out, hyperbolic_tangent(cell)))
