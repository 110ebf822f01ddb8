"""Bad input is an error that names the argument, what was given and what is allowed."""

from typing import NamedTuple

import pytest
import torch
from torch import nn

from corestream import OCS, ReplayMemory, per_sample_gradients, score
from corestream.gradients import cross_entropy
from corestream.gradients.calling import join_inputs, leaves, map_inputs


@pytest.fixture
def model():
    return nn.Linear(5, 3)


@pytest.fixture(params=[per_sample_gradients, score], ids=["per_sample_gradients", "score"])
def verb(request):
    return request.param


def test_an_empty_batch_is_an_error(verb, model):
    with pytest.raises(ValueError, match="batch is empty"):
        verb(model, None, (torch.zeros(0, 5), torch.zeros(0, dtype=torch.long)))


def test_a_batch_that_is_no_pair_is_an_error(verb, model):
    for batch in (torch.zeros(4, 5), (torch.zeros(4, 5),), None):
        with pytest.raises(TypeError, match=r"pair \(inputs, targets\)"):
            verb(model, None, batch)


def test_inputs_that_are_no_tensors_are_an_error(verb, model):
    for inputs in ("words", [[1.0] * 5] * 4, {"x": 3}, 5, ()):
        with pytest.raises(TypeError, match="inputs must be a tensor, or a tuple or dict of tensors"):
            verb(model, None, (inputs, torch.zeros(4, dtype=torch.long)))


def test_inputs_that_are_no_tensors_are_told_in_words(verb, model):
    for inputs, words in (({"x": 3}, "dict of int"), ((), "tuple of nothing"), (5, "int$")):
        with pytest.raises(TypeError, match=f"dict of tensors, got {words}"):
            verb(model, None, (inputs, torch.zeros(4, dtype=torch.long)))


@pytest.mark.parametrize("wrap", [lambda x: {"x": x}, lambda x: (x,)], ids=["dict", "tuple"])
def test_several_inputs_beside_a_task_are_an_error_that_says_where_the_task_goes(model, wrap):
    learner = OCS(model, torch.optim.SGD(model.parameters(), 0.1), ReplayMemory(4))
    x, y = torch.zeros(4, 5), torch.zeros(4, dtype=torch.long)
    with pytest.raises(
        TypeError, match=r"a task, a tensor, goes with inputs of one tensor.*observe\(\(a, b, task\), y\)"
    ):
        learner.observe(wrap(x), y, torch.zeros(4, dtype=torch.long))


def test_inputs_of_different_lengths_are_an_error(verb, model):
    with pytest.raises(
        ValueError, match=r"differ in their first dimension, which is the samples': \[\[4, 5\], \[3\]\]"
    ):
        verb(model, None, ((torch.zeros(4, 5), torch.zeros(3)), torch.zeros(4, dtype=torch.long)))


@pytest.mark.parametrize(
    "targets", [torch.zeros(3, dtype=torch.long), torch.tensor(1)], ids=["three", "none"]
)
def test_targets_of_another_length_are_an_error(verb, model, targets):
    with pytest.raises(ValueError, match="4 inputs but targets of shape"):
        verb(model, None, (torch.zeros(4, 5), targets))


@pytest.mark.parametrize("wrong", [3, -1, -100, 2**40])
def test_a_target_out_of_range_is_named_with_its_place(verb, model, wrong):
    with pytest.raises(ValueError, match=rf"targets\[2\] is {wrong}, and the model's outputs allow 0 to 2"):
        verb(model, None, (torch.zeros(4, 5), torch.tensor([0, 1, wrong, 2])))


def test_the_default_loss_says_what_it_takes(verb, model):
    with pytest.raises(ValueError, match=r"integer targets of shape \[N\].*give a loss_fn"):
        verb(model, None, (torch.zeros(4, 5), torch.zeros(4)))
    with pytest.raises(ValueError, match=r"outputs of shape \[N, classes\].*give a loss_fn"):
        verb(model, None, (torch.zeros(4, 2, 5), torch.zeros(4, dtype=torch.long)))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.bool])
