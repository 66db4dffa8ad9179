"""What a service loads before it is ready: no request pays for a kernel, and none is compiled beside requests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FIXTURES = Path(__file__).parents[1] / "fixtures"

# In a process of its own: here, other tests have used every kernel already.
PROGRAM = """
import sys
from pathlib import Path
from exactk.problem.compiling import KernelCache
from exactk.serving.settings import Settings
from serving_server import client_of

model = Path(sys.argv[1]) if len(sys.argv) > 1 else None
late, load = [], KernelCache.load_overload

def noted(cache, signature, context):
    late.append(f"{cache._py_func.__name__} of {path}, {rules}: {signature}")
    return load(cache, signature, context)

TITLES = ["red wool", "red silk", "tent", "old lamp", "teapot", "boat", "ab", "ba"]
RULES = [
    [],
    [{"type": "title_distance", "minimum": 0.5}],
    [{"type": "distinct", "field": "category"}],
    [{"type": "at_most", "field": "category", "cap": 1}],
    [{"type": "total", "field": "price", "at_most": 9}, {"type": "slots", "weights": [3, 2, 1]}],
    [{"type": "variety", "field": "category", "at_least": 9}],
    [{"type": "prefer", "rule": {"type": "distinct", "field": "category"}, "worth": 0.1}],
]
EXTRA = [{}, {"explain": True}, {"include": [1]}, {"budget_ms": 1}]
PAIRS = [[0 if i == j else i * j % 3 for j in range(8)] for i in range(8)]
with client_of(Settings(model=model, budget_ms=60_000.0, max_budget_ms=60_000.0)) as client:
    KernelCache.load_overload = noted
    for prefix in ("", "i"):
        for rules in RULES:
            ids = [f"i{n}" if prefix else n for n in range(8)]
            items = [
                {"item_id": name, "title": title, "category": f"c{n % 3}", "price": n}
                for n, (name, title) in enumerate(zip(ids, TITLES))
            ]
            bodies = [("/v1/studio/view", {"constraints": [{"rule": rule} for rule in rules]})]
            for extra in EXTRA:
                extra = {name: [ids[1]] if name == "include" else said for name, said in extra.items()}
                bodies += [("/v1/solve", {"constraints": rules, **extra})]
                bodies += [("/v1/solve", {"constraints": rules, "pair_scores": PAIRS, **extra})]
                if model and prefix:
                    card = {"user": "u1", "k": 3, "constraints": rules, **extra}
                    bodies += [("/v1/cards", {"candidates": each, **card}) for each in (ids, items)]
            for path, body in bodies:
                if path != "/v1/cards":
                    body = {"k": 3, "scores": list(range(8)), "items": items, **body}
                status = client.post(path, json=body).status_code
                assert status in (200, 409, 422), (path, status)
                assert status != 422 or "budget_ms" in body or rules, (path, body)
    if model:
        path, rules = "/v1/cards", "the model's"
        body = {"user": "u1", "candidates": [f"i{n}" for n in range(12)], "k": 3}
        assert client.post(path, json=body).status_code == 200
    KernelCache.load_overload = load
sys.stdout.write("\\n".join(late))
"""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("model", ["", "model-1-pair_value", "model-1-guided", "model-1-policy"])
def test_no_request_is_the_first_to_use_a_kernel(model: str) -> None:
    arguments = [str(FIXTURES / model)] if model else []
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines() == []
