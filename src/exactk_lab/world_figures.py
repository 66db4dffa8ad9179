"""Pictures of a world: how good cards are, what goes together, what the knobs do, what a log sees, one request.

Knows the truth (evaluation may); matplotlib is asked for when a picture is drawn. All of them at once:
`python -m exactk_lab.world_figures docs/img`.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from exactk.data.world import Optimum, World, WorldRequests
from exactk.data.world.log import DAYS, FIRST_DAY, moments, splits
from exactk.data.world.recipe import CATEGORIES, WorldConfig, complement_table
from exactk.data.world.titles import as_strings
from exactk.data.world.writing import ITEM_FEATURES, USER_FEATURES, item_features, user_features
from exactk.errors import MissingExtraError
from exactk_lab.world_summary import any_cards, asked_and_shown, card_values, pair_optimum

INK, OURS, PLAIN, PALE = "#1e293b", "#c2410c", "#475569", "#cbd5e1"
HELPS, HURTS = "#0f766e", "#b91c1c"


def draw_all(folder: Path | str, config: WorldConfig | None = None) -> list[Path]:
    """Every picture of `docs/understand/world.md`, as PNG files in `folder`."""
    world = World(config or WorldConfig())
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    pictures = {
        "values": values,
        "complements": complements,
        "knobs": knobs,
        "features": features,
        "request": request,
        "traffic": traffic,
    }
    paths = []
    for name, draw in pictures.items():
        figure = draw(world)
        paths.append(folder / f"world-{name}.png")
        figure.savefig(paths[-1], dpi=130)
    return paths


def values(world: World) -> Any:
    """True click probability of random, logged, best single-item and optimal cards."""
    asked, logged = asked_and_shown(world)
    rows = [
        ("any valid card", card_values(world, asked, any_cards(world, asked)), PALE),
        ("logged", card_values(world, asked, logged), PLAIN),
        ("best single items", world.best_singles(*asked).value, "#f59e0b"),
        ("optimum", world.optimum(*asked).value, OURS),
    ]
    figure, axes = _figure(7.2, 3.2)
    edges = np.linspace(0, 1, 51)
    for height, (name, value, colour) in enumerate(rows):
        share = np.histogram(value, edges)[0] / len(value)
        bars = 0.7 * share / share.max()
        axes.bar(edges[:-1], bars, width=0.02, bottom=height, align="edge", color=colour, linewidth=0)
        axes.plot([value.mean()] * 2, [height, height + 0.92], color=INK, linewidth=1.4)
        axes.text(value.mean() + 0.012, height + 0.76, f"mean {value.mean():.3f}", fontsize=8, color=INK)
        axes.text(-0.01, height + 0.3, name, ha="right", fontsize=9, color=INK)
    axes.set(xlim=(0, 1), ylim=(0, 4), yticks=[], xlabel="true click probability of the card")
    axes.set_title(f"{len(asked.users):,} requests of the default world", fontsize=10, loc="left", color=INK)
    axes.spines["left"].set_visible(False)
    return figure


def complements(world: World) -> Any:
    """Which categories help each other on a card, and which clash."""
    effects = world.truth.effects
    table = effects.complement * complement_table()
    np.fill_diagonal(table, -effects.same_category)
    figure, axes = _figure(6.6, 5.6)
    shown = axes.imshow(table, cmap=_diverging(), vmin=-0.5, vmax=0.5)
    for i, j in zip(*np.nonzero(table), strict=True):
        colour = "white" if abs(table[i, j]) > 0.33 else INK
        axes.text(
            j, i, f"{table[i, j]:.2f}".replace("0.", "."), ha="center", va="center", fontsize=6, color=colour
        )
    axes.set_xticks(range(len(CATEGORIES)), CATEGORIES, rotation=45, ha="right", fontsize=8)
    axes.set_yticks(range(len(CATEGORIES)), CATEGORIES, fontsize=8)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    bar = figure.colorbar(shown, ax=axes, shrink=0.8)
    bar.set_label("effect of the pair on the card's log-odds, strength 1", fontsize=8)
    bar.outline.set_visible(False)
    return figure


def knobs(world: World) -> Any:
    """What each knob costs those who ignore what it rules."""
    asked, _ = asked_and_shown(world, 600)
    strengths, themes = np.linspace(0, 3, 7), np.linspace(0, 3, 7)
    figure, (left, right) = _figure(8.4, 3.3, columns=2)
    singles = []
    for strength in strengths:
        other = World(replace(world.config, strength=float(strength)))
        singles.append(float(other.best_singles(*asked).value.mean() / other.optimum(*asked).value.mean()))
    left.plot(strengths, singles, color=OURS, marker="o", markersize=4)
    left.axhspan(0.8, 0.9, color=PALE, alpha=0.5, linewidth=0)
    left.axvline(world.config.strength, color=PLAIN, linewidth=1, linestyle="--")
    left.text(world.config.strength + 0.05, 0.985, "default", fontsize=8, color=PLAIN)
    left.set(xlabel="strength", ylabel="share of the optimum's true value")
    left.set_title("the best single items", fontsize=10, loc="left", color=INK)
    by_pairs = []
    for theme in themes:
        other = World(replace(world.config, theme=float(theme)))
        reached = card_values(other, asked, pair_optimum(other, asked))
        by_pairs.append(float(reached.mean() / other.optimum(*asked).value.mean()))
    right.plot(themes, by_pairs, color=HELPS, marker="o", markersize=4)
    right.set(xlabel="theme")
    right.set_title("the best items and pairs, themes ignored", fontsize=10, loc="left", color=INK)
    for axes in (left, right):
        axes.set_ylim(min(*singles, *by_pairs) - 0.03, 1.01)
        axes.yaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
        axes.grid(visible=True, alpha=0.25)
    return figure


def features(world: World) -> Any:
    """Four statistics beside the truth they are views of."""
    num_items, num_users = min(1_500, world.config.items), min(1_500, world.config.users)
    seed = world.config.seed
    items = item_features(world.goods, world.shop.geometry, seed, 0, 0, num_items)
    users = user_features(world.people, world.shop.geometry, seed, 0, 0, num_users)
    quality = world.goods.quality[:num_items]
    taste = world.people.taste[:num_users, 0]
    pairs = [
        ("click rate, 1 day", "quality", quality, items[:, ITEM_FEATURES.index("click_rate_1d")]),
        ("click rate, 14 days", "quality", quality, items[:, ITEM_FEATURES.index("click_rate_14d")]),
        ("rating", "quality", quality, items[:, ITEM_FEATURES.index("rating")]),
        ("taste 0, seen in 1 day", "taste 0", taste, users[:, USER_FEATURES.index("taste_1d_0")]),
    ]
    figure, row = _figure(9.6, 2.7, columns=4)
    for axes, (seen_name, true_name, true, seen) in zip(row, pairs, strict=True):
        axes.plot(true, seen, ".", markersize=2, alpha=0.35, color=PLAIN, markeredgewidth=0)
        agreement = np.corrcoef(true, seen)[0, 1]
        axes.set_title(f"{seen_name}\ncorrelation {agreement:.2f}", fontsize=9, loc="left", color=INK)
        axes.set_xlabel(f"true {true_name}", fontsize=8)
        axes.tick_params(labelsize=7)
    return figure


def request(world: World) -> Any:
    """One request: who may share a card with whom, and the two cards that ignoring and knowing pairs leads to."""
    asked, _ = asked_and_shown(world, 400)
    best, singles = world.optimum(*asked), world.best_singles(*asked)
    b = _telling(world, asked, best, singles)
    category = world.goods.category[asked.items[b]]
    order = np.argsort(category, kind="stable")
    graph = asked.requests.graph[b][order][:, order]
    figure, (left, middle, right) = _figure(12.4, 4.3, columns=3)
    _matrix(left, graph, category[order])
    for axes, name, found in (middle, "best single items", singles), (right, "optimum", best):
        _card(axes, world, asked, b, found.card[b])
        axes.set_title(f"{name}: clicked with probability {found.value[b]:.2f}", fontsize=10, color=INK)
    return figure


def traffic(world: World) -> Any:
    """When requests come, and which days train and test."""
    total = world.config.impressions
    hour = (moments(0, total, total) - FIRST_DAY) / np.timedelta64(1, "h")
    part = splits(0, total, total)
    figure, axes = _figure(8.4, 2.3)
    bottom = np.zeros(24 * DAYS)
    for name, colour in ("train", PLAIN), ("valid", "#f59e0b"), ("test", OURS):
        count = np.histogram(hour[part == name], np.arange(24 * DAYS + 1))[0]
        axes.bar(
            np.arange(24 * DAYS) + 0.5, count, width=0.9, bottom=bottom, color=colour, label=name, linewidth=0
        )
        bottom += count
    axes.set_xticks(range(0, 24 * DAYS + 1, 12), [f"{h % 24:02d}:00" for h in range(0, 24 * DAYS + 1, 12)])
    axes.set(ylabel="impressions an hour", xlim=(0, 24 * DAYS))
    axes.legend(frameon=False, ncols=3, fontsize=8, loc="upper left", bbox_to_anchor=(0, 1.16))
    return figure


def _telling(world: World, asked: WorldRequests, best: Optimum, singles: Optimum) -> int:
    """A request whose best card holds the paper's hat and scarf, and whose best single items reach about 70% of it."""
    category = world.goods.category[np.take_along_axis(asked.items, best.card, axis=1)]  # B K
    paired = (category == CATEGORIES.index("hat")).any(1) & (category == CATEGORIES.index("scarf")).any(1)
    return int(np.argmin(np.abs(singles.value / best.value - 0.7) + 10 * ~paired))


