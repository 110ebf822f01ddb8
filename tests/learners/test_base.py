import copy
import io
import pickle
import warnings

import numpy
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from corestream import OCS, Learner, NonFiniteError, ReplayMemory, Samples, Step
from corestream.learners import (
    ERMIR,
    EWC,
    GSS,
    MCSGD,
    Bilevel,
    Coreset,
    ERReservoir,
    Finetune,
    ICaRL,
    InputOCS,
    StableSGD,
    Uniform,
)
from corestream.learners.base import weighted_mean


class Plain(Learner):
    """One ordinary step on each batch, and a memory of what it saw."""

    def __init__(self, model, optimizer, memory=None, **options):
        super().__init__(model, optimizer, **options)
        self.memory, self.seen = memory, []

    def _learn(self, inputs, targets, ids):
        self.seen.append((inputs, ids))
        losses = self._losses(inputs, targets)
        self._spoil(~torch.isfinite(losses).any())
        loss = weighted_mean(losses, torch.isfinite(losses))
        self._descend(loss)
        if self.memory is not None:
            self.memory.add(Samples.of(inputs, targets, self.task, ids), self.generator)
        return Step(self, loss)


@pytest.fixture
def learner(model, sgd):
    return Plain(model, sgd(model))


def test_observing_is_a_step_of_the_optimiser(learner, batch):
    x, y = batch()
    twin = copy.deepcopy(learner.model)
    step = learner.observe(x, y)
    loss = nn.functional.cross_entropy(twin(x), y)
    loss.backward()
    torch.testing.assert_close(step.loss, loss.detach())
    for name, parameter in twin.named_parameters():
        torch.testing.assert_close(learner.model.get_parameter(name), parameter - 0.1 * parameter.grad)
        assert learner.model.get_parameter(name).grad is None


def test_a_step_says_which_samples_it_was_taken_on(learner, batch):
    step = learner.observe(*batch())
    assert step.loss.shape == ()
    assert step.picked is None
    assert step.scores is None
    assert repr(step) == "Step(the whole batch, no scores)"


def test_a_step_shows_how_many_were_picked_without_its_loss(model, sgd, batch):
    step = OCS(model, sgd(model), ReplayMemory(6), k=3).observe(*batch())
    step._loss = None
    assert repr(step) == "Step(3 picked, with scores)"


def test_the_loss_of_a_step_keeps_no_graph(learner, batch):
    assert not learner.observe(*batch()).loss.requires_grad


@pytest.mark.parametrize("around", [torch.no_grad, torch.enable_grad])
def test_it_learns_whatever_grad_mode_the_caller_is_in(learner, batch, around):
    before = learner.model.head.weight.clone()
    with around():
        learner.observe(*batch())
    assert not torch.equal(before, learner.model.head.weight)


def test_what_made_the_batch_is_neither_trained_nor_kept(model, sgd, batch):
    backbone = nn.Linear(4, 4)
    learner = Plain(model, sgd(model), ReplayMemory(8, policy="reservoir"))
    x, y = batch()
    learner.observe(backbone(x), y)
    learner.observe(backbone(x), y)
    assert backbone.weight.grad is None
    assert not learner.memory.samples.inputs.requires_grad


def test_the_task_goes_to_the_model_as_its_second_argument(learner, batch):
    x, y = batch()
    task, ids = torch.zeros(12, dtype=torch.long), torch.arange(12)
    learner.observe(x, y, task, ids=ids)
    inputs, seen_ids = learner.seen[0]
    assert inputs[0] is x
    assert inputs[1] is task
    assert seen_ids is ids


def test_ending_a_task_counts_it_clears_the_optimiser_and_decays_the_rate(model, batch):
    optimizer = torch.optim.SGD(
        [{"params": model.hidden.parameters(), "lr": 0.4}, {"params": model.head.parameters(), "lr": 0.2}],
        momentum=0.9,
    )
    learner = Plain(model, optimizer, lr_decay=0.5)
    learner.observe(*batch())
    assert optimizer.state
    learner.end_task()
    assert not optimizer.state
    assert [group["lr"] for group in optimizer.param_groups] == [0.2, 0.1]
    assert learner.task == 1
    learner.end_task()
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.05]


