"""OCS, step by step, against hand-written steps (Algorithm 1, Eq. 6 to 9)."""

import copy
import warnings

import numpy
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from corestream import OCS, NonFiniteError, ReplayMemory, Samples, score
from corestream.learners import InputOCS, UniformOCS
from corestream.selection import bilevel

CHOICES = {"tau": 5.0, "k": 3, "replay": 4, "warm_start": 0, "candidates": 40}


def optimizer_for(model, **options):
    return torch.optim.SGD(model.parameters(), **{"lr": 0.1, "momentum": 0.8, **options})


@pytest.fixture
def model(model):
    return model.double()


@pytest.fixture
def draw():
    def batch(n=12, seed=0, classes=3):
        generator = torch.Generator().manual_seed(seed)
        y = torch.randint(0, classes, (n,), generator=generator)
        x = torch.randn(n, 4, generator=generator, dtype=torch.float64) + 2 * F.one_hot(y, 4)
        return x, y

    return batch


@pytest.fixture
def filled(draw):
    """A memory that holds nine samples of a task before."""

    def memory(capacity=9, **options):
        memory = ReplayMemory(capacity, **options)
        memory.replace(Samples.of(*draw(9, seed=99), 0))
        return memory

    return memory


@pytest.fixture
def ocs(model):
    def build(memory, net=None, *, seed=0, optimizer=None, **options):
        net = copy.deepcopy(model) if net is None else net
        generator = torch.Generator().manual_seed(seed)
        optimizer = optimizer_for(net) if optimizer is None else optimizer
        return OCS(net, optimizer, memory, generator=generator, **{**CHOICES, **options})

    return build


def same_parameters(one, two, **tolerance):
    for (name, a), b in zip(one.model.named_parameters(), two.model.parameters(), strict=True):
        torch.testing.assert_close(a, b, msg=lambda text, name=name: f"{name}: {text}", **tolerance)


# One step


