"""A team's own log, from frames or files, into a dataset folder."""
