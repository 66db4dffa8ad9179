"""`exactk demo`: the story in one command."""
