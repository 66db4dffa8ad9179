"""Branch and bound for the best cards under a brief: node and pair weights, sums, variety, preferences, places.

Knows the demands as `wants.py` lays them out. The bound is that of `levels.py`, on weights that prices of sums and
places have moved (`brief_root.py`), less what broken preferences will cost at least.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from exactk.problem.exact.bits import compiled_inside, compiled_into, compiled_within, seconds
from exactk.problem.exact.brief_root import (
    Crowd,
    Root,
    dearest_crowd,
    least_crowding,
    root_of,
    rows_exclude,
    top_apart,
    without_crowd,
)
from exactk.problem.exact.leaves import (
    LARGEST_SUM,
    TOO_LARGE,
    Best,
    bar_of,
    count_clashes,
    leaf_of,
    offer_leaf,
    offer_pairs,
    offer_with,
)
from exactk.problem.exact.levels import (
    ADDS,
    COLUMNS,
    HOPE,
    OPEN,
    ORDER,
    ROWS,
    SCRATCH,
    beside,
    descend,
    first_matrix,
    keep_open,
    levels_of,
    take_worthiest,
    tighten,
    top_worths,
    weigh,
    weigh_finely,
    who_is,
)
from exactk.problem.exact.pairs import bound_of_rest, come_too_late, drop_full, path_of
from exactk.problem.exact.setup import count_in, has_bad, put_back, small_of
from exactk.problem.exact.start import largest, start_with
from exactk.problem.exact.wants import owed, still_possible, wants_of, wear

STARTS = 6  # the first before the search, the others once it lasts
STARTS_AFTER = 64  # picks tried before that
SHARES = (0.0, 0.25, 0.5)


class More(NamedTuple):
    """What a search under a brief keeps beside its path, by depth."""

    crowding: np.ndarray  # what crowds will cost at least
    row_sums: np.ndarray
    clashing: np.ndarray  # by preference
    taken: np.ndarray  # positions, what must be held first
    names: np.ndarray  # scratch
    seen: np.ndarray


@compiled_within
def more_of(w, small, left, row_sums, clashing):
    """Before the first of `left` picks; `row_sums` and `clashing` are of what must be held."""
    held, m = len(small.must), len(small.position)
    M, P = len(row_sums), len(clashing)
    sums, clashes = np.zeros((left + 1, M), np.int64), np.zeros((left + 1, P), np.int64)
    taken = np.empty(w.size, np.int64)
    # By hand: numba takes a second to compile an array set to another.
    for r in range(M):
        sums[0, r] = row_sums[r]
    for p in range(P):
        clashes[0, p] = clashing[p]
    for k in range(held):
        taken[k] = small.must[k]
    return More(
        np.zeros(left), sums, clashes, taken, np.empty(m, np.int64), np.zeros(m + len(small.room) + 1, np.int64)
    )  # fmt: skip


@compiled_inside
def keep_possible(levels, d, num, w, small, picks, num_picks, need, more):
    """Close who is in no valid card with the picks; returns how many stay, -1 where no card can be completed."""
    for x in range(num):
        more.names[x] = who_is(levels, d, levels.names[OPEN, d, x])
    num = still_possible(
        w, small, more.row_sums[num_picks], picks, num_picks, more.names, levels.names[OPEN, d], num, need
    )
    if num >= need:
        keep_open(levels, d, num)
    return num


@compiled_inside
def hopes_apart(levels, d, num, crowd, i):
    """(kind of values, row) that says what may be hoped beside candidate i: less for who is of its crowd."""
    if crowd.price == 0.0:
        return HOPE, d
    values, names = levels.values, levels.names
    for c in range(levels.shape[COLUMNS, d]):
        values[SCRATCH, 0, c] = values[HOPE, d, c]
    for x in range(num):
        c = names[OPEN, d, x]
        if crowd.code[who_is(levels, d, c)] == crowd.code[i]:
            values[SCRATCH, 0, c] -= crowd.price
    return SCRATCH, 0


@compiled_inside
def crowd_out(levels, d, num, crowd, i):
    """Take off what everyone of i's crowd adds the price of standing beside i."""
    for x in range(num):
        c = levels.names[OPEN, d, x]
        if crowd.code[who_is(levels, d, c)] == crowd.code[i]:
            levels.values[ADDS, d, c] -= crowd.price


