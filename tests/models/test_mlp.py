import torch

from corestream.models import MLP


def test_the_papers_network_has_its_number_of_parameters():
    count = sum(p.numel() for p in MLP().parameters())
    assert count == 784 * 256 + 256 + 256 * 256 + 256 + 256 * 10 + 10


def test_embed_is_the_input_of_the_output_layer():
    network, x = MLP((1, 28, 28), 10), torch.rand(3, 1, 28, 28)
    assert network.embed(x).shape == (3, 256)
    assert torch.equal(network(x), network.head(network.embed(x)))


def test_dropout_acts_in_train_mode_only():
    network, x = MLP((16,), 3, width=64, dropout=0.5), torch.rand(2, 16)
    assert not torch.equal(network(x), network(x))
    network.eval()
    assert torch.equal(network(x), network(x))