@pytest.mark.parametrize("single_pass", [True, False])
@pytest.mark.parametrize("lam", [1.0, 0.3])
def test_a_step_is_sgd_on_the_loss_of_equation_9(ocs, draw, filled, model, single_pass, lam):
    x, y = draw()
    learner = ocs(filled(), single_pass=single_pass, lam=lam)
    numbers = torch.Generator().manual_seed(0)
    replayed = learner.memory.samples[torch.rand(9, generator=numbers).topk(4).indices]
    twin, optimizer = copy.deepcopy(model), None
    optimizer = optimizer_for(twin)
    for _ in range(1):
        expected = score(twin, None, (x, y), (learner.memory.inputs, learner.memory.targets), tau=5.0).top(3)
        picked_loss = F.cross_entropy(twin(x[expected]), y[expected])
        loss = picked_loss + lam * F.cross_entropy(twin(replayed.inputs), replayed.targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    step = learner.observe(x, y)
    assert torch.equal(step.picked, expected)
    torch.testing.assert_close(step.loss, loss.detach())
    for a, b in zip(learner.model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(a, b)
        assert a.grad is None


def test_a_step_without_memory_is_sgd_on_the_picked_alone(ocs, draw, model):
    x, y = draw()
    learner = ocs(ReplayMemory(9))
    expected = score(model, None, (x, y)).top(3)
    F.cross_entropy(model(x[expected]), y[expected]).backward()
    step = learner.observe(x, y)
    assert torch.equal(step.picked, expected)
    assert not step.scores.affinity.any()
    for a, b in zip(learner.model.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(a, b - 0.1 * b.grad)


@pytest.mark.parametrize("reference", ["memory", "replay", 5])
@pytest.mark.parametrize(
    "make", [optimizer_for, lambda m: torch.optim.Adam(m.parameters(), 0.01)], ids=["sgd", "adam"]
)
def test_one_pass_and_two_passes_are_the_same_step_by_step(ocs, draw, model, reference, make):
    nets = [copy.deepcopy(model) for _ in range(2)]
    one, two = (
        ocs(ReplayMemory(9), net, optimizer=make(net), single_pass=single, reference=reference, warm_start=2)
        for net, single in zip(nets, (True, False), strict=True)
    )
    for task in range(3):
        for n in range(5):
            batch = draw(seed=10 * task + n)
            first, second = one.observe(*batch), two.observe(*batch)
            assert torch.equal(first.picked, second.picked)
            torch.testing.assert_close(first.loss, second.loss)
            torch.testing.assert_close(first.scores.total, second.scores.total)
            same_parameters(one, two)
        one.end_task()
        two.end_task()
        assert torch.equal(one.memory.inputs, two.memory.inputs)


def test_float32_takes_the_same_steps_in_one_pass_and_in_two(ocs, draw, model):
    nets = [copy.deepcopy(model).float() for _ in range(2)]
    one, two = (
        ocs(ReplayMemory(9), net, single_pass=single) for net, single in zip(nets, (True, False), strict=True)
    )
    for task in range(2):
        for n in range(5):
            x, y = draw(seed=10 * task + n)
            assert torch.equal(one.observe(x.float(), y).picked, two.observe(x.float(), y).picked)
            same_parameters(one, two, rtol=1e-4, atol=1e-5)
        one.end_task()
        two.end_task()


@pytest.mark.parametrize("reference", ["memory", "replay", 3, 100])
def test_the_reference_is_the_whole_memory_the_replay_batch_or_a_draw(ocs, draw, filled, model, reference):
    x, y = draw()
    learner = ocs(filled(), reference=reference)
    numbers = torch.Generator().manual_seed(0)
    replayed = torch.rand(9, generator=numbers).topk(4).indices
    rows = {"memory": torch.arange(9), "replay": replayed}.get(reference)
    if rows is None:
        rows = torch.rand(9, generator=numbers).topk(min(reference, 9)).indices
    samples = learner.memory.samples[rows]
    expected = score(model, None, (x, y), (samples.inputs, samples.targets), tau=5.0)
    torch.testing.assert_close(learner.observe(x, y).scores.affinity, expected.affinity)


@pytest.mark.parametrize("weights", [(1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0), (0.3, 0.7, 0.0)])
def test_weights_serve_the_ablations(ocs, draw, filled, weights):
    step = ocs(filled(), weights=weights).observe(*draw())
    scores = step.scores
    expected = (
        weights[0] * scores.similarity + weights[1] * scores.diversity + weights[2] * 5.0 * scores.affinity
    )
    torch.testing.assert_close(scores.total, expected)
    assert torch.equal(step.picked, expected.topk(3).indices)


@pytest.mark.parametrize("single_pass", [True, False])
@pytest.mark.parametrize(
    "how", [lambda model: ["head"], lambda model: [model.head], lambda model: "head.weight"]
)
def test_parameters_restrict_selection_and_never_the_update(ocs, draw, filled, model, single_pass, how):
    x, y = draw()
    net = copy.deepcopy(model)
    learner = ocs(filled(), net, parameters=how(net), single_pass=single_pass)
    reference = (learner.memory.inputs, learner.memory.targets)
    expected = score(model, None, (x, y), reference, tau=5.0, parameters=how(model))
    step = learner.observe(x, y)
    torch.testing.assert_close(step.scores.total, expected.total)
    assert not torch.allclose(step.scores.total, score(model, None, (x, y), reference, tau=5.0).total)
    for a, b in zip(net.parameters(), model.parameters(), strict=True):
        assert not torch.equal(a, b)


def test_frozen_parameters_stay_as_they_are(ocs, draw, model):
    net = copy.deepcopy(model)
    net.hidden.requires_grad_(False)
    learner = ocs(ReplayMemory(9), net, optimizer=optimizer_for(net, weight_decay=0.1))
    learner.observe(*draw())
    assert torch.equal(net.hidden.weight, model.hidden.weight)
    assert not torch.equal(net.head.weight, model.head.weight)


class Routed(nn.Module):
    """A head for each task; each sample goes through that of its own."""

    def __init__(self):
        super().__init__()
        self.body, self.heads = nn.Linear(4, 6), nn.ModuleList(nn.Linear(6, 3) for _ in range(3))

    def forward(self, x, task):
        hidden, outputs = torch.tanh(self.body(x)), x.new_zeros(len(x), 3)
        for number in task.unique():
            own = task == number
            outputs[own] = self.heads[number](hidden[own])
        return outputs


def test_a_head_of_the_reference_alone_is_left_alone(ocs, draw):
    torch.manual_seed(0)
    net = Routed().double()
    learners = [
        ocs(ReplayMemory(6), copy.deepcopy(net), single_pass=single, replay=1) for single in ("auto", False)
    ]
    for number in range(3):
        for step in range(4):
            x, y = draw(seed=10 * number + step)
            for learner in learners:
                learner.observe(x, y, torch.full_like(y, number))
        for learner in learners:
            learner.end_task()
    assert learners[0]._in_one_pass()
    same_parameters(*learners)


class Gated(nn.Module):
    """A parameter without a rule that has no effect yet: its gradient is zero, and it is used."""

    def __init__(self):
        super().__init__()
        self.head, self.gate, self.inner = (
            nn.Linear(4, 3),
            nn.Parameter(torch.zeros(())),
            nn.Parameter(torch.eye(4)),
        )

    def forward(self, x):
        return self.head(x + self.gate * (x @ self.inner))


def test_a_used_parameter_with_a_gradient_of_zero_is_not_left_alone(ocs, draw):
    learners = []
    for single_pass in ("auto", False):
        torch.manual_seed(0)
        net = Gated().double()
        learners.append(
            ocs(ReplayMemory(6), net, optimizer=optimizer_for(net, weight_decay=0.1), single_pass=single_pass)
        )
        learners[-1].observe(*draw())
    same_parameters(*learners)
    assert not torch.equal(net.inner, torch.eye(4, dtype=torch.float64))


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
def test_momentum_goes_on_where_no_sample_of_the_update_has_a_gradient(ocs, draw, kind):
    """A parameter without a rule is then used all the same, as it is by an ordinary step."""

    def settled(outputs, targets):
        return F.relu(F.cross_entropy(outputs, targets, reduction="none") - 0.9)

    learners = []
    for single_pass in ("auto", False):
        torch.manual_seed(0)
        net = Gated().double()
        net.gate.data.fill_(0.5)
        options = {"momentum": 0.8} if kind is torch.optim.SGD else {}
        optimizer = kind(net.parameters(), lr=0.05, **options)
        chosen = {"loss_fn": settled, "k": 1, "weights": (-1.0, 0.0, 0.0)}  # what is least like the others
        learners.append(ocs(ReplayMemory(6), net, optimizer=optimizer, single_pass=single_pass, **chosen))
    still = 0
    for step in range(30):
        x, y = draw(6, seed=step)
        found = [learner.observe(x, y) for learner in learners]
        still += float(found[0].loss) == 0 and bool((found[0].scores.similarity != 0).any())
    assert still  # steps on nothing, in batches that have something
    same_parameters(*learners)


def test_a_sparse_embedding_is_learned_by_an_optimiser_of_sparse_gradients(ocs, draw):
    for single_pass in ("auto", False):
        torch.manual_seed(0)
        words = nn.Embedding(9, 4, sparse=True)
        net = nn.Sequential(words, nn.Flatten(), nn.Linear(8, 3).requires_grad_(False))
        learner = ocs(
            ReplayMemory(6),
            net,
            optimizer=torch.optim.SparseAdam(net[:1].parameters()),
            single_pass=single_pass,
        )
        before = words.weight.detach().clone()
        learner.observe(torch.arange(12).reshape(6, 2) % 9, torch.arange(6) % 3)
        assert not torch.equal(words.weight, before)
    with pytest.raises(ValueError, match="sparse gradients"):
        ocs(ReplayMemory(6), net, optimizer=learner.optimizer, single_pass=True).observe(
            torch.arange(12).reshape(6, 2) % 9, torch.arange(6) % 3
        )


@pytest.mark.parametrize("part", ["concluded", "coupled", "apart", "asked", "classes"])
def test_a_state_with_a_part_missing_is_refused(ocs, draw, part):
    learner, other = ocs(ReplayMemory(6)), ocs(ReplayMemory(6))
    learner.observe(*draw())
    state = learner.state_dict()
    del state[f"learner.{part}"]
    with pytest.raises(ValueError, match=f"'{part}' is missing"):
        other.load_state_dict(state)


def test_a_frozen_sparse_embedding_is_no_reason_for_a_second_pass(ocs, draw):
    net = nn.Sequential(nn.Embedding(9, 4, sparse=True).requires_grad_(False), nn.Flatten(), nn.Linear(8, 3))
    learner = ocs(ReplayMemory(6), net, single_pass=True)
    learner.observe(torch.arange(12).reshape(6, 2) % 9, torch.arange(6) % 3)


class SometimesCentred(nn.Module):
    """Samples depend on each other in batches that have a large one."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        return self.head(x - x.mean(0) if bool((x > 50).any()) else x)


@pytest.mark.parametrize("shown", [{6}, {8}, {5, 6, 7}], ids=str)
def test_a_resumed_learner_looks_when_an_uninterrupted_one_does(ocs, draw, shown):
    torch.manual_seed(0)
    net = SometimesCentred().double()
    ends = []
    for stops in (None, 5):
        learner = ocs(ReplayMemory(6), copy.deepcopy(net))
        for step in range(1, 11):
            x, y = draw(seed=step)
            x[3, 0] = 60.0 if step in shown else x[3, 0]
            learner.observe(x, y)
            if step == stops:
                state = learner.state_dict()
                learner = ocs(ReplayMemory(6), copy.deepcopy(net))
                learner.load_state_dict(state)
        ends.append(learner)
    assert ends[0]._coupled == ends[1]._coupled == (shown == {8})
    same_parameters(*ends, rtol=0, atol=0)


def test_selection_by_layers_that_are_frozen_since_is_refused(ocs, draw, model):
    learner = ocs(ReplayMemory(6), parameters=["head"])
    learner.model.head.requires_grad_(False)
    with pytest.raises(ValueError, match="trainable any more"):
        learner.observe(*draw())


class Tempered(nn.Module):
    """A loss with something of its own to learn."""

    def __init__(self):
        super().__init__()
        self.temperature = nn.Parameter(torch.ones((), dtype=torch.float64))

    def forward(self, outputs, targets):
        return F.cross_entropy(outputs / self.temperature, targets, reduction="none")


def _thawed(learner):
    next(learner.model.parameters()).requires_grad_(True)


def _hooked(learner):
    next(learner.model.parameters()).register_hook(lambda gradient: gradient.clamp(-1e-3, 1e-3))


def _half_trained(learner):
    learner.model.eval()
    learner.model.norm.train()


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.norm, self.head = nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3)

    def forward(self, x):
        return self.head(self.norm(self.body(x)))


@pytest.mark.parametrize(
    ("change", "options"),
    [(_thawed, {}), (_hooked, {}), (_half_trained, {"score_mode": "eval"}), (None, {"loss_fn": Tempered})],
    ids=["thawed", "hooked", "half in training", "the loss learns"],
)
def test_one_pass_is_taken_only_where_it_does_what_two_do(ocs, draw, change, options):
    def build(single_pass):
        torch.manual_seed(0)
        net = Normed().double().eval()
        loss = options["loss_fn"]() if "loss_fn" in options else None
        if change is _thawed:
            next(net.parameters()).requires_grad_(False)
        learns = [*net.parameters(), *([] if loss is None else loss.parameters())]
        optimizer = torch.optim.SGD(learns, lr=0.1, momentum=0.8)
        return ocs(
            ReplayMemory(6), net, optimizer=optimizer, single_pass=single_pass, **{**options, "loss_fn": loss}
        )

    learners = [build("auto"), build(False)]
    before = copy.deepcopy(learners[0].model)
    for step in range(6):
        for learner in learners:
            learner.observe(*draw(seed=step))
            if step == 1 and change is not None:
                change(learner)
            if step == 3:
                learner.end_task()
    same_parameters(*learners)
    for one, two in zip(learners[0].model.buffers(), learners[1].model.buffers(), strict=True):
        torch.testing.assert_close(one, two)
    assert not torch.equal(before.body.weight, learners[0].model.body.weight)
    if "loss_fn" in options:
        assert learners[0].loss_fn.temperature == learners[1].loss_fn.temperature != 1


def test_shares_of_the_update_are_as_precise_as_the_model(ocs):
    learner = ocs(ReplayMemory(6), lam=0.1)
    assert learner._shares(3, 0, torch.float64)[0].item() == 1 / 3


@pytest.mark.parametrize("single_pass", [True, False])
def test_an_unused_head_is_left_alone_even_by_weight_decay(ocs, draw, model, single_pass):
    net = copy.deepcopy(model)
    net.other = nn.Linear(3, 3).double()
    before = net.other.weight.clone()
    ocs(
        ReplayMemory(9), net, optimizer=optimizer_for(net, weight_decay=0.5), single_pass=single_pass
    ).observe(*draw())
    assert torch.equal(net.other.weight, before)


def test_more_picks_than_samples_are_all_of_them(ocs, draw):
    step = ocs(ReplayMemory(9), k=50).observe(*draw(5))
    assert sorted(step.picked.tolist()) == [0, 1, 2, 3, 4]


def test_one_sample_is_picked_with_diversity_zero(ocs, draw):
    step = ocs(ReplayMemory(9)).observe(*draw(1))
    assert step.picked.tolist() == [0]
    assert step.scores.diversity.abs() < 1e-12


@pytest.mark.parametrize("single_pass", [True, False])
@pytest.mark.parametrize("warm_start", [0, 5])
@pytest.mark.parametrize("bad", [[0, 2, 3], [2, 3, 4], [0, 1, 2, 3]])
def test_samples_that_are_not_finite_are_never_picked_nor_candidates(
    ocs, draw, filled, model, single_pass, warm_start, bad
):
    x, y = draw(5)
    good = [n for n in range(5) if n not in bad]
    x[bad, 1] = torch.nan
    learner = ocs(filled(), k=3, single_pass=single_pass, warm_start=warm_start)
    numbers = torch.Generator().manual_seed(0)
    replayed = learner.memory.samples[torch.rand(9, generator=numbers).topk(4).indices]
    loss = F.cross_entropy(model(x[good]), y[good]) + F.cross_entropy(
        model(replayed.inputs), replayed.targets
    )
    loss.backward()
    step = learner.observe(x, y, ids=torch.arange(5))
    picked = step.picked.tolist()
    assert sorted(picked[: len(good)]) == good
    assert picked[len(good) :] == [-1] * (3 - len(good))
    torch.testing.assert_close(step.loss, loss.detach())
    for a, b in zip(learner.model.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(a, b - 0.1 * b.grad)
    assert sorted(learner.candidates.kept().ids.tolist()) == good


def test_a_remembered_sample_that_is_not_finite_does_no_harm(ocs, draw, filled):
    memory = filled()
    memory.samples.inputs[:5] = torch.nan
    learner = ocs(memory, replay=9)
    step = learner.observe(*draw())
    assert torch.isfinite(step.loss)
    assert all(torch.isfinite(parameter).all() for parameter in learner.model.parameters())


def test_in_two_passes_a_remembered_sample_that_is_not_finite_is_an_error_that_leaves_the_model_alone(
    ocs, draw, filled, model
):
    memory = filled()
    memory.samples.inputs[:5] = torch.nan
    learner = ocs(memory, replay=9, single_pass=False)
    with pytest.raises(NonFiniteError):
        learner.observe(*draw())
    for a, b in zip(learner.model.parameters(), model.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("single_pass", [True, False])
def test_nothing_finite_is_an_error_that_leaves_the_model_alone(ocs, draw, model, single_pass):
    x, y = draw(4)
    learner = ocs(ReplayMemory(9), single_pass=single_pass)
    with pytest.raises(NonFiniteError, match=r"samples \[0, 1, 2, 3\]"):
        learner.observe(x * torch.nan, y)
    for a, b in zip(learner.model.parameters(), model.parameters(), strict=True):
        assert torch.equal(a, b)
    learner.observe(*draw())


def test_it_learns_under_no_grad_and_under_autocast(draw, model):
    for single_pass in (True, False):
        net = copy.deepcopy(model).float()
        learner = OCS(net, optimizer_for(net), ReplayMemory(9), **CHOICES, single_pass=single_pass)
        x, y = draw()
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            for _ in range(2):
                step = learner.observe(x.float(), y)
            learner.end_task()
            step = learner.observe(x.float(), y)
        assert step.loss.dtype == torch.float32
        assert not torch.equal(net.head.weight, model.head.weight.float())


# Modes and batch statistics


def batch_normed():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3)).double()


def test_batch_norm_models_take_two_passes_and_statistics_only_from_the_update(ocs, draw, filled):
    x, y = draw()
    net, twin = batch_normed(), batch_normed()
    learner = ocs(filled(), net)
    numbers = torch.Generator().manual_seed(0)
    replayed = learner.memory.samples[torch.rand(9, generator=numbers).topk(4).indices]
    step = learner.observe(x, y)
    loss = F.cross_entropy(twin(x[step.picked]), y[step.picked])
    loss = loss + F.cross_entropy(twin(replayed.inputs), replayed.targets)
    loss.backward()
    torch.testing.assert_close(step.loss, loss.detach())
    assert int(net[1].num_batches_tracked) == 2
    torch.testing.assert_close(net[1].running_mean, twin[1].running_mean)
    torch.testing.assert_close(net[1].running_var, twin[1].running_var)
    for a, b in zip(net.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(a, b - 0.1 * b.grad)


def test_batch_norm_models_score_with_their_batchs_statistics_as_constants(ocs, draw, filled):
    net, (x, y) = batch_normed(), draw()
    learner = ocs(filled(), net)
    reference = (learner.memory.inputs, learner.memory.targets)
    expected = score(copy.deepcopy(net), None, (x, y), reference, tau=5.0)
    torch.testing.assert_close(learner.observe(x, y).scores.total, expected.total)


def test_other_statistics_too_come_only_from_the_update_where_there_are_two_passes(ocs, draw, filled):
    class Counting(nn.Linear):
        def __init__(self):
            super().__init__(4, 3)
            self.register_buffer("batches", torch.zeros(()))

        def forward(self, x):
            self.batches += 1
            return super().forward(x)

    torch.manual_seed(0)
    net = Counting().double()
    ocs(filled(), net, single_pass=False).observe(*draw())
    assert int(net.batches) == 2  # the picked and the replay batch, not the two that were scored


def test_one_pass_cannot_be_forced_where_samples_depend_on_each_other(ocs, draw, model):
    with pytest.raises(ValueError, match="single_pass=True: samples depend on each other"):
        ocs(ReplayMemory(9), batch_normed(), single_pass=True).observe(*draw())
    with pytest.raises(ValueError, match="score_mode is not the mode the model trains in"):
        ocs(ReplayMemory(9), single_pass=True, score_mode="eval").observe(*draw())
    ocs(ReplayMemory(9), batch_normed().eval(), single_pass=True).observe(*draw())


def test_the_mode_while_scoring_may_be_another_than_while_training(ocs, draw):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 50), nn.Dropout(0.5), nn.Linear(50, 3)).double()
    expected = score(copy.deepcopy(net).eval(), None, draw())
    learner = ocs(ReplayMemory(9), net, score_mode="eval")
    torch.testing.assert_close(learner.observe(*draw()).scores.total, expected.total)
    assert all(module.training for module in net.modules())


def test_one_pass_makes_one_forward_and_two_passes_one_more_for_each_batch(ocs, draw, filled):
    for single_pass, expected in ((True, 1), (False, 4)):
        learner, calls = ocs(filled(), single_pass=single_pass), []
        for _ in range(2):
            learner.observe(*draw())  # by which it is seen that samples do not depend on each other
        learner.model.head.register_forward_hook(lambda *args, calls=calls: calls.append(1))
        learner.observe(*draw())
        assert len(calls) == expected


# Warm start


def test_the_first_batches_of_each_task_are_picked_from_at_random(ocs, draw):
    learner = ocs(ReplayMemory(9), warm_start=3)
    for _ in range(2):
        by_score = []
        for n in range(6):
            step = learner.observe(*draw(40, seed=n))
            by_score.append(torch.equal(step.picked, step.scores.top(3)))
        assert by_score == [False, False, False, True, True, True]
        learner.start_sweep()  # a new sweep is no new task
        step = learner.observe(*draw(40, seed=9))
        assert torch.equal(step.picked, step.scores.top(3))
        learner.end_task()


@pytest.mark.parametrize("kind", [OCS, InputOCS])
def test_a_warm_start_ends_with_a_tasks_first_sweep(model, draw, kind):
    """Or tasks of fewer batches would be learned at random altogether."""
    learner = kind(model, optimizer_for(model), ReplayMemory(9), k=3, warm_start=100)
    for _ in range(2):
        for sweep in range(3):
            learner.start_sweep()
            steps = [learner.observe(*draw(40, seed=n)) for n in range(2)]
            assert [torch.equal(step.picked, step.scores.top(3)) for step in steps] == [sweep > 0] * 2
        learner.end_task()


def test_a_warm_start_that_is_over_is_in_the_state(ocs, draw):
    learner = ocs(ReplayMemory(9), warm_start=100)
    learner.observe(*draw(40))
    learner.start_sweep()
    other = ocs(ReplayMemory(9), warm_start=100)
    other.load_state_dict(learner.state_dict())
    step = other.observe(*draw(40, seed=1))
    assert torch.equal(step.picked, step.scores.top(3))


def test_a_task_that_is_over_before_its_warm_start_is_told(ocs, draw):
    learner = ocs(ReplayMemory(9), warm_start=2)
    for _ in range(2):
        learner.observe(*draw())
    with pytest.warns(UserWarning, match=r"all 2 batches .* at random, for warm_start=2") as told:
        learner.end_task()
    assert told[0].filename == __file__
    for _ in range(3):
        learner.observe(*draw())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        learner.end_task()


class WithLength(nn.Module):
    """An empty input has a finite loss, and no gradient below its length."""

    def __init__(self):
        super().__init__()
        self.below, self.head = nn.Linear(4, 6, bias=False), nn.Linear(7, 3)

    def forward(self, x):
        seen = self.below(x)
        return self.head(torch.cat([seen, seen.square().sum(1, keepdim=True).sqrt()], 1))


@pytest.mark.parametrize("seed", range(4))
def test_a_sample_without_a_gradient_where_selection_does_not_look_is_not_trained_on(seed):
    torch.manual_seed(seed)
    net, x = WithLength(), torch.randn(8, 4)
    x[:3] = 0
    learner = OCS(
        net, optimizer_for(net), ReplayMemory(9), k=3, warm_start=0, parameters=["head"], weights=(0, 1, 0)
    )
    step = learner.observe(x, torch.arange(8) % 3)
    assert step.picked.min() >= 3
    assert all(p.isfinite().all() for p in net.parameters())


def test_in_two_passes_such_a_step_is_refused_before_it_is_taken():
    torch.manual_seed(0)
    net = WithLength()
    before = copy.deepcopy(net.state_dict())
    learner = OCS(
        net, optimizer_for(net), ReplayMemory(9), k=3, warm_start=0, parameters=["head"], single_pass=False
    )
    with pytest.raises(NonFiniteError, match="loss or gradient was not finite"):
        learner.observe(torch.zeros(8, 4), torch.arange(8) % 3)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


def test_a_learner_that_goes_on_from_a_state_is_not_told_of_tasks(ocs, draw, monkeypatch):
    monkeypatch.setattr("corestream.learners.ocs.PATIENCE", 3)
    learner, other = ocs(ReplayMemory(9)), ocs(ReplayMemory(9))
    learner.start_sweep()
    learner.observe(*draw())
    other.load_state_dict(learner.state_dict())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(5):
            other.observe(*draw())


def test_the_warm_start_can_be_changed_on_the_way(ocs, draw):
    learner = ocs(ReplayMemory(9), warm_start=100)
    learner.warm_start = 0
    step = learner.observe(*draw(40))
    assert learner.warm_start == 0
    assert torch.equal(step.picked, step.scores.top(3))


def test_a_weight_that_changes_at_every_step_leaves_nothing_behind(ocs, draw, filled):
    learner = ocs(filled())
    for step in range(100):
        learner.lam = 1 + step / 100
        learner.observe(*draw())
    assert len(learner._known_shares) <= 65


def test_samples_that_begin_to_depend_on_each_other_are_noticed_in_time(ocs, draw):
    """A loss may begin to go by its batch after hundreds of steps."""
    learner = ocs(filled_memory := ReplayMemory(9))
    keep = {"share": 1.0}

    def loss_fn(outputs, targets):
        losses = F.cross_entropy(outputs, targets, reduction="none")
        return losses if keep["share"] == 1 else losses - losses.mean().detach() * outputs.mean()

    learner.loss_fn = loss_fn
    for _ in range(300):
        learner.observe(*draw())
    assert not learner._coupled
    keep["share"] = 0.5
    for _ in range(256):
        learner.observe(*draw())
    assert learner._coupled
    assert not len(filled_memory)


def test_a_task_that_never_ends_is_told_once(ocs, draw, monkeypatch):
    monkeypatch.setattr("corestream.learners.ocs.PATIENCE", 3)
    learner = ocs(ReplayMemory(9))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        learner.observe(*draw())
        learner.observe(*draw())
    with pytest.warns(UserWarning, match=r"no task has ended in 3 batches.* task_free=True") as told:
        learner.observe(*draw())
    assert told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(5):
            learner.observe(*draw())


@pytest.mark.parametrize("case", ["task free", "with sweeps", "a task has ended", "filled before"])
def test_a_stream_that_is_remembered_is_not_told_of(ocs, draw, filled, monkeypatch, case):
    monkeypatch.setattr("corestream.learners.ocs.PATIENCE", 3)
    memory = filled() if case == "filled before" else ReplayMemory(9)
    learner = ocs(memory, task_free=case == "task free")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for batch in range(8):
            if case == "with sweeps" and batch == 1:
                learner.start_sweep()
            if case == "a task has ended" and batch == 2:
                learner.end_task()
            learner.observe(*draw())


def test_random_picks_are_uniform(ocs, draw):
    learner, counts = ocs(ReplayMemory(9), warm_start=10**6, optimizer=None), torch.zeros(8)
    learner.optimizer.param_groups[0]["lr"] = 0.0
    batch = draw(8)
    for _ in range(300):
        counts[learner.observe(*batch).picked] += 1
    expected = 300 * 3 / 8
    assert float(((counts - expected) ** 2 / expected).sum()) / (1 - 3 / 8) < 7 + 5 * 14**0.5


# The memory


def test_candidates_are_the_picks_since_the_last_sweep_began(ocs, draw):
    learner = ocs(ReplayMemory(100))
    for n in range(2):
        learner.observe(*draw(seed=n), ids=torch.arange(12))
    learner.start_sweep()
    picked = [
        100 * n + int(i)
        for n in (1, 2)
        for i in learner.observe(*draw(seed=n), ids=100 * n + torch.arange(12)).picked
    ]
    learner.end_task()
    assert sorted(learner.memory.ids.tolist()) == sorted(picked)
    assert learner.candidates.kept() is None


def test_at_most_so_many_candidates_are_held(ocs, draw):
    learner = ocs(ReplayMemory(100), candidates=7)
    for n in range(10):
        learner.observe(*draw(seed=n))
    assert len(learner.candidates.kept()) == 7
    learner.end_task()
    assert len(learner.memory) == 7


def test_each_task_has_its_share_of_the_memory_balanced_over_classes(ocs, draw):
    learner = ocs(ReplayMemory(12), k=6)
    for task in range(4):
        for n in range(6):
            learner.observe(*draw(seed=10 * task + n))
        learner.end_task()
        share = 12 // (task + 1)
        assert learner.memory.counts() == dict.fromkeys(range(task + 1), share)
        for older in range(task + 1):
            classes = torch.bincount(learner.memory.targets[learner.memory.tasks == older], minlength=3)
            assert int(classes.max() - classes.min()) <= 1


def test_filled_by_score_the_best_of_each_class_enter(ocs, draw):
    learner = ocs(ReplayMemory(6, balance="class"), k=6, fill="score")
    for n in range(3):
        learner.observe(*draw(seed=n), ids=100 * n + torch.arange(12))
    kept = learner.candidates.kept()
    kept = Samples(kept.inputs.clone(), kept.targets.clone(), kept.tasks.clone(), kept.ids.clone())
    worth = score(learner.model, None, (kept.inputs, kept.targets)).total
    expected = [
        int(kept.ids[i])
        for c in range(3)
        for i in sorted((kept.targets == c).nonzero().flatten().tolist(), key=lambda i: -worth[i])[:2]
    ]
    learner.end_task()
    assert sorted(learner.memory.ids.tolist()) == sorted(expected)


def herded(learner, kept, quota):
    """Ids, best first in each class: the next one brings the mean of the chosen closest to that of all, by a plain loop."""
    learner.model.eval()
    linears = [module for module in learner.model.modules() if isinstance(module, torch.nn.Linear)]
    seen = []
    handle = linears[-1].register_forward_pre_hook(lambda _, given: seen.append(given[0].detach()))
    learner.model(kept.inputs)
    handle.remove()
    learner.model.train()
    unit = torch.nn.functional.normalize(seen[0].flatten(1).double(), dim=1)
    found = {}
    for c in range(3):
        own = (kept.targets == c).nonzero().flatten().tolist()
        mean, chosen = unit[own].mean(0), []
        for _ in range(quota):
            rest = [i for i in own if i not in chosen]
            chosen.append(min(rest, key=lambda i: float((mean - unit[[*chosen, i]].mean(0)).norm())))
        found[c] = [int(kept.ids[i]) for i in chosen]
    return found


def test_filled_by_herding_the_class_means_enter_and_the_last_chosen_leave_first(ocs, draw):
    learner = ocs(ReplayMemory(6), k=6, fill="herding")
    for n in range(4):
        learner.observe(*draw(seed=n), ids=100 * n + torch.arange(12))
    expected = herded(learner, learner.candidates.kept(), 2)
    learner.end_task()
    assert sorted(learner.memory.ids.tolist()) == sorted(i for ids in expected.values() for i in ids)
    for n in range(4):
        learner.observe(*draw(seed=10 + n), ids=1000 + 100 * n + torch.arange(12))
    new = herded(learner, learner.candidates.kept(), 1)
    learner.end_task()
    firsts = [ids[0] for ids in [*expected.values(), *new.values()]]
    assert sorted(learner.memory.ids.tolist()) == sorted(firsts)


def chosen_by_bilevel(learner, quota):
    """Ids, best first: Bilevel's choice on the tangent kernel, which is made by plain autograd."""
    kept, model = learner.candidates.kept(), learner.model.eval()

    def gradient(x, c):
        found = torch.autograd.grad(model(x[None])[0, c], list(model.parameters()), allow_unused=True)
        return torch.cat([g.flatten() for g in found if g is not None])

    jacobians = [torch.stack([gradient(x, c) for x in kept.inputs]) for c in range(3)]
    model.train()
    kernel = sum(j @ j.T for j in jacobians) / 3
    generator = torch.Generator()
    generator.set_state(learner.generator.get_state())
    return kept.ids[bilevel(kernel, kept.targets, quota, generator=generator).picked].tolist()


def test_filled_by_bilevel_what_the_tangent_kernel_learns_from_enters_and_the_last_chosen_leave_first(
    ocs, draw
):
    learner = ocs(ReplayMemory(6, balance=None), k=6, fill="bilevel")
    for n in range(4):
        learner.observe(*draw(seed=n), ids=100 * n + torch.arange(12))
    first = chosen_by_bilevel(learner, 6)
    learner.end_task()
    assert sorted(learner.memory.ids.tolist()) == sorted(first)
    for n in range(4):
        learner.observe(*draw(seed=10 + n), ids=1000 + 100 * n + torch.arange(12))
    second = chosen_by_bilevel(learner, 3)
    learner.end_task()
    assert sorted(learner.memory.ids.tolist()) == sorted(first[:3] + second)


def test_filled_by_bilevel_each_class_has_its_share_and_targets_must_be_classes(ocs, draw):
    learner = ocs(ReplayMemory(6), k=6, fill="bilevel")
    for n in range(4):
        learner.observe(*draw(seed=n))
    learner.end_task()
    assert torch.bincount(learner.memory.targets).tolist() == [2, 2, 2]
    regression = ocs(
        ReplayMemory(6, balance=None), k=6, fill="bilevel", loss_fn=lambda out, y: (out[:, 0] - y) ** 2
    )
    with pytest.raises(ValueError, match="Bilevel's choice needs classes"):
        regression.observe(draw()[0], torch.randn(12, dtype=torch.float64))


@pytest.mark.parametrize("fill", ["herding", "bilevel"])
def test_what_ranks_candidates_needs_tasks_that_end(ocs, fill):
    with pytest.raises(ValueError, match=f"fill='{fill}' chooses when a task ends"):
        ocs(ReplayMemory(6), fill=fill, task_free=True)


def test_filled_at_random_others_may_enter(ocs, draw):
    memories = set()
    for seed in range(4):
        learner = ocs(ReplayMemory(6), k=6, seed=seed)
        for n in range(3):
            learner.observe(*draw(seed=n), ids=100 * n + torch.arange(12))
        learner.end_task()
        memories.add(tuple(sorted(learner.memory.ids.tolist())))
    assert len(memories) > 1


def test_older_tasks_shrink_to_the_best_similarity_and_diversity_of_what_they_hold(ocs, draw):
    learner = ocs(ReplayMemory(12), k=6)
    for task in range(2):
        for n in range(4):
            learner.observe(*draw(seed=10 * task + n), ids=100 * n + torch.arange(12))
        if task == 0:
            learner.end_task()
    old = learner.memory.samples
    worth = score(learner.model, None, (old.inputs, old.targets)).total
    expected = [
        i
        for c in range(3)
        for i in sorted((old.targets == c).nonzero().flatten().tolist(), key=lambda i: -worth[i])[:2]
    ]
    learner.end_task()
    assert sorted(learner.memory.ids[learner.memory.tasks == 0].tolist()) == sorted(
        old.ids[expected].tolist()
    )


def test_inputs_with_task_ids_reach_the_model_and_the_memory(draw):
    class Heads(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.heads = nn.Linear(4, 8), nn.Linear(8, 6)

        def forward(self, x, task):
            return self.heads(torch.tanh(self.body(x))).view(-1, 2, 3)[torch.arange(len(x)), task]

    torch.manual_seed(0)
    models = [Heads().double() for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    by_task, by_name = (
        OCS(m, optimizer_for(m), ReplayMemory(9), **CHOICES, generator=torch.Generator().manual_seed(0))
        for m in models
    )
    for t in range(2):
        for n in range(3):
            (x, y), task = draw(seed=10 * t + n), torch.full((12,), t)
            first = by_task.observe(x, y, task)
            second = by_name.observe({"task": task, "x": x}, y)
            assert torch.equal(first.picked, second.picked)
        by_task.end_task()
        by_name.end_task()
    same_parameters(by_task, by_name)
    assert torch.equal(by_task.memory.inputs[1], by_task.memory.tasks)
    assert torch.equal(by_name.memory.inputs["x"], by_task.memory.inputs[0])


def test_regression_targets_are_learned_and_remembered(draw, model):
    def distance(outputs, targets):
        return (outputs - targets).square().mean(1)

    learner = OCS(
        model, optimizer_for(model, lr=0.01), ReplayMemory(8, balance=None), loss_fn=distance, **CHOICES
    )
    for _ in range(2):
        for n in range(4):
            x, _ = draw(seed=n)
            learner.observe(x, x[:, :3])
        learner.end_task()
    assert torch.equal(learner.memory.targets, learner.memory.inputs[:, :3])


def test_two_equal_seeds_give_equal_memories_and_models(ocs, draw):
    def run(seed):
        torch.manual_seed(seed + 100)  # torch's own generator plays no part
        learner = ocs(ReplayMemory(9), seed=seed, warm_start=2)
        for task in range(2):
            for n in range(5):
                learner.observe(*draw(seed=10 * task + n))
            learner.end_task()
        return learner

    same_parameters(run(0), run(0), rtol=0, atol=0)
    assert torch.equal(run(0).memory.inputs, run(0).memory.inputs)
    assert not torch.equal(run(0).memory.inputs, run(1).memory.inputs)


def test_the_defaults_are_those_of_the_paper(model):
    learner = OCS(model, optimizer_for(model), ReplayMemory(200))
    assert (learner.k, learner.tau, learner.lam, learner.replay) == (10, 1000.0, 1.0, 10)
    assert (learner.reference, learner.fill, learner.weights) == ("memory", "random", (1.0, 1.0, 1.0))
    assert (int(learner._warm), learner.candidates.capacity, learner.lr_decay) == (100, 1000, 1.0)
    assert (learner.single_pass, learner.score_mode, learner.task_free) == ("auto", None, False)


def test_ending_a_task_clears_the_optimiser_and_decays_the_rate(ocs, draw):
    learner = ocs(ReplayMemory(9), lr_decay=0.75)
    learner.observe(*draw())
    assert learner.optimizer.state
    learner.end_task()
    assert not learner.optimizer.state
    assert learner.optimizer.param_groups[0]["lr"] == pytest.approx(0.075)


# Without task boundaries


@pytest.mark.parametrize("fill", ["random", "score"])
def test_without_tasks_picks_join_the_memory_at_once(ocs, draw, fill):
    learner = ocs(ReplayMemory(9), task_free=True, fill=fill)
    first = learner.observe(*draw(), ids=torch.arange(12))
    assert sorted(learner.memory.ids.tolist()) == sorted(first.picked.tolist())
    assert not first.scores.affinity.any()
    assert learner.observe(*draw(seed=1)).scores.affinity.any()
    for n in range(2, 12):
        learner.observe(*draw(seed=n))
        assert len(learner.memory) == min(9, 3 * (n + 1))
    classes = torch.bincount(learner.memory.targets, minlength=3)
    assert int(classes.max() - classes.min()) <= 1


def test_without_tasks_the_fullest_class_gives_up_its_least_worthy(ocs, draw, filled):
    memory = ReplayMemory(6)
    x, _ = draw(6, seed=50)
    memory.replace(Samples.of(x, torch.tensor([0, 0, 0, 0, 1, 2]), 0, torch.arange(6)))
    learner = ocs(memory, task_free=True, fill="score", k=1)
    bx, by = draw(1, seed=7)
    learner.observe(bx, by * 0 + 1, ids=torch.tensor([10]))
    joined_x, joined_y = torch.cat([x, bx]), torch.tensor([0, 0, 0, 0, 1, 2, 1])
    worth = score(learner.model, None, (joined_x, joined_y)).total
    lost = int(worth[:4].argmin())
    assert sorted(memory.ids.tolist()) == sorted({0, 1, 2, 3, 4, 5, 10} - {lost})


def test_without_tasks_one_task_after_another_is_forgotten_no_faster(ocs, draw):
    """Old classes keep their places while new ones come: the memory stays balanced over all seen."""
    learner = ocs(ReplayMemory(6), task_free=True)
    for n in range(6):
        x, y = draw(seed=n, classes=1)
        learner.observe(x, y)
    for n in range(6):
        x, y = draw(seed=n, classes=1)
        learner.observe(x + 1, y + 1)
    assert torch.bincount(learner.memory.targets).tolist() == [3, 3]


def test_without_tasks_what_is_left_of_a_class_is_a_uniform_sample_of_its_picks(ocs, draw):
    """Not only the last ones: the mean place of 60 among 300 batches is 150 with a deviation of 11."""
    learner = ocs(ReplayMemory(60), task_free=True)
    for n in range(300):
        learner.observe(*draw(seed=n), ids=torch.full((12,), n))
    places = learner.memory.ids.double()
    assert abs(float(places.mean()) - 150) < 45
    assert int((places < 100).sum()) > 8
    assert int((places >= 200).sum()) > 8


def test_without_tasks_a_memory_from_elsewhere_is_taken_as_it_is(ocs, draw, filled):
    learner = ocs(filled(), task_free=True)
    for n in range(3):
        learner.observe(*draw(seed=n))
    assert len(learner.memory) == 9
    learner.memory.replace(learner.memory.samples[:4])
    learner.observe(*draw(seed=4))
    assert len(learner.memory) == 7


# Saving and going on


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"task_free": True},
        {"single_pass": False, "reference": 4},
        {"fill": "score"},
        {"fill": "herding"},
        {"fill": "bilevel"},
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "make", [optimizer_for, lambda m: torch.optim.Adam(m.parameters(), 0.01)], ids=["sgd", "adam"]
)
def test_a_state_in_the_middle_of_a_task_goes_on_bit_for_bit(ocs, draw, model, options, make):
    def learner(seed):
        net = copy.deepcopy(model)
        return ocs(
            ReplayMemory(9),
            net,
            seed=seed,
            optimizer=make(net),
            warm_start=2,
            lr_decay=0.9,
            candidates=5,
            **options,
        )

    first, second = learner(0), learner(1)
    for n in range(4):
        first.observe(*draw(seed=n))
    first.end_task()
    for n in range(3):
        first.observe(*draw(seed=10 + n))
    second.load_state_dict({name: value.clone() for name, value in first.state_dict().items()})
    for n in range(4):
        one, two = first.observe(*draw(seed=20 + n)), second.observe(*draw(seed=20 + n))
        assert torch.equal(one.picked, two.picked)
        assert torch.equal(one.loss, two.loss)
    for learner_ in (first, second):
        learner_.end_task()
    same_parameters(first, second, rtol=0, atol=0)
    assert torch.equal(first.memory.inputs, second.memory.inputs)
    states = first.state_dict(), second.state_dict()
    assert states[0].keys() == states[1].keys()


def test_a_state_of_dict_inputs_survives_safetensors(draw):
    from safetensors.torch import load, save

    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x, a_mask):
            return self.layer(x * a_mask)

    torch.manual_seed(0)
    net = Named().double()
    learners = [
        OCS(m, optimizer_for(m), ReplayMemory(9), **CHOICES, generator=torch.Generator().manual_seed(0))
        for m in (net, copy.deepcopy(net))
    ]

    def batch(n):
        x, y = draw(seed=n)
        return {"x": x, "a_mask": (x > 0).double()}, y

    learners[0].observe(*batch(0))
    learners[1].load_state_dict(
        load(save({k: v.clone().contiguous() for k, v in learners[0].state_dict().items()}))
    )
    for n in range(1, 5):
        assert torch.equal(learners[0].observe(*batch(n)).picked, learners[1].observe(*batch(n)).picked)
        if n == 2:
            for learner in learners:
                learner.end_task()
    assert torch.equal(learners[0].memory.inputs["a_mask"], (learners[0].memory.inputs["x"] > 0).double())
    assert torch.equal(learners[0].memory.inputs["x"], learners[1].memory.inputs["x"])


# Bad arguments


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": 0}, "k must be a whole number of at least 1, got 0"),
        ({"k": 2.5}, "k must be a whole number of at least 1, got 2.5"),
        ({"replay": 0}, "replay must be a whole number"),
        ({"candidates": -1}, "candidates must be a whole number"),
        ({"max_bytes": 0}, "max_bytes must be a whole number"),
        ({"warm_start": -1}, "warm_start must be a whole number from 0 on, got -1"),
        ({"warm_start": 2.5}, "warm_start must be a whole number from 0 on, got 2.5"),
        ({"task_free": "yes"}, "task_free must be True or False, got 'yes'"),
        ({"lam": -0.1}, "lam must be a finite number that is not negative, got -0.1"),
        ({"reference": "all"}, "reference must be 'memory', 'replay' or a number of at least 1, got 'all'"),
        ({"reference": 0}, "reference must be"),
        ({"reference": True}, "reference must be"),
        ({"fill": "best"}, "fill must be one of 'random', 'score', 'herding', 'bilevel', got 'best'"),
        ({"score_mode": "test"}, "score_mode must be None, 'train' or 'eval', got 'test'"),
        ({"single_pass": "yes"}, "single_pass must be True, False or 'auto', got 'yes'"),
        ({"weights": (1.0, 1.0)}, "weights must be three numbers"),
        ({"weights": (0, 0, 0)}, "not all of them 0"),
        ({"parameters": ["nobody"]}, "the model has no parameter or module named 'nobody'"),
        ({"weights": 3}, "weights must be three numbers"),
        ({"lr_decay": 2.0}, "lr_decay must be a number in"),
        ({"lr_decay": "a"}, "lr_decay must be a number in"),
    ],
    ids=str,
)
def test_a_wrong_argument_is_named(model, options, message):
    with pytest.raises(ValueError, match=message):
        OCS(model, optimizer_for(model), ReplayMemory(9), **options)


