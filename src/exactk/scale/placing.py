"""Parts handed out: one after the other in this process, or to the workers of a Ray cluster by Ray Data.

Knows nothing of what is done with a part, only that doing it twice does no harm.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from exactk.errors import DataError, ExactKError
from exactk.scale.cluster import cluster
from exactk.scale.plan import Part

Report = dict[str, Any]
Work = Callable[[Part], Report]  # makes a part and reports on it, in plain JSON


@dataclass(frozen=True)
class Placement:
    """Where parts are made: in this process, or by `workers` of a Ray cluster."""

    ray: bool = False
    address: str | None = None
    workers: int = 1


HERE = Placement()


def placed(
    prepare: Callable[[Any], Work], job: Any, parts: Sequence[Part], placement: Placement
) -> Iterator[Report]:
    """Reports in whatever order parts are finished. `prepare(job)`, say loading a model, is done once a worker."""
    if not parts:
        return
    if placement.ray:
        yield from _on_ray(prepare, job, parts, placement)
        return
    work = prepare(job)
    for part in parts:
        yield work(part)


class PartWorker:
    """The work as Ray Data takes it: one to a worker, rows that name parts in, rows that report on them out."""

    def __init__(self, prepare: Callable[[Any], Work], job: Any) -> None:
        self.work = prepare(job)

    def __call__(self, rows: Mapping[str, Any]) -> dict[str, list[str]]:
        """Make the parts named. What is wrong with the data is told, not raised: Ray would try again and again."""
        told = []
        for text in rows["part"]:
            try:
                told.append(json.dumps(self.work(Part(**json.loads(text)))))
            except ExactKError as error:
                told.append(json.dumps({"error": str(error)}))
        return {"report": told}


def _on_ray(
    prepare: Callable[[Any], Work], job: Any, parts: Sequence[Part], placement: Placement
) -> Iterator[Report]:
    with cluster(placement.address, placement.workers):
        from ray import data

        logging.getLogger("ray.data").setLevel(logging.ERROR)
        data.DataContext.get_current().enable_progress_bars = False  # ours tells more
        named = [{"part": json.dumps(asdict(part))} for part in parts]
        made = data.from_items(named, override_num_blocks=len(named)).map_batches(
            PartWorker,
            fn_constructor_args=(prepare, job),
            batch_size=1,
            compute=data.ActorPoolStrategy(size=min(placement.workers, len(parts))),
            num_cpus=1,
        )
        for row in made.iter_rows():
            report: Report = json.loads(row["report"])
            if "error" in report:
                raise DataError(report["error"])
            yield report