def test_targets_may_be_of_any_integer_type(dtype):
    outputs = torch.randn(4, 3)
    targets = torch.tensor([0, 1, 1, 0])
    assert torch.equal(cross_entropy(outputs, targets.to(dtype)), cross_entropy(outputs, targets))


@pytest.mark.parametrize(
    ("loss_fn", "given", "cure"),
    [
        (lambda outputs, targets: outputs.mean(), r"\[\]", "reduction='none'"),
        (lambda outputs, targets: outputs, r"\[4, 3\]", r"\.flatten\(1\)\.mean\(1\)"),
        (lambda outputs, targets: outputs[:, :1], r"\[4, 1\]", r"\.flatten\(1\)\.mean\(1\)"),
        (lambda outputs, targets: 3.0, "float", "reduction='none'"),
    ],
)
def test_a_loss_that_is_not_one_a_sample_is_an_error(verb, model, loss_fn, given, cure):
    with pytest.raises(ValueError, match=rf"one loss a sample, shape \[4\], got {given}: .*{cure}"):
        verb(model, loss_fn, (torch.zeros(4, 5), torch.zeros(4, dtype=torch.long)))


def test_a_model_with_no_trainable_parameter_is_an_error(verb, model):
    for bad in (nn.ReLU(), model.requires_grad_(False)):
        with pytest.raises(ValueError, match="no trainable parameter"):
            verb(bad, None, (torch.zeros(4, 5), torch.zeros(4, dtype=torch.long)))


def test_a_model_that_is_no_module_is_an_error(verb):
    with pytest.raises(TypeError, match=r"must be a torch.nn.Module, got function"):
        verb(lambda x: x, None, (torch.zeros(4, 5), torch.zeros(4, dtype=torch.long)))


def test_mixed_devices_are_an_error_that_names_both(verb, model):
    x, y = torch.zeros(4, 5), torch.zeros(4, dtype=torch.long)
    with pytest.raises(ValueError, match="inputs are on meta and the model is on cpu"):
        verb(model, None, (x.to("meta"), y))
    with pytest.raises(ValueError, match="targets are on meta and the model is on cpu"):
        verb(model, None, (x, y.to("meta")))
    with pytest.raises(ValueError, match="inputs are on cpu and the model is on meta"):
        verb(model.to("meta"), None, (x, y))


def test_a_reference_is_checked_like_the_batch_and_called_by_its_name(model):
    batch = (torch.zeros(4, 5), torch.zeros(4, dtype=torch.long))
    with pytest.raises(ValueError, match="reference is empty"):
        score(model, None, batch, reference=(torch.zeros(0, 5), torch.zeros(0, dtype=torch.long)))
    with pytest.raises(ValueError, match="reference: 4 inputs but targets"):
        score(model, None, batch, reference=(torch.zeros(4, 5), torch.zeros(3, dtype=torch.long)))


def test_inputs_of_any_kind_are_mapped_and_joined():
    a, b = torch.arange(4).view(2, 2), torch.arange(2)
    assert torch.equal(join_inputs([a, a]), torch.cat([a, a]))
    assert [x.shape[0] for x in join_inputs([(a, b), (a, b), (a, b)])] == [6, 6]
    joined = join_inputs([{"x": a, "y": b}, {"y": b, "x": a}])
    assert torch.equal(joined["x"], torch.cat([a, a]))
    assert map_inputs(len, [a, b]) == (2, 2)
    assert map_inputs(len, {"x": a}) == {"x": 2}
    assert leaves((a, b)) == [a, b]


def test_parameters_may_be_given_themselves_and_by_a_generator(verb):
    model = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    batch = torch.randn(4, 5), torch.tensor([0, 1, 2, 0])
    options = {"reference": batch} if verb is score else {}
    named, given = (
        verb(model, None, batch, parameters=chosen, **options) for chosen in (["2"], model[2].parameters())
    )
    if verb is score:
        assert torch.equal(named.total, given.total)
    else:
        assert torch.equal(named.gram(), given.gram())


