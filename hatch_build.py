"""The README as a package index shows it: a page of its own, beside which there is no repository.

hatchling calls this for every wheel and sdist. Pictures, and links into the repository, go; the text of links stays.
"""

import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface


class ReadmeHook(MetadataHookInterface):
    """Sets `readme`, which pyproject.toml declares dynamic."""

    def update(self, metadata: dict) -> None:
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        text = re.sub(r"<picture>.*?</picture>\n\n|<!--.*?-->\n", "", text, flags=re.DOTALL)
        text = re.sub(r"\[([^]]+)\]\((?!https?:)[^)]+\)", r"\1", text)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
