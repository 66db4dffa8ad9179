"""Every setting of exactk, frozen; read from a mapping, changed by `section.name=value`.

Knows the settings, not what they do: no tensors, no files. `presets.py` has those known by a name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal

from exactk.errors import ConfigError
from exactk.settings.sections import Section, checked, hints_of, parsed, refuse_unknown, setting

Inputs = Literal["both", "ids", "features", "auto"]
Schedule = Literal["constant", "cosine"]
ShownAs = Literal["card", "list", "session"]

# What several groups mean by the same name.
INPUTS = (
    "both: ids, and features where there are some; auto: features where users and items have them, else both"
)
EPOCHS = "passes over the training data"
BATCH_SIZE = "requests of a step"
LEARNING_RATE = "of AdamW"
SCHEDULE = "cosine: down to zero over the epochs"
WEIGHT_DECAY = "of AdamW; tables with sparse gradients are left out"
PATIENCE = "epochs without a better validation before stopping; 0: never stop early"

# Settings there once were, and the one value of each that means what is done now: models saved with it load as ever.
RETIRED: dict[str, Any] = {
    "policy.cell": "lstm",
    "policy.affinity_dropout": 0.0,
    "policy.decoding": "beam",
    "policy.improve_seconds": 0.0,
    "reward.caution": 0.0,
    "pair_value.time_limit_seconds": 0.0,
    "training.temperature_end": None,
    "training.entropy": 0.0,
    "training.entropy_end": None,
    "training.validate_every": 0,
}


@dataclass(frozen=True)
class InputSizes(Section):
    """What the data offers: rows of the id tables (row 0, out of vocabulary, included), numbers of features."""

    section = "sizes"

    num_users: int = setting(1, "rows of the table of users", least=1)
    num_items: int = setting(1, "rows of the table of items", least=1)
    user_feature_size: int = setting(0, "features of a user", least=0)
    item_feature_size: int = setting(0, "features of an item", least=0)
    candidate_numbers: int = setting(0, "numbers of an item in this request", least=0)
    context_numbers: int = setting(0, "numbers of a request", least=0)
    candidate_categories: tuple[int, ...] = setting((), "values of each, the unknown one included")
    context_categories: tuple[int, ...] = setting((), "the same of a request")
    item_categories: tuple[int, ...] = setting((), "the same of an item")
    user_categories: tuple[int, ...] = setting((), "the same of a user")
    item_vector_size: int = setting(0, "numbers of an item's texts and vectors", least=0)
    pair_features: int = setting(0, "numbers of two items", least=0)
    scored: bool = setting(False, "every candidate has an upstream score")
    placed: bool = setting(False, "every candidate has the place it was shown at")
    shown: ShownAs = setting(
        "card", "what the user saw: the card alone, the whole list, or items of a session"
    )
    items_recur: bool = setting(True, "items of train are met again later")
    users_recur: bool = setting(True, "users of train are met again later")

    @property
    def columns(self) -> bool:
        """Whether there is more to learn from than who was shown which card: columns, or lists seen whole."""
        return self.shown != "card" or any(
            (
                self.candidate_numbers, self.context_numbers, self.candidate_categories,
                self.context_categories, self.item_categories, self.user_categories,
                self.item_vector_size, self.pair_features, self.scored,
            )
        )  # fmt: skip


def decided(inputs: Inputs, sizes: InputSizes) -> Inputs:
    """What "auto" comes to: features where both sides have them (ids then mostly add noise), else all there is."""
    if inputs != "auto":
        return inputs
    return "features" if sizes.user_feature_size and sizes.item_feature_size else "both"


@dataclass(frozen=True)
class PolicyConfig(Section):
    """GAttN (section 4.1): sizes of the network, and how it decodes."""

    section = "policy"

    inputs: Inputs = setting("both", INPUTS)
    embedding_size: int = setting(16, "numbers of an id", least=1)
    width: int = setting(32, "d_x and d_h: input, node embeddings, decoder", least=1)
    encoder_layers: int = setting(2, "L", least=0)
    heads: int = setting(2, "M; divides the width", least=1)
    feed_forward_size: int = setting(32, "width inside an encoder layer", least=1)
    attention: Literal["shared", "qkv"] = setting(
        "shared", "shared: softmax(EE^T/sqrt d)E as in the paper; qkv: three projections"
    )
    decoder_layers: int = setting(2, "LSTM cells on top of each other", least=1)
    affinity: int = setting(0, "rank of p_u q_i + b_i, added to every step's scores; 0: none", least=0)
    affinity_pace: float = setting(1.0, "how many times faster than the network they learn", least=0.01)
    memory: float = setting(0.0, "pace of a number of its own for every user and item; 0: none", least=0)
    guided: bool = setting(False, "every step's scores hold what each item would add by the pair value")
    beam: int = setting(3, "cards kept side by side while decoding; 1: greedy", least=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_uneven_heads(self.section, self.heads, self.width)


@dataclass(frozen=True)
class RewardConfig(Section):
    """The reward estimator P(r=1|A,u) and its own training (phase 1)."""

    section = "reward"

    kind: Literal["pnn", "set", "pair"] = setting(
        "pnn",
        "pnn: the paper's; set: a small set transformer; pair: a pair value, with settings in pair_value",
    )
    inputs: Inputs = setting("both", INPUTS)
    embedding_size: int = setting(16, "numbers of an id", least=1)
    hidden_size: int = setting(128, "width of the last layer but one", least=1)
    width: int = setting(32, "of the set transformer", least=1)
    layers: int = setting(1, "of the set transformer", least=0)
    heads: int = setting(2, "of the set transformer; divides its width", least=1)
    members: int = setting(1, "independently initialised copies, averaged", least=1)
    dropout: float = setting(0.0, "share of the hidden layer left out in training", least=0, most=0.9)
    epochs: int = setting(10, EPOCHS, least=1)
    batch_size: int = setting(32, BATCH_SIZE, least=1)
    learning_rate: float = setting(0.001, LEARNING_RATE, least=0)
    schedule: Schedule = setting("constant", SCHEDULE)
    weight_decay: float = setting(0.0, WEIGHT_DECAY, least=0)
    patience: int = setting(0, PATIENCE, least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_uneven_heads(self.section, self.heads, self.width)


@dataclass(frozen=True)
class PairValueConfig(Section):
    """The learned value that is a sum over items and pairs, and its training."""

    section = "pair_value"

    inputs: Inputs = setting("both", INPUTS)
    embedding_size: int = setting(16, "numbers of an id", least=1)
    hidden_size: int = setting(64, "width of the networks that read items", least=1)
    kinds: int = setting(24, "learned kinds of items; a table says which go together", least=1)
    place_size: int = setting(8, "of the space in which near-duplicates are close", least=1)
    triples: bool = setting(False, "also what three items share: for rewards and guides, beyond exact search")
    choice: float = setting(0.0, "weight of the loss of which item of a clicked card was clicked", least=0)
    members: int = setting(1, "independently initialised copies, averaged", least=1)
    dropout: float = setting(0.0, "share of the hidden layers left out in training", least=0, most=0.9)
    epochs: int = setting(10, EPOCHS, least=1)
    batch_size: int = setting(256, BATCH_SIZE, least=1)
    learning_rate: float = setting(0.001, LEARNING_RATE, least=0)
    schedule: Schedule = setting("constant", SCHEDULE)
    full_pace: int = setting(
        0, "steps of a training; a longer one has a rate lower by the square root; 0: any", least=0
    )
    weight_decay: float = setting(0.0, WEIGHT_DECAY, least=0)
    patience: int = setting(0, PATIENCE, least=0)


@dataclass(frozen=True)
class CardValueConfig(Section):
    """GAttN with an exact decoder: what it reads beside a pair value's ids and features, and its training.

    Its terms of ids and features, and the training of a log that has nothing else, are in `pair_value`.
    """

    section = "card_value"

    width: int = setting(64, "of a candidate's embedding", least=1)
    layers: int = setting(2, "of the encoder", least=0)
    heads: int = setting(8, "of its attention; divides the width", least=1)
    feed_forward_size: int = setting(128, "width inside an encoder layer", least=1)
    attention: Literal["auto", "always", "never"] = setting(
        "auto", "of candidates to each other; auto: where the user saw them all"
    )
    bins: int = setting(16, "pieces of a number's scale, by quantiles of train", least=1)
    embedding_size: int = setting(8, "numbers of a category, at most", least=1)
    low_rank: int = setting(8, "of the pair score of two embeddings; 0: none", least=0)
    pair_hidden: int = setting(64, "width of the network that scores pairs by their features", least=1)
    bias_hidden: int = setting(32, "width of the network that steers attention by pairs", least=1)
    hidden_share: float = setting(0.3, "of ids and categories hidden in training", least=0, most=0.9)
    members: int = setting(3, "independently initialised copies, averaged", least=1)
    dropout: float = setting(0.15, "share of the hidden layers left out in training", least=0, most=0.9)
    epochs: int = setting(7, EPOCHS, least=1)
    batch_size: int = setting(128, BATCH_SIZE + ", fewer where a log is small", least=1)
    learning_rate: float = setting(0.0015, LEARNING_RATE, least=0)
    schedule: Schedule = setting("cosine", SCHEDULE)
    weight_decay: float = setting(0.01, WEIGHT_DECAY, least=0)
    patience: int = setting(4, PATIENCE, least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_uneven_heads(self.section, self.heads, self.width)


@dataclass(frozen=True)
class TrainingConfig(Section):
    """RLfD (section 4.2): which losses train the policy (phase 2), and how long; what both phases share."""

    section = "training"

    alpha: float = setting(0.5, "weight of the supervised loss; 1 - alpha that of REINFORCE", least=0, most=1)
    policy_sampling: bool = setting(
        True, "decoder inputs sampled from the policy rather than the demonstration"
    )
    target: Literal["card", "set", "uniform", "clicked"] = setting(
        "card", "what a step should choose, see training.md"
    )
    smoothing: float = setting(0.0, "share of a target given to all allowed alike", least=0, most=0.9)
    requests: Literal["clicked", "all"] = setting(
        "clicked", "all: REINFORCE learns from unclicked requests, too"
    )
    demonstrations: Literal["logged", "exact"] = setting(
        "logged", "exact: every request is demonstrated the best card under the learned pair value"
    )
    shuffle_card: bool = setting(True, "the items of a demonstrated card in random order")
    samples: int = setting(5, "m, cards drawn per request", least=1)
    hill_climbing: bool = setting(True, "learn from the best of the m samples rather than from all of them")
    baseline: Literal["none", "leave_one_out"] = setting(
        "none", "what a reward is compared with: the mean of the other samples, or nothing"
    )
    temperature: float = setting(1.0, "of the distribution that samples are drawn from", least=1e-3)
    group: int = setting(
        0,
        "of the exact best cards, which with the samples share a target by their value, in place of REINFORCE; 0: none",
        least=0,
    )
    adversarial: bool = setting(
        False, "the reward goes on learning, to tell logged clicked cards from the policy's own samples"
    )
    warm_start_epochs: int = setting(0, "first epochs with the supervised loss alone", least=0)
    epochs: int = setting(10, EPOCHS, least=1)
    batch_size: int = setting(32, BATCH_SIZE, least=1)
    learning_rate: float = setting(0.001, LEARNING_RATE, least=0)
    schedule: Schedule = setting("constant", SCHEDULE)
    weight_decay: float = setting(0.0, WEIGHT_DECAY, least=0)
    clip_norm: float = setting(0.0, "of the gradient, in both phases; 0: no clipping", least=0)
    patience: int = setting(0, PATIENCE, least=0)
    choose_by: Literal["precision", "reward", "last"] = setting(
        "precision", "which weights are kept, by validation"
    )
    checkpoint_seconds: float = setting(30.0, "between two checkpoints", least=0)
    seed: int = setting(0, "of weights, order and samples", least=0)
    device: Literal["auto", "cpu", "cuda"] = setting("auto", "auto: a GPU where there is one")
    precision: Literal["float32", "bfloat16"] = setting("float32", "of the arithmetic on a GPU")
    compile: bool = setting(
        False, "on a GPU, fuse operations: half a minute at first, then steps in two thirds of the time"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.baseline == "leave_one_out" and self.samples < 2 and self.alpha < 1:
            raise ConfigError("setting training.baseline=leave_one_out needs training.samples of at least 2")
        if self.smoothing and self.target not in ("card", "clicked"):
            raise ConfigError(
                "training.smoothing spreads a single target: set training.target to card or clicked"
            )
        if self.alpha == 1 and (self.group or self.adversarial):
            raise ConfigError(
                "training.group and training.adversarial change what rewards teach: set training.alpha below 1"
            )
        if self.demonstrations == "exact" and self.target == "clicked":
            raise ConfigError(
                "training.demonstrations=exact has no clicked item: set training.target to card, set or uniform"
            )


@dataclass(frozen=True)
class VocabularyConfig(Section):
    """How ids become rows of embedding tables; for vocabularies of millions, see docs/guide/scale.md."""

    section = "vocabulary"

    sparse: bool = setting(
        False, "gradients of the rows a batch met, not of whole tables; those rows are not decayed"
    )
    user_rows: int = setting(0, "hash user ids into so many rows; 0: a row for each user of train", least=0)
    item_rows: int = setting(0, "the same for items", least=0)


@dataclass(frozen=True)
class Config(Section):
    """All settings of a recommender."""

    model: Literal["policy", "pair_value", "card_value"] = setting(
        "policy",
        "policy: GAttN writes cards; card_value: GAttN with an exact decoder; pair_value: of ids and features alone",
    )
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    reward: RewardConfig = field(default_factory=RewardConfig)
    pair_value: PairValueConfig = field(default_factory=PairValueConfig)
    card_value: CardValueConfig = field(default_factory=CardValueConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    vocabulary: VocabularyConfig = field(default_factory=VocabularyConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.training.demonstrations == "exact" and self.reward.kind != "pair":
            raise ConfigError("training.demonstrations=exact needs a pair value: set reward.kind=pair")
        if self.training.group and self.reward.kind != "pair":
            raise ConfigError(
                "training.group needs a pair value, whose best cards are found exactly: set reward.kind=pair"
            )
        if self.pair_value.triples and self.model != "policy":
            raise ConfigError(
                "pair_value.triples is for a policy's reward and guide: exact search knows items and pairs only"
            )
        if self.policy.guided and self.reward.kind != "pair":
            raise ConfigError("policy.guided needs a pair value: set reward.kind=pair")

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as JSON or TOML would hold them; settings that are none are left out."""
        return {
            name: {k: v for k, v in value.items() if v is not None} if isinstance(value, dict) else value
            for name, value in asdict(self).items()
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], base: Config | None = None) -> Config:
        """`base` (the defaults if none) with `values` in place of its own; an unknown name is an error."""
        config = cls() if base is None else base
        changed: dict[str, Any] = {}
        for name, value in values.items():
            refuse_unknown(name, [f.name for f in fields(config)], "")
            current = getattr(config, name)
            if not isinstance(current, Section):
                changed[name] = checked(name, value, hints_of(cls)[name])
                continue
            if not isinstance(value, Mapping):
                raise ConfigError(f"setting {name} is a group of settings, got {value!r}")
            hints = hints_of(type(current))
            changes = {}
            for inner, given in value.items():
                if f"{name}.{inner}" in RETIRED:
                    refuse_retired(f"{name}.{inner}", given)
                    continue
                refuse_unknown(inner, list(hints), f"{name}.")
                changes[inner] = checked(f"{name}.{inner}", given, hints[inner])
            changed[name] = replace(current, **changes)  # type: ignore[type-var]
        return replace(config, **changed)  # all at once: groups of settings may need each other

    def with_overrides(self, overrides: Iterable[str]) -> Config:
        """`["policy.beam=5", "model=policy"]`, the last of a name counts; each value is read as its setting's type."""
        values: dict[str, Any] = {}
        for text in overrides:
            name, equals, raw = text.partition("=")
            if not equals:
                raise ConfigError(f"an override reads section.name=value, got {text!r}")
            section, _, inner = name.strip().rpartition(".")
            owner: Any = self
            if section:
                refuse_unknown(section, [f.name for f in fields(self)], "")
                owner = getattr(self, section)
            if not isinstance(owner, Section):
                raise ConfigError(f"setting {section} is not a group, so it has no {inner!r}")
            known = [f.name for f in fields(owner)]  # type: ignore[arg-type]
            refuse_unknown(inner, known, f"{section}." if section else "")
            value = parsed(name.strip(), raw.strip(), hints_of(type(owner))[inner])
            (values.setdefault(section, {}) if section else values)[inner] = value
        return Config.from_dict(values, base=self)