@compiled_inside
def crowding_of(levels, d, num, need, crowd, seen):
    """What the crowds among `need` of what is open cost at least."""
    if crowd.price == 0.0:
        return 0.0
    for x in range(num):
        levels.names[ORDER, 0, x] = who_is(levels, d, levels.names[OPEN, d, x])
    return crowd.price * least_crowding(crowd.code, levels.names[ORDER, 0], num, need, seen)


@compiled_inside
def count(shelf, w, small, more, held, depth, i, step):
    """Count candidate i in (step 1) as the pick of that depth, or out (step -1): groups, values, sums and clashes."""
    wear(w, i, step)
    if step < 0:
        put_back(i, small.label, small.used)
        return
    count_in(i, small.label, small.used)
    for r in range(len(w.lower)):
        more.row_sums[depth + 1, r] = more.row_sums[depth, r] + w.coefficient[r, i]
    for p in range(len(w.worth)):
        more.clashing[depth + 1, p] = more.clashing[depth, p]
    more.taken[held + depth] = small.position[i]
    count_clashes(shelf, w.once, more.taken, held + depth, small.position[i], more.clashing[depth + 1])


@compiled_inside
def settle_share(levels, num, left, apart, crowd, small, seen, line, deadline):
    """Let candidates lend to partners the least that gives a low bound at the root, or one not above `line`.

    Bounds that know crowds and caps see what each keeps; and where pairs weigh little there is little to lend for.
    Returns that bound.
    """
    least, best = np.inf, 0.0
    for share in SHARES:
        levels.share[0] = share
        floor = weigh(levels, 0, num, left - 1)
        weigh_finely(levels, 0, num, left - 1, -np.inf, floor)
        most = top_worths(levels, 0, num, left)
        if apart:
            most = top_apart(levels, 0, num, left, crowd, small, seen)
        if most < least - 1e-3 * abs(least) or share == 0.0:
            least, best = most, share
        if most <= line or seconds() > deadline:
            break
    levels.share[0] = best
    return least


@compiled_within
def start_again(shelf, w, small, leaf, root, crowd, row_sums, picks, deadline, best):
    """Offer the other starts while the search stands behind `picks`, which are worn."""
    pairs = root.pairs
    if crowd.price > 0.0:  # its price has been taken out of the matrix
        pairs = pairs.copy()
        for i in range(len(crowd.code)):
            for j in range(len(crowd.code)):
                pairs[i, j] -= crowd.price * (crowd.code[i] == crowd.code[j])
    for k in range(len(picks)):
        wear(w, picks[k], -1)
    given = Root(root.total, root.scale, root.largest, root.adds, root.guided, pairs, root.hope)
    start_with(shelf, w, small, leaf, given, row_sums, 1, STARTS, deadline, best)
    for k in range(len(picks)):
        wear(w, picks[k], 1)


