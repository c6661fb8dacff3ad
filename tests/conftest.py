"""What every test starts from: annotations that are checked, float64, the same examples on every run."""

import hypothesis
import jaxtyping
import pytest
import torch

jaxtyping.install_import_hook("mha", "beartype.beartype")  # before mha is imported: shapes are checked at every call

hypothesis.settings.register_profile("course", deadline=None, derandomize=True, database=None, max_examples=40)
hypothesis.settings.load_profile("course")


@pytest.fixture(autouse=True)
def float64():
    """Compute in float64, from the same random numbers, whatever ran before."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(before)


@pytest.fixture
def reader():
    """Run the package as a reader does, without checked annotations: bad input meets the package's own messages."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
