import pytest
import torch

from corestream import Samples

KINDS = {
    "tensor": torch.arange(12.0).view(4, 3),
    "tuple": (torch.arange(12.0).view(4, 3), torch.arange(4)),
    "dict": {"x": torch.arange(12.0).view(4, 3), "mask": torch.ones(4, 2, dtype=torch.bool)},
    "eleven columns": tuple(torch.full((4,), i) for i in range(11)),
}


@pytest.fixture(params=KINDS.values(), ids=KINDS.keys())
def samples(request):
    return Samples.of(request.param, torch.tensor([5, 6, 7, 8]), task=2, ids=torch.tensor([10, 11, 12, 13]))


def columns_equal(one, two):
    return all(torch.equal(a, b) for a, b in zip(one.columns(), two.columns(), strict=True))


def test_what_is_not_told_is_known_as_such():
    samples = Samples.of(torch.zeros(3, 2), torch.zeros(3))
    assert samples.tasks.tolist() == [0, 0, 0]
    assert samples.ids.tolist() == [-1, -1, -1]
    assert Samples.of(torch.zeros(2), torch.zeros(2), torch.tensor([4, 5])).tasks.tolist() == [4, 5]


def test_all_columns_follow_an_index(samples):
    part = samples[torch.tensor([3, 1])]
    assert len(part) == 2
    assert part.targets.tolist() == [8, 6]
    assert part.ids.tolist() == [13, 11]
    assert all(torch.equal(a, b[[3, 1]]) for a, b in zip(part.columns(), samples.columns(), strict=True))


def test_parts_are_joined(samples):
    assert columns_equal(Samples.join([samples[:1], samples[1:]]), samples)


def test_a_flat_state_holds_everything(samples):
    state = samples.state_dict()
    assert all(isinstance(value, torch.Tensor) for value in state.values())
    again = Samples.from_state_dict(state)
    assert type(again.inputs) is type(samples.inputs)
    if isinstance(samples.inputs, dict):
        assert again.inputs.keys() == samples.inputs.keys()
    assert columns_equal(again, samples)


def test_the_first_of_a_dicts_inputs_stays_the_first_in_a_state_that_a_file_has_sorted():
    inputs = {"words": torch.ones(2, 3), "mask": torch.zeros(2, 3), "a.b": torch.zeros(2)}
    state = Samples.of(inputs, torch.tensor([0, 1])).state_dict()
    assert list(Samples.from_state_dict(dict(sorted(state.items()))).inputs) == ["words", "mask", "a.b"]


def test_columns_of_other_lengths_are_refused(samples):
    state = samples.state_dict()
    with pytest.raises(ValueError, match="some columns have 3 rows and others 4"):
        Samples.from_state_dict({**state, "ids": state["ids"][:3]})


@pytest.mark.parametrize(
    "given",
    [
        {"inputs": torch.zeros(6, 2)},
        {"inputs": (torch.zeros(4, 2), torch.zeros(6))},
        {"inputs": {"x": torch.zeros(4, 2), "mask": torch.zeros(6)}},
        {"task": torch.zeros(6)},
        {"ids": torch.arange(6)},
    ],
    ids=lambda given: "-".join(given),
)
def test_samples_are_not_made_of_columns_of_other_lengths(given):
    with pytest.raises(ValueError, match="some columns have 4 rows and others 6: each needs one row in all"):
        Samples.of(**{"inputs": torch.zeros(4, 2), "targets": torch.arange(4), **given})


def test_a_column_without_rows_is_no_column():
    with pytest.raises(ValueError, match="some columns have 0 rows and others 4"):
        Samples.of(torch.zeros(4, 2), torch.arange(4), task=torch.tensor(3))
