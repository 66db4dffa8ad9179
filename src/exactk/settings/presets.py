"""Settings known by a name, and settings files that begin from one.

Knows which settings go together, not what they do.
"""

from __future__ import annotations

import difflib
import tomllib
from dataclasses import replace
from pathlib import Path

from exactk.errors import ConfigError, why_unreadable
from exactk.settings.config import Config, PairValueConfig, PolicyConfig, RewardConfig, TrainingConfig

# The defaults are the numbers of the paper's appendix C; departures from them are named here.
PRESETS: dict[str, Config] = {
    "paper": Config(),
    "pair-value": Config(
        model="pair_value",
        reward=RewardConfig(kind="pair", batch_size=256, patience=2),
        pair_value=PairValueConfig(
            inputs="auto",
            choice=1.0,
            members=4,
            dropout=0.1,
            hidden_share=0.5,
            epochs=12,
            batch_size=512,
            learning_rate=0.004,
            schedule="cosine",
            full_pace=1000,
            weight_decay=0.1,
        ),
        policy=PolicyConfig(inputs="auto", width=64, heads=4, feed_forward_size=128, attention="qkv"),
        training=TrainingConfig(
            alpha=0.02,
            target="set",
            requests="all",
            demonstrations="exact",
            samples=8,
            hill_climbing=False,
            baseline="leave_one_out",
            warm_start_epochs=6,
            epochs=12,
            batch_size=256,
            schedule="cosine",
            weight_decay=0.01,
            clip_norm=1.0,
            choose_by="reward",
        ),
    ),
    # For logs of few users and items whose cards hold no interaction (the paper's MovieLens files): GAttN at the
    # paper's size, supervised by the clicked item, remembering what each user passed over. Chosen on validation.
    "best-ids": Config(
        policy=PolicyConfig(memory=300.0),
        reward=RewardConfig(kind="set", batch_size=256, epochs=3, patience=1),
        training=TrainingConfig(
            alpha=1.0,
            policy_sampling=False,
            target="clicked",
            smoothing=0.3,
            batch_size=128,
            learning_rate=0.0005,
            weight_decay=0.2,
        ),
    ),
    "tiny": Config(
        policy=PolicyConfig(
            embedding_size=4, width=8, encoder_layers=1, feed_forward_size=8, decoder_layers=1
        ),
        reward=RewardConfig(embedding_size=4, hidden_size=8, width=8, epochs=2),
        pair_value=PairValueConfig(
            embedding_size=4, hidden_size=8, kinds=4, place_size=2, epochs=2, batch_size=32
        ),
        training=TrainingConfig(epochs=2),
    ),
}
# GAttN with an exact decoder: whatever columns and signals a log has; of ids and features alone, the pair value.
PRESETS["best"] = replace(PRESETS["pair-value"], model="card_value")

# GAttN for a GPU: taught by the best cards under the pair value; wider, more samples, more epochs.
PRESETS["large"] = replace(
    PRESETS["pair-value"],
    model="policy",
    policy=replace(PRESETS["pair-value"].policy, width=128, heads=8, feed_forward_size=256, encoder_layers=3),
    training=replace(
        PRESETS["pair-value"].training,
        alpha=0.01,
        samples=16,
        warm_start_epochs=12,
        epochs=24,
        batch_size=1024,
    ),
)

# GAttN at the paper's width with its value inside, which sees triples: chosen on validation (docs/decisions/0014).
PRESETS["guided"] = replace(
    PRESETS["pair-value"],
    model="policy",
    pair_value=replace(PRESETS["pair-value"].pair_value, triples=True),
    policy=PolicyConfig(inputs="auto", feed_forward_size=64, attention="qkv", guided=True),
    training=replace(
        PRESETS["pair-value"].training,
        alpha=0.0,
        demonstrations="logged",
        warm_start_epochs=0,
        samples=4,
        epochs=2,
        learning_rate=0.0001,  # faster, the network unlearns what the guide knows
    ),
)

# The seven rows of the paper's ablation table, as overrides of the preset "paper".
ABLATIONS: dict[str, tuple[str, ...]] = {
    "RL(w/o hill-climbing)": ("training.alpha=0", "training.hill_climbing=false", "training.samples=1"),
    "RL(w/ hill-climbing)": ("training.alpha=0",),
    "SL(w/o policy-sampling)": ("training.alpha=1", "training.policy_sampling=false"),
    "SL(w/ policy-sampling)": ("training.alpha=1",),
    "RL(w/o hill-climbing) + SL(w/ policy-sampling)": ("training.hill_climbing=false", "training.samples=1"),
    "RL(w/ hill-climbing) + SL(w/o policy-sampling)": ("training.policy_sampling=false",),
    "RL(w/ hill-climbing) + SL(w/ policy-sampling)": (),
}


def preset(name: str) -> Config:
    """The settings known by this name: `best`, `paper`, `pair-value`, `best-ids`, `guided`, `large` or `tiny`."""
    if str(name) not in PRESETS:
        near = difflib.get_close_matches(str(name), PRESETS, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ConfigError(f"unknown preset {name!r}{hint} (there are {', '.join(PRESETS)})")
    return PRESETS[name]


def read_settings(path: Path | str) -> Config:
    """Settings from a TOML file; `preset = "..."` at its top says what the rest changes."""
    try:
        values = tomllib.loads(Path(path).read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"cannot read settings from {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid TOML: {why_unreadable(path, error)}") from error
    name = values.pop("preset", None)
    return Config.from_dict(values, base=None if name is None else preset(name))
