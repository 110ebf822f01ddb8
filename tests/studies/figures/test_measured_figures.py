import pytest
import torch
from torch import nn

from corestream.studies.figures import minibatch_distance, single_samples


@pytest.fixture
def data() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(200) % 4
    return torch.randn(200, 6, generator=generator) + 2 * torch.eye(6)[y], y


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4))


def test_the_gradient_in_chunks_is_the_mean_gradient(
    model: nn.Module, data: tuple[torch.Tensor, torch.Tensor]
) -> None:
    nn.functional.cross_entropy(model(data[0]), data[1]).backward()
    expected = torch.cat([p.grad.flatten() for p in model.parameters()])
    assert torch.allclose(minibatch_distance.gradient(model, data, chunk=7), expected, atol=1e-6)


def test_larger_batches_are_closer_to_the_whole(
    model: nn.Module, data: tuple[torch.Tensor, torch.Tensor]
) -> None:
    other = (data[0].roll(3, dims=1), data[1])
    generator = torch.Generator().manual_seed(0)
    found = minibatch_distance.measure(model, data, other, steps=38, looks=20, lr=0.01, generator=generator)

    def mean(source: str, word: str) -> float:
        values = [getattr(distance, word) for distance in found if distance.source == source]
        assert len(values) == 20
        return sum(values) / 20

    assert mean("batch of 10", "l2") > mean("batch of 100", "l2")
    assert mean("batch of 10", "cosine") < mean("batch of 100", "cosine")
    assert mean("irrelevant dataset", "cosine") < mean("batch of 100", "cosine")
    figure = minibatch_distance.draw({"MLP": found, "ResNet": found})
    assert len(figure.axes) == 4
    assert all(len(panel.get_lines()) == 6 for panel in figure.axes)


def test_each_sample_starts_from_the_same_weights(
    model: nn.Module, data: tuple[torch.Tensor, torch.Tensor]
) -> None:
    single_samples.train(model, [data] * 50, lr=0.2)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    second = (data[0].flip(1), data[1])
    effects = single_samples.measure(model, data, second, second, count=8, lr=0.5)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    twice = (second[0][[3, 3]], second[1][[3, 3]])
    first, again = single_samples.measure(model, data, twice, second, count=2, lr=0.5)
    assert first == again == effects[3]


def test_a_step_of_length_zero_forgets_nothing(
    model: nn.Module, data: tuple[torch.Tensor, torch.Tensor]
) -> None:
    effects = single_samples.measure(model, data, data, data, count=5, lr=0.0)
    assert [effect.forgetting for effect in effects] == [0.0] * 5
    assert [effect.label for effect in effects] == data[1][:5].tolist()


def test_the_figure_has_a_dot_per_sample(model: nn.Module, data: tuple[torch.Tensor, torch.Tensor]) -> None:
    effects = single_samples.measure(model, data, data, data, count=10, lr=0.5)
    for panel in single_samples.draw(effects).axes:
        assert len(panel.collections[0].get_offsets()) == 10
