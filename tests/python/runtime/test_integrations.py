"""torch_opencl.integrations, without the libraries: `make libraries` tests it with them."""

import functools
import subprocess
import sys
from types import ModuleType

import pytest
import torch_opencl
from torch_opencl.integrations import _changes


class Chooser:
    """Stands for a class of a library."""

    @property
    def device(self):
        return "cpu"

    @functools.cached_property
    def place(self):
        return "cpu"

    @staticmethod
    def choose():
        return "cpu"


@pytest.fixture
def library(monkeypatch):
    """A library of two modules, one of which imports a function of the other."""
    home, other = ModuleType("some_library"), ModuleType("some_library.other")
    home.device = other.device = lambda: "cpu"
    home.Chooser = Chooser
    monkeypatch.setitem(sys.modules, home.__name__, home)
    monkeypatch.setitem(sys.modules, other.__name__, other)
    return home, other


def test_an_attribute_is_replaced_in_one_place_and_an_inherited_one_is_removed_again(library):
    home, other = library
    home.Kind = type("Kind", (Chooser,), {})
    replaced = {
        f"some_library:{name}": lambda original: lambda *_: original() + "!" for name in ("device", "Kind.choose")
    }
    changes = _changes.Changes("torch", {}, replaced)
    changes.apply()
    assert (home.device(), other.device(), home.Kind.choose(), Chooser.choose()) == ("cpu!", "cpu", "cpu!", "cpu")
    changes.undo()
    assert home.device is other.device and "choose" not in vars(home.Kind)


def changed(*names):
    # The version of the library is looked up with importlib.metadata if a name is missing.
    return _changes.Changes("torch", {f"some_library:{name}": lambda original: lambda *_: "opencl" for name in names})


def test_a_library_is_changed_everywhere_and_restored(library):
    home, other = library
    changes = changed("device", "Chooser.device", "Chooser.place", "Chooser.choose")
    for _ in range(2):
        changes.apply()
        assert home.device() == other.device() == "opencl"
        assert Chooser().device == Chooser().place == Chooser.choose() == "opencl"
        changes.apply()
        changes.undo()
        assert home.device() == other.device() == "cpu"
        assert Chooser().device == Chooser().place == Chooser.choose() == "cpu"


def test_a_version_that_lacks_a_name_is_refused_and_left_alone(library):
    with pytest.raises(RuntimeError, match=r"has no some_library\.Chooser\.gone, .* Nothing has been changed"):
        changed("device", "Chooser.gone").apply()
    assert library[0].device() == "cpu"


def test_an_unknown_library_is_refused():
    with pytest.raises(ValueError, match="there is no integration of 'tensorflow'; choose from: accelerate, "):
        torch_opencl.integrations.enable("tensorflow")


def test_importing_the_package_imports_no_library():
    names = tuple(set(torch_opencl.integrations.LIBRARIES.values()) - {"torch"})
    code = f"import sys, torch_opencl; print([name for name in {names} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "[]"