def test_no_parameters_at_all_is_an_error(verb, model):
    with pytest.raises(ValueError, match="at least one is needed"):
        verb(model, None, (torch.randn(4, 5), torch.tensor([0, 1, 2, 0])), parameters=[])


def test_a_parameter_of_another_model_is_an_error(verb, model):
    with pytest.raises(ValueError, match="holds no trainable parameter of the model"):
        verb(
            model,
            None,
            (torch.randn(4, 5), torch.tensor([0, 1, 2, 0])),
            parameters=nn.Linear(5, 3).parameters(),
        )


def test_a_module_of_another_model_is_an_error(verb, model):
    batch = torch.randn(4, 5), torch.tensor([0, 1, 2, 0])
    other = nn.Linear(5, 3)
    for chosen in (other, [other], [model, other]):
        with pytest.raises(ValueError, match=r"Linear.* holds no trainable parameter of the model"):
            verb(model, None, batch, parameters=chosen)


@pytest.mark.parametrize("chosen", [3, [3], [None]])
def test_what_is_no_name_and_no_module_is_an_error_that_says_so(verb, model, chosen):
    with pytest.raises(TypeError, match=r"parameters.*(3|None)"):
        verb(model, None, (torch.randn(4, 5), torch.tensor([0, 1, 2, 0])), parameters=chosen)


def test_a_budget_of_nothing_is_an_error(verb, model):
    with pytest.raises(ValueError, match="max_bytes must be a whole number of at least 1, got 0"):
        verb(model, None, (torch.randn(4, 5), torch.tensor([0, 1, 2, 0])), max_bytes=0)


def test_a_model_on_two_devices_is_an_error_that_names_them(verb, model):
    apart = nn.Sequential(model, nn.Linear(3, 3, device="meta"))
    with pytest.raises(ValueError, match="several devices, cpu, meta"):
        verb(apart, None, (torch.randn(4, 5), torch.tensor([0, 1, 2, 0])))


def test_the_verbs_take_only_what_they_can_use(model):
    grads = per_sample_gradients(model, None, (torch.randn(4, 5), torch.tensor([0, 1, 2, 0])))
    with pytest.raises(TypeError, match="other must be what per_sample_gradients gives, got int"):
        grads.gram(3)
    for reduce in (grads.squares, grads.combine):
        with pytest.raises(TypeError, match="weights must be a tensor, one number a sample, got list"):
            reduce([1.0] * 4)


def test_the_default_loss_takes_outputs_that_have_logits():
    class Output(NamedTuple):
        logits: torch.Tensor

    class Wrapped(nn.Linear):
        def forward(self, x):
            return Output(super().forward(x))

    model, batch = Wrapped(5, 3), (torch.randn(4, 5), torch.arange(4) % 3)
    plain = nn.Linear(5, 3)
    plain.load_state_dict(model.state_dict())
    torch.testing.assert_close(
        per_sample_gradients(model, None, batch).gram(), per_sample_gradients(plain, None, batch).gram()
    )


class OwnCell(nn.GRUCell):
    """No rule knows what a forward pass of one's own does."""

    def forward(self, *args):
        return super().forward(*args)


def test_of_many_names_the_first_are_told():
    class Many(nn.Module):
        def __init__(self):
            super().__init__()
            self.cells = nn.ModuleList(OwnCell(5, 5) for _ in range(9))

        def forward(self, x):
            return sum(cell(x) for cell in self.cells)

    with pytest.raises(MemoryError, match=r"cells\.0\.weight_ih, .* and 30 others need"):
        per_sample_gradients(Many(), None, (torch.randn(4, 5), torch.arange(4)), max_bytes=1)
    with pytest.raises(ValueError, match=r"named 'cels\.3'; it has cells\.3, "):
        per_sample_gradients(Many(), None, (torch.randn(4, 5), torch.arange(4)), parameters=["cels.3"])
