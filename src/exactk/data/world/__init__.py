"""A simulated feed whose truth is known."""