@pytest.mark.parametrize("decay", [0.0, -1.0, 1.5])
def test_a_decay_out_of_range_is_an_error(model, sgd, decay):
    with pytest.raises(ValueError, match=r"lr_decay must be a number in \(0, 1\], got"):
        Plain(model, sgd(model), lr_decay=decay)


def test_a_generator_on_another_device_is_an_error(model, sgd):
    with pytest.raises(ValueError, match="generator is on cpu and the model is on meta"):
        Plain(model.to("meta"), sgd(model), generator=torch.Generator())


def test_a_model_without_trainable_parameters_is_an_error(model, sgd):
    optimizer = sgd(model)
    with pytest.raises(ValueError, match="no trainable parameter"):
        Plain(model.requires_grad_(False), optimizer)


def test_a_batch_is_checked(learner, batch):
    x, y = batch()
    with pytest.raises(ValueError, match="batch is empty"):
        learner.observe(x[:0], y[:0])
    with pytest.raises(ValueError, match="12 inputs but targets of shape"):
        learner.observe(x, y[:5])
    with pytest.raises(ValueError, match="differ in their first dimension"):
        learner.observe(x, y, torch.zeros(3))
    with pytest.raises(ValueError, match=r"targets\[0\] is -100"):
        learner.observe(x, y - 100)
    with pytest.raises(ValueError, match="inputs are on meta"):
        learner.observe(x.to("meta"), y)
    with pytest.raises(ValueError, match="ids"):
        learner.observe(x, y, ids=torch.arange(5))


def test_nothing_finite_is_raised_at_once_and_then_forgotten(learner, batch):
    x, y = batch()
    with pytest.raises(NonFiniteError, match=r"task 0: .* or its batch had no sample with a finite loss"):
        learner.observe(x * torch.nan, y)
    learner.check()


@pytest.mark.parametrize("wrap", [nn.DataParallel, lambda model: torch.compile(model, backend="eager")])
def test_a_wrapped_model_is_unwrapped(model, sgd, wrap):
    assert Plain(wrap(model), sgd(model)).model is model


def optimizers():
    return {
        "sgd": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
        "adam": lambda p: torch.optim.Adam(p, 0.01),
        "adam, rates as tensors": lambda p: torch.optim.Adam(
            [{"params": [one], "lr": torch.tensor(0.01 * (1 + i))} for i, one in enumerate(p)], foreach=False
        ),
        "adamw": lambda p: torch.optim.AdamW(p, 0.01, amsgrad=True),
        "rmsprop": lambda p: torch.optim.RMSprop(p, 0.01, momentum=0.5),
    }


@pytest.mark.parametrize("make", optimizers().values(), ids=optimizers().keys())
def test_a_state_holds_everything_and_goes_on_bit_for_bit(model, batch, make):
    def learner(net):
        return Plain(net, make(net.parameters()), ReplayMemory(5, policy="reservoir"), lr_decay=0.9)

    torch.manual_seed(1)
    first, second = learner(copy.deepcopy(model)), learner(copy.deepcopy(model))
    for n in range(3):
        first.observe(*batch(seed=n), ids=torch.arange(12))
    first.end_task()
    first.observe(*batch(seed=3), ids=torch.arange(12))
    state = {name: value.clone() for name, value in first.state_dict().items()}
    assert all(isinstance(value, torch.Tensor) for value in state.values())
    assert {name.partition(".")[0] for name in state} == {"model", "optimizer", "learner", "memory"}
    second.load_state_dict(state)
    assert second.task == 1
    for n in range(4, 7):
        assert torch.equal(first.observe(*batch(seed=n)).loss, second.observe(*batch(seed=n)).loss)
    first.end_task()
    second.end_task()
    for name, value in first.state_dict().items():
        assert torch.equal(value, second.state_dict()[name]), name


def test_a_state_can_be_written_by_safetensors(learner, batch):
    from safetensors.torch import load, save

    learner.observe(*batch())
    state = learner.state_dict()
    written = save(state)
    learner.observe(*batch())
    learner.load_state_dict(load(written))
    assert all(torch.equal(value, state[name]) for name, value in learner.state_dict().items())


