import pytest
import torch
from torch.nn.functional import cross_entropy

from corestream.learners import EWC


def loop_fisher(model, x, y):
    total = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    for n in range(len(y)):
        grads = torch.autograd.grad(
            cross_entropy(model(x[n : n + 1]), y[n : n + 1]), list(model.parameters())
        )
        for name, grad in zip(total, grads, strict=True):
            total[name] += grad**2 / len(y)
    return total


def test_data_that_was_read_before_is_told_and_the_kept_samples_serve(model, sgd, batch):
    learner = EWC(model, sgd(model))
    learner.observe(*batch())
    with pytest.warns(UserWarning, match="data gave no batch"):
        learner.end_task(iter([]))
    assert any(fisher.any() for fisher in learner.fisher.values())


@pytest.mark.parametrize("wrong", [{"x": 1}, torch.zeros(3), (1,)], ids=lambda one: type(one).__name__)
def test_data_of_another_kind_is_named(model, sgd, batch, wrong):
    learner = EWC(model, sgd(model))
    learner.observe(*batch())
    with pytest.raises(TypeError, match="data must give pairs"):
        learner.end_task([wrong])


def test_the_fisher_is_that_of_a_loop_over_samples(model, sgd, batch):
    learner = EWC(model, sgd(model))
    data = [batch(7, seed=1), batch(5, seed=2)]
    learner.end_task(data)
    expected = loop_fisher(model, torch.cat([x for x, _ in data]), torch.cat([y for _, y in data]))
    for name, value in expected.items():
        assert torch.allclose(learner.fisher[name], value, rtol=1e-4, atol=1e-8)


def test_the_penalty_is_the_sum_over_tasks_of_their_own_quadratics(model, sgd, batch):
    learner = EWC(model, sgd(model), penalty=3.0)
    tasks = []
    for seed in (1, 2):
        data = batch(9, seed=seed)
        tasks.append(
            (loop_fisher(model, *data), {n: p.detach().clone() for n, p in model.named_parameters()})
        )
        learner.end_task([data])
        learner.observe(*batch(9, seed=seed + 5))
    parameters = dict(model.named_parameters())
    penalty = sum((f[n] * (parameters[n] - anchor[n]) ** 2).sum() for f, anchor in tasks for n in parameters)
    expected = torch.autograd.grad(penalty, list(parameters.values()))
    found = torch.autograd.grad(learner.distance(), list(parameters.values()))
    for a, b in zip(found, expected, strict=True):
        assert torch.allclose(a, b, rtol=1e-3, atol=1e-6)


def test_without_data_the_samples_trained_on_serve(model, sgd, batch):
    learner = EWC(model, sgd(model, 0.0))
    x, y = batch(10)
    learner.observe(x, y)
    learner.end_task()
    for name, value in loop_fisher(model, x, y).items():
        assert torch.allclose(learner.fisher[name], value, rtol=1e-4, atol=1e-8)


def test_a_large_penalty_holds_the_weights(model, sgd, batch):
    def moved(penalty):
        torch.manual_seed(0)
        fresh = type(model)()
        learner = EWC(fresh, sgd(fresh, 0.01), penalty=penalty)
        learner.observe(*batch(30))
        learner.end_task([batch(30)])
        anchor = [p.detach().clone() for p in fresh.parameters()]
        for _ in range(30):
            learner.observe(batch(30, seed=9)[0], (batch(30)[1] + 1) % 3)
        return sum(float((p.detach() - a).norm()) for p, a in zip(fresh.parameters(), anchor, strict=True))

    assert moved(300.0) < 0.7 * moved(0.0)


def test_a_penalty_too_steep_for_the_learning_rate_holds_its_parameter_and_throws_nothing(model, sgd, batch):
    learner = EWC(model, sgd(model, 0.1), penalty=30.0)
    learner.observe(*batch(30))
    learner.end_task([batch(30)])
    name, parameter = next(iter(model.named_parameters()))
    learner.fisher[name].fill_(1e6)
    anchor = parameter.detach().clone()
    for seed in range(40):
        learner.observe(*batch(30, seed=seed))
    assert all(p.isfinite().all() for p in model.parameters())
    assert (parameter - anchor).abs().max() < 0.5
    assert (parameter - anchor).abs().max() > 0


def test_a_model_with_other_parameters_is_refused(model, sgd, batch):
    learner = EWC(model, sgd(model), penalty=1.0)
    learner.observe(*batch())
    model.head = torch.nn.Linear(8, 6)
    with pytest.raises(ValueError, match="EWC holds on to the parameters that it began with"):
        learner.observe(*batch())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_fisher_of_many_batches_is_summed_in_single_precision(dtype):
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 3).to(dtype)
    learner = EWC(model, torch.optim.SGD(model.parameters(), lr=0.1))
    data = [(20 * torch.randn(100, 4).to(dtype), torch.randint(3, (100,)))]
    once, often = learner._fisher(data)["weight"], learner._fisher(600 * data)["weight"]
    assert once.dtype == torch.float32
    torch.testing.assert_close(often, once, rtol=1e-4, atol=0)
    learner.observe(*data[0])
    learner.end_task(600 * data)
    assert learner.observe(*data[0]).loss.isfinite()