def test_without_tasks_a_memory_with_shares_of_them_is_refused(ocs):
    with pytest.raises(ValueError, match="has shares of tasks"):
        ocs(ReplayMemory(9, policy="fixed", tasks=3), task_free=True)


def test_whole_numbers_of_numpy_are_whole_numbers(ocs, draw):
    learner = ocs(ReplayMemory(numpy.int64(9)), k=numpy.int64(3), reference=numpy.int32(4))
    for step in range(3):
        learner.observe(*draw(seed=step))
    learner.end_task()
    assert len(learner.observe(*draw()).picked) == 3


@pytest.mark.parametrize("task_free", [True, False])
def test_a_reservoir_is_refused_at_once(model, task_free):
    with pytest.raises(ValueError, match="policy='reservoir'"):
        OCS(model, optimizer_for(model), ReplayMemory(9, policy="reservoir"), task_free=task_free)


def test_a_learner_of_one_step_is_as_polite_as_the_engine(ocs, draw, filled):
    learner = ocs(filled())
    before = {name: set(module.__dict__) for name, module in learner.model.named_modules()}
    learner.observe(*draw())
    with pytest.raises(ValueError, match="targets"):
        learner.observe(draw()[0], draw()[1] + 7)
    assert {name: set(module.__dict__) for name, module in learner.model.named_modules()} == before
    assert not any(module._forward_hooks for module in learner.model.modules())