def refuse_retired(name: str, value: Any) -> None:
    """A setting that is gone may still be written down with the value that changes nothing."""
    if value != RETIRED[name]:
        raise ConfigError(
            f"setting {name} is gone, and {value!r} needs it: leave it out, or use the exactk this was written for"
        )


def refuse_uneven_heads(section: str, heads: int, width: int) -> None:
    """Every head takes an equal part of the width."""
    if width % heads:
        raise ConfigError(f"setting {section}.heads must divide {section}.width, got {heads} and {width}")


@dataclass(frozen=True)
class Budget(Section):
    """What a comparison allows each method. A trial is one of its settings, trained once."""

    section = "compare"

    trials: int = setting(4, "settings each method may try", least=1)
    epochs: int = setting(30, "of a trial, at most", least=1)
    patience: int = setting(3, "epochs without a better validation before a trial stops", least=0)
    batch_size: int = setting(256, "requests of a step", least=1)
    validation_rows: int = setting(
        4_096, "of the validation split that decide, clicked ones where only they count", least=1
    )
    tree_requests: int = setting(
        200_000, "that tree learners, which hold everything in memory, may read", least=1
    )
    seed: int = setting(0, "of weights, order and samples", least=0)


QUICK = Budget(trials=1, epochs=3, validation_rows=1_024, tree_requests=20_000)
