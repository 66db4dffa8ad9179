"""Settings: frozen, checked, read from anywhere, never misspelt in silence."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import pytest

from exactk.errors import ConfigError
from exactk.settings.config import RETIRED, Config, InputSizes, PolicyConfig
from exactk.settings.presets import ABLATIONS, PRESETS, preset, read_settings


def test_the_paper_preset_holds_the_numbers_of_the_appendix() -> None:
    paper = preset("paper")
    assert (paper.policy.embedding_size, paper.policy.width, paper.policy.feed_forward_size) == (16, 32, 32)
    assert (paper.policy.encoder_layers, paper.policy.decoder_layers, paper.policy.heads) == (2, 2, 2)
    assert (paper.policy.attention, paper.policy.beam) == ("shared", 3)
    assert (paper.reward.kind, paper.reward.hidden_size, paper.reward.embedding_size) == ("pnn", 128, 16)
    training = paper.training
    assert (training.alpha, training.samples, training.hill_climbing) == (0.5, 5, True)
    assert (training.learning_rate, training.batch_size, training.epochs) == (0.001, 32, 10)
    assert (training.policy_sampling, training.target, training.baseline) == (True, "card", "none")


def test_the_preset_for_a_gpu_trains_a_policy() -> None:
    large = preset("large")
    assert large.model == "policy"
    assert large.policy.width > preset("best").policy.width


def test_a_setting_that_is_gone_is_read_where_it_says_what_is_done_now() -> None:
    written = preset("paper").to_dict()
    written["policy"] |= {"cell": "lstm", "decoding": "beam", "improve_seconds": 0.0}
    written["training"] |= {"validate_every": 0, "entropy": 0.0}
    assert Config.from_dict(written) == preset("paper")


@pytest.mark.parametrize("section", ["policy", "reward", "pair_value", "training"])
def test_and_refused_by_name_where_it_asks_for_more(section: str) -> None:
    for name in (full for full in RETIRED if full.startswith(f"{section}.")):
        with pytest.raises(ConfigError, match=f"setting {name} is gone, and 'more' needs it"):
            Config.from_dict({section: {name.split(".")[1]: "more"}})


@pytest.mark.parametrize("name", PRESETS)
def test_a_config_survives_the_way_to_json_and_back(name: str) -> None:
    config = preset(name)
    assert Config.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_overrides_are_read_as_the_type_of_their_setting() -> None:
    config = preset("paper").with_overrides(
        [
            "policy.beam=5",
            "training.alpha=1",
            "training.policy_sampling=False",
            "reward.kind=set",
            "model=pair_value",
        ]
    )
    assert config.policy.beam == 5
    assert config.training.alpha == 1.0
    assert isinstance(config.training.alpha, float)
    assert config.training.policy_sampling is False
    assert (config.reward.kind, config.model) == ("set", "pair_value")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("policy.beem=5", "unknown setting policy.beem; did you mean policy.beam?"),
        ("polcy.beam=5", "unknown setting polcy; did you mean policy?"),
        ("beam=5", "unknown setting beam"),
        ("policy.beam", "section.name=value"),
        ("policy=5", "setting policy is a group"),
        ("model.x=5", "setting model is not a group"),
        ("policy.beam=five", "setting policy.beam must be a whole number, got 'five'"),
        ("policy.beam=2.5", "setting policy.beam must be a whole number"),
        ("policy.beam=0", "setting policy.beam must be at least 1, got 0"),
        ("training.alpha=1.5", "setting training.alpha must be at least 0 and at most 1, got 1.5"),
        ("training.alpha=nan", "setting training.alpha must be a number"),
        ("training.learning_rate=1e999", "setting training.learning_rate must be a number, got inf"),
        ("training.policy_sampling=yes", "setting training.policy_sampling must be true or false"),
        ("reward.kind=mlp", "setting reward.kind must be one of pnn, set, pair, got 'mlp'"),
        ("policy.heads=3", "policy.heads must divide policy.width, got 3 and 32"),
        ("reward.heads=3", "reward.heads must divide reward.width"),
    ],
)
def test_a_wrong_override_is_refused_by_name(override: str, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        preset("paper").with_overrides([override])
    assert message in str(refused.value)


def test_unknown_names_in_a_mapping_are_refused_too() -> None:
    with pytest.raises(ConfigError, match="unknown setting policy.widht; did you mean policy.width"):
        Config.from_dict({"policy": {"widht": 64}})
    with pytest.raises(ConfigError, match="policy is a group of settings, got 3"):
        Config.from_dict({"policy": 3})
    with pytest.raises(ConfigError, match="policy_sampling must be true or false, got 1"):
        Config.from_dict({"training": {"policy_sampling": 1}})


def test_leave_one_out_needs_two_samples() -> None:
    with pytest.raises(ConfigError, match="samples of at least 2"):
        preset("paper").with_overrides(["training.samples=1", "training.baseline=leave_one_out"])


def test_only_a_single_target_can_be_smoothed() -> None:
    assert preset("paper").with_overrides(["training.smoothing=0.2"]).training.smoothing == 0.2
    with pytest.raises(ConfigError, match="target to card or clicked"):
        preset("paper").with_overrides(["training.target=set", "training.smoothing=0.2"])


def test_a_toml_file_may_start_from_a_preset(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        'preset = "tiny"\nmodel = "pair_value"\n[policy]\nbeam = 7\n[training]\nlearning_rate = 1\n'
    )
    config = read_settings(file)
    assert config.policy == replace(preset("tiny").policy, beam=7)
    assert (config.model, config.training.learning_rate) == ("pair_value", 1.0)


def test_a_toml_file_that_cannot_be_read_says_which(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="absent.toml"):
        read_settings(tmp_path / "absent.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("policy = [")
    with pytest.raises(ConfigError, match=r"broken.toml is not valid TOML"):
        read_settings(broken)


def test_an_unknown_preset_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown preset 'papr'; did you mean paper"):
        preset("papr")


def test_the_seven_ablation_rows_are_seven_different_configurations() -> None:
    rows = [preset("paper").with_overrides(overrides) for overrides in ABLATIONS.values()]
    assert len(set(map(str, rows))) == 7
    by_name = dict(zip(ABLATIONS, rows, strict=True))
    assert by_name["RL(w/ hill-climbing) + SL(w/ policy-sampling)"] == preset("paper")
    for name, config in by_name.items():
        training = config.training
        assert ("RL" in name) == (training.alpha < 1)
        assert ("SL" in name) == (training.alpha > 0)
        if "RL" in name:
            assert ("w/ hill" in name) == training.hill_climbing
        if "SL" in name:
            assert ("w/ policy" in name) == training.policy_sampling


def test_settings_cannot_be_changed_in_place() -> None:
    config = PolicyConfig()
    with pytest.raises(FrozenInstanceError):
        config.beam = 5  # type: ignore[misc]


def test_sizes_are_checked_like_settings() -> None:
    with pytest.raises(ConfigError, match="sizes.num_items must be at least 1"):
        InputSizes(num_items=0)


@pytest.mark.parametrize(
    ("model", "unread"),
    [
        ("policy", ["card_value.width=8"]),
        ("pair_value", ["training.epochs=1", "policy.beam=5", "reward.epochs=2", "card_value.width=8"]),
        ("card_value", ["training.epochs=1", "policy.beam=5", "reward.epochs=2"]),
    ],
)
def test_settings_that_a_model_never_reads_are_known(model: str, unread: list[str]) -> None:
    everything = [
        "training.epochs=1", "training.seed=3", f"model={model}", "policy.beam=5", "reward.epochs=2",
        "pair_value.members=1", "card_value.width=8", "vocabulary.item_rows=9",
    ]  # fmt: skip
    names = [text.partition("=")[0] for text in unread]
    assert Config().with_overrides(everything).unread(everything) == names
