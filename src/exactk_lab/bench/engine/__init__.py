"""Deciding and training: times by machine, size and number of candidates."""
