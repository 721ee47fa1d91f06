"""Imports of Python modules run one way."""

from scripts import house


def test_no_modules_import_one_another():
    assert house.circles(house.python_imports()) == []


def test_no_module_imports_from_a_higher_layer():
    assert house.upward_imports() == []
