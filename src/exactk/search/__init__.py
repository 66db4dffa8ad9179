"""Choosing a card from any step function or value function; knows no network."""

from exactk.search.beam import beam
from exactk.search.exact import exact
from exactk.search.feasible import Feasible
from exactk.search.greedy import greedy
from exactk.search.improve import improve
from exactk.search.sample import distributions, log_prob, sample
from exactk.search.steps import Steps, log_probabilities

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