def test_older_tasks_are_worth_the_same_from_one_pass_as_each_from_its_own(model, draw):
    memory = ReplayMemory(20)
    parts = [Samples.of(*draw(n, seed=task), task) for task, n in enumerate((4, 6, 4, 6))]
    mixed = torch.randperm(20, generator=torch.Generator().manual_seed(0))
    memory.replace(Samples.join(parts)[mixed])
    learner = OCS(model, optimizer_for(model), memory, **CHOICES)
    worth = learner._worth_of_kept()
    torch.testing.assert_close(worth, learner._worth_task_by_task(), check_dtype=False)
    for task in range(4):
        samples = memory.samples[memory.tasks == task]
        scored = score(model, None, (samples.inputs, samples.targets)).total
        torch.testing.assert_close(worth[memory.tasks == task], scored)


def test_a_step_keeps_no_graph_alive(model, draw, filled):
    for single_pass in (True, False):
        step = OCS(model, optimizer_for(model), filled(), single_pass=single_pass, **CHOICES).observe(*draw())
        assert step.loss.grad_fn is None
        assert not step.loss.requires_grad


@pytest.mark.parametrize(("policy", "scored"), [("quota", 2), ("fixed", 0), ("per-class", 0)])
def test_what_is_kept_is_scored_only_where_it_may_have_to_go(model, draw, policy, scored, monkeypatch):
    memory = ReplayMemory(9, policy=policy, **({"tasks": 3} if policy == "fixed" else {}))
    learner = OCS(model, optimizer_for(model), memory, **{**CHOICES, "k": 9, "candidates": 9})
    asked = []
    worth = learner._worth_of_kept
    monkeypatch.setattr(learner, "_worth_of_kept", lambda: asked.append(1) or worth())
    for seed in range(3):
        learner.observe(*draw(10, seed=seed))
        learner.end_task()
    assert len(asked) == scored


