"""Solving beside other solvers: exact cards, briefs, answers in little time."""
