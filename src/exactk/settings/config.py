"""Every setting of exactk, frozen; read from a mapping, changed by `section.name=value`.

Knows the settings, not what they do: no tensors, no files. `presets.py` has those known by a name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal, get_type_hints

from exactk.errors import ConfigError
from exactk.settings.sections import Section, checked, parsed, refuse_unknown, setting

# "both": ids, and features where the data has them; "auto": features where users and items have them, else both
Inputs = Literal["both", "ids", "features", "auto"]
Schedule = Literal["constant", "cosine"]

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

    num_users: int = setting(1, least=1)
    num_items: int = setting(1, least=1)
    user_feature_size: int = setting(0, least=0)
    item_feature_size: int = setting(0, least=0)


@dataclass(frozen=True)
class PolicyConfig(Section):
    """GAttN (section 4.1): sizes of the network, and how it decodes."""

    section = "policy"

    inputs: Inputs = "both"
    embedding_size: int = setting(16, least=1)
    width: int = setting(32, least=1)  # d_x and d_h: input, node embeddings, decoder
    encoder_layers: int = setting(2, least=0)  # L
    heads: int = setting(2, least=1)  # M
    feed_forward_size: int = setting(32, least=1)
    attention: Literal["shared", "qkv"] = "shared"  # "shared": softmax(EE^T/sqrt d)E as in the paper
    decoder_layers: int = setting(2, least=1)
    affinity: int = setting(0, least=0)  # rank of <p_u, q_i> + b_i, added to every step's scores; 0: none
    affinity_pace: float = setting(1.0, least=0.01)  # how many times faster than the network they learn
    memory: float = setting(0.0, least=0)  # pace of a number m_ui of its own for every user and item; 0: none
    guided: bool = False  # every step's scores hold what each item would add by the pair value
    beam: int = setting(3, least=1)  # 1: greedy

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width % self.heads:
            raise ConfigError(
                f"setting policy.heads must divide policy.width, got {self.heads} and {self.width}"
            )


@dataclass(frozen=True)
class RewardConfig(Section):
    """The reward estimator P(r=1|A,u) and its own training (phase 1)."""

    section = "reward"

    kind: Literal["pnn", "set", "pair"] = "pnn"  # "pair": a PairValue, with settings in [pair_value]
    inputs: Inputs = "both"
    embedding_size: int = setting(16, least=1)
    hidden_size: int = setting(128, least=1)
    width: int = setting(32, least=1)  # "set" only
    layers: int = setting(1, least=0)  # "set" only
    heads: int = setting(2, least=1)  # "set" only
    members: int = setting(1, least=1)  # independently initialised copies, averaged
    dropout: float = setting(0.0, least=0, most=0.9)
    epochs: int = setting(10, least=1)
    batch_size: int = setting(32, least=1)
    learning_rate: float = setting(0.001, least=0)
    schedule: Schedule = "constant"  # "cosine": down to zero over the epochs
    weight_decay: float = setting(0.0, least=0)
    patience: int = setting(0, least=0)  # epochs without a better validation loss before stopping; 0: never

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width % self.heads:
            raise ConfigError(
                f"setting reward.heads must divide reward.width, got {self.heads} and {self.width}"
            )


@dataclass(frozen=True)
class PairValueConfig(Section):
    """The learned value that is a sum over items and pairs, its training, and the exact search over it."""

    section = "pair_value"

    inputs: Inputs = "both"
    embedding_size: int = setting(16, least=1)
    hidden_size: int = setting(64, least=1)
    kinds: int = setting(24, least=1)  # learned kinds of items; a table says which go together
    place_size: int = setting(8, least=1)  # of the space in which near-duplicates are close
    triples: bool = False  # also what three items share: for rewards and guides, beyond exact search
    choice: float = setting(0.0, least=0)  # weight of the loss of which item of a clicked card was clicked
    members: int = setting(1, least=1)
    dropout: float = setting(0.0, least=0, most=0.9)
    epochs: int = setting(10, least=1)
    batch_size: int = setting(256, least=1)
    learning_rate: float = setting(0.001, least=0)
    schedule: Schedule = "constant"  # "cosine": down to zero over the epochs
    weight_decay: float = setting(0.0, least=0)
    patience: int = setting(0, least=0)


@dataclass(frozen=True)
class TrainingConfig(Section):
    """RLfD (section 4.2): which losses train the policy (phase 2), and how long."""

    section = "training"

    alpha: float = setting(0.5, least=0, most=1)  # weight of the supervised loss; 1 - alpha that of REINFORCE
    policy_sampling: bool = True  # decoder inputs sampled from the policy rather than the demonstration
    target: Literal["card", "set", "uniform", "clicked"] = "card"  # of a step, see docs/training.md
    smoothing: float = setting(0.0, least=0, most=0.9)  # share of a target given to all allowed alike
    requests: Literal["clicked", "all"] = "clicked"  # "all": REINFORCE learns from unclicked requests, too
    # "exact": every request is demonstrated the best card under the learned pair value, found by exact search
    demonstrations: Literal["logged", "exact"] = "logged"
    shuffle_card: bool = True  # the paper: items of a card are randomly permuted
    samples: int = setting(5, least=1)  # m, cards drawn per request
    hill_climbing: bool = True  # learn from the best of the m samples rather than from all of them
    baseline: Literal["none", "leave_one_out"] = "none"
    temperature: float = setting(1.0, least=1e-3)
    warm_start_epochs: int = setting(0, least=0)  # first epochs with the supervised loss alone
    epochs: int = setting(10, least=1)
    batch_size: int = setting(32, least=1)
    learning_rate: float = setting(0.001, least=0)
    schedule: Schedule = "constant"  # "cosine": down to zero over the epochs
    weight_decay: float = setting(0.0, least=0)
    clip_norm: float = setting(0.0, least=0)  # of the gradient; 0: no clipping
    patience: int = setting(0, least=0)
    choose_by: Literal["precision", "reward", "last"] = "precision"  # which weights are kept, by validation
    checkpoint_seconds: float = setting(30.0, least=0)
    seed: int = setting(0, least=0)
    device: Literal["auto", "cpu", "cuda"] = "auto"
    precision: Literal["float32", "bfloat16"] = "float32"
    compile: bool = False  # on a GPU, fuse operations: half a minute at first, then steps in two thirds

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.baseline == "leave_one_out" and self.samples < 2 and self.alpha < 1:
            raise ConfigError("setting training.baseline=leave_one_out needs training.samples of at least 2")
        if self.smoothing and self.target not in ("card", "clicked"):
            raise ConfigError(
                "training.smoothing spreads a single target: set training.target to card or clicked"
            )
        if self.demonstrations == "exact" and self.target == "clicked":
            raise ConfigError(
                "training.demonstrations=exact has no clicked item: set training.target to card, set or uniform"
            )


@dataclass(frozen=True)
class VocabularyConfig(Section):
    """How ids become rows of embedding tables; for vocabularies of millions, see docs/scale.md."""

    section = "vocabulary"

    sparse: bool = False  # gradients of the rows a batch met, not of whole tables; those rows are not decayed
    user_rows: int = setting(0, least=0)  # hash user ids into so many rows; 0: a row for each user of train
    item_rows: int = setting(0, least=0)  # the same for items


@dataclass(frozen=True)
class Config(Section):
    """All settings of a recommender."""

    model: Literal["policy", "pair_value"] = "policy"
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    reward: RewardConfig = field(default_factory=RewardConfig)
    pair_value: PairValueConfig = field(default_factory=PairValueConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    vocabulary: VocabularyConfig = field(default_factory=VocabularyConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.training.demonstrations == "exact" and self.reward.kind != "pair":
            raise ConfigError("training.demonstrations=exact needs a pair value: set reward.kind=pair")
        if self.pair_value.triples and self.model == "pair_value":
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
                changed[name] = checked(name, value, get_type_hints(cls)[name])
                continue
            if not isinstance(value, Mapping):
                raise ConfigError(f"setting {name} is a group of settings, got {value!r}")
            hints = get_type_hints(type(current))
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
            value = parsed(name.strip(), raw.strip(), get_type_hints(type(owner))[inner])
            (values.setdefault(section, {}) if section else values)[inner] = value
        return Config.from_dict(values, base=self)


def refuse_retired(name: str, value: Any) -> None:
    """A setting that is gone may still be written down with the value that changes nothing."""
    if value != RETIRED[name]:
        raise ConfigError(
            f"setting {name} is gone, and {value!r} needs it: leave it out, or use the exactk this was written for"
        )
