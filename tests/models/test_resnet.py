import pytest
import torch
from torch import nn

from corestream.models import ResNet18


def kinds(model, kind):
    return [m for m in model.modules() if isinstance(m, kind)]


def test_the_papers_form_has_one_convolution_per_block_and_no_running_statistics():
    model = ResNet18(width=20)
    three_by_three = [c for c in kinds(model, nn.Conv2d) if c.kernel_size == (3, 3)]
    assert len(three_by_three) == 1 + 8
    assert all(norm.running_mean is None for norm in kinds(model, nn.BatchNorm2d))


def test_the_standard_form_has_two_convolutions_per_block_and_running_statistics():
    model = ResNet18(width=64, num_classes=10, form="standard")
    three_by_three = [c for c in kinds(model, nn.Conv2d) if c.kernel_size == (3, 3)]
    assert len(three_by_three) == 1 + 16
    assert all(norm.running_mean is not None for norm in kinds(model, nn.BatchNorm2d))
    assert (
        sum(p.numel() for p in model.parameters()) == 11_173_962
    )  # the ResNet-18 for CIFAR-10 everybody counts


def test_a_paper_block_is_conv_relu_norm_then_shortcut_relu_norm():
    block = ResNet18(width=4).stage2[0]
    x = torch.randn(6, 4, 8, 8)
    inner = block.norm1(block.conv(x).relu())
    expected = block.norm2((inner + block.shortcut(x)).relu())
    assert torch.equal(block(x), expected)


@pytest.mark.parametrize("form", ["paper", "standard"])
def test_group_norm_leaves_no_coupling_between_samples(form):
    model = ResNet18(width=4, num_classes=5, norm="group", form=form)
    x = torch.randn(4, 3, 16, 16)
    assert torch.allclose(model(x)[:1], model(x[:1]), atol=1e-5)
    assert not kinds(model, nn.BatchNorm2d)


def test_without_running_statistics_the_batch_enters_the_prediction_in_eval_mode_too():
    model = ResNet18(width=4, num_classes=5).eval()
    x = torch.randn(4, 3, 16, 16)
    assert not torch.allclose(model(x)[:2], model(x[:2]), atol=1e-3)


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28), (3, 64, 64)])
def test_embed_has_eight_times_the_width_for_any_image_size(shape):
    model = ResNet18(shape, 5, width=4)
    assert model.embed(torch.randn(2, *shape)).shape == (2, 32)


@pytest.mark.parametrize(("name", "value"), [("form", "pre-act"), ("norm", "layer")])
def test_an_unknown_form_or_norm_is_refused(name, value):
    with pytest.raises(ValueError, match=f"{name} is '{value}'; allowed are"):
        ResNet18(width=4, **{name: value})
