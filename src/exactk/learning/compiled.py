"""Networks handed to the engine as they are now: what a comparison or a bench decides by, without saving first.

Knows no training.
"""

from __future__ import annotations

from exactk.engine.card_values import LearnedPairs
from exactk.engine.decide import ExactDecider
from exactk.engine.decode.decoder import CompiledDecoder
from exactk.models.pairvalue import PairValue
from exactk.models.policy import Policy
from exactk.settings.config import Config, PairValueConfig
from exactk.tensors import arrays_of


def compiled_decoder(policy: Policy, threads: int | None = None) -> CompiledDecoder:
    """The engine's decoder for a network as it is now."""
    guide = PairValueConfig() if policy.guide is None else policy.guide.value.config
    return CompiledDecoder(arrays_of(policy), policy.config, policy.sizes, guide, threads)


def compiled_search(model: PairValue, cores: int | None = None) -> ExactDecider:
    """The engine's exact search for a pair value as it is now."""
    config = Config(model="pair_value", pair_value=model.config)
    return ExactDecider(LearnedPairs(arrays_of(model), config, model.sizes), cores)
