"""Small tests share two cores: one thread each, and a fixed seed."""

import pytest

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def one_thread_fixed_seed() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