def test_groups_that_share_a_rate_can_be_written_as_well(model, batch):
    from safetensors.torch import load, save

    first, *others = model.parameters()
    groups = [{"params": [first]}, {"params": others}]
    learner = Plain(model, torch.optim.Adam(groups, torch.tensor(0.01), foreach=False), lr_decay=0.5)
    learner.observe(*batch())
    learner.end_task()
    learner.load_state_dict(load(save(learner.state_dict())))
    assert [float(group["lr"]) for group in learner.optimizer.param_groups] == pytest.approx([0.005, 0.005])


def test_a_mean_over_valid_losses_is_not_spoilt_by_the_others():
    losses, valid = torch.tensor([1.0, torch.nan, 3.0]), torch.tensor([True, False, True])
    assert weighted_mean(losses, valid) == 2.0
    assert weighted_mean(losses, torch.zeros(3, dtype=torch.bool)) == 0.0


def test_a_learner_of_ones_own_says_how_it_learns(model, sgd, batch):
    with pytest.raises(NotImplementedError):
        Learner(model, sgd(model)).observe(*batch())


class Counting(torch.optim.SGD):
    """Remembers plain numbers beside its tensors, and a list among its settings."""

    def __init__(self, parameters):
        super().__init__(parameters, lr=0.1)
        self.param_groups[0]["steps"] = [1, 2]

    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                state["count"], state["share"] = state.get("count", 0) + 1, state.get("share", 0.0) + 0.1
        return super().step(closure)


def test_plain_numbers_of_an_optimiser_stay_what_they_are(model, batch):
    learner, twin = (Plain(net, Counting(net.parameters())) for net in (model, copy.deepcopy(model)))
    learner.observe(*batch())
    learner.optimizer.param_groups[0]["lr"] = numpy.float32(0.25)
    twin.load_state_dict(learner.state_dict())
    known = next(iter(twin.optimizer.state.values()))
    assert (known["count"], known["share"]) == (1, 0.1)
    assert type(known["count"]) is int
    assert twin.optimizer.param_groups[0]["steps"] == [1, 2]
    assert twin.optimizer.param_groups[0]["lr"] == 0.25


def test_a_state_of_other_groups_is_refused_by_their_number(model, sgd, batch):
    other = copy.deepcopy(model)
    groups = [{"params": [p]} for p in other.parameters()]
    learner, twin = Plain(model, sgd(model)), Plain(other, torch.optim.SGD(groups, lr=0.1))
    with pytest.raises(ValueError, match="1 groups of parameters, and this one has 4"):
        twin.load_state_dict(learner.state_dict())


def test_it_learns_in_inference_mode_too(learner, batch):
    before = learner.model.head.weight.clone()
    with torch.inference_mode():
        x, y = batch()
        learner.observe(x + 0, y)
    assert not torch.equal(before, learner.model.head.weight)


def test_targets_that_are_no_tensor_are_told(learner, batch):
    x, y = batch()
    with pytest.raises(TypeError, match="y must be a tensor"):
        learner.observe(x, y.numpy())


def test_inside_autocast_each_step_goes_with_the_weights_of_the_one_before(model, sgd, batch):
    x, y = batch()
    learner = Finetune(model, sgd(model, 1.0))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        losses = [float(learner.observe(x, y).loss) for _ in range(5)]
    assert losses[-1] < 0.8 * losses[0]


@pytest.mark.parametrize("kind", [OCS, Uniform])
def test_a_batch_of_another_kind_is_refused_before_anything_is_learned_from_it(model, sgd, batch, kind):
    x, y = batch()
    learner = kind(model, sgd(model), ReplayMemory(6), k=4)
    learner.observe(x, y)
    before = [parameter.clone() for parameter in model.parameters()]
    for other in ((x, y.int()), (x.double(), y), (torch.cat([x, x], 1), y)):
        with pytest.raises(
            ValueError, match=r"must have one shape and type: torch.float32 \[4\], torch.int64 \[\] before"
        ):
            learner.observe(*other)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    learner.observe(x, y)


