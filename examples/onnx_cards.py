"""Whole cards with nothing but onnxruntime and numpy: python examples/onnx_cards.py cards.onnx

The file comes from `exactk export --to onnx`; `user` and `item` are indices of the model's vocabulary.
"""

import sys

import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
rng = np.random.default_rng(0)
B, N = 3, 12  # any batch, any number of candidates
shapes = {"user": (B,), "item": (B, N), "present": (B, N), "graph": (B, N, N)}
request = {}
for wanted in session.get_inputs():
    shape = shapes.get(wanted.name) or (
        *((B, N) if wanted.name.startswith("item") else (B,)),
        wanted.shape[-1],
    )
    kinds = {"tensor(int64)": np.zeros(shape, np.int64), "tensor(bool)": np.ones(shape, bool)}
    request[wanted.name] = kinds.get(wanted.type, rng.normal(size=shape).astype(np.float32))
request["graph"][:, 0, 1] = request["graph"][:, 1, 0] = False  # the first two may not share a card
card, log_prob, found = session.run(["card", "log_prob", "found"], request)
for b in range(B):
    sys.stdout.write(
        f"request {b}: positions {card[b].tolist()}, log-probability {log_prob[b]:.3f}, found {found[b]}\n"
    )
