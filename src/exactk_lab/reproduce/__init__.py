"""The paper's evaluation, table by table and figure by figure, from data to picture, with what the paper left out.

`PARTS` names what can be reproduced; each part is a module with `run(place, options) -> Report`.
"""

from __future__ import annotations

PARTS: dict[str, str] = {
    "main": "the main table: the paper's methods, plain baselines, the leak probe, leak-free data",
    "ablation": "the seven rows of the RLfD table, then our own options",
    "beam": "beam width against P@K, HR@K and milliseconds",
    "alpha": "the weight of supervision against reward",
    "curves": "learning curves with and without hill climbing, with and without policy sampling",
    "attention": "what the encoder of one request attends to, by film names",
}
