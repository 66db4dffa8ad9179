"""The paper's own figures, as printed, to stand beside ours.

Knows nothing else.
"""

from __future__ import annotations

# Table 1, per column: (P@K, HR@K). "ours" is the paper's GAttN trained with RLfD.
MAIN: dict[str, dict[str, tuple[float, float]]] = {
    "k4-n20": {
        "DeepRank": (0.2120, 0.1670),
        "BPR": (0.3040, 0.2050),
        "Listwise-GRU": (0.4142, 0.2423),
        "Listwise-MHSA": (0.4272, 0.2465),
        "GAttN + RLfD, paper": (0.4743, 0.2611),
    },
    "k10-n50": {
        "DeepRank": (0.0854, 0.1320),
        "BPR": (0.2350, 0.1801),
        "Listwise-GRU": (0.4041, 0.2144),
        "Listwise-MHSA": (0.4384, 0.2168),
        "GAttN + RLfD, paper": (0.4815, 0.2245),
    },
    "world": {  # Taobao, whose data was never published: another data set, shown for its shape alone
        "DeepRank": (0.6857, 0.6045),
        "BPR": (0.7357, 0.6582),
        "Listwise-GRU": (0.7645, 0.6942),
        "Listwise-MHSA": (0.7789, 0.7176),
        "GAttN + RLfD, paper": (0.7958, 0.7488),
    },
}

# Table 2, on K=4, N=20, in the order of `presets.ABLATIONS`.
ABLATION: tuple[tuple[float, float], ...] = (
    (0.3340, 0.2314),
    (0.3573, 0.2330),
    (0.4095, 0.2401),
    (0.4272, 0.2465),
    (0.4495, 0.2514),
    (0.4472, 0.2534),
    (0.4743, 0.2611),
)
