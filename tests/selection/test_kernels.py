import pytest
import torch
from torch import nn

from corestream.selection.kernels import ntk, rbf


def test_rbf_is_one_on_the_diagonal_and_falls_with_distance():
    kernel = rbf(torch.tensor([[0.0], [1.0], [3.0]]), width=1.0)
    assert torch.allclose(kernel.diagonal(), torch.ones(3).double())
    assert torch.allclose(kernel[0, 1:], torch.tensor([-0.5, -4.5]).double().exp())


def test_a_sample_that_is_not_finite_does_not_change_the_width():
    points = torch.randn(7, 3)
    spoiled = torch.cat([points, torch.tensor([[torch.nan, 0.0, 0.0]])])
    assert torch.equal(rbf(spoiled)[:7, :7], rbf(points))


def test_the_median_distance_is_the_width_where_none_is_given():
    points = torch.tensor([[0.0], [1.0], [3.0]])
    assert torch.allclose(rbf(points), rbf(points, width=2.0))
    assert rbf(torch.zeros(3, 2)).min() == 1.0


def test_ntk_is_the_inner_product_of_output_gradients():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 4)), torch.randn(6, 3)
    rows = []
    for n in range(6):
        outputs = model(x[n : n + 1])[0]
        rows.append(
            [
                torch.cat(
                    [
                        g.flatten()
                        for g in torch.autograd.grad(outputs[c], model.parameters(), retain_graph=True)
                    ]
                )
                for c in (0, 2)
            ]
        )
    jacobian = torch.stack([torch.cat(row) for row in rows]).double()
    assert torch.allclose(ntk(model, x, [0, 2]), jacobian @ jacobian.T / 2, rtol=1e-4, atol=1e-5)


class OwnLSTM(nn.LSTM):
    """No rule knows what a forward pass of one's own does."""

    def forward(self, *args):
        return super().forward(*args)


class Recurrent(nn.Module):
    """Its largest layer has no rule."""

    def __init__(self):
        super().__init__()
        self.lstm, self.head = OwnLSTM(3, 5, batch_first=True), nn.Linear(5, 2)

    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1])


def test_a_gram_matrix_that_would_not_fit_is_made_in_parts():
    torch.manual_seed(0)
    model, x = Recurrent(), torch.randn(11, 4, 3)
    x[7] = torch.nan
    whole = ntk(model, x, [0, 1])
    size = sum(p.numel() for p in model.lstm.parameters())
    for samples in (1, 2, 5):
        small = ntk(model, x, [0, 1], max_bytes=4 * size * samples)
        torch.testing.assert_close(small, whole, equal_nan=True)
    with pytest.raises(MemoryError, match=r"lstm\.weight_ih_l0"):
        ntk(model, x, [0], max_bytes=4 * size - 1)


def test_an_input_that_is_not_finite_has_no_kernel_row():
    model, x = nn.Linear(2, 2), torch.tensor([[1.0, 2.0], [torch.nan, 0.0], [0.5, 1.0]])
    assert ntk(model, x, [0]).diagonal().isfinite().tolist() == [True, False, True]


def test_ntk_needs_an_output():
    with pytest.raises(ValueError, match="classes is empty"):
        ntk(nn.Linear(2, 2), torch.zeros(1, 2), [])
