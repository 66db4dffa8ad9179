"""`python -m exactk_lab.pictures [FOLDER]` writes every picture, light and dark, into docs/img."""

from __future__ import annotations

import sys
from pathlib import Path

from exactk_lab.pictures.drawn import write

if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("docs/img"))
