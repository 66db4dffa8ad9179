"""Commands of a checkout: `exactk bench` and `exactk reproduce` register themselves on the command line."""

from exactk_lab.commands import bench, reproduce

__all__ = ["bench", "reproduce"]
