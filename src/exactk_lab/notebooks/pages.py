"""Shows notebooks as pages of the site: a parser for Sphinx that reads .ipynb as the Markdown it amounts to.

Knows the file format and MyST, runs nothing: what a cell showed is in the file.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from myst_parser.parsers.sphinx_ import MystParser

from exactk_lab.notebooks.running import source


class NotebookParser(MystParser):
    """What `source_suffix` calls "notebook"."""

    supported = ("notebook",)

    def parse(self, inputstring: str, document: nodes.document) -> None:
        """The notebook's Markdown, by MyST."""
        super().parse(markdown_of(json.loads(inputstring), Path(document["source"]).name), document)


def markdown_of(notebook: Mapping[str, Any], name: str) -> str:
    """Text as it stands, code in blocks, outputs below it; a line under the title says where the file is."""
    parts: list[str] = []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            parts.append(source(cell))
        else:
            parts.append(f"```python\n{source(cell)}\n```")
            parts += [shown for output in cell["outputs"] for shown in _shown(output)]
    title, _, rest = parts[0].partition("\n")
    file = f"{{download}}`Download this notebook <{name}>` and open it in Jupyter."
    return "\n\n".join([title, file, rest, *parts[1:]])


def _shown(output: Mapping[str, Any]) -> Iterator[str]:
    """An output as Markdown: a picture, Markdown, or text."""
    if output["output_type"] == "stream":
        yield _block("".join(output["text"]))
        return
    data = output["data"]
    if "text/markdown" in data:
        yield "".join(data["text/markdown"])
        return
    if "image/svg+xml" not in data:
        yield _block("".join(data["text/plain"]))
        return
    alt = escape(output["metadata"]["image/svg+xml"]["alt"])
    picture = base64.b64encode("".join(data["image/svg+xml"]).encode()).decode()
    # As HTML: Markdown refuses pictures of this kind that are not files.
    yield f'```{{raw}} html\n<img alt="{alt}" src="data:image/svg+xml;base64,{picture}">\n```'


def _block(text: str) -> str:
    return f"```{{code-block}} text\n:class: output\n\n{text.rstrip()}\n```"
