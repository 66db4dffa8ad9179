"""The Python door: fit, recommend, evaluate, save, load; the same class whatever the model and search.

Knows no network from inside: `learning` teaches and decides, `model_folder` keeps, `reasons` explains.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
from jaxtyping import Int

from exactk import model_folder
from exactk.data.dataset import Dataset, expect_dataset
from exactk.data.logs.files import frame_columns, is_frame
from exactk.data.logs.request_rows import AskedColumns, requests_of_frame
from exactk.data.requests import Request, RequestTable, read_candidates
from exactk.data.requests.catalogue import Catalogue
from exactk.data.rolling import RollingCounts
from exactk.engine.answers import Asking, answers, cards_table, in_the_library_of, named_error
from exactk.engine.decide import Decider, Decision, decider_of
from exactk.errors import ExactKError, InputError, MissingExtraError
from exactk.evaluation import metrics
from exactk.problem.batch import Batch
from exactk.problem.reading import RelaxOrder, Rules
from exactk.problem.rules.constraints import Constraints
from exactk.problem.solving import Card
from exactk.settings.config import Config
from exactk.settings.presets import preset

if TYPE_CHECKING:
    from exactk.learning import progress

AT_ONCE = 2048  # requests of a frame
# Further figures of cards at places of a view, one number per request.
Judge = Callable[[Dataset, Int[np.ndarray, "B"], Int[np.ndarray, "B K"]], dict[str, np.ndarray]]


class NotFittedError(ExactKError):
    """A recommender was asked for cards before it was fitted or loaded."""


class Recommender:
    """Learns whole cards from logs and recommends them.

    `config` is a preset's name or a `Config`; `constraints` are the rules of every card, the data's own if not given.
    """

    def __init__(self, config: Config | str = "best", constraints: Rules = None) -> None:
        self.config = config if isinstance(config, Config) else preset(config)
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

        With a folder, checkpoints and metrics.jsonl go there, and `resume=True` resumes after a kill or Ctrl-C as if
        nothing had happened. `show` draws a progress bar on stderr; `track` writes to TensorBoard and MLflow, if
        they are installed. If torchrun or Ray started the process, all processes train one model together.
        """
        phases, progress, joined = _learning()
        expect_dataset(train, "train")
        if valid is not None:
            expect_dataset(valid, "valid")
        train, valid = self._under_rules(train), None if valid is None else self._under_rules(valid)
        place = None if folder is None else Path(folder)
        vocabulary = train.vocabulary(
            self.config.vocabulary.user_rows,
            self.config.vocabulary.item_rows,
            columns=self.config.model == "card_value",  # nothing else reads them
        )
        with joined(phases.chosen_device(self.config)) as rank_of, ExitStack() as listening:
            listeners = _listeners(progress, place, show, track) if rank_of.first else []
            for listener in listeners:
                listening.callback(listener.close)
            run = phases.Run(place, resume, listeners)
            trained = phases.train(self.config, train, valid, vocabulary, metrics.card_figures, run)
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
                counts=_counts_after(train, valid) if vocabulary.columns.rolling else None,
            )
        )

    def recommend(
        self,
        user: Any,
        candidates: Any,
        k: int | None = None,
        *,
        context: Mapping[str, Any] | None = None,
        constraints: Rules = None,
        include: Sequence[Any] = (),
        exclude: Sequence[Any] = (),
        relax: RelaxOrder = (),
        attributes: Mapping[Any, Mapping[str, Any]] | None = None,
        user_features: Sequence[float] | None = None,
        explain: bool = False,
        prove_seconds: float = 0.0,
    ) -> Card:
        """Choose the card of k candidates for one user, all by their ids. Unknown users and items are no error.

        Candidates are ids; or mappings {"item_id": ..., "price": ...} with columns named as in the log; or a pandas,
        polars or Arrow frame with a column item_id (its columns of context count as context). The context holds
        columns of the request, {"device": "phone"}, and may hold columns of the user. A column that is not sent is
        taken from the catalogue, or counts as missing. `unread` says which names nobody reads.

        `value` is the calibrated click probability, `bound` what no valid card exceeds (infinite: unknown).

        constraints:       other rules for this request
        include, exclude:  ids that must, or must not, be on the card
        relax:             rules that may be dropped, in this order, if no card exists otherwise
        explain:           also say why each other candidate is not on the card
        prove_seconds:     how long to look for a bound of a card that a policy wrote, if its reward is a pair value
                           (cards of the other models are proven best anyway)
        attributes:        columns of candidates by id; mappings say the same
        """
        request = self._request(candidates, constraints)
        said = _mapping(attributes, "attributes")
        for item_id, names in said.items():
            _mapping(names, f"attributes of item {item_id!r}")
        request = replace(
            request,
            user_id=user,
            k=self.fitted.card_size if k is None else k,
            include=_listed(include, "include"),
            exclude=_listed(exclude, "exclude"),
            attributes={**said, **request.attributes},
            user_features=None if user_features is None else _listed(user_features, "user_features"),
            context={**request.context, **_mapping(context, "context")},
        )
        card: Card = self.recommend_many(
            [request], constraints=constraints, relax=relax, explain=explain, prove_seconds=prove_seconds
        )[0]
        return card

    def unread(self, candidates: Any, context: Mapping[str, Any] | None = None) -> list[str]:
        """The names you send that neither the model nor its rules read; perhaps one is misspelt."""
        builder, fields = self.fitted.builder, self.fitted.constraints.fields
        if is_frame(candidates):
            own = ("request_id", "user_id", *builder.context_names)
            return builder.unread(frame_columns(candidates), context or {}, (*fields, *own))
        names = {name for held in _read(candidates)[1].values() for name in held}
        return builder.unread(names, context or {}, fields)

    def _request(self, candidates: Any, constraints: Rules) -> Request:
        """Candidates in whatever form, of nobody yet."""
        if is_frame(candidates):
            return requests_of_frame(candidates, self._asked(constraints), one=True)[0]
        ids, attributes = _read(candidates)
        return Request(None, ids, 0, attributes=attributes)

    def _asked(self, constraints: Rules) -> AskedColumns:
        fitted = self.fitted
        rules = fitted.constraints if constraints is None else Constraints.of(constraints)
        return AskedColumns.of(fitted.vocabulary, fitted.card_size, rules.fields)

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

    @overload
    def recommend_many(
        self,
        requests: Any,
        *,
        constraints: Rules = None,
        relax: RelaxOrder = (),
        infeasible: Literal["raise", "return"] = "raise",
        prove_seconds: float = 0.0,
    ) -> Any: ...

    def recommend_many(
        self,
        requests: Any,
        *,
        constraints: Rules = None,
        relax: RelaxOrder = (),
        explain: bool = False,
        infeasible: Literal["raise", "return"] = "raise",
        prove_seconds: float = 0.0,
    ) -> Any:
        """Choose cards for many requests, the same as for each of them alone.

        From a list of `Request` you get a list of cards. From a pandas, polars or Arrow frame you get a frame of the
        same kind with a row for each request: request_id, card, value, bound, relaxed, problem. The frame you give has
        one row per candidate (request_id, item_id and any columns of the log; rows of a request together), or one row
        per request with lists.

        With infeasible="return", the InfeasibleError of a request without a card, or the InputError of a bad request,
        takes the place of its card; in a frame, the column `problem` has its message.
        """
        fitted = self.fitted
        rules = fitted.constraints if constraints is None else Constraints.of(constraints)
        if infeasible not in ("raise", "return"):
            raise InputError(f"infeasible must be 'raise' or 'return', got {infeasible!r:.80}")
        seconds: Any = prove_seconds
        if not isinstance(seconds, int | float) or not seconds >= 0:
            raise InputError(
                f"prove_seconds must be a number of seconds, 0 or more, got {prove_seconds!r:.80}"
            )
        order = _listed(relax, "relax")
        asking = Asking(
            fitted.builder, self.decider, fitted.calibration, rules, order, explain, prove_seconds
        )
        if not is_frame(requests):
            _check_requests(requests)
            return answers(replace(asking, raises=infeasible == "raise"), requests)
        if explain:
            raise InputError("a frame has no place for reasons; ask for them request by request")
        table = requests_of_frame(requests, self._asked(rules))
        each = replace(asking, raises=False)
        found = [answer for part in table.parts(AT_ONCE) for answer in answers(each, part)]
        for request_id, answer in zip(table.request_ids, found, strict=True):
            if infeasible == "raise" and isinstance(answer, ExactKError):
                raise named_error(answer, request_id)
        return in_the_library_of(requests, cards_table(table.request_ids, table.users, found))

    def recommend_batch(self, batch: Batch) -> Int[np.ndarray, "B K"]:
        """One valid card per request of a batch, as positions, -1 beyond a card's size."""
        return self.decider.recommend(batch)

    def decide(self, batch: Batch, prove_seconds: float = 0.0) -> Decision:
        """Cards of a batch with the logit of their value and its proven bound."""
        return self.decider.decide(batch, prove_seconds=prove_seconds)

    def evaluate(self, test: Dataset, batch_size: int = 512, judge: Judge | None = None) -> dict[str, float]:
        """Measure clicked items on the card, overlap with clicked cards, whole cards found, mean estimated value, the
        share of valid cards, and what a judge adds.

        Requests without any valid card count as `infeasible` and are left out of the other figures.
        """
        test = self._under_rules(expect_dataset(test, "test"))
        parts: dict[str, list[np.ndarray]] = {}
        view = test.solvable(self.fitted.vocabulary)
        for number, batch in enumerate(view.batches(self.fitted.vocabulary, batch_size)):
            decision = self.decide(batch)
            figures = metrics.card_figures(decision.cards, batch)
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
        """The trained model; asking for it before training is an error."""
        if self._fitted is None:
            raise NotFittedError(
                "this recommender has learned nothing yet: call fit, or Recommender.load a saved one"
            )
        return self._fitted

    @property
    def decider(self) -> Decider:
        """The model with its search: `decider.recommend(batch)`."""
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


