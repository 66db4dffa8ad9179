"""exactk: the best whole card, exactly K items out of N candidates, every pair of them allowed."""

__version__ = "0.1.0"