def test_a_step_of_ones_own_is_replayed_only_where_its_class_says_so():
    class Chooses(Coreset):
        """Its choice is made at a task's end."""

        def choose(self, samples, k):
            return torch.arange(k)

    class Counts(OCS):
        def _learn(self, *args):
            self.count += 1

    class Says(Counts):
        capturable = True

    class Follows(Says):
        def _learn(self, *args):
            self.count += 1

    kinds = (OCS, Coreset, Chooses, Counts, Says, Follows)
    assert [kind.capturable for kind in kinds] == [True, True, True, False, True, False]


def test_a_state_is_a_snapshot_that_one_can_go_back_to(learner, batch):
    learner.observe(*batch())
    state = learner.state_dict()
    kept = {name: value.clone() for name, value in state.items()}
    for n in range(1, 4):
        learner.observe(*batch(seed=n))
    learner.end_task()
    assert all(torch.equal(state[name], kept[name]) for name in kept)
    learner.load_state_dict(state)
    assert all(torch.equal(value, kept[name]) for name, value in learner.state_dict().items())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state.pop("learner.task"), "'task' is missing"),
        (lambda state: state.pop("model.head.weight"), "head.weight"),
        (lambda state: state.pop("optimizer.groups"), "'groups' is missing"),
        (lambda state: state.update({"learner.typo": torch.ones(1)}), "without a place here: learner.typo"),
        (lambda state: state.update({"other.typo": torch.ones(1)}), "without a place here: other.typo"),
    ],
)
def test_what_is_no_state_of_such_a_learner_is_refused_and_changes_nothing(learner, batch, change, message):
    learner.observe(*batch())
    state = learner.state_dict()
    learner.observe(*batch(seed=1))
    now = learner.state_dict()
    change(state)
    with pytest.raises(ValueError, match=message):
        learner.load_state_dict(state)
    assert all(torch.equal(value, now[name]) for name, value in learner.state_dict().items())


def test_ids_that_are_no_tensor_are_told(learner, batch):
    with pytest.raises(TypeError, match="ids must be a tensor, one number a sample, got list"):
        learner.observe(*batch(), ids=list(range(12)))


class Centres(nn.Module):
    """A loss that learns."""

    def __init__(self):
        super().__init__()
        self.centres = nn.Parameter(torch.zeros(3, 3))

    def forward(self, outputs, targets):
        return (outputs - self.centres[targets]).square().sum(1)


def test_what_a_loss_has_learned_is_in_the_state(model, batch):
    def make():
        net, loss = copy.deepcopy(model), Centres()
        optimizer = torch.optim.SGD([*net.parameters(), *loss.parameters()], lr=0.1)
        return Plain(net, optimizer, loss_fn=loss)

    learner, other = make(), make()
    for _ in range(3):
        learner.observe(*batch())
    other.load_state_dict(learner.state_dict())
    assert other.observe(*batch(seed=1)).loss == learner.observe(*batch(seed=1)).loss


def test_whatever_is_wrong_with_a_state_leaves_the_learner_as_it_was(learner, batch):
    learner.observe(*batch())
    before = learner.state_dict()
    with pytest.raises(ValueError, match="not the state of such a learner"):
        learner.load_state_dict(
            {**before, "model.head.bias": torch.zeros(3), "learner.generator": torch.zeros(16).long()}
        )
    after = learner.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_an_optimiser_that_cannot_serve_is_refused(model, sgd):
    with pytest.raises(ValueError, match="none of the model's trainable parameters"):
        Plain(model, sgd(copy.deepcopy(model)))
    with pytest.raises(ValueError, match="LBFGS"):
        Plain(model, torch.optim.LBFGS(model.parameters()))
    with pytest.raises(
        TypeError, match=r"optimizer must be one of torch\.optim, got generator: give torch\.optim\.SGD"
    ):
        Plain(model, model.parameters())


def test_replicas_that_nothing_would_keep_alike_are_refused(model, sgd, monkeypatch):
    replica = nn.parallel.DistributedDataParallel.__new__(nn.parallel.DistributedDataParallel)
    nn.Module.__init__(replica)  # as if it had joined its group, for which a machine must have a network
    replica.module = model
    processes = [1, 2]
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: processes.pop(0))
    assert Plain(replica, sgd(model)).model is model
    with pytest.raises(ValueError, match="DistributedDataParallel"):
        Plain(replica, sgd(model))


