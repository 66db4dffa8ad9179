"""The models that serve: loading, swapping, batching, deciding."""
