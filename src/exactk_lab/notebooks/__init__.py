"""The notebooks of the documents: running them (`python -m exactk_lab.notebooks`), and turning them into pages."""
