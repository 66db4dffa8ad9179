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
INPUTS = "both: ids and features; auto: features alone if users and items have some, or else both"
EPOCHS = "passes over the training data"
BATCH_SIZE = "requests per step"
LEARNING_RATE = "learning rate of AdamW"
SCHEDULE = "cosine: the learning rate falls to zero over the epochs"
WEIGHT_DECAY = "weight decay of AdamW; not for tables with sparse gradients"
PATIENCE = "stop after this many epochs without a better validation score; 0: never stop early"

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
    ids_tell_more: bool = setting(
        False, "than features alone: a short training of each says so on validation"
    )

    @property
    def featured(self) -> bool:
        """Whether users and items both have features."""
        return self.user_feature_size > 0 and self.item_feature_size > 0

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
    """What "auto" comes to: where both sides have features these alone, unless ids tell more; else all there is."""
    if inputs != "auto":
        return inputs
    return "features" if sizes.featured and not sizes.ids_tell_more else "both"


@dataclass(frozen=True)
class PolicyConfig(Section):
    """GAttN (section 4.1): sizes of the network, and how it decodes."""

    section = "policy"

    inputs: Inputs = setting("both", INPUTS)
    embedding_size: int = setting(16, "size of the embedding of an id", least=1)
    width: int = setting(32, "width of input, node embeddings and decoder (d_x, d_h)", least=1)
    encoder_layers: int = setting(2, "layers of the encoder (L)", least=0)
    heads: int = setting(2, "attention heads (M); must divide the width", least=1)
    feed_forward_size: int = setting(32, "width inside an encoder layer", least=1)
    attention: Literal["shared", "qkv"] = setting(
        "shared", "shared: softmax(EE^T/sqrt d)E as in the paper; qkv: three projections"
    )
    decoder_layers: int = setting(2, "LSTM cells on top of each other", least=1)
    affinity: int = setting(
        0, "rank of the factors p_u q_i + b_i added to the scores of every step; 0: none", least=0
    )
    affinity_pace: float = setting(
        1.0, "how many times faster than the network these factors learn", least=0.01
    )
    memory: float = setting(
        0.0,
        "how many times faster than the network a number for each pair of user and item learns; 0: none",
        least=0,
    )
    guided: bool = setting(
        False, "add to the scores of every step what each item would add by the pair value"
    )
    beam: int = setting(3, "width of the beam: cards kept side by side; 1: greedy", least=1)

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
    embedding_size: int = setting(16, "size of the embedding of an id", least=1)
    hidden_size: int = setting(128, "width of the layer before the last", least=1)
    width: int = setting(32, "width of the set transformer", least=1)
    layers: int = setting(1, "layers of the set transformer", least=0)
    heads: int = setting(2, "attention heads of the set transformer; must divide its width", least=1)
    members: int = setting(1, "networks trained from different starts, averaged", least=1)
    dropout: float = setting(0.0, "share of the hidden layer that is dropped in training", least=0, most=0.9)
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
    embedding_size: int = setting(16, "size of the embedding of an id", least=1)
    hidden_size: int = setting(64, "width of the networks that read items", least=1)
    kinds: int = setting(24, "learned kinds of items; a table says which go together", least=1)
    place_size: int = setting(8, "size of the space in which near-duplicates are close", least=1)
    triples: bool = setting(
        False, "also value what three items share: for rewards and guides; exact search cannot"
    )
    choice: float = setting(0.0, "weight of a second loss: which item of a clicked card was clicked", least=0)
    members: int = setting(1, "networks trained from different starts, averaged", least=1)
    dropout: float = setting(0.0, "share of the hidden layers that is dropped in training", least=0, most=0.9)
    hidden_share: float = setting(
        0.0, "share of ids hidden in training, where features stand beside them", least=0, most=0.9
    )
    epochs: int = setting(10, EPOCHS, least=1)
    batch_size: int = setting(256, BATCH_SIZE, least=1)
    learning_rate: float = setting(0.001, LEARNING_RATE, least=0)
    schedule: Schedule = setting("constant", SCHEDULE)
    full_pace: int = setting(
        0,
        "steps up to which the learning rate holds; a longer training has a rate lower by the square root; 0: no limit",
        least=0,
    )
    weight_decay: float = setting(0.0, WEIGHT_DECAY, least=0)
    patience: int = setting(0, PATIENCE, least=0)


