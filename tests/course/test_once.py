"""What several notebooks train is trained once in a run of the tests, and nobody can tell."""

import pytest
import torch

from mha.course.once import once


@pytest.fixture
def counted(monkeypatch, tmp_path):
    """The folder that other processes would share, and a training run that is counted."""
    monkeypatch.setenv("MHA_ONCE", str(tmp_path))
    done = []

    def train(name):
        torch.manual_seed(3)
        model = torch.nn.Linear(2, 2)

        def make():
            done.append(name)
            torch.nn.init.normal_(model.weight)
            model.eval()

        return once(name, model, make)

    return train, done


def test_another_process_reads_what_the_first_has_trained(counted):
    train, done = counted
    first, after = train("a"), torch.rand(2)
    second = train("a")
    assert torch.equal(second.weight, first.weight)
    assert not second.training
    assert torch.equal(torch.rand(2), after), "random numbers go on as if it had been trained here"
    assert done == ["a"]


def test_other_settings_are_trained_anew(counted):
    train, done = counted
    train("a"), train("b")
    torch.set_default_dtype(torch.float32)
    assert train("a").weight.dtype == torch.float32
    assert done == ["a", "b", "a"]


def test_without_a_folder_each_process_trains_its_own(counted, monkeypatch):
    train, done = counted
    monkeypatch.delenv("MHA_ONCE")
    train("a"), train("a")
    assert done == ["a", "a"]
