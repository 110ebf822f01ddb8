"""A stream of domains over any number of classes."""

import pytest
import torch

from corestream.streams.benchmarks.recipe import domain_stream
from corestream.streams.datasets.dataset import Dataset, Part
from corestream.streams.request import Request


@pytest.mark.parametrize("classes", [4, 26])
@pytest.mark.parametrize("choices", [{"imbalanced": True}, {"label_noise": 0.5}])
def test_classes_are_those_of_the_data(classes, choices):
    labels = torch.arange(classes * 40) % classes
    half = Part(torch.zeros(len(labels), 1, 4, 4, dtype=torch.uint8), labels)
    data = Dataset("letters", half, half, tuple(map(str, range(classes))))
    stream = domain_stream(
        Request("letters", **choices),
        data,
        renders=[None, None],
        titles=["one", "two"],
        input_shape=(1, 4, 4),
        scale=None,
        batch_size=10,
    )
    assert stream.num_classes == classes
    for task in stream:
        found = torch.cat([y for _, y in task.train]).bincount(minlength=classes)
        assert len(found) == classes
        assert sorted(found.unique().tolist()) == [4, 40] if "imbalanced" in choices else found.min() > 10
        assert (found == 40).sum() == 2 or "imbalanced" not in choices