def _listed(values: Any, name: str) -> tuple[Any, ...]:
    """The members of a list, whatever holds them; a text, or a mapping, is none."""
    if isinstance(values, str | bytes | Mapping) or not hasattr(values, "__iter__"):
        raise InputError(f"{name} must be a list, got {values!r:.80}")
    return tuple(values)


def _mapping(values: Any, name: str) -> Mapping[Any, Any]:
    if not isinstance(values or {}, Mapping):
        raise InputError(f"{name} must be a mapping, got {values!r:.80}")
    return values or {}


def _read(candidates: Any) -> tuple[tuple[Any, ...], dict[Any, dict[str, Any]]]:
    """The ids of candidates that are no frame, and what is said of each."""
    if isinstance(candidates, str | bytes | Mapping) or not hasattr(candidates, "__iter__"):
        raise InputError(
            f"candidates must be item ids, mappings with an item_id, or a frame, got {candidates!r:.80}"
        )
    return read_candidates(candidates.tolist() if hasattr(candidates, "tolist") else candidates)


def _check_requests(requests: Any) -> None:
    """Refuse what is no list of requests: rows of plain mappings, a generator, a path."""
    if isinstance(requests, RequestTable):
        return
    if not isinstance(requests, Sequence) or not all(isinstance(one, Request) for one in requests):
        raise InputError(
            "requests must be a list of exactk.Request (of mappings: Request.from_dict), or a frame, "
            f"got {requests!r:.80}"
        )
    for place, request in enumerate(requests):
        if isinstance(request.candidates, str | bytes) or not isinstance(
            request.candidates, Sequence | np.ndarray
        ):
            raise InputError(
                f"request {place}: candidates must be a list of items, got {request.candidates!r:.80}"
            )


def _counts_after(train: Dataset, valid: Dataset | None) -> RollingCounts | None:
    """The counts so far as they stood after all that training saw; what came later stays unseen."""
    views = [view for view in (train, valid) if view is not None and view.folder is train.folder]
    rows = np.unique(np.concatenate([view.rows for view in views]))
    return Dataset(train.folder, rows).rolling_counts()


def _learning() -> tuple[Any, Any, Any]:
    """What teaches, where it is installed."""
    try:
        from exactk.learning import phases, progress
        from exactk.learning.process import joined
    except ImportError as error:
        raise MissingExtraError("training needs torch: pip install 'exactk[learn]'") from error
    return phases, progress, joined


def _listeners(progress: Any, folder: Path | None, show: bool, track: bool) -> list[progress.Listener]:
    listeners: list[progress.Listener] = [progress.ProgressBar()] if show else []
    if folder is not None:
        listeners.append(progress.MetricsFile(folder / "metrics.jsonl"))
        listeners += progress.trackers(folder) if track else []
    return listeners
