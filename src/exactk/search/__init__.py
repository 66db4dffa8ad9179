"""Choosing a card from any step function or value function; knows no network."""

from exactk.search.decoding import Steps, beam, distributions, greedy, log_prob, log_probabilities, sample
from exactk.search.feasible import Feasible
from exactk.search.maximise import exact, improve

__all__ = [
    "Feasible",
    "Steps",
    "beam",
    "distributions",
    "exact",
    "greedy",
    "improve",
    "log_prob",
    "log_probabilities",
    "sample",
]