@dataclass(frozen=True)
class CardValueConfig(Section):
    """GAttN with an exact decoder: what it reads beside a pair value's ids and features, and its training.

    Its terms of ids and features, and the training of a log that has nothing else, are in `pair_value`.
    """

    section = "card_value"

    width: int = setting(64, "width of a candidate's embedding", least=1)
    layers: int = setting(2, "layers of the encoder", least=0)
    heads: int = setting(8, "attention heads of the encoder; must divide the width", least=1)
    feed_forward_size: int = setting(128, "width inside an encoder layer", least=1)
    attention: Literal["auto", "always", "never"] = setting(
        "auto", "do candidates attend to each other? auto: only if the user saw them all"
    )
    bins: int = setting(16, "pieces into which the scale of a number is cut, by quantiles of train", least=1)
    embedding_size: int = setting(8, "size of the embedding of a category, at most", least=1)
    low_rank: int = setting(8, "rank of the pair score of two embeddings; 0: none", least=0)
    pair_hidden: int = setting(64, "width of the network that scores pairs by their features", least=1)
    bias_hidden: int = setting(32, "width of the network that steers attention by pairs", least=1)
    hidden_share: float = setting(
        0.3, "share of ids and categories that is hidden in training", least=0, most=0.9
    )
    members: int = setting(2, "networks trained from different starts, averaged", least=1)
    dropout: float = setting(
        0.15, "share of the hidden layers that is dropped in training", least=0, most=0.9
    )
    epochs: int = setting(7, EPOCHS, least=1)
    batch_size: int = setting(128, BATCH_SIZE + "; fewer if the log is small", least=1)
    learning_rate: float = setting(0.0015, LEARNING_RATE, least=0)
    schedule: Schedule = setting("cosine", SCHEDULE)
    weight_decay: float = setting(0.01, WEIGHT_DECAY, least=0)
    patience: int = setting(4, PATIENCE, least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_uneven_heads(self.section, self.heads, self.width)


# Settings of `training` that every model reads; the others are a policy's.
EVERY_PHASE = ("clip_norm", "checkpoint_seconds", "seed", "device", "precision", "compile")


@dataclass(frozen=True)
class TrainingConfig(Section):
    """RLfD (section 4.2): which losses train the policy (phase 2), and how long; what both phases share."""

    section = "training"

    alpha: float = setting(
        0.5, "weight of the supervised loss; that of REINFORCE is 1 - alpha", least=0, most=1
    )
    policy_sampling: bool = setting(
        True, "decoder inputs come from the policy's own samples, not from the demonstration"
    )
    target: Literal["card", "set", "uniform", "clicked"] = setting(
        "card", "what a step should choose: see the page on training"
    )
    smoothing: float = setting(
        0.0, "share of a target that is spread evenly over all allowed candidates", least=0, most=0.9
    )
    requests: Literal["clicked", "all"] = setting(
        "clicked", "all: REINFORCE also learns from requests without a click"
    )
    demonstrations: Literal["logged", "exact"] = setting(
        "logged", "exact: imitate the best card under the learned pair value, for every request"
    )
    shuffle_card: bool = setting(True, "demonstrate the items of a card in random order")
    samples: int = setting(5, "cards drawn per request (m)", least=1)
    hill_climbing: bool = setting(True, "learn from the best of the m samples rather than from all of them")
    baseline: Literal["none", "leave_one_out"] = setting(
        "none", "compare a reward with the mean of the other samples, or with nothing"
    )
    temperature: float = setting(
        1.0, "temperature of the distribution from which samples are drawn", least=1e-3
    )
    group: int = setting(
        0,
        "instead of REINFORCE, learn from a group of so many best cards and the samples, by their values; 0: no",
        least=0,
    )
    adversarial: bool = setting(
        False, "the reward continues to learn, to tell logged clicked cards from the policy's samples"
    )
    warm_start_epochs: int = setting(0, "number of first epochs with the supervised loss alone", least=0)
    epochs: int = setting(10, EPOCHS, least=1)
    batch_size: int = setting(32, BATCH_SIZE, least=1)
    learning_rate: float = setting(0.001, LEARNING_RATE, least=0)
    schedule: Schedule = setting("constant", SCHEDULE)
    weight_decay: float = setting(0.0, WEIGHT_DECAY, least=0)
    clip_norm: float = setting(0.0, "clip the norm of the gradient, in both phases; 0: no clipping", least=0)
    patience: int = setting(0, PATIENCE, least=0)
    choose_by: Literal["precision", "reward", "last"] = setting(
        "precision", "by which validation figure the kept weights are chosen"
    )
    checkpoint_seconds: float = setting(30.0, "seconds between two checkpoints", least=0)
    seed: int = setting(0, "seed of weights, order and samples", least=0)
    device: Literal["auto", "cpu", "cuda"] = setting("auto", "auto: a GPU if there is one")
    precision: Literal["float32", "bfloat16"] = setting("float32", "precision of the arithmetic on a GPU")
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
        False, "gradients only for the rows of a table that the batch uses; these have no weight decay"
    )
    user_rows: int = setting(0, "hash user ids into this many rows; 0: a row for each user of train", least=0)
    item_rows: int = setting(0, "the same for items", least=0)


@dataclass(frozen=True)
class Config(Section):
    """All settings of a recommender."""

    model: Literal["policy", "pair_value", "card_value"] = setting(
        "policy",
        "policy: GAttN writes cards; card_value: GAttN with an exact decoder; pair_value: a value of items and pairs",
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
        """`["policy.beam=5", "model=policy"]`: read as their settings' types; the last of a name counts."""
        values: dict[str, Any] = {}
        for text in overrides:
            name, equals, raw = text.partition("=")
            if not equals:
                raise ConfigError(f"an override is written section.name=value, got {text!r}")
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

    def unread(self, overrides: Iterable[str]) -> list[str]:
        """The names among `["training.epochs=5", ...]` that nothing reads when this model is trained."""
        names = [text.partition("=")[0].strip() for text in overrides]
        return [name for name in names if not self._reads(*name.rpartition(".")[::2])]

    def _reads(self, section: str, name: str) -> bool:
        if self.model == "policy":
            return section != "card_value"
        if section == "training":
            return name in EVERY_PHASE
        return section not in ("policy", "reward") and (section, self.model) != ("card_value", "pair_value")


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

    trials: int = setting(4, "how many settings each method may try", least=1)
    epochs: int = setting(30, "epochs of a trial, at most", least=1)
    patience: int = setting(
        3, "a trial stops after this many epochs without a better validation score", least=0
    )
    batch_size: int = setting(256, "requests per step", least=1)
    validation_rows: int = setting(
        4_096, "rows of the validation split that decide (clicked ones, if only they count)", least=1
    )
    tree_requests: int = setting(
        200_000, "requests that tree learners may read: they hold everything in memory", least=1
    )
    seed: int = setting(0, "seed of weights, order and samples", least=0)


QUICK = Budget(trials=1, epochs=3, validation_rows=1_024, tree_requests=20_000)
