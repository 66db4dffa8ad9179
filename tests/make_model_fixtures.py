"""Write the model folders that prove old formats load: run once per format number, then commit and never again."""

import json
from pathlib import Path

from exactk.model_files import FORMAT
from test_recommender import CANDIDATES, FIXTURES, MODELS, fitted

if __name__ == "__main__":
    for model in MODELS:
        place: Path = FIXTURES / f"model-{FORMAT}-{model}"
        if place.exists():
            continue  # it must stay as it is
        fitted(model).save(place)
        card = fitted(model).recommend("u3", CANDIDATES, 3)
        answer = {
            "user": "u3",
            "candidates": CANDIDATES,
            "k": 3,
            "items": list(card.items),
            "value": card.value,
        }
        place.with_suffix(".json").write_text(json.dumps(answer, indent=1) + "\n", encoding="utf-8")
