"""From requests, as they come from Python, HTTP or a table, to a batch; and the catalogue of what is known of items."""
