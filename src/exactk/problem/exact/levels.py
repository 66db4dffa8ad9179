"""The levels of a search over pairs: who is still open at each, what they add, and the most they can be worth.

Knows no card found and no clock. Of `left` more picks of open candidates each, i, has k = left - 1 others j beside it.
It is worth half of what it adds, and half of its k best partners: of each the pair's weight and a k-th of what j adds.
Summed over a card that is all it adds, each pair by halves from both its ends; with the best partners it is a bound.
Any share s may be lent to partners instead of a half: worth (1 - s) of what i adds, and 2s / k of what each j adds.
A matrix is copied for fewer candidates once most have gone, so that it stays near the processor; column c of the
matrix in use is the candidate names[WHO, home, c].

How much the best partners come to is bounded by a mark. For any mark t the k largest of some numbers come to k t plus
all excesses over t at most, and to just that if k of them exceed it: of 9 7 4 1 the two largest are 2 * 5 + 4 + 2. An
excess is a few machine instructions for eight numbers at once, where sorting them in would guess wrong at every other
branch.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from exactk.problem.exact.bits import compiled_inside, compiled_sums, compiled_within

# values, by depth and column: what a candidate adds to the card begun (-inf where it is not open), its mark (see
# `best_sum`), and what it may be hoped to add at most beside one more pick, without their pair (-inf: not to be
# picked). WORTH by depth, beside OPEN. LENT, what each lends to each partner, and SCRATCH in a few rows.
ADDS, MARK, HOPE, WORTH, LENT, SCRATCH = range(6)
# names, by depth: the columns that are open; the candidate of each column; FINE, beside OPEN, whether its mark is good.
OPEN, WHO, FINE, ORDER = range(4)
# shape, by depth: where in the heap the matrix begins, its rows and columns, the depth that names its columns.
AT, ROWS, COLUMNS, HOME, WORK = range(5)

PAD = 16  # columns are a multiple of this: what a few registers hold
COPIES_WHEN = 3  # a matrix is copied for a third of its candidates
SHARE = 0.5
# To find the best mark; to better those of the largest worths before giving a level up as open.
TRIES, ROUNDS = 5, 2
ROOM = 3  # matrices the heap holds: the first, and copies for a third, a ninth, ...


class Levels(NamedTuple):
    """What is known at each depth: few arrays, since each is counted whenever they are handed on."""

    heap: np.ndarray  # the matrices, one behind the other, and a row of zeros
    values: np.ndarray
    names: np.ndarray
    shape: np.ndarray  # and in [WORK, 0], about how many numbers were looked at so far
    marks: np.ndarray  # depth, 2: of the worths of a level, and of the hopes beside a pick
    share: np.ndarray  # 1: what each lends to its partners
    largest: float  # the largest size of a pair weight
    free: bool  # whether all may share a card, and no pair weighs anything
    scale: float  # above the size of any sum
    step: float  # between marks, about


@compiled_within
def padded(num):
    """The number of columns for so many candidates; not one at which all rows fall on the same lines of the cache."""
    width = (num + PAD - 1) // PAD * PAD
    return width + PAD if width % 256 == 0 else width


@compiled_within
def first_matrix(m):
    """(the heap, the matrix for all m candidates at its beginning), still to be filled; columns beyond m are -inf."""
    heap = np.empty((ROOM * m + 1) * padded(m))
    heap[ROOM * m * padded(m) :] = 0.0
    pairs = heap[: m * padded(m)].reshape(m, padded(m))
    for i in range(m):
        for j in range(m, padded(m)):
            pairs[i, j] = -np.inf
    return heap, pairs


@compiled_within
def levels_of(heap, first_adds, largest, free, left):
    """All m candidates open at the first level, adding `first_adds`; for the others see `Levels`."""
    m = len(first_adds)
    width = padded(m)
    most = 0.0
    for i in range(m):
        if first_adds[i] > -np.inf:
            most = max(most, abs(first_adds[i]))
    values, names = np.empty((6, max(left, 2), width)), np.empty((4, left, width), np.uint32)
    shape = np.zeros((5, left), np.int64)
    shape[ROWS, 0], shape[COLUMNS, 0] = m, width
    values[MARK] = 0.0
    for i in range(width):
        values[ADDS, 0, i] = first_adds[i] if i < m else -np.inf
    for i in range(m):
        names[OPEN, 0, i] = i
        names[WHO, 0, i] = i
    scale, step = 4.0 * left * (most + left * largest) + 1.0, 2.0 * (largest + most / left) / m
    share = np.array([SHARE if largest > 0.0 else 0.0])
    return Levels(heap, values, names, shape, np.zeros((left, 2)), share, largest, free, scale, step)


@compiled_inside
def row_at(levels, d, c):
    """Where in the heap the pair weights of column c of depth d begin; -inf where two may not share a card."""
    return np.uint64(levels.shape[AT, d] + np.int64(c) * levels.shape[COLUMNS, d])


@compiled_inside
def who_is(levels, d, c):
    """The candidate of a column of depth d."""
    return np.int64(levels.names[WHO, levels.shape[HOME, d], c])


@compiled_inside
def keep_open(levels, d, num):
    """Close all columns of depth d but the first `num` in OPEN."""
    values, names = levels.values, levels.names
    for x in range(num):
        values[SCRATCH, 0, x] = values[ADDS, d, names[OPEN, d, x]]
    for c in range(levels.shape[COLUMNS, d]):
        values[ADDS, d, c] = -np.inf
    for x in range(num):
        values[ADDS, d, names[OPEN, d, x]] = values[SCRATCH, 0, x]


@compiled_inside
def copy_matrix(levels, d, num, lent):
    """Give depth d a matrix of its own for what is open, where that is few and there is room."""
    values, names, shape, width = levels.values, levels.names, levels.shape, padded(num)
    heap, home, end = levels.heap, shape[HOME, d], len(levels.heap) - shape[COLUMNS, 0]
    at = shape[AT, d] + shape[ROWS, d] * shape[COLUMNS, d]
    if COPIES_WHEN * width > shape[COLUMNS, d] or at + num * width > end:
        return
    for x in range(num):
        c = names[OPEN, d, x]
        old, new = row_at(levels, d, c), np.uint64(at + x * width)
        for y in range(np.uint64(num)):
            heap[new + y] = heap[old + names[OPEN, d, y]]
        for y in range(np.uint64(num), np.uint64(width)):
            heap[new + y] = -np.inf
        names[ORDER, d, x] = names[WHO, home, c]
        values[SCRATCH, 0, x], values[SCRATCH, 1, x] = values[ADDS, d, c], values[MARK, d, c]
    shape[AT, d], shape[ROWS, d], shape[COLUMNS, d], shape[HOME, d] = at, num, width, d
    for x in range(num):
        names[OPEN, d, x], names[WHO, d, x] = x, names[ORDER, d, x]
        values[MARK, d, x] = values[SCRATCH, 1, x]
    for x in range(width):
        values[ADDS, d, x] = values[SCRATCH, 0, x] if x < num else -np.inf
        values[LENT, 0, x] = lent * values[SCRATCH, 0, x] if x < num else -np.inf
    shape[WORK, 0] += num * width


@compiled_inside
def weigh(levels, d, num, k):
    """The worth of all that is open, by marks as they are; returns the floor of marks."""
    values, names, columns = levels.values, levels.names, levels.shape[COLUMNS, d]
    most, kept, lent = 0.0, 1.0 - levels.share[0], 2.0 * levels.share[0] / k
    for c in range(columns):
        values[LENT, 0, c] = lent * values[ADDS, d, c] if values[ADDS, d, c] > -np.inf else -np.inf
    if levels.free and lent == 0.0:
        for x in range(num):
            c = names[OPEN, d, x]
            values[WORTH, d, x], values[MARK, d, c], names[FINE, d, x] = values[ADDS, d, c], 0.0, 1
        return 0.0
    for x in range(num):
        c = names[OPEN, d, x]
        most = max(most, abs(values[LENT, 0, c]))
        mark = values[MARK, d, c]
        over = excess(levels.heap, row_at(levels, d, c), values, LENT, 0, mark, np.uint64(columns))
        values[WORTH, d, x] = kept * values[ADDS, d, c] + 0.5 * (k * mark + over)
        names[FINE, d, x] = 0
    levels.shape[WORK, 0] += num * columns
    return -1.01 * (levels.largest + most) - 1.0


@compiled_inside
def weigh_finely(levels, d, num, k, above, floor):
    """Put a better mark to all that is worth more than `above` and has none yet; whether there was any."""
    values, names, columns = levels.values, levels.names, levels.shape[COLUMNS, d]
    count, kept = 0, 1.0 - levels.share[0]
    for x in range(num):
        if values[WORTH, d, x] > above and names[FINE, d, x] == 0:
            c = names[OPEN, d, x]
            best, mark = best_sum(
                levels.heap, row_at(levels, d, c), values, LENT, 0, columns, k, values[MARK, d, c], levels.step,
                floor, TRIES,
            )  # fmt: skip
            values[MARK, d, c] = mark
            values[WORTH, d, x] = min(values[WORTH, d, x], kept * values[ADDS, d, c] + 0.5 * best)
            names[FINE, d, x] = 1
            count += 1
    levels.shape[WORK, 0] += count * columns
    return count > 0


@compiled_inside
def top_worths(levels, d, num, left):
    """About the sum of the `left` largest worths, and no less; keeps its mark."""
    most, mark = best_sum(
        levels.heap, np.uint64(len(levels.heap) - levels.shape[COLUMNS, 0]), levels.values, WORTH, d, num, left,
        levels.marks[d, 0], 8.0 * levels.step, -levels.scale, 6,
    )  # fmt: skip
    levels.marks[d, 0] = mark
    return most


@compiled_inside
def strike(levels, d, num, line):
    """Close whoever is not worth more than `line`; returns how many stay."""
    values, names = levels.values, levels.names
    stay = 0
    for x in range(num):
        c = names[OPEN, d, x]
        if values[WORTH, d, x] > line:
            names[OPEN, d, stay], names[FINE, d, stay] = c, names[FINE, d, x]
            values[WORTH, d, stay] = values[WORTH, d, x]
            stay += 1
        else:
            values[ADDS, d, c] = -np.inf
            values[LENT, 0, c] = -np.inf
    return stay


@compiled_inside
def tighten(levels, d, num, left, line):
    """Close who cannot be among `left` picks that add more than `line`; returns how many stay, 0 where too few do."""
    k = left - 1
    while True:
        floor = weigh(levels, d, num, k)
        most = top_worths(levels, d, num, left)
        for _ in range(ROUNDS):
            if not most > line or not weigh_finely(levels, d, num, k, levels.marks[d, 0], floor):
                break
            most = top_worths(levels, d, num, left)
        if not most > line:
            return 0
        before = num
        num = strike(levels, d, num, line - (most - levels.marks[d, 0]))
        if num < left:
            return 0
        if (before - num) * 6 < num:
            break
    copy_matrix(levels, d, num, 2.0 * levels.share[0] / k)
    weigh_finely(levels, d, num, k, -np.inf, floor)
    most = top_worths(levels, d, num, left)
    num = strike(levels, d, num, line - (most - levels.marks[d, 0])) if most > line else 0
    say_hopes(levels, d, num)
    return num if num >= left else 0


@compiled_inside
def say_hopes(levels, d, num):
    """Say what may be hoped of each that is open: its worth by the mark it has, with one partner less."""
    values, names = levels.values, levels.names
    for c in range(levels.shape[COLUMNS, d]):
        values[HOPE, d, c] = -np.inf
    for x in range(num):
        c = names[OPEN, d, x]
        values[HOPE, d, c] = values[WORTH, d, x] + 0.5 * (values[LENT, 0, c] - values[MARK, d, c])


@compiled_inside
def take_worthiest(levels, d, num):
    """Take what is worth most out of the `num` that are open, the first of equals; returns its column."""
    values, names = levels.values, levels.names
    best = 0
    for x in range(1, num):
        if values[WORTH, d, x] > values[WORTH, d, best]:
            best = x
    c = names[OPEN, d, best]
    for x in range(best, num - 1):
        names[OPEN, d, x], values[WORTH, d, x] = names[OPEN, d, x + 1], values[WORTH, d, x + 1]
    values[HOPE, d, c] = -np.inf
    return c


@compiled_inside
def beside(levels, d, c, left, kind, row):
    """(about the most that `left` picks beside column c can add, the least of them), by what may be hoped of them.

    The hopes are those of depth d, in values[kind, row].
    """
    columns = levels.shape[COLUMNS, d]
    most, mark = best_sum(
        levels.heap, row_at(levels, d, c), levels.values, kind, row, columns, left, levels.marks[d, 1],
        levels.step, -levels.scale, 6,
    )  # fmt: skip
    levels.marks[d, 1] = mark
    levels.shape[WORK, 0] += columns
    return most, mark


@compiled_inside
def reaches(levels, d, c, line):
    """Whether anyone open adds more than `line` beside column c."""
    columns = levels.shape[COLUMNS, d]
    levels.shape[WORK, 0] += columns
    at, num = row_at(levels, d, c), np.uint64(columns)
    return line == -np.inf or excess(levels.heap, at, levels.values, ADDS, d, line, num) > 0.0


@compiled_inside
def descend(levels, d, c, num, line, kind, row):
    """Open at the next depth who may add more than `line` beside column c; returns how many."""
    heap, values, names, shape = levels.heap, levels.values, levels.names, levels.shape
    e, at = d + 1, row_at(levels, d, c)
    for s in range(WORK):
        shape[s, e] = shape[s, d]
    for y in range(np.uint64(shape[COLUMNS, d])):
        weight = heap[at + y]
        stays = weight + values[kind, row, y] > line
        values[ADDS, e, y] = values[ADDS, d, y] + weight if stays else -np.inf
    stay = 0
    for x in range(num):
        y = names[OPEN, d, x]
        names[OPEN, e, stay] = y
        stay += np.int64(values[ADDS, e, y] > -np.inf)
    return stay


@compiled_inside
def top_sum(values, num, left, top):
    """The sum of the `left` largest; leaves them, falling, in `top`. -inf where there are fewer."""
    if num < left:
        return -np.inf
    for k in range(left):
        top[k] = -np.inf
    lowest = -np.inf
    for i in range(num):
        value = values[i]
        if value > lowest:
            at = left - 1
            while at > 0 and top[at - 1] < value:
                top[at] = top[at - 1]
                at -= 1
            top[at] = value
            lowest = top[left - 1]
    total = 0.0
    for k in range(left):
        total += top[k]
    return total


@compiled_sums
def excess(heap, at, values, kind, d, mark, num):
    """By how much the sums heap[at : at + num] + values[kind, d, :num] exceed the mark together.

    `at` and `num` are unsigned: of a signed index the compiler would have to look whether it counts from the end.
    """
    total = 0.0
    for j in range(num):
        total += max(heap[at + j] + values[kind, d, j] - mark, 0.0)
    return total


@compiled_sums
def excess_and_count(heap, at, values, kind, d, mark, num):
    """The same, and how many exceed it."""
    total = 0.0
    count = np.int64(0)
    for j in range(num):
        over = heap[at + j] + values[kind, d, j] - mark
        total += max(over, 0.0)
        count += np.int64(over > 0.0)
    return total, count


@compiled_inside
def best_sum(heap, at, values, kind, d, num, k, mark, step, floor, tries):
    """(at least the sum of the k largest such sums, the mark that shows it); -inf where there are fewer than k.

    The bound is convex in the mark. From the mark given, better ones are guessed by the mean excess; once there is
    one too low and one too high, the next is where their tangents meet. All numbers, if any, lie above `floor`.
    """
    if not floor < mark < -floor:
        mark = 0.0
    low, bound_low, slope_low = -np.inf, 0.0, 0.0
    high, bound_high, slope_high = np.inf, 0.0, 0.0
    least, best_mark = np.inf, mark
    for _ in range(tries):
        over, count = excess_and_count(heap, at, values, kind, d, mark, np.uint64(num))
        bound = k * mark + over
        if bound < least:
            least, best_mark = bound, mark
        if count == k:
            break
        if count > k:
            low, bound_low, slope_low = mark, bound, np.float64(k - count)
        elif mark <= floor:
            return -np.inf, mark
        else:
            high, bound_high, slope_high = mark, bound, np.float64(k - count)
        if low > -np.inf and high < np.inf:
            mark = (bound_high - bound_low + slope_low * low - slope_high * high) / (slope_low - slope_high)
            if not low < mark < high or bound_low + slope_low * (mark - low) >= least:
                break
        elif count == 0:
            mark = max(mark - step, floor)
            step *= 2.0
        else:
            mark = max(mark + (count - k) * 2.0 * over / (count * count), floor)
    return least, best_mark
