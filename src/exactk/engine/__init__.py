"""The fast path for a trained policy: the same cards as `models/` by test, in a fraction of the time."""