def test_what_is_kept_is_not_scored_where_nothing_of_it_has_to_go(model, draw, monkeypatch):
    memory = ReplayMemory(11)  # 11, 5, 3, 2 and again 2 of each task
    learner = OCS(model, optimizer_for(model), memory, **{**CHOICES, "k": 11, "candidates": 11})
    asked = []
    worth = learner._worth_of_kept
    monkeypatch.setattr(learner, "_worth_of_kept", lambda: asked.append(learner.task) or worth())
    for seed in range(5):
        learner.observe(*draw(12, seed=seed))
        learner.end_task()
    assert asked == [1, 2, 3]
    assert memory.counts() == dict.fromkeys(range(5), 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tau": "a"}, "tau must be a finite number that is not negative, got 'a'"),
        ({"tau": float("nan")}, "tau must be a finite number"),
        ({"tau": -1.0}, "tau must be a finite number that is not negative, got -1.0"),
        ({"weights": (1, "a", 2)}, "weights must be three numbers"),
        ({"weights": (1, 2)}, "weights must be three numbers"),
        ({"reference": 2.5}, "reference must be 'memory', 'replay' or a number"),
        ({"loss_fn": "mse"}, "loss_fn must be a function of outputs and targets, got 'mse'"),
    ],
)
def test_a_wrong_value_is_told_when_the_learner_is_made(ocs, options, message):
    with pytest.raises(ValueError, match=message):
        ocs(ReplayMemory(9), **options)


