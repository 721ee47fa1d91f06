"""Operators that Python functions compose: `python` in native_functions.yaml."""

import inspect
from importlib import import_module

import pytest
import torch
from torch_opencl import composites

ROWS = torch.ops.torch_opencl.python_functions()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split(" ")[0])
def test_function_has_the_arguments_of_its_operator(row):
    name, target = row.split(" ")
    module, function = target.split(":")
    parameters = inspect.signature(getattr(import_module(f"{composites.__name__}.{module}"), function)).parameters
    base, _, overload = name.partition(".")
    schema = getattr(getattr(torch.ops.aten, base), overload or "default")._schema
    assert list(parameters) == [argument.name for argument in schema.arguments]
    for argument in schema.arguments:
        parameter = parameters[argument.name]
        assert (parameter.kind is parameter.KEYWORD_ONLY) == argument.kwarg_only, argument.name
        # The dispatcher leaves out trailing arguments that equal their defaults.
        if argument.has_default_value():
            assert parameter.default == argument.default_value, argument.name
        else:
            assert parameter.default is parameter.empty, argument.name


def test_modes_of_the_caller_do_not_see_the_composition():
    v, g = torch.randn(3, 4), torch.rand(3, 1)
    expected = torch._weight_norm_interface(v, g, 0)
    seen = []

    class Seen(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            seen.append(function)
            return function(*args, **(kwargs or {}))

    v, g = v.to("opencl"), g.to("opencl")
    with Seen():
        result = torch._weight_norm_interface(v, g, 0)
    torch.testing.assert_close([each.cpu() for each in result], list(expected))
    assert seen == [torch._weight_norm_interface]
