"""The exact engine: does a valid card exist, which is best, and by how much at most it could be better."""