def test_layers_that_are_thawed_later_are_left_out_of_the_penalty(model, sgd, batch):
    model.hidden.requires_grad_(False)
    learner = EWC(model, sgd(model))
    for _ in range(2):
        learner.observe(*batch())
        learner.end_task()
        model.hidden.requires_grad_(True)
    assert sorted(learner.fisher) == ["head.bias", "head.weight"]


def test_the_fisher_is_the_mean_over_the_samples_that_are_finite(model, sgd, batch):
    learner, (x, y) = EWC(model, sgd(model)), batch(12)
    x[[2, 7]] = torch.nan
    learner.end_task([(x, y)])
    finite = [n for n in range(12) if n not in (2, 7)]
    for name, value in loop_fisher(model, x[finite], y[finite]).items():
        assert torch.allclose(learner.fisher[name], value, rtol=1e-4, atol=1e-8)


class Pooled(torch.nn.Module):
    """Takes sequences of any length."""

    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(4, 3)

    def forward(self, x):
        return self.head(x.mean(1))


@pytest.mark.parametrize("resumed", [False, True])
def test_a_batch_of_another_shape_is_refused_before_the_step(sgd, resumed):
    torch.manual_seed(0)
    model, y = Pooled(), torch.arange(6) % 3
    learner = EWC(model, sgd(model))
    learner.observe(torch.randn(6, 5, 4), y)
    if resumed:
        state, learner = learner.state_dict(), EWC(model, sgd(model))
        learner.load_state_dict(state)
    before = model.head.weight.clone()
    with pytest.raises(ValueError, match="must have one shape"):
        learner.observe(torch.randn(6, 7, 4), y)
    assert torch.equal(model.head.weight, before)
    learner.observe(torch.randn(6, 5, 4), y)


def test_a_state_with_samples_of_another_shape_goes_on(sgd):
    model, y = Pooled(), torch.arange(6) % 3
    learner, other = EWC(model, sgd(model)), EWC(model, sgd(model))
    learner.observe(torch.randn(6, 5, 4), y)
    other.observe(torch.randn(6, 7, 4), y)
    other.load_state_dict(learner.state_dict())
    other.observe(torch.randn(6, 5, 4), y)
    assert len(other.candidates.kept()) == 12


def test_the_penalty_is_limited_by_each_parameters_own_rate(model, batch):
    groups = [
        {"params": model.hidden.parameters(), "lr": 1e-4},
        {"params": [model.head.weight], "lr": 1.0},
        {"params": [model.head.bias], "lr": 0.0},
    ]
    learner = EWC(model, torch.optim.SGD(groups), penalty=1000.0)
    x, y = batch(30)
    learner.observe(x, y)
    learner.end_task()
    seen = {}
    for name, parameter in model.named_parameters():
        learner.fisher[name].fill_(5.0)
        parameter.register_post_accumulate_grad_hook(lambda p, name=name: seen.update({name: p.grad.clone()}))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1
    apart = {name: p.detach() - learner.anchor[name] for name, p in model.named_parameters()}
    own = torch.autograd.grad(cross_entropy(model(x), y), list(model.parameters()))
    learner.observe(x, y)
    steepest = {"hidden.weight": 5000.0, "hidden.bias": 5000.0, "head.weight": 1.0, "head.bias": 5000.0}
    for (name, slope), gradient in zip(steepest.items(), own, strict=True):
        torch.testing.assert_close(seen[name], gradient + slope * apart[name], rtol=1e-3, atol=1e-4)


class Heads(torch.nn.Module):
    """A head for each task."""

    def __init__(self):
        super().__init__()
        self.heads = torch.nn.ModuleList(torch.nn.Linear(4, 3) for _ in range(3))

    def forward(self, x, task):
        return self.heads[int(task[0])](x)


@pytest.mark.parametrize("resumed", [False, True])
def test_a_head_that_no_sample_has_used_is_left_alone(batch, resumed):
    def make(model):
        return EWC(model, torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.5))

    learner = make(Heads())
    unused = learner.model.heads[2].weight.detach().clone()
    for task in range(2):
        for _ in range(3):
            learner.observe(*batch(), torch.full((12,), task))
        learner.end_task()
        if resumed:
            state, learner = learner.state_dict(), make(Heads())
            learner.load_state_dict(state)
    assert sorted(learner._used) == ["heads.0.bias", "heads.0.weight", "heads.1.bias", "heads.1.weight"]
    assert torch.equal(learner.model.heads[2].weight, unused)


def test_a_task_without_data_leaves_nothing_to_hold(model, sgd, batch):
    learner = EWC(model, sgd(model))
    learner.end_task()
    assert learner.distance() == 0
    learner.observe(*batch())
