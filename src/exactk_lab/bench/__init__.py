"""Measurements behind every speed claim: rivals beside ours, in one run, repeated, with spread."""
