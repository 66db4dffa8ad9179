"""Everything that answers, in a process that refuses to import torch: prints what it answered as one JSON object."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any


class NoTorch:
    """Fails every import of torch."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name.partition(".")[0] in ("torch", "jax"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


def told(arguments: list[str]) -> dict[str, Any]:
    """What a command prints with --json."""
    from exactk.cli import main

    written = io.StringIO()
    sys.argv = ["exactk", *arguments, "--json"]
    with contextlib.redirect_stdout(written), contextlib.suppress(SystemExit):
        main()
    answer: dict[str, Any] = json.loads(written.getvalue())
    return answer


def answers(model: Path, asked: list[dict[str, Any]], scratch: Path) -> dict[str, Any]:
    """Cards of one model at every door."""
    import pyarrow.parquet as pq
    from starlette.testclient import TestClient

    from exactk import Recommender, Request
    from exactk.serving.app import create_app
    from exactk.serving.settings import Settings

    requests = [Request(row["user_id"], tuple(row["candidates"]), row["k"]) for row in asked]
    lines = scratch / f"{model.name}.jsonl"
    lines.write_text("".join(json.dumps(row) + "\n" for row in asked), encoding="utf-8")
    out = scratch / f"{model.name}-cards"
    told(["score", str(model), str(lines), "--out", str(out)])
    cards = Recommender.load(model).recommend_many(requests, explain=True)
    first = asked[0]
    items = [{"item_id": item} for item in first["candidates"]]
    body = [{"user": row["user_id"], "candidates": row["candidates"], "k": row["k"]} for row in asked]
    view = {"k": first["k"], "items": items, "user": first["user_id"], "scored_by": "model"}
    with TestClient(create_app(Settings(model=model, budget_ms=5000.0))) as client:
        served = client.post("/v1/cards", json={"requests": body}).json()["answers"]
        seen = client.post("/v1/studio/view", json=view)
        story = client.get("/v1/studio/model")
    return {
        "recommended": [list(card.items) for card in cards],
        "values": [card.value for card in cards],
        "reasons": [len(card.reasons) for card in cards],
        "scored": [
            card for part in sorted(out.glob("*.parquet")) for card in pq.read_table(part)["card"].to_pylist()
        ],
        "served": [answer.get("card", answer) for answer in served],
        "studio": [seen.status_code, story.status_code],
    }


def main(models: list[str], asked: str, scratch: str) -> None:
    """Answer, and see that training says what it lacks."""
    import exactk

    requests = json.loads(asked)
    found: dict[str, Any] = {
        Path(model).name: answers(Path(model), requests, Path(scratch)) for model in models
    }
    found["solved"] = list(exactk.solve([3.0, 2.0, 1.0], 2).positions)
    try:
        exactk.Recommender("tiny").fit(None)  # type: ignore[arg-type]
    except exactk.MissingExtraError as error:
        found["fit"] = str(error)
    found["torch"] = any(name.partition(".")[0] == "torch" for name in sys.modules)
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    sys.meta_path.insert(0, NoTorch())
    main(sys.argv[3:], sys.argv[1], sys.argv[2])
