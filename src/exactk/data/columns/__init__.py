"""The columns of a log: what each is for, what train held of them, and how values become the numbers of a batch."""
