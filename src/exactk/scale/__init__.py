"""The same work on more than one machine: score, train, build, serve. Places it; nothing here learns or decides."""
