"""Results are kept while the code they depend on stands, and no longer."""

from __future__ import annotations

from pathlib import Path

import pytest

from exactk_lab.reproduce import provenance
from exactk_lab.reproduce.provenance import code_digest, reached

FILES = {
    "__init__.py": "",
    "one.py": '''
"""Says what lives here."""
from exactk.two import used
from exactk import three

LIMIT = 3

def method():
    """Calls others."""
    from exactk.four import late
    return used(LIMIT) + three.part() + late()

def bystander():
    return 1
''',
    "two.py": "def used(x):\n    return x\n\ndef unused(x):\n    return -x\n",
    "three.py": "def part():\n    return inner()\n\ndef inner():\n    return 2\n\ndef other():\n    return 4\n",
    "four.py": "from exactk.five import late\n\nRIVALS.register(1)\n",
    "five.py": "def late():\n    return 5\n",
}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(provenance, "HOME", tmp_path)
    return tmp_path


def digest() -> str:
    provenance._source.cache_clear()
    return code_digest([("exactk.one", "method")])


@pytest.fixture(autouse=True)
def read_the_real_package_afterwards() -> object:
    yield
    provenance._source.cache_clear()


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("one.py", "LIMIT = 3", "LIMIT = 4"),
        ("two.py", "return x", "return x + 1"),
        ("three.py", "return 2", "return 3"),
        ("four.py", "register(1)", "register(2)"),
        ("five.py", "return 5", "return 6"),
    ],
    ids=["a constant", "an import", "behind a module", "done on import", "passed on, imported late"],
)
def test_the_digest_changes_with_what_is_reached(package: Path, file: str, old: str, new: str) -> None:
    before = digest()
    text = (package / file).read_text()
    assert old in text
    (package / file).write_text(text.replace(old, new, 1))
    assert digest() != before


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("one.py", "return 1", "return 7"),
        ("one.py", "Calls others.", "Calls a few others."),
        ("one.py", "Says what", "Tells what"),
        ("two.py", "return -x", "return -2 * x"),
        ("two.py", "return x", "return x  # as it is"),
        ("three.py", "return 4", "return 8"),
    ],
    ids=[
        "a bystander",
        "a docstring",
        "a module's docstring",
        "never imported",
        "a comment",
        "not of the module",
    ],
)
def test_and_with_nothing_else(package: Path, file: str, old: str, new: str) -> None:
    before = digest()
    text = (package / file).read_text()
    assert old in text
    (package / file).write_text(text.replace(old, new, 1))
    assert digest() == before


def test_a_method_of_somebody_else_counts_by_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    theirs = tmp_path / "their_method.py"
    theirs.write_text("def fit(): return 1\n")
    before = code_digest([("their_method", "fit")])
    theirs.write_text("def fit(): return 2\n")
    assert code_digest([("their_method", "fit")]) != before
    assert code_digest([("nowhere.to_be_found", "fit")]) != before


def test_a_rival_does_not_depend_on_our_own_models() -> None:
    def places(module: str, function: str) -> set[str]:
        return {f"{module}.{name}" for module, name in reached([(module, function)])}

    ours = places("exactk.evaluation.ours", "fit_pair_value")
    theirs = places("exactk.rivals.whole_cards", "fit_value_search")
    assert {
        "exactk.models.pairvalue.PairValue",
        "exactk.learning.phases.train",
        "exactk.settings.config.Config",
    } <= ours
    assert "exactk.models.pairvalue.PairValue" not in theirs
    assert {
        "exactk.models.reward.Reward",
        "exactk.learning.fit.fit",
        "exactk.search.maximise.improve",
    } <= theirs


def test_what_is_built_upon_the_package_is_followed_like_it() -> None:
    places = {module for module, _ in reached([("exactk_lab.reproduce.methods", "paper")])}
    assert {"exactk_lab.reproduce.methods", "exactk.learning.phases"} <= places
