"""Training runs that several notebooks need, made once."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

MODE, RANDOM = "mode", "random numbers"


def once(name: str, model: nn.Module, train: Callable[[], object]) -> nn.Module:
    """Train a model; where the variable MHA_ONCE names a folder, once for all processes that do.

    The tests name a new folder in each run, so that two notebooks need not train the same model twice. What is in the
    folder was made by this code, on this machine, a moment ago. torch's random numbers go on as after the training.

    :param name: of the training, with all its settings.
    :param model: changed in place, and returned.
    :param train: trains it.
    """
    folder = os.environ.get("MHA_ONCE")
    if not folder:
        train()
        return model
    from filelock import FileLock  # torch brings it along

    path = Path(folder) / f"{name} {torch.get_default_dtype()}.npz"
    with FileLock(f"{path}.lock"):
        if path.exists():
            with np.load(path) as kept:
                model.load_state_dict({key: torch.from_numpy(kept[key]) for key in model.state_dict()})
                model.train(bool(kept[MODE]))
                torch.set_rng_state(torch.from_numpy(kept[RANDOM]))
        else:
            train()
            numbers: dict[str, Any] = {key: one.numpy() for key, one in model.state_dict().items()}
            np.savez(path, **numbers | {MODE: np.array(model.training), RANDOM: torch.get_rng_state().numpy()})
    return model
