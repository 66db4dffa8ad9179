"""How the site is built: Sphinx, Markdown by MyST, the Furo theme; `make docs`.

Everything a page needs is in the page: formulas become MathML here, pictures are files of the repository, and no
script, font or style comes from another host (`tests/house/test_site.py` looks).
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import latex2mathml.converter
from docutils import nodes
from sphinx.pycode import ModuleAnalyzer

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

from exactk import __version__  # noqa: E402
from exactk_lab.notebooks.pages import NotebookParser  # noqa: E402

project = "exactk"
author = "The exactk developers"
copyright = "the exactk developers, MIT licence"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["notebooks/.ipynb_checkpoints"]
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 4  # page.md#a-heading is checked
suppress_warnings = ["myst.header"]

default_role = "code"  # docstrings write `names` in single backticks
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
maximum_signature_line_length = 88

html_theme = "furo"
html_title = f"exactk {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_math_renderer = "mathml"
pygments_style = "friendly"
pygments_dark_style = "monokai"
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#2b6cb0", "color-brand-content": "#2b6cb0"},
    "dark_css_variables": {"color-brand-primary": "#7cb7ff", "color-brand-content": "#7cb7ff"},
    "footer_icons": [],
}


def add_dark_twins(app: Any, document: nodes.document) -> None:
    """`![...](x-light.svg)` shows x-dark.svg where the page is dark, if there is one."""
    folder = Path(app.env.doc2path(app.env.docname)).parent
    for image in list(document.findall(nodes.image)):
        light = image["uri"]
        dark = light.replace("-light.", "-dark.")
        if dark == light or not (folder / dark).is_file():
            continue
        twin = image.deepcopy()
        twin["uri"] = dark
        twin["classes"] = [*image["classes"], "only-dark"]
        image["classes"] = [*image["classes"], "only-light"]
        image.parent.insert(image.parent.index(image) + 1, twin)


def keep_intervals_whole(_: Any, document: nodes.document) -> None:
    """In a table `[0.71, 0.75]` is never broken after its comma."""
    for cell in document.findall(nodes.entry):
        for text in list(cell.findall(nodes.Text)):
            whole = re.sub(r"\[([^\s\]]+), ([^\s\]]+)\]", "[\\1,\N{NO-BREAK SPACE}\\2]", text)
            if whole != text:
                text.parent.replace(text, nodes.Text(whole))


def fields_of(*given: Any) -> None:
    """A docstring's `name:  meaning` lines become a list of definitions, as they read in the source."""
    lines: list[str] = given[-1]
    found: list[str] = []
    inside = False
    for line in lines:
        field = re.match(r"([a-z_]+(?:, [a-z_]+)*): +(\S.*)", line)
        if field and (inside or not found or not found[-1]):
            found += [", ".join(f"``{name}``" for name in field[1].split(", ")), f"    {field[2]}"]
            inside = True
        elif inside and line.startswith(" "):
            found.append(f"    {line.strip()}")
        else:
            inside = False
            found.append(line)
    lines[:] = found


def visit_math(writer: Any, node: nodes.math) -> None:
    """A formula within a line."""
    writer.body.append(latex2mathml.converter.convert(node.astext()))
    raise nodes.SkipNode


def visit_math_block(writer: Any, node: nodes.math_block) -> None:
    """A formula of its own."""
    formula = latex2mathml.converter.convert(node.astext(), display="block")
    writer.body.append(f'<div class="formula">{formula}</div>')
    raise nodes.SkipNode


def hide_overloads(_: Any) -> None:
    """A function is one to a reader: its overloads, which type checkers read, would be listed before it."""
    for module in ("exactk.problem.solving", "exactk.recommender"):
        analyzer = ModuleAnalyzer.for_module(module)
        analyzer.analyze()
        analyzer.overloads.clear()


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.add_source_suffix(".ipynb", "notebook")
    app.add_source_parser(NotebookParser)
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math_block, None))
    app.connect("autodoc-process-docstring", fields_of)
    app.connect("builder-inited", hide_overloads)
    app.connect("doctree-read", add_dark_twins, priority=100)  # before Sphinx collects pictures
    app.connect("doctree-read", keep_intervals_whole)