def test_ids_are_whole_numbers_of_any_type(model, sgd, batch):
    learner = OCS(model, sgd(model), ReplayMemory(9), k=4)
    learner.observe(*batch())
    learner.observe(*batch(), ids=torch.arange(12, dtype=torch.int32))
    with pytest.raises(ValueError, match=r"ids must be whole numbers, got torch\.float32"):
        learner.observe(*batch(), ids=torch.rand(12))


def test_a_state_of_another_optimiser_or_memory_is_refused(model, sgd, batch):
    def make(optimizer, policy):
        return OCS(
            model, optimizer, ReplayMemory(9, policy=policy, tasks=3 if policy == "fixed" else None), k=4
        )

    adam = torch.optim.Adam(model.parameters())
    learner = make(adam, "quota")
    learner.observe(*batch())
    state = learner.state_dict()
    with pytest.raises(ValueError, match="the state is of Adam, and the optimiser is SGD"):
        make(sgd(model), "quota").load_state_dict(state)
    with pytest.raises(ValueError, match="policy='fixed', and the state is of one with 'quota'"):
        make(adam, "fixed").load_state_dict(state)


@pytest.mark.parametrize("wrap", [lambda loss: lambda o, y: loss(o, y), lambda loss: loss.forward])
def test_what_a_loss_inside_a_function_has_learned_is_in_the_state(wrap):
    class Warm(nn.Module):
        def __init__(self):
            super().__init__()
            self.heat = nn.Parameter(torch.ones(()))

        def forward(self, outputs, targets):
            return F.cross_entropy(outputs * self.heat, targets, reduction="none")

    def made():
        torch.manual_seed(0)
        model, loss = nn.Linear(4, 3), Warm()
        optimizer = torch.optim.SGD([*model.parameters(), *loss.parameters()], lr=0.1)
        return Finetune(model, optimizer, loss_fn=wrap(loss)), loss

    (one, loss), (two, again) = made(), made()
    x, y = torch.randn(8, 4), torch.arange(8) % 3
    one.observe(x, y)
    assert loss.heat.item() != 1
    two.load_state_dict(one.state_dict())
    assert torch.equal(again.heat, loss.heat)
    without = {name: value for name, value in one.state_dict().items() if not name.startswith("beside.")}
    with pytest.raises(ValueError, match=r"'beside\.0' is missing"):
        two.load_state_dict(without)
    with pytest.raises(ValueError, match=r"beside.0: \[3\], and \[\] here"):
        two.load_state_dict({**one.state_dict(), "beside.0": torch.ones(3)})