@compiled_inside
def branch(shelf, w, small, leaf, levels, crowd, root, first_only, deadline, best, path, more):
    """Search all cards of three picks or more; returns (a bound on what was not searched, whether all was)."""
    left, held = len(path.picks), len(small.must)
    values, shape = levels.values, levels.shape
    num, sums, costs, picks = path.num, path.sums, path.costs, path.picks
    crowding, scratch, last = more.crowding, path.scratch, best.cards[len(best.cards) - 1]
    apart = crowd.price > 0.0 or small.label.shape[0] > 0
    pace = 1 if len(w.follows) else 4  # looks at the clock: where neighbours matter, a step takes long
    for i in range(shape[ROWS, 0]):
        if values[ADDS, 0, i] > -np.inf:  # else there is no place for it
            levels.names[OPEN, 0, num[0]] = i
            num[0] += 1
    num[0] = keep_possible(levels, 0, num[0], w, small, picks, 0, left, more)
    if num[0] < left:
        return -np.inf, True
    crowding[0] = crowding_of(levels, 0, num[0], left, crowd, more.seen)
    costs[0] = owed(w, left, more.clashing[0], leaf.broken) + crowding[0]
    sums[0] = root.total
    if not (first_only or levels.free):
        line = bar_of(best) - best.slack - root.total + costs[0] - crowding[0]
        most = settle_share(levels, num[0], left, apart, crowd, small, more.seen, line, deadline)
        if seconds() > deadline:
            return max(bar_of(best), root.total + most + crowding[0] - costs[0]), most <= line
    steps, depth = 0, 0
    entering = True
    while depth >= 0:
        need, e = left - depth, depth + 1
        total = sums[depth]
        low, high = bar_of(best) - best.slack + costs[depth], bar_of(best) + best.slack + costs[depth]
        if entering:
            entering = False
            num[depth] = tighten(levels, depth, num[depth], need, low - total)
        most = total + top_worths(levels, depth, num[depth], need) if num[depth] >= need else -np.inf
        if apart and most > low:
            closer = top_apart(levels, depth, num[depth], need, crowd, small, more.seen)
            # What crowds cost is in `closer` to the full, in `costs` at least: it must not count twice.
            most = min(most, total + closer + crowding[depth])
        # "Not above" and not "at most": a sum that is no number ends the branch, too.
        if not most > low or (
            most <= high and come_too_late(levels, depth, num[depth], picks, depth, need, last, scratch)
        ):
            depth -= 1
            if depth >= 0:
                count(shelf, w, small, more, held, depth, picks[depth], -1)
            continue
        steps += 1
        if steps % pace == 0 and seconds() > deadline:
            return max(bar_of(best), bound_of_rest(levels, depth, path)), False
        if steps == STARTS_AFTER and len(best.weights) == 1 and not first_only:
            start_again(shelf, w, small, leaf, root, crowd, more.row_sums[0], picks[:depth], deadline, best)
            continue
        c = take_worthiest(levels, depth, num[depth])
        num[depth] -= 1
        i = picks[depth] = who_is(levels, depth, c)
        total += values[ADDS, depth, c]
        kind, row = hopes_apart(levels, depth, num[depth], crowd, i)
        most, least = beside(levels, depth, c, need - 1, kind, row)
        # What the pick clashes with is in what all add now, and was in the crowding of its level.
        low, high = low - crowding[depth], high - crowding[depth]
        if not total + most > low or (
            total + most <= high
            and come_too_late(levels, depth, num[depth], picks, e, need - 1, last, scratch)
        ):
            continue
        stay = descend(levels, depth, c, num[depth], low - total - (most - least), kind, row)
        if stay < need - 1:
            continue
        if crowd.price > 0.0:
            crowd_out(levels, e, stay, crowd, i)
        count(shelf, w, small, more, held, depth, i, 1)
        if small.label.shape[0] > 0:
            stay = drop_full(levels, e, stay, small)
        if stay >= need - 1:
            stay = keep_possible(levels, e, stay, w, small, picks, e, need - 1, more)
        if stay >= need - 1:
            crowding[e] = crowding_of(levels, e, stay, need - 1, crowd, more.seen)
            costs[e] = owed(w, need - 1, more.clashing[e], leaf.broken) + crowding[e]
        if stay < need - 1 or total + most <= bar_of(best) - best.slack + costs[e]:
            count(shelf, w, small, more, held, depth, i, -1)
            continue
        if need == 3:
            finished = offer_pairs(
                shelf, w, small, leaf, levels, e, stay, total, costs[e], picks, more.row_sums[e], first_only,
                deadline, best,
            )  # fmt: skip
            count(shelf, w, small, more, held, depth, i, -1)
            if not finished:
                beside_pick = total + most - costs[depth] + crowding[depth]
                return max(bar_of(best), beside_pick, bound_of_rest(levels, depth, path)), False
            if first_only and best.num[0] == len(best.weights):
                return np.inf, False
            continue
        depth = e
        num[e], sums[e] = stay, total
        entering = True
    return bar_of(best), True