def test_targets_that_are_no_classes_are_told_at_the_first_batch(ocs):
    learner = ocs(ReplayMemory(9), loss_fn=lambda outputs, targets: (outputs - targets).square().mean(1))
    with pytest.raises(ValueError, match="give balance=None"):
        learner.observe(torch.randn(8, 4, dtype=torch.float64), torch.randn(8, 3, dtype=torch.float64))


# Models that change on the way, and samples that depend on each other


class Centred(nn.Module):
    """Not a BatchNorm, and yet each sample's output depends on all."""

    def forward(self, x):
        return x - x.mean(0)


def centred():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), Centred(), nn.Tanh(), nn.Linear(8, 3)).double()


def test_samples_that_depend_on_each_other_are_seen_and_learned_from_in_two_passes(ocs, draw, filled):
    x, y = draw()
    one, two = ocs(filled(), centred()), ocs(filled(), centred(), single_pass=False)
    for _ in range(2):
        step, other = one.observe(x, y), two.observe(x, y)
        torch.testing.assert_close(step.scores.total, other.scores.total)
        assert torch.equal(step.picked, other.picked)
        same_parameters(one, two)
    again = ocs(filled(), centred())
    again.load_state_dict(one.state_dict())
    assert not again._in_one_pass()


def test_one_pass_over_such_samples_is_refused_where_it_is_asked_for(ocs, draw, filled):
    with pytest.raises(ValueError, match="samples depend on each other"):
        ocs(filled(), centred(), single_pass=True).observe(*draw())


