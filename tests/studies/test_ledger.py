import pytest
import torch

from corestream import streams
from corestream.studies.ledger import Ledger


@pytest.fixture
def stream():
    return streams.benchmark("rotated-digits", tasks=2, noise=0.3, label_noise=0.2)


def evaluations(*right, of=10):
    return torch.tensor([[number, 0] for number in right]), torch.tensor([[of, 0] for _ in right])


def test_noise_and_flipped_labels_are_both_corruption(stream):
    train = stream[0].train
    found = train.corrupted
    assert torch.equal(found, train.is_noise | (train.targets != train.original_targets))
    assert 0.3 < found.float().mean() < 0.6


def test_what_was_trained_on_is_counted_by_sample_class_and_noise(stream):
    train = stream[0].train
    ledger = Ledger(stream, stream)
    ledger.open_task(train)
    bad = int(train.corrupted.nonzero()[0])
    good = int((~train.corrupted).nonzero()[0])
    ledger.count(torch.tensor([good, bad, 7]), picked=torch.tensor([1, 0, -1]))
    ledger.count(torch.tensor([good, good]), picked=None)
    ledger.close_task(*evaluations(9), train, None)
    trained = ledger.trained[0]
    assert (trained["samples"], trained["distinct"], trained["noise"]) == (4, 2, 0.25)
    assert sum(trained["classes"].values()) == 4
    assert ledger.memory == [None]


def test_the_matrix_and_its_averages(stream):
    ledger = Ledger(stream, stream)
    assert set(ledger.averages().values()) == {None}
    for row in (evaluations(9), evaluations(6, 8)):
        ledger.open_task(stream[0].train)
        ledger.close_task(*row, stream[0].train, None)
    assert ledger.matrix == [[0.9, None], [0.6, 0.8]]
    averages = ledger.averages()
    assert averages["average_accuracy"] == pytest.approx(0.7)
    assert averages["forgetting"] == pytest.approx(0.3)
    assert ledger.class_accuracy == {"0": 0.7}


def test_what_is_stored_is_restored(stream):
    ledger = Ledger(stream, stream)
    ledger.open_task(stream[0].train)
    ledger.count(torch.tensor([3, 4]), picked=None)
    other = Ledger(stream, stream)
    other.restore(ledger.tensors(), ledger.facts())
    other.open_task(stream[0].train)
    assert torch.equal(other.tensors()["ledger.uses"], ledger.tensors()["ledger.uses"])
