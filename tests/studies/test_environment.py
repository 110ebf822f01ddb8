import re

import pytest
import torch

from corestream.errors import ConfigError
from corestream.studies.environment import environment, prepare_device, resolve_device


def test_what_a_run_was_made_with_is_recorded():
    found = environment("cpu")
    assert found["versions"]["torch"].startswith(torch.__version__.split("+")[0])
    assert found["threads"] == torch.get_num_threads()
    assert found["device"] == "cpu"
    assert found["commit"] is None or re.fullmatch(r"[0-9a-f]{40}\+?", found["commit"])


def test_auto_is_the_card_where_there_is_one(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert resolve_device("auto") == "cuda"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert resolve_device("auto") == "cpu"


def test_a_device_that_is_not_there_is_refused(monkeypatch):
    with pytest.raises(ConfigError, match="allowed are auto, cpu and cuda"):
        resolve_device("gpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="finds no usable CUDA card"):
        prepare_device("cuda", deterministic=False)