@compiled_within
def offer_few(shelf, w, small, leaf, levels, total, row_sums, first_only, deadline, best):
    """Offer all cards of two picks or one; returns (a bound on what was not searched, whether all was)."""
    left, m = len(leaf.card), len(small.position)
    picks = np.empty(left, np.int64)
    if left == 1:
        for i in range(m):
            picks[0] = i
            offer_with(shelf, w, small, leaf, picks, 1, row_sums, best)
    elif not offer_pairs(
        shelf, w, small, leaf, levels, 0, m, total, 0.0, picks, row_sums, first_only, deadline, best
    ):
        adds = levels.values[ADDS, 0]
        return total + 2.0 * adds[largest(adds)] + levels.largest, False
    return bar_of(best), True


@compiled_into
def search_brief(
    shelf, graph, brief, b, must, held, position, m, left, group, cap, deadline, first_only, cards, weights, fault
):  # fmt: skip
    """Fill the best cards; returns (how many were found, a bound on what was not searched, whether all was).

    A card is written as the places of its picks in `position`, ascending, without what must be held.

    With `first_only` any card will do, and the weights are not looked at.
    """
    num = np.zeros(1, np.int64)
    if len(shelf.joint) and has_bad(shelf.joint, must, held, position, m, fault):
        return 0, 0.0, False
    row_sums, clashing = np.zeros(brief.lower.shape[1], np.int64), np.zeros(brief.worth.shape[1], np.int64)
    small = small_of(group, cap, must, held, position, m, left)
    w = wants_of(brief, b, small, left, row_sums)
    leaf = leaf_of(w, left)
    for k in range(held):
        count_clashes(shelf, w.once, must, k, must[k], clashing)
    if left == 0:
        offer_leaf(shelf, w, small, leaf, leaf.card, row_sums, Best(cards, weights, num, 0.0))
        return num[0], -np.inf, True
    heap, pairs = first_matrix(m)
    root = root_of(shelf, w, small, graph, row_sums, left, not first_only, pairs, fault)
    if np.isnan(root.largest):
        return 0, 0.0, False
    if root.total == -np.inf:  # something held has no place
        return 0, -np.inf, True
    if not root.scale <= LARGEST_SUM:
        fault[0], fault[1] = 0, TOO_LARGE
        return 0, 0.0, False
    size = held + left
    best = Best(cards, weights, num, root.scale * (size * size + 8) * 2.3e-16)
    if (first_only or len(weights) == 1) and m >= left:
        start_with(shelf, w, small, leaf, root, row_sums, 0, 1, deadline, best)
        if first_only and num[0]:
            return num[0], np.inf, False
    if m < left or (left > 2 and num[0] == 0 and rows_exclude(w, row_sums, left)):
        return num[0], -np.inf, True
    crowd, heaviest, free = Crowd(np.zeros(m, np.int64), 0.0), root.largest, False
    if left > 2 and not first_only:
        crowd = dearest_crowd(shelf, w, small)
        heaviest, free = without_crowd(pairs, heaviest, crowd)
    levels = levels_of(heap, root.guided, heaviest, free, left)
    if left < 3:
        bound, complete = offer_few(
            shelf, w, small, leaf, levels, root.total, row_sums, first_only, deadline, best
        )
        return num[0], bound, complete
    path, more = path_of(left), more_of(w, small, left, row_sums, clashing)
    bound, complete = branch(
        shelf, w, small, leaf, levels, crowd, root, first_only, deadline, best, path, more
    )
    return num[0], bound, complete
