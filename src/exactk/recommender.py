"""The Python door: fit, recommend, evaluate, save, load; the same class whatever the model and search.

Knows no network from inside: `learning` teaches and decides, `model_folder` keeps, `reasons` explains.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
from jaxtyping import Int

from exactk import model_folder
from exactk.data.catalogue import Catalogue
from exactk.data.dataset import Dataset
from exactk.data.requests import Request
from exactk.engine.decide import Decider, Decision, decider_of
from exactk.engine.reasons import RuledBatch, card_of, why_not, with_rules_relaxed
from exactk.errors import ExactKError, InputError, MissingExtraError
from exactk.evaluation import metrics
from exactk.problem.batch import Batch
from exactk.problem.given import RelaxOrder, Rules
from exactk.problem.rules.constraints import Constraints
from exactk.problem.solving import Card
from exactk.settings.config import Config
from exactk.settings.presets import preset

if TYPE_CHECKING:
    from exactk.learning import progress

# Further figures of cards at places of a view, one number per request.
Judge = Callable[[Dataset, Int[np.ndarray, "B"], Int[np.ndarray, "B K"]], dict[str, np.ndarray]]


class NotFittedError(ExactKError):
    """A recommender was asked for cards before it was fitted or loaded."""


class Recommender:
    """Learns whole cards from logs and recommends them.

    `config` is a preset's name or a `Config`; `constraints` are the rules of every card, the data's own if not given.
    """

    def __init__(self, config: Config | str = "best", constraints: Rules = None) -> None:
        self.config = preset(config) if isinstance(config, str) else config
        self.constraints = None if constraints is None else Constraints.of(constraints)
        self._fitted: model_folder.TrainedModel | None = None
        self._decider: Decider | None = None

    def fit(
        self,
        train: Dataset,
        valid: Dataset | None = None,
        folder: Path | str | None = None,
        resume: bool = False,
        show: bool = True,
        track: bool = False,
    ) -> Recommender:
        """Train on `train`; `valid` decides when to stop, which weights to keep and how to calibrate.

        With a folder, checkpoints and metrics.jsonl go there, and `resume=True` goes on after a kill or Ctrl-C as if
        nothing had happened. `show`: a progress bar on stderr. `track`: TensorBoard and MLflow, if installed.
        Started by torchrun (or on Ray), the processes train one model together, each on its share of every batch.
        """
        phases, progress, ranks = _learning()
        train, valid = self._under_rules(train), None if valid is None else self._under_rules(valid)
        place = None if folder is None else Path(folder)
        vocabulary = train.vocabulary(
            self.config.vocabulary.user_rows,
            self.config.vocabulary.item_rows,
            columns=self.config.model == "card_value",  # nothing else reads them
        )
        with ranks.joined(phases.chosen_device(self.config)) as rank_of, ExitStack() as listening:
            listeners = _listeners(progress, place, show, track) if rank_of.first else []
            for listener in listeners:
                listening.callback(listener.close)
            run = phases.Run(place, resume, listeners)
            trained = phases.train(self.config, train, valid, vocabulary, card_figures, run)
        return self._with(
            model_folder.TrainedModel(
                config=self.config,
                constraints=Constraints.of([]) if train.constraints is None else train.constraints,
                vocabulary=vocabulary,
                catalogue=Catalogue.of(train),
                sizes=trained.sizes,
                card_size=int(train.meta.K or 1),
                weights=trained.models.weights,
                calibration=trained.calibration,
                history=trained.history,
                split=train.parted,
            )
        )

    def recommend(
        self,
        user: Any,
        candidates: Sequence[Any],
        k: int | None = None,
        *,
        constraints: Rules = None,
        include: Sequence[Any] = (),
        exclude: Sequence[Any] = (),
        relax: RelaxOrder = (),
        attributes: Mapping[Any, Mapping[str, Any]] | None = None,
        user_features: Sequence[float] | None = None,
        explain: bool = False,
        prove_seconds: float = 0.0,
    ) -> Card:
        """The card of k candidates for one user, by external ids; unknown users and items are no error.

        `value` is the calibrated click probability, `bound` what no valid card exceeds (infinite: unknown).
        constraints: other rules for this request; include, exclude: ids that must, must not be chosen; relax: rules
        that may be let go, in this order; attributes: what to know of items the model has not met; explain: say why
        each other candidate is not in the card; prove_seconds: how long a bound may be sought for a card that a policy
        wrote, where its reward is a pair value (a pair value's own card is proven best anyway).
        """
        size = self.fitted.card_size if k is None else k
        sent = None if user_features is None else tuple(user_features)
        request = Request(
            user, _ids(candidates), size, tuple(include), tuple(exclude), attributes or {}, sent
        )
        card: Card = self.recommend_many(
            [request], constraints=constraints, relax=relax, explain=explain, prove_seconds=prove_seconds
        )[0]
        return card

    @overload
    def recommend_many(
        self,
        requests: Sequence[Request],
        *,
        constraints: Rules = None,
        relax: RelaxOrder = (),
        explain: bool = False,
        infeasible: Literal["raise"] = "raise",
        prove_seconds: float = 0.0,
    ) -> list[Card]: ...

    @overload
    def recommend_many(
        self,
        requests: Sequence[Request],
        *,
        constraints: Rules = None,
        relax: RelaxOrder = (),
        explain: bool = False,
        infeasible: Literal["return"],
        prove_seconds: float = 0.0,
    ) -> list[Card | ExactKError]: ...

    def recommend_many(
        self,
        requests: Sequence[Request],
        *,
        constraints: Rules = None,
        relax: RelaxOrder = (),
        explain: bool = False,
        infeasible: Literal["raise", "return"] = "raise",
        prove_seconds: float = 0.0,
    ) -> list[Any]:
        """Cards of many requests, each as if asked alone.

        "return" puts the InfeasibleError of a request that has no card, or the InputError of one that cannot be used,
        in the place of its card.
        """
        fitted = self.fitted
        rules = fitted.constraints if constraints is None else Constraints.of(constraints)
        try:
            batch = fitted.builder.batch(requests, rules)
        except InputError as error:
            if infeasible == "raise" or not requests:
                raise
            if len(requests) == 1:
                return [InputError(getattr(error, "reason", str(error)))]
            halves = (
                requests[: len(requests) // 2],
                requests[len(requests) // 2 :],
            )  # the fault is in one of them
            ask = partial(
                self.recommend_many,
                constraints=rules,
                relax=relax,
                explain=explain,
                prove_seconds=prove_seconds,
            )
            return [answer for half in halves for answer in ask(half, infeasible=infeasible)]
        asked = with_rules_relaxed(RuledBatch(tuple(requests), batch, rules, fitted.builder), tuple(relax))
        failed = [error for error in asked.errors if error is not None]
        if failed and infeasible == "raise":
            raise failed[0]
        answers: list[Any] = list(asked.errors)
        open_rows = [b for b, error in enumerate(asked.errors) if error is None]
        if open_rows:
            decision = self.decide(asked.batch.rows(np.array(open_rows)), prove_seconds)
            for row, b in enumerate(open_rows):
                card = card_of(requests[b], decision, row, fitted.calibration, asked.relaxed[b])
                if explain:
                    card = replace(
                        card, reasons=why_not(asked, b, card, self.decider.value, fitted.calibration)
                    )
                answers[b] = card
        return answers

    def recommend_batch(self, batch: Batch) -> Int[np.ndarray, "B K"]:
        """One valid card per request of a batch, as positions, -1 beyond a card's size."""
        return self.decider.recommend(batch)

    def decide(self, batch: Batch, prove_seconds: float = 0.0) -> Decision:
        """Cards of a batch with the logit of their value and its proven bound."""
        return self.decider.decide(batch, prove_seconds=prove_seconds)

    def evaluate(self, test: Dataset, batch_size: int = 512, judge: Judge | None = None) -> dict[str, float]:
        """P@K and HR@K over the clicked cards, mean estimated value, the share of valid cards; what a judge adds.

        Requests without any valid card are counted as `infeasible` and left out of the rest.
        """
        test = self._under_rules(test)
        parts: dict[str, list[np.ndarray]] = {}
        view = test.solvable(self.fitted.vocabulary)
        for number, batch in enumerate(view.batches(self.fitted.vocabulary, batch_size)):
            decision = self.decide(batch)
            figures = card_figures(decision.cards, batch)
            figures["value"] = self.fitted.calibration(decision.logit)
            figures["valid"] = metrics.valid_cards(batch.requests(), decision.cards).astype(float)
            if judge is not None:
                figures |= judge(view, number * batch_size + np.arange(len(batch)), decision.cards)
            for name, values in figures.items():
                parts.setdefault(name, []).append(values)
        means = {name: metrics.mean(np.concatenate(values)) for name, values in parts.items()}
        return {"requests": float(len(view)), "infeasible": float(len(test) - len(view)), **means}

    def save(self, path: Path | str) -> None:
        """Write a model folder, whole or not at all."""
        model_folder.save(self.fitted, Path(path))

    @classmethod
    def load(cls, path: Path | str) -> Recommender:
        """Read a model folder, of this or any earlier format."""
        fitted = model_folder.load(Path(path))
        return cls(fitted.config, fitted.constraints)._with(fitted)

    @property
    def fitted(self) -> model_folder.TrainedModel:
        """What training left; asking before training is an error."""
        if self._fitted is None:
            raise NotFittedError(
                "this recommender has learned nothing yet: call fit, or Recommender.load a saved one"
            )
        return self._fitted

    @property
    def decider(self) -> Decider:
        """The model and its search, as compared with all other recommenders: `decider.recommend(batch)`."""
        assert self.fitted is not None
        assert self._decider is not None
        return self._decider

    @property
    def history(self) -> tuple[model_folder.Figures, ...]:
        """What was reported during training, in order: rows for learning curves."""
        return self.fitted.history

    def _with(self, fitted: model_folder.TrainedModel) -> Recommender:
        """This recommender, having learned that."""
        self._fitted = fitted
        self._decider = decider_of(fitted.config, fitted.weights, fitted.sizes, fitted.card_size)
        return self

    def _under_rules(self, data: Dataset) -> Dataset:
        """The same impressions under this recommender's rules; graphs recorded for the same rules are kept."""
        if self.constraints is None or self.constraints == data.constraints:
            return data
        return data.constrained(self.constraints)


def card_figures(cards: Int[np.ndarray, "B K"], batch: Batch) -> dict[str, np.ndarray]:
    """P@K and HR@K of each request with a click; NaN for the others."""
    if batch.card is None or batch.clicked_position is None or batch.clicked is None:
        return {}
    return {
        "precision": metrics.found_click(cards, batch.clicked_position),
        "hit_ratio": metrics.overlap(cards, batch.card, batch.clicked),
    }


def _ids(candidates: Sequence[Any]) -> tuple[Any, ...]:
    """Candidates as plain ids: a text is a mistake, numpy's numbers are Python's."""
    if isinstance(candidates, str | bytes) or not hasattr(candidates, "__iter__"):
        raise InputError(f"candidates must be a list of item ids, got {candidates!r}")
    return tuple(item.item() if isinstance(item, np.generic) else item for item in candidates)


def _learning() -> tuple[Any, Any, Any]:
    """What teaches, where it is installed."""
    try:
        from exactk.learning import phases, progress, ranks
    except ImportError as error:
        raise MissingExtraError("training needs torch: pip install 'exactk[learn]'") from error
    return phases, progress, ranks


def _listeners(progress: Any, folder: Path | None, show: bool, track: bool) -> list[progress.Listener]:
    listeners: list[progress.Listener] = [progress.ProgressBar()] if show else []
    if folder is not None:
        listeners.append(progress.MetricsFile(folder / "metrics.jsonl"))
        listeners += progress.trackers(folder) if track else []
    return listeners