def test_parameters_that_the_optimiser_does_not_have_are_told():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3))
    with pytest.warns(
        UserWarning, match=r"does not have 2 of .* looked at and not trained: 0.weight, 0.bias;"
    ):
        learner = Finetune(model, torch.optim.SGD(model[1].parameters(), lr=0.1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        learner.observe(torch.randn(8, 4), torch.arange(8) % 3)
        model[0].requires_grad_(False)
        learner.observe(torch.randn(8, 4), torch.arange(8) % 3)
    model[1] = nn.Linear(4, 3)
    with pytest.warns(UserWarning, match="not trained: 1.weight, 1.bias"):
        learner.observe(torch.randn(8, 4), torch.arange(8) % 3)


def test_a_memory_that_another_learner_has_filled_goes_on_with_a_task_of_its_own():
    model, memory = nn.Linear(4, 3), ReplayMemory(12)
    for _ in range(2):
        learner = Uniform(model, torch.optim.SGD(model.parameters(), lr=0.1), memory)
        for _ in range(2):
            learner.observe(torch.randn(9, 4), torch.arange(9) % 3)
            learner.end_task()
    assert memory.counts() == dict.fromkeys(range(4), 3)


@pytest.mark.parametrize("kind", [Uniform, ICaRL, OCS, EWC])
def test_a_model_that_changes_its_inputs_in_place_is_refused(kind):
    model = nn.Sequential(nn.Dropout(0.5, inplace=True), nn.Linear(4, 3))
    memory = () if kind is EWC else (ReplayMemory(12),)
    learner = kind(model, torch.optim.SGD(model.parameters(), lr=0.1), *memory)
    with pytest.raises(ValueError, match="changes its inputs in place"):
        learner.observe(torch.ones(9, 4), torch.arange(9) % 3)
    plain = Finetune(model, torch.optim.SGD(model.parameters(), lr=0.1))  # which keeps nothing of them
    plain.observe(torch.ones(9, 4), torch.arange(9) % 3)


def test_a_state_of_a_learner_whose_head_was_replaced_can_be_loaded():
    def made():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
        learner = Finetune(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.8))
        learner.observe(torch.ones(6, 4), torch.arange(6) % 2)
        model[1] = nn.Linear(4, 3)
        learner.optimizer.add_param_group({"params": model[1].parameters()})
        return learner

    one, two = made(), made()
    one.observe(torch.ones(6, 4), torch.arange(6) % 3)
    two.load_state_dict(
        one.state_dict()
    )  # the old head is beside the model in one of them before its next batch
    assert torch.equal(two.model[1].weight, one.model[1].weight)


def test_a_filled_memorys_tasks_are_known_before_the_first_batch_and_after_a_refused_state():
    model, memory = nn.Linear(4, 3), ReplayMemory(12)
    memory.replace(Samples.of(torch.randn(6, 4), torch.arange(6) % 3, 4))
    learner = Uniform(model, torch.optim.SGD(model.parameters(), lr=0.1), memory)
    with pytest.raises(ValueError, match="not the state"):
        learner.load_state_dict({"nonsense": torch.zeros(1)})
    assert int(learner.state_dict()["learner.task"]) == 5
    assert learner.phase() == (5, 6)


def test_a_warning_points_at_the_line_that_made_the_learner():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3))
    with pytest.warns(UserWarning, match="does not have 2") as told:
        Uniform(model, torch.optim.SGD(model[1].parameters(), lr=0.1), ReplayMemory(9))
    assert [one.filename for one in told] == [__file__]


@pytest.mark.parametrize("kind", [Uniform, GSS, ERReservoir, ERMIR, OCS])
def test_a_memory_that_is_none_is_refused(model, sgd, kind):
    with pytest.raises(
        TypeError, match=r"memory must be a ReplayMemory, got int: give corestream\.ReplayMemory"
    ):
        kind(model, sgd(model), 100)


def test_a_batch_of_another_type_is_to_be_converted_and_not_padded(model, sgd, batch):
    learner = Uniform(model, sgd(model), ReplayMemory(8))
    x, y = batch()
    learner.observe(x, y)
    with pytest.raises(ValueError, match=r"float64 \[4\], .* now; convert them to one type, x\.to\(dtype\)"):
        learner.observe(x.double(), y)
    with pytest.raises(ValueError, match="pad sequences to one length"):
        learner.observe(x[:, :3], y)


def test_a_step_that_is_none_is_told(model, sgd, batch):
    class Forgetful(Learner):
        def _learn(self, inputs, targets, ids):
            loss = self._losses(inputs, targets).mean()
            self._descend(loss)
            return loss

    with pytest.raises(
        TypeError, match=r"Forgetful\._learn must return a Step, got Tensor: return Step\(self, loss\)"
    ):
        Forgetful(model, sgd(model)).observe(*batch())


def test_what_a_method_has_to_fill_in_is_named(model, sgd, batch):
    class Empty(Learner):
        pass

    class Chooseless(Coreset):
        pass

    with pytest.raises(
        NotImplementedError, match=r"Empty needs a method _learn\(self, inputs, targets, ids\)"
    ):
        Empty(model, sgd(model)).observe(*batch())
    learner = Chooseless(model, sgd(model), ReplayMemory(8))
    learner.observe(*batch())
    with pytest.raises(NotImplementedError, match=r"Chooseless needs a method choose\(self, samples, k\)"):
        learner.end_task()


