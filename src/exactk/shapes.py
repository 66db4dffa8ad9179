"""The array types that signatures speak: dimension letters are B, N, K, D, H, S, W, F, C (groups of caps).

Checked by machine in the tests (jaxtyping's pytest hook), free in production.
"""

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int32, Int64

BoolArray = Bool[np.ndarray, "..."]
FloatArray = Float64[np.ndarray, "..."]

Graph = Bool[np.ndarray, "N N"]
Graphs = Bool[np.ndarray, "B N N"]
NodeWeights = Float64[np.ndarray, "N"]
PairWeights = Float64[np.ndarray, "N N"]
Positions = Int64[np.ndarray, "K"]

__all__ = [
    "Bool",
    "BoolArray",
    "Float32",
    "Float64",
    "FloatArray",
    "Graph",
    "Graphs",
    "Int32",
    "Int64",
    "NodeWeights",
    "PairWeights",
    "Positions",
]
