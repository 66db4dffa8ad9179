"""How large the house is: files, lines, parameter lists, names defined twice, who imports whom.

`python scripts/house.py CHECKOUT...` prints a column for each checkout (this one by default). Knows syntax alone:
nothing is imported.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent.parent
MANY = 6  # parameters; beyond, a named tuple may say it better
FLAT = 14  # files of one folder; beyond, a family may want a package


class House(NamedTuple):
    """A package taken apart."""

    modules: dict[str, ast.Module]
    lines: int

    @classmethod
    def of(cls, folder: Path) -> House:
        """All modules below `src/exactk`; the laboratory is counted apart."""
        paths = sorted((folder / "src" / "exactk").rglob("*.py"))
        texts = {
            ".".join(path.relative_to(folder / "src").with_suffix("").parts): path.read_text()
            for path in paths
        }
        modules = {name.removesuffix(".__init__"): ast.parse(text) for name, text in texts.items()}
        return cls(modules, sum(text.count("\n") for text in texts.values()))

    def parameters(self) -> list[tuple[int, str]]:
        """How many parameters each function has, most first; `self` and `cls` do not count."""
        found = []
        for module, tree in self.modules.items():
            for node in ast.walk(tree):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    names = [a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
                    found.append(
                        (len([n for n in names if n not in ("self", "cls")]), f"{module}.{node.name}")
                    )
        return sorted(found, reverse=True)

    def twice(self) -> list[str]:
        """Names of classes with more than one definition."""
        names = Counter(
            node.name
            for tree in self.modules.values()
            for node in ast.walk(tree)
            if isinstance(node, ast.ClassDef)
        )
        return sorted(name for name, times in names.items() if times > 1)

    def importers(self) -> Counter[str]:
        """How many modules import each module."""
        found: Counter[str] = Counter()
        for module, tree in self.modules.items():
            found.update({name for name in self._imported(tree) if name != module})
        return found

    def _imported(self, tree: ast.Module) -> Iterator[str]:
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names if alias.name in self.modules)
            elif isinstance(node, ast.ImportFrom) and node.module:
                inner = [f"{node.module}.{alias.name}" for alias in node.names]
                yield from (name for name in (node.module, *inner) if name in self.modules)

    def folders(self) -> Counter[str]:
        """How many files each folder holds."""
        return Counter(name.rpartition(".")[0] for name in self.modules)


def figures(house: House) -> dict[str, str]:
    """What a column of the table says."""
    parameters, importers, folders = house.parameters(), house.importers(), house.folders()
    longest, where = parameters[0]
    plain = [count for count, name in parameters if ".cli." not in name]
    most = ", ".join(f"{name.removeprefix('exactk.')} {count}" for name, count in importers.most_common(3))
    return {
        "files": str(len(house.modules)),
        "lines": f"{house.lines:,}",
        "mean lines a file": f"{house.lines / len(house.modules):.0f}",
        "folders of more than 14 files": str(sum(count > FLAT for count in folders.values())),
        "longest parameter list": f"{longest} ({where.removeprefix('exactk.')})",
        "longest outside cli": str(max(plain)),
        f"functions of more than {MANY} parameters, outside cli": str(sum(count > MANY for count in plain)),
        "class names defined twice": f"{len(house.twice())} ({', '.join(house.twice()) or 'none'})",
        "mean importers of a module": f"{sum(importers.values()) / len(house.modules):.1f}",
        "most imported": most,
    }


def table(folders: list[Path], names: list[str]) -> str:
    """Checkouts side by side, as Markdown."""
    columns = [figures(House.of(folder)) for folder in folders]
    lines = [f"| | {' | '.join(names)} |", "|---" * (1 + len(names)) + "|"]
    lines += [f"| {row} | {' | '.join(column[row] for column in columns)} |" for row in columns[0]]
    return "\n".join(lines)


if __name__ == "__main__":
    given = [Path(name) for name in sys.argv[1:]] or [HERE]
    sys.stdout.write(table(given, [folder.resolve().name for folder in given]) + "\n")
