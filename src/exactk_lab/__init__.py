"""The laboratory: benchmarks, the paper reproduced, makers of our tables and figures. Not in the wheel."""
