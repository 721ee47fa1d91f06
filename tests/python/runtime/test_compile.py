"""torch.compile: the backends that need no code for the device, and what the one that does says."""

import pytest
import torch
from processes import run_python


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_backends_that_run_the_device_s_own_kernels(device, backend):
    torch._dynamo.reset()
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)).to(device)
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    x = torch.randn(3, 4, device=device)
    torch.testing.assert_close(compiled(x), model(x))
    compiled(x).sum().backward()
    compiled_grads = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    model(x).sum().backward()
    torch.testing.assert_close(compiled_grads, [parameter.grad for parameter in model.parameters()])


@pytest.mark.parametrize("function", ["x.sin() + 1", "x.softmax(0).sort()[0]"])
def test_the_default_backend_says_at_once_what_to_use(function):
    code = f"""
        import torch
        compiled = torch.compile(lambda x: {function})
        compiled(torch.ones(3, 3, device="opencl"))
    """
    done = run_python(code)
    assert done.returncode == 1
    assert "does not generate code for opencl" in done.stderr
    assert 'backend="aot_eager"' in done.stderr
    assert "LoweringException" not in done.stderr
