"""Which code a result depends on: a digest of the definitions a function can reach, and of nothing else.

Knows source text, no results. Read from the syntax alone, so that nothing is imported to find out: a name leads to its
definition, an imported name to the module it comes from. Comments, formatting and docstrings do not count.
"""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path

import exactk

HOME = Path(exactk.__file__).parent
Place = tuple[str, str | None]  # a module and a name in it; None: all of it


def code_digest(roots: Iterable[Place]) -> str:
    """A digest that changes with any definition of this package that `roots` lead to, and with a root's own file."""
    ordered = sorted(f"{module}:{name}:{text}" for (module, name), text in reached(roots).items())
    return sha256("\n".join(ordered).encode()).hexdigest()


def reached(roots: Iterable[Place]) -> dict[Place, str]:
    """Every definition the roots lead to, with its text."""
    waiting = list(roots)
    texts: dict[Place, str] = {
        (module, None): _foreign(module) for module, _ in waiting if not _inside(module)
    }
    while waiting:
        module, name = waiting.pop()
        source = _source(module) if _inside(module) else None
        if source is None or (module, name) in texts:
            continue
        statements = source.of(name)
        texts[module, name] = "".join(_text(statement) for statement in statements)
        waiting += [(module, ALWAYS)] if name != ALWAYS else []
        waiting += source.wanted(name, statements)
    return texts


ALWAYS = "*"  # what a module does when it is imported, beside defining names


@dataclass(frozen=True)
class SourceModule:
    """A module taken apart: its definitions by name, where its imported names come from, and the rest."""

    module: str
    definitions: dict[str, list[ast.stmt]]
    imported: dict[str, Place]
    always: list[ast.stmt]

    def of(self, name: str | None) -> list[ast.stmt]:
        """The statements that define a name; all of them for None."""
        if name is None:
            return [statement for held in self.definitions.values() for statement in held]
        return self.always if name == ALWAYS else self.definitions.get(name, [])

    def wanted(self, name: str | None, statements: list[ast.stmt]) -> Iterator[Place]:
        """What these statements refer to."""
        if name is not None and name not in self.definitions and name != ALWAYS:
            yield self.imported.get(
                name, (f"{self.module}.{name}", None)
            )  # passed on, or a module of this package
        for statement in statements:
            yield from self._named_in(statement)

    def _named_in(self, statement: ast.stmt) -> Iterator[Place]:
        parts: set[int] = set()
        for node in ast.walk(statement):
            if isinstance(node, ast.Import | ast.ImportFrom):
                yield from _imports(node).values()
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                module, attribute = self.imported.get(node.value.id, ("", ""))
                if attribute is None:  # `module.name`: of the module, the name alone
                    parts.add(id(node.value))
                    yield module, node.attr
            elif isinstance(node, ast.Name) and id(node) not in parts:
                if node.id in self.definitions:
                    yield self.module, node.id
                elif node.id in self.imported:
                    yield self.imported[node.id]


@cache
def _source(module: str) -> SourceModule | None:
    path = _path(module)
    if path is None:
        return None
    definitions: dict[str, list[ast.stmt]] = {}
    imported: dict[str, Place] = {}
    always: list[ast.stmt] = []
    for statement in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            imported.update(_imports(statement))
        elif names := list(_defined(statement)):
            for name in names:
                definitions.setdefault(name, []).append(statement)
        elif not _for_types_alone(statement):
            always.append(statement)
    return SourceModule(module, definitions, imported, always)


def _defined(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield statement.name
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    targets = [statement.target] if isinstance(statement, ast.AnnAssign | ast.AugAssign) else targets
    for target in targets:
        for node in ast.walk(target):
            if isinstance(node, ast.Name):
                yield node.id


def _imports(statement: ast.Import | ast.ImportFrom) -> dict[str, Place]:
    """Local name -> where it comes from; a whole module has no name within."""
    if isinstance(statement, ast.Import):
        return {alias.asname or alias.name: (alias.name, None) for alias in statement.names}
    module = statement.module or ""
    found: dict[str, Place] = {}
    for alias in statement.names:
        inner = f"{module}.{alias.name}"
        whole = _inside(inner) and _path(inner) is not None
        found[alias.asname or alias.name] = (inner, None) if whole else (module, alias.name)
    return found


def _for_types_alone(statement: ast.stmt) -> bool:
    docstring = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    checking = isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.dump(statement.test)
    return docstring or checking


def _text(statement: ast.stmt) -> str:
    """The statement without comments, formatting and docstrings."""
    text = ast.dump(statement)
    for node in ast.walk(statement):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node, clean=False):
            text = text.replace(ast.dump(node.body[0]), "", 1)
    return text


def _inside(module: str) -> bool:
    """Of this package, or of one beside it whose name says that it belongs to it."""
    return module.split(".")[0].startswith(exactk.__name__)


def _path(module: str) -> Path | None:
    """The file of one of our modules."""
    package, *parts = module.split(".")
    home = HOME if package == exactk.__name__ else HOME.with_name(package)
    place = home.joinpath(*parts)
    return next((path for path in (place.with_suffix(".py"), place / "__init__.py") if path.is_file()), None)


def _foreign(module: str) -> str:
    """Somebody else's method: its whole file, where it can be found."""
    try:
        found = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return ""
    path = None if found is None or found.origin is None else Path(found.origin)
    return sha256(path.read_bytes()).hexdigest() if path is not None and path.is_file() else ""