@pytest.mark.parametrize("kind", [OCS, Uniform, GSS])
@pytest.mark.parametrize("ended", [False, True])
def test_after_a_state_a_batch_of_another_kind_is_refused_before_the_step(model, sgd, batch, kind, ended):
    def make():
        own = copy.deepcopy(model)
        return kind(own, sgd(own), ReplayMemory(9), **({"warm_start": 0} if kind is OCS else {}))

    learner, twin, (x, y) = make(), make(), batch()
    learner.observe(x, y)
    if ended:
        learner.end_task()
    twin.load_state_dict(learner.state_dict())
    before = copy.deepcopy(twin.model.state_dict())
    with pytest.raises(ValueError, match=r"torch.int64 \[\] before, .* torch.int32 \[\] now"):
        twin.observe(x, y.int())
    assert all(torch.equal(value, before[name]) for name, value in twin.model.state_dict().items())
    twin.observe(x, y)


def test_a_batch_unlike_what_another_learner_left_in_the_memory_is_refused_before_the_step(model, sgd, batch):
    memory, (x, y) = ReplayMemory(9), batch()
    learner = Uniform(model, sgd(model), memory)
    learner.observe(x, y)
    learner.end_task()
    with pytest.raises(ValueError, match="must have one shape and type"):
        Uniform(model, sgd(model), memory).observe(x, y.int())


class Named(nn.Module):
    """Takes its inputs by name."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x, mask=None, other=None):
        return self.layer(x * (1 if mask is None else mask) + (0 if other is None else other))


def test_inputs_of_other_names_are_refused_before_the_step(sgd, batch):
    model, (x, y) = Named(), batch()
    learner = Uniform(model, sgd(model), ReplayMemory(9))
    learner.observe({"x": x, "mask": x}, y)
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(ValueError, match="must have the same inputs: x, mask before, x, other now"):
        learner.observe({"x": x, "other": x}, y)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("ended", [False, True])
def test_inputs_by_name_may_come_in_any_order(sgd, batch, ended):
    """The first of them is what InputOCS looks at."""

    def picks(turned):
        torch.manual_seed(0)
        model, (x, y) = Named(), batch()
        made = [
            InputOCS(model, sgd(model), ReplayMemory(9), k=2, warm_start=0, generator=torch.Generator())
            for _ in range(2)
        ]
        learner, found = made[0], []
        for n in range(4):
            mask = (x > 0.1 * n).float()
            named = {"mask": mask, "x": x} if turned and n else {"x": x, "mask": mask}
            found.append(learner.observe(named, y).picked.tolist())
            if ended and n == 1:
                learner.end_task()
                made[1].load_state_dict(learner.state_dict())
                learner = made[1]
        return found

    assert picks(True) == picks(False)


class Recounting(Uniform):
    """With a state of its own, as a program may write it: it does not think of its parents'."""

    seen = 0

    def _learn(self, *batch):
        self.seen += 1
        return super()._learn(*batch)

    def _state(self):
        return {"seen": torch.tensor(self.seen)}

    def _load_state(self, state):
        self.seen = int(state["seen"])


def test_a_state_of_ones_own_does_not_lose_the_candidates(model, sgd, batch):
    learner, other = (Recounting(model, sgd(model), ReplayMemory(9)) for _ in range(2))
    learner.observe(*batch())
    other.load_state_dict(learner.state_dict())
    assert other.seen == 1
    learner.end_task()
    other.end_task()
    assert len(other.memory) == len(learner.memory) > 0


def test_a_learner_says_what_it_is(model, sgd, batch):
    learner = Uniform(model, sgd(model), ReplayMemory(9))
    learner.observe(*batch())
    learner.end_task()
    said = repr(learner)
    assert said.startswith(f"Uniform({type(model).__name__}, tasks ended: 1, ReplayMemory(")
    assert repr(Finetune(model, sgd(model))) == f"Finetune({type(model).__name__}, tasks ended: 0)"


NUMBERS = {
    "lam": lambda *made, **o: Uniform(*made, ReplayMemory(9), **o),
    "penalty": EWC,
    "lr_floor": StableSGD,
    "path_lr": lambda *made, **o: MCSGD(*made, ReplayMemory(9, balance=None), **o),
    "ridge": lambda *made, **o: Bilevel(*made, ReplayMemory(9), **o),
}


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -1.0, "1"], ids=str)
@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_that_mean_nothing_are_refused(model, sgd, name, value):
    with pytest.raises(ValueError, match=f"{name} must be a finite number"):
        NUMBERS[name](model, sgd(model), **{name: value})