def _matrix(axes: Any, graph: np.ndarray, category: np.ndarray) -> None:
    """Forbidden pairs of the candidates, sorted by category."""
    N = len(graph)
    forbidden = ~graph & ~np.eye(N, dtype=bool)
    axes.imshow(np.where(forbidden, 1.0, 0.0), cmap=_two_tone(), vmin=0, vmax=1)
    starts = np.flatnonzero(np.diff(category, prepend=-1))
    for start in starts[1:]:
        axes.axhline(start - 0.5, color=PALE, linewidth=0.6)
        axes.axvline(start - 0.5, color=PALE, linewidth=0.6)
    middles = (starts + np.append(starts[1:], N) - 1) / 2
    axes.set_yticks(middles, [CATEGORIES[category[start]] for start in starts], fontsize=7)
    axes.set_xticks([])
    axes.tick_params(length=0)
    axes.set_title(
        f"{forbidden.sum() / (N * (N - 1)):.0%} of the pairs forbidden by their titles",
        fontsize=10,
        color=INK,
    )


def _card(axes: Any, world: World, asked: WorldRequests, b: int, card: np.ndarray) -> None:
    """Items as boxes with title and liking, pairs as lines with their effect."""
    items = asked.items[b, card]
    node, pair = world.node_pair(asked.users[b : b + 1], items[None])
    places = [(0, 1), (1, 1), (0, 0), (1, 0)][: len(items)]
    for i, j in combinations(range(len(places)), 2):
        effect = pair[0, i, j]
        colour = PALE if effect == 0 else HELPS if effect > 0 else HURTS
        (x0, y0), (x1, y1) = places[i], places[j]
        axes.plot(
            [x0, x1], [y0, y1], color=colour, linewidth=1 + 7 * abs(effect), zorder=1, solid_capstyle="round"
        )
        near = 0.5 if x0 == x1 or y0 == y1 else 0.32  # two diagonals cross in the middle: label them aside
        axes.text(x0 + near * (x1 - x0), y0 + near * (y1 - y0), f"{effect:+.2f}", fontsize=8, ha="center", va="center",
                  color=INK, zorder=2, bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.2})  # fmt: skip
    for a, (x, y) in enumerate(places):
        title = as_strings(world.shop.titles, int(items[a]), int(items[a]) + 1)[0].as_py()
        label = f"{_wrapped(title)}\nliking {node[0, a]:+.2f}"
        axes.text(x, y, label, fontsize=7.5, ha="center", va="center", color=INK, zorder=3,
                  bbox={"facecolor": "#f8fafc", "edgecolor": PLAIN, "boxstyle": "round,pad=0.45"})  # fmt: skip
    axes.set(xlim=(-0.42, 1.42), ylim=(-0.25, 1.25), xticks=[], yticks=[])
    axes.spines[:].set_visible(False)


def _wrapped(title: str) -> str:
    """A title on two lines, broken near its middle."""
    words = title.split()
    middle = min(range(1, len(words)), key=lambda w: abs(len(" ".join(words[:w])) - len(title) / 2))
    return " ".join(words[:middle]) + "\n" + " ".join(words[middle:])


def _figure(width: float, height: float, columns: int = 1) -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("pictures need matplotlib: pip install 'exactk[plot]'") from error
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(1, columns)
    for one in np.ravel(axes):
        one.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _diverging() -> Any:
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("effect", [HURTS, "white", HELPS])


def _two_tone() -> Any:
    from matplotlib.colors import ListedColormap

    return ListedColormap(["#f8fafc", HURTS])


if __name__ == "__main__":
    draw_all(sys.argv[1] if len(sys.argv) > 1 else "docs/img")
