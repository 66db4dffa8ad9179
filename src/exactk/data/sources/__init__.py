"""Data sets of others: MovieLens and the authors' own files."""
