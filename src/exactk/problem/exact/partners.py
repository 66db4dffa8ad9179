"""How much the best of many numbers come to: exactly by insertion, or nearly, and many times faster, by a mark.

Knows no cards. For any mark t the k largest of some numbers come to k t plus all excesses over t at most, and to just
that if k of them exceed it: of 9 7 4 1 the two largest are 2 * 5 + 4 + 2. An excess is a few machine instructions for
eight numbers at once, where sorting them in would guess wrong at every other branch.
"""

from __future__ import annotations

import numpy as np

from exactk.problem.exact.bits import compiled_inside, compiled_sums


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
