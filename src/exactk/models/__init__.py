"""The networks: weights and forward passes only; no loops over data, no losses, no search."""