def test_an_embedding_scaled_by_the_batchs_counts_takes_two_passes(filled):
    net = nn.Sequential(nn.Embedding(5, 3, scale_grad_by_freq=True), nn.Flatten(), nn.Linear(6, 3))
    assert not OCS(net, optimizer_for(net), filled())._in_one_pass()


@pytest.mark.parametrize("single_pass", ["auto", False])
def test_what_is_frozen_is_not_moved_by_a_gradient_from_before(ocs, model, draw, filled, single_pass):
    x, y = draw()
    learner = ocs(filled(), single_pass=single_pass)
    F.cross_entropy(learner.model(x), y).backward()
    before = learner.model.hidden.requires_grad_(False).weight.clone()
    learner.observe(x, y)
    assert torch.equal(learner.model.hidden.weight, before)


def test_another_lambda_counts_from_the_next_step_on(ocs, draw, filled):
    x, y = draw()
    learner, other = ocs(filled()), ocs(filled(), single_pass=False)
    for one in (learner, other):
        one.observe(x, y)
        one.lam = 0.25
    torch.testing.assert_close(learner.observe(x, y).loss, other.observe(x, y).loss)
    same_parameters(learner, other)


def test_a_head_that_is_replaced_on_the_way_is_scored_and_learned(ocs, draw, filled):
    x, y = draw(classes=3)
    learner = ocs(filled())
    learner.observe(x, y)
    head = learner.model.head = nn.Linear(8, 6).double()
    learner.optimizer.add_param_group({"params": head.parameters()})
    before, reference = head.weight.clone(), (learner.memory.inputs, learner.memory.targets)
    expected = score(copy.deepcopy(learner.model), None, (x, y + 3), reference, tau=5.0)
    torch.testing.assert_close(learner.observe(x, y + 3).scores.total, expected.total)
    assert not torch.equal(head.weight, before)


@pytest.mark.parametrize("single_pass", ["auto", False])
def test_a_loss_that_does_not_depend_on_the_model_is_an_error(ocs, draw, filled, single_pass):
    def cut_off(outputs, targets):
        return F.cross_entropy(outputs.detach(), targets, reduction="none")

    with pytest.raises((ValueError, RuntimeError), match=r"depend on no parameter|does not require grad"):
        ocs(filled(), single_pass=single_pass, loss_fn=cut_off).observe(*draw())


