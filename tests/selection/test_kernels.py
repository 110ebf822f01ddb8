import torch

from corestream.selection.kernels import rbf


def test_rbf_is_one_on_the_diagonal_and_falls_with_distance():
    kernel = rbf(torch.tensor([[0.0], [1.0], [3.0]]), width=1.0)
    assert torch.allclose(kernel.diagonal(), torch.ones(3).double())
    assert torch.allclose(kernel[0, 1:], torch.tensor([-0.5, -4.5]).double().exp())


def test_the_median_distance_is_the_width_where_none_is_given():
    points = torch.tensor([[0.0], [1.0], [3.0]])
    assert torch.allclose(rbf(points), rbf(points, width=2.0))
    assert rbf(torch.zeros(3, 2)).min() == 1.0