def test_ewc_needs_candidates(model, sgd):
    with pytest.raises(ValueError, match="candidates must be a whole number of at least 1, got 0"):
        EWC(model, sgd(model), candidates=0)


class Prepared(torch.optim.Optimizer):
    """Makes its state in the constructor, and never again."""

    def __init__(self, parameters, start=0.5):
        super().__init__(parameters, {"lr": 0.01})
        for parameter in self.param_groups[0]["params"]:
            self.state[parameter]["sum"] = torch.full_like(parameter, start)

    @torch.no_grad()
    def step(self, closure=None):
        for parameter in self.param_groups[0]["params"]:
            known = self.state[parameter]["sum"].addcmul_(parameter.grad, parameter.grad)
            parameter.addcdiv_(parameter.grad, known.sqrt(), value=-0.01)


def test_what_an_optimiser_made_at_first_is_there_again_after_each_task(model, batch):
    learner = Plain(model, Prepared(model.parameters()))
    for _ in range(2):
        learner.observe(*batch())
        assert learner.optimizer.state[model.head.weight]["sum"].std() > 0
        learner.end_task()
        assert learner.optimizer.state[model.head.weight]["sum"].unique().tolist() == [0.5]


@pytest.mark.parametrize("make", [lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), torch.optim.Adam])
def test_what_an_optimiser_learned_before_its_learner_does_not_come_back(model, batch, make):
    optimizer, (x, y) = make(model.parameters()), batch()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
    learner = Plain(model, optimizer)
    learner.end_task()
    assert not learner.optimizer.state


def test_the_momentum_of_single_numbers_does_not_come_back_either():
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(torch.ones(4, 1)).sum().backward()
    optimizer.step()
    Plain(model, optimizer).end_task()
    assert not optimizer.state


class Noted(nn.Linear):
    def get_extra_state(self):
        return {"seen": 3}

    def set_extra_state(self, state):
        pass


def test_what_a_state_cannot_hold_is_named(sgd, model):
    net = nn.Sequential(Noted(4, 3))
    with pytest.raises(
        ValueError, match=r"model\.0\._extra_state is a dict, and a state holds tensors alone"
    ):
        Plain(net, sgd(net)).state_dict()
    optimizer = sgd(model)
    optimizer.param_groups[0]["tags"] = {"head"}
    with pytest.raises(ValueError, match=r"optimiser's param_groups\[0\]\['tags'\] is a set"):
        Plain(model, optimizer).state_dict()


def saved_and_loaded(learner):
    file = io.BytesIO()
    torch.save(learner, file)
    return torch.load(io.BytesIO(file.getvalue()), weights_only=False)


@pytest.mark.parametrize("copied", [lambda one: pickle.loads(pickle.dumps(one)), saved_and_loaded])
@pytest.mark.parametrize("kind", [OCS, Uniform])
def test_a_learner_at_work_can_be_pickled_and_goes_on_alike(model, sgd, batch, kind, copied):
    learner = kind(model, sgd(model), ReplayMemory(6), k=3)
    learner.observe(*batch())
    twin = copied(learner)
    for one in (learner, twin):
        one.observe(*batch(seed=1))
    assert twin.model is not learner.model
    assert all(torch.equal(value, twin.state_dict()[name]) for name, value in learner.state_dict().items())


def test_a_task_that_the_model_does_not_take_is_told(sgd, batch):
    model, task = nn.Linear(4, 3), torch.zeros(12, dtype=torch.long)
    with pytest.raises(
        TypeError, match=r"task goes to the model as its second argument, and Linear\.forward"
    ):
        Finetune(model, sgd(model)).observe(*batch(), task)


def test_an_error_of_the_models_own_code_stays_what_it_is(sgd, batch):
    class Wrong(nn.Linear):
        def forward(self, x, task):
            return super().forward(x, task)

    model = Wrong(4, 3)
    with pytest.raises(TypeError, match="takes 2 positional arguments but 3 were given"):
        Finetune(model, sgd(model)).observe(*batch(), torch.zeros(12, dtype=torch.long))