class Standardised(nn.Module):
    """Its inputs are standardised over the batch, which no gradient tells."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).double()

    def forward(self, x):
        return self.layers((x - x.mean(0)) / (x.std(0) + 1e-5))


def test_a_model_that_standardises_its_inputs_by_the_batch_takes_two_passes(draw):
    ways = []
    for single_pass in ("auto", False):
        torch.manual_seed(0)
        model, generator = Standardised(), torch.Generator().manual_seed(0)
        options = {**CHOICES, "single_pass": single_pass, "generator": generator}
        learner = OCS(model, optimizer_for(model), ReplayMemory(9), **options)
        for seed in range(4):
            learner.observe(*draw(seed=seed))
            if seed == 1:
                learner.end_task()
        ways.append(learner)
    same_parameters(*ways)
    assert not ways[0]._in_one_pass()
    model = Standardised()
    with pytest.raises(ValueError, match="single_pass=True: samples depend on each other"):
        OCS(model, optimizer_for(model), ReplayMemory(9), single_pass=True, **CHOICES).observe(*draw())


def test_running_statistics_are_those_of_what_is_trained_on(draw):
    """InstanceNorm leaves samples apart, but what it counts while it scores would be of all of them, a bad one included."""
    counted = []
    for single_pass in ("auto", False):
        torch.manual_seed(0)
        norm = nn.InstanceNorm1d(2, affine=True, track_running_stats=True)
        model = nn.Sequential(nn.Linear(4, 6), nn.Unflatten(1, (2, 3)), norm, nn.Flatten(), nn.Linear(6, 3))
        model.double()
        learner = OCS(model, optimizer_for(model), ReplayMemory(9), single_pass=single_pass, **CHOICES)
        for seed in range(3):
            x, y = draw(seed=seed)
            x[5] = torch.nan
            learner.observe(x, y)
        counted.append(torch.cat([norm.running_mean, norm.running_var]))
    assert counted[0].isfinite().all()
    torch.testing.assert_close(*counted)


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_more_samples_than_one_pass_takes_are_compared_with_all_others(draw, dropout):
    torch.manual_seed(0)
    layers = nn.Linear(4, 8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, 3)
    model = nn.Sequential(*layers).double()
    learner = OCS(model, optimizer_for(model), ReplayMemory(9), **CHOICES)
    x, y = draw(601)
    x[300] = torch.nan
    drawn = torch.get_rng_state()
    worth, after = learner._worth(Samples.of(x, y)), torch.get_rng_state()
    torch.set_rng_state(drawn)
    parts = [learner._gradients(x[i : i + 250], y[i : i + 250], learner.parameters) for i in (0, 250, 500)]
    assert torch.equal(after, torch.get_rng_state())
    names = list(learner.parameters)
    rows = torch.cat([torch.stack([_row(part, names, n) for n in range(len(part))]) for part in parts])
    good = rows.isfinite().all(1)
    unit = F.normalize(rows[good], dim=1)
    alike = unit @ unit.T
    others = len(unit) - 1
    expected = unit @ F.normalize(rows[good].mean(0), dim=0) - (alike.sum(1) - alike.diagonal()) / others
    torch.testing.assert_close(worth[good], expected)
    assert worth[~good].eq(-torch.inf).all()


def _row(grads, names, n):
    one = grads.combine(torch.ones(1, dtype=torch.float64), torch.tensor([n]))
    return torch.cat([one[name].flatten() for name in names])


def test_a_replaced_head_that_the_optimiser_still_holds_needs_no_second_pass(model, draw):
    learner = OCS(model, optimizer_for(model), ReplayMemory(9), single_pass=True, **CHOICES)
    learner.observe(*draw())
    last = [name for name, part in model.named_modules() if isinstance(part, nn.Linear)][-1]
    head = nn.Linear(model.get_submodule(last).in_features, 3).double()
    model.set_submodule(last, head)
    learner.optimizer.add_param_group({"params": head.parameters()})
    before = head.weight.clone()
    learner.observe(*draw(seed=1))
    assert not torch.equal(head.weight, before)


class Telling(nn.Module):
    """Its outputs are what `tell` makes of them."""

    def __init__(self, tell):
        super().__init__()
        self.layer, self.tell = nn.Linear(4, 3), tell

    def forward(self, x):
        return self.tell(self.layer(x))


@pytest.mark.parametrize("learner_class", [OCS, UniformOCS, InputOCS])
@pytest.mark.parametrize(
    ("fill", "tell", "message"),
    [
        ("bilevel", lambda out: (out, out), r"outputs of shape \[12, classes\], got a tuple"),
        ("bilevel", lambda out: out[:, :1], r"outputs of shape \[12, classes\], got \[12, 1\]"),
        ("bilevel", lambda out: out[:, 0], r"outputs of shape \[12, classes\], got \[12\]"),
        ("herding", None, "give it `embed"),
    ],
)
def test_what_the_memory_is_to_be_filled_by_is_tried_before_the_first_step(
    draw, fill, tell, message, learner_class
):
    model = (
        nn.Sequential(nn.Unflatten(1, (1, 4)), nn.Conv1d(1, 3, 4), nn.Flatten())
        if tell is None
        else Telling(tell)
    ).double()

    def loss(out, y):
        first = out[0] if isinstance(out, tuple) else out
        return first.reshape(len(y), -1).square().mean(1)

    before = copy.deepcopy(model.state_dict())
    learner = learner_class(model, optimizer_for(model), ReplayMemory(9), loss_fn=loss, fill=fill, **CHOICES)
    with pytest.raises(ValueError, match=message):
        learner.observe(*draw())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


# What a batch hides and the memory shows


def among_present(outputs, targets):
    """Cross-entropy over the classes that the batch has."""
    absent = ~torch.isin(torch.arange(outputs.shape[1]), targets)
    return F.cross_entropy(outputs.masked_fill(absent, -1e9), targets, reduction="none")


@pytest.mark.parametrize("task_free", [False, True])
@pytest.mark.parametrize("first", [(0, 1), (0,)], ids=["two classes", "one class"])
def test_a_loss_over_the_classes_that_are_there_is_learned_in_two_passes(ocs, draw, task_free, first):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4)).double()
    learners = [
        ocs(ReplayMemory(6), copy.deepcopy(net), loss_fn=among_present, single_pass=way, task_free=task_free)
        for way in ("auto", False)
    ]
    for step in range(26):
        x, y = draw(seed=step)[0], torch.arange(12) % 2
        for learner in learners:
            learner.observe(x, torch.tensor(first)[y % len(first)] if step < 20 else 2 + y)
            if step == 19 and not task_free:
                learner.end_task()
        same_parameters(*learners)
    assert learners[0]._coupled


def test_what_is_kept_is_ranked_task_by_task_where_samples_depend_on_each_other(ocs, draw):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4)).double()
    learner = ocs(ReplayMemory(8), net, loss_fn=among_present, single_pass=False)
    x, _ = draw(8)
    old, new = (
        Samples.of(x[:4], torch.tensor([0, 1, 0, 1]), 0),
        Samples.of(x[4:], torch.tensor([2, 3, 2, 3]), 1),
    )
    learner.memory.replace(Samples.join([old, new]))
    alone = torch.cat([learner._worth(old), learner._worth(new)])
    torch.testing.assert_close(learner._worth_of_kept(), alone)


@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
def test_recurrent_models_learn_in_one_pass_as_in_two(ocs, draw, filled, kind):
    class Sequences(nn.Module):
        def __init__(self):
            super().__init__()
            self.cells, self.head = kind(2, 5, num_layers=2, batch_first=True), nn.Linear(5, 3)

        def forward(self, x):
            return self.head(self.cells(x.unflatten(1, (2, 2)))[0][:, -1])

    torch.manual_seed(0)
    net = Sequences().double()
    one, two = (ocs(filled(), copy.deepcopy(net), single_pass=way) for way in (True, False))
    for step in range(5):
        x, y = draw(seed=step)
        assert torch.equal(one.observe(x, y).picked, two.observe(x, y).picked)
    same_parameters(one, two)


class OwnGRU(nn.GRU):
    """No rule knows what a forward pass of one's own does."""

    def forward(self, *args):
        return super().forward(*args)


class Reader(nn.Module):
    """A layer without a rule under a head that has one."""

    def __init__(self):
        super().__init__()
        self.reader, self.head = OwnGRU(4, 6, batch_first=True), nn.Linear(6, 3)

    def forward(self, x):
        return self.head(self.reader(x.unsqueeze(1))[0][:, -1])


def test_layers_that_selection_need_not_look_at_cost_no_pass_a_sample(ocs, draw, filled, monkeypatch):
    torch.manual_seed(0)
    net = Reader().double()
    learners = [
        ocs(filled(), copy.deepcopy(net), parameters=["head"], single_pass=way) for way in ("auto", False)
    ]
    for learner in learners:
        learner.observe(*draw())
    monkeypatch.setattr("corestream.gradients.capture.general_rows", None)
    for learner in learners:
        for step in range(3):
            learner.observe(*draw(seed=step))
    same_parameters(*learners)
    again = ocs(filled(), copy.deepcopy(net), parameters=["head"])
    again.load_state_dict(learners[0].state_dict())
    again.observe(*draw(seed=9))


def test_a_generator_that_is_none_is_named(model):
    with pytest.raises(TypeError, match=r"generator must be a torch\.Generator, got 0"):
        OCS(model, optimizer_for(model), ReplayMemory(6), generator=0)


def test_a_reference_of_some_samples_is_of_all_tasks_wherever_replay_comes_from(ocs, draw):
    memory = ReplayMemory(12, replay_from="task")
    memory.replace(Samples.join([Samples.of(*draw(6, seed=task), task) for task in (0, 1)]))
    learner = ocs(memory, reference=12)
    reference, replayed = learner._draw()
    assert reference.tasks.bincount().tolist() == [6, 6]
    assert len(replayed.tasks.unique()) == 1


def test_rows_that_selection_need_not_look_at_may_be_too_many(ocs, draw, filled):
    torch.manual_seed(0)
    learner = ocs(filled(), Reader().double(), parameters=["head"], max_bytes=2**13)
    assert learner.observe(*draw()).loss.isfinite()
    with pytest.raises(MemoryError, match="reader"):
        ocs(filled(), Reader().double(), max_bytes=2**13).observe(*draw())
