"""What must hold for every module that travels to instances."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

import spotd.node
import spotd.training

MODULES = sorted(path for package in (spotd.node, spotd.training) for path in Path(str(package.__file__)).parent.glob("*.py"))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: f"{path.parent.name}.{path.stem}")
def test_it_is_python_3_9_and_needs_only_the_standard_library(path: Path) -> None:
    """Instances may have Python 3.9 and nothing installed; there, annotations must not be evaluated either."""
    tree = ast.parse(path.read_text(), feature_version=(3, 9))
    imported = {
        (node.module or "") if isinstance(node, ast.ImportFrom) else alias.name
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
    }
    foreign = {name for name in imported if name.split(".")[0] not in sys.stdlib_module_names and not name.startswith(f"spotd.{path.parent.name}")}

    assert foreign == set()
    has_code = any(isinstance(node, (ast.FunctionDef, ast.ClassDef)) for node in tree.body)
    assert "__future__" in imported or not has_code


@pytest.mark.parametrize("path", MODULES, ids=lambda path: f"{path.parent.name}.{path.stem}")
def test_it_can_be_read_in_one_sitting(path: Path) -> None:
    """Modules under 400 lines, functions under 60 (DESIGN §2)."""
    text = path.read_text()
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]

    assert len(text.splitlines()) <= 400
    assert [f.name for f in functions if (f.end_lineno or 0) - f.lineno >= 60] == []
