from copy import deepcopy

import pytest
import torch

from corestream import ReplayMemory
from corestream.learners import MCSGD, MCSGDOCS, Finetune
from corestream.learners.mode_connectivity import in_rows, named, path_loss
from corestream.memory import Samples
from corestream.repeating import repeating


def parameters(model):
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def second_task(batch):
    x, y = batch(60, seed=2)
    return x, (y + 1) % 3


def learned(learner, batch):
    """The parameters after each of two tasks that contradict each other."""
    found = []
    for data in (batch(60, seed=1), second_task(batch)):
        for _ in range(60):
            learner.observe(*data)
        learner.end_task()
        found.append(parameters(learner.model))
    return found


def test_the_paths_loss_is_lower_than_that_of_fine_tuning(model, sgd, batch, generator):
    plain = deepcopy(model)
    connected = MCSGD(model, sgd(model), ReplayMemory(30, balance=None), path_lr=0.05, generator=generator)
    first, end = learned(connected, batch)
    first_plain, end_plain = learned(Finetune(plain, sgd(plain)), batch)
    old = Samples.of(*batch(60, seed=1))

    def loss(start, finish):
        ends = in_rows(start), in_rows(finish)
        return float(path_loss(model, connected.loss_fn, *ends, start, old, points=10))

    assert loss(first, end) < 0.8 * loss(first_plain, end_plain)


def test_the_path_loss_is_the_mean_along_the_line(model, batch):
    x, y = batch(8)
    start, end = parameters(model), {name: p + 1 for name, p in parameters(model).items()}
    expected = []
    for share in (0.5, 1.0):
        other = deepcopy(model)
        other.load_state_dict({name: start[name] + share for name in start})
        expected.append(torch.nn.functional.cross_entropy(other(x), y))
    loss_fn = torch.nn.CrossEntropyLoss(reduction="none")
    found = path_loss(model, loss_fn, in_rows(start), in_rows(end), start, Samples.of(x, y), points=2)
    assert torch.allclose(found, torch.stack(expected).mean())


@pytest.mark.parametrize("mixed", [False, True])
def test_parameters_come_out_of_their_rows_as_they_went_in(model, mixed):
    before = parameters(model)
    if mixed:
        before = {name: p.double() if name.endswith("bias") else p for name, p in before.items()}
    assert len(in_rows(before)) == 1 + mixed
    after = named(in_rows(before), before)
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


def three_steps_on_two_points(model, before, after, old, new, moving):
    """By plain autograd on copies of the network; only the parameters that are moving leave what the task has made of them."""
    found = {name: (before[name] + after[name]) / 2 for name in moving}
    speed = {name: torch.zeros_like(value) for name, value in found.items()}
    for _ in range(3):
        total = {name: torch.zeros_like(value) for name, value in found.items()}
        for start, samples in ((before, old), (after, new)):
            for share in (0.5, 1.0):
                other = deepcopy(model).requires_grad_(True)
                other.load_state_dict(after | {n: start[n] + share * (found[n] - start[n]) for n in found})
                torch.nn.functional.cross_entropy(other(samples.inputs), samples.targets).backward()
                for name in found:
                    total[name] += share / 2 * other.get_parameter(name).grad
        for name in found:
            speed[name] = 0.8 * speed[name] + total[name]
            found[name] = found[name] - 0.01 * speed[name]
    return found


@pytest.mark.parametrize("method", [MCSGD, MCSGDOCS])
def test_a_solution_is_what_sgd_on_the_path_loss_finds(model, sgd, batch, method):
    """With a memory and candidates so few that every step takes all of them."""
    learner = method(
        model, sgd(model), ReplayMemory(5, balance=None), k=6, candidates=6, path_steps=3, path_points=2
    )
    learner.observe(*batch(6, seed=1))
    learner.end_task()
    before, old = parameters(model), learner.memory.samples
    learner.observe(*batch(6, seed=2))
    after, new = parameters(model), learner.candidates.kept()
    found = three_steps_on_two_points(model, before, after, old, new, moving=before)
    learner.conclude()
    assert all(torch.allclose(p, found[name], atol=1e-5) for name, p in parameters(model).items())
    assert not all(torch.allclose(after[name], found[name], atol=1e-3) for name in found)


def test_the_first_task_is_plain_sgd(model, sgd, batch):
    plain = deepcopy(model)
    learner, other = MCSGD(model, sgd(model), ReplayMemory(30, balance=None)), Finetune(plain, sgd(plain))
    for one in (learner, other):
        one.observe(*batch(20))
        one.end_task()
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), plain.parameters(), strict=True))


def test_bad_arguments_are_named(model, sgd):
    with pytest.raises(ValueError, match="path_steps must be a whole number of at least 1, got 0"):
        MCSGD(model, sgd(model), ReplayMemory(5), path_steps=0)


def test_a_task_can_end_under_no_grad(model, sgd, batch):
    learner = MCSGD(model, sgd(model), ReplayMemory(9, balance=None), path_steps=2)
    with torch.no_grad():
        for seed in (1, 2):
            learner.observe(*batch(9, seed=seed))
            learner.end_task()
    assert learner.task == 2
    assert not any(p.grad_fn for p in model.parameters())


class Halves(torch.nn.Module):
    """Layers of two types."""

    def __init__(self, features):
        super().__init__()
        self.first, self.second = torch.nn.Linear(features, 7), torch.nn.Linear(7, 3).bfloat16()

    def forward(self, x):
        return self.second(self.first(x).relu().bfloat16()).float()


def test_a_network_may_be_of_several_types(sgd, batch):
    model = Halves(batch(1)[0].shape[1])
    learner = MCSGD(model, sgd(model), ReplayMemory(9, balance=None), path_steps=2)
    for seed in (1, 2):
        learner.observe(*batch(9, seed=seed))
        before = parameters(model)
        learner.end_task()
    assert all(not torch.equal(before[name], after) for name, after in parameters(model).items())
    assert [p.dtype for p in model.parameters()] == [torch.float32] * 2 + [torch.bfloat16] * 2


def test_an_error_on_the_path_leaves_the_minimum_in_place(model, sgd, batch):
    calls = []

    def loss_fn(outputs, targets):
        calls.append(0)
        if len(calls) == fails_at:
            raise KeyboardInterrupt
        return torch.nn.functional.cross_entropy(outputs, targets, reduction="none")

    fails_at = None
    learner = MCSGD(model, sgd(model), ReplayMemory(9, balance=None), path_steps=5, loss_fn=loss_fn)
    learner.observe(*batch(9, seed=1))
    learner.end_task()
    learner.observe(*batch(9, seed=2))
    before, fails_at = parameters(model), len(calls) + 25  # in the third step
    with pytest.raises(KeyboardInterrupt):
        learner.end_task()
    assert all(torch.equal(before[name], value) for name, value in parameters(model).items())
    learner.end_task()
    assert learner.task == 2


class LoudInTraining(torch.nn.Module):
    def forward(self, x):
        return 2 * x if self.training else x


@pytest.fixture
def twins(model, sgd):
    """Three learners that are equal in everything; their network is another one on the paths."""
    model = torch.nn.Sequential(LoudInTraining(), model)
    one = MCSGD(
        model,
        sgd(model),
        ReplayMemory(9, balance=None),
        path_steps=2,
        generator=torch.Generator().manual_seed(0),
    )
    return one, deepcopy(one), deepcopy(one)


def same(one, other):
    mine, others = parameters(one.model), parameters(other.model)
    return all(torch.equal(mine[name], others[name]) for name in mine)


def concluded_twice(learner):
    learner.conclude()
    learner.conclude()


def taken_back(learner):
    before = {name: value.clone() for name, value in learner.state_dict().items()}
    learner.conclude()
    learner.load_state_dict(before)


@pytest.mark.parametrize("before_its_end", [MCSGD.conclude, concluded_twice, taken_back])
def test_a_task_that_was_concluded_before_ends_as_any_other(twins, batch, before_its_end):
    learner, plain, _ = twins
    for seed in (1, 2):
        for one in (learner, plain):
            one.observe(*batch(9, seed=seed))
        before_its_end(learner)
        learner.end_task()
        plain.end_task()
    assert same(learner, plain)


def test_what_was_concluded_is_done_again_after_another_step(twins, batch):
    learner, plain, _ = twins
    for seed in (1, 2):
        for one in (learner, plain):
            one.observe(*batch(9, seed=seed))
            one.conclude()
            one.observe(*batch(9, seed=seed + 10))
        learner.end_task()
        plain.conclude()
        plain.end_task()
    assert same(learner, plain)
    assert all(
        torch.equal(learner._solution[name], value) for name, value in parameters(learner.model).items()
    )


def test_a_state_knows_what_was_concluded(twins, batch):
    learner, plain, resumed = twins
    for seed in (1, 2):
        for one in (learner, plain):
            one.observe(*batch(9, seed=seed))
            one.conclude()
        resumed.load_state_dict(learner.state_dict())
        for one in twins:
            one.end_task()
    assert same(learner, plain)
    assert same(resumed, plain)


def test_what_a_leader_launches_later_leads_to_the_same_solution(twins, batch):
    learner, plain, _ = twins
    later = []
    for seed in (1, 2, 3):
        for one in (learner, plain):
            one.observe(*batch(9, seed=seed))
        with repeating(lambda work, times, generators, wait: later.extend([work] * times)):
            learner.conclude()
        for work in later:
            work()
        later.clear()
        for one in (learner, plain):
            one.end_task()
    assert same(learner, plain)


@pytest.mark.parametrize("method", [MCSGD, MCSGDOCS])
@pytest.mark.parametrize("stays", ["frozen on the way", "in no optimiser"])
def test_a_path_moves_only_what_the_optimiser_has_to_learn(model, sgd, batch, method, stays):
    optimizer = sgd(model if stays == "frozen on the way" else model.head)
    memory = ReplayMemory(5, balance=None)
    learner = method(model, optimizer, memory, k=6, candidates=6, path_steps=3, path_points=2)
    learner.observe(*batch(6, seed=1))
    learner.end_task()
    before, old = parameters(model), learner.memory.samples
    model.hidden.requires_grad_(stays != "frozen on the way")
    learner.observe(*batch(6, seed=2))
    after, new = parameters(model), learner.candidates.kept()
    gradient = None if model.hidden.weight.grad is None else model.hidden.weight.grad.clone()
    found = three_steps_on_two_points(model, before, after, old, new, moving=["head.weight", "head.bias"])
    learner.end_task()
    for name in ("hidden.weight", "hidden.bias"):
        assert torch.equal(model.get_parameter(name), after[name])
    for name, value in found.items():
        torch.testing.assert_close(model.get_parameter(name).detach(), value, rtol=0, atol=1e-5)
        assert not torch.allclose(value, after[name], atol=1e-4)
    if gradient is not None:
        assert torch.equal(model.hidden.weight.grad, gradient)


def test_a_task_can_end_where_nothing_learns_any_more(model, sgd, batch, generator):
    learner = MCSGD(model, sgd(model), ReplayMemory(6), path_steps=2, generator=generator)
    for seed in range(2):
        learner.observe(*batch(seed=seed))
        model.requires_grad_(seed == 0)
        before = parameters(model)
        learner.end_task()
    assert all(torch.equal(before[name], value) for name, value in parameters(model).items())


def test_a_task_can_end_in_inference_mode(model, sgd, batch, generator):
    learner = MCSGD(model, sgd(model), ReplayMemory(6), path_steps=2, generator=generator)
    for seed in range(2):
        learner.observe(*batch(seed=seed))
        with torch.inference_mode():
            learner.end_task()
    assert learner.task == 2


@pytest.mark.parametrize(("method", "options"), [(MCSGD, {}), (MCSGDOCS, {"warm_start": 0})])
def test_a_path_goes_through_embeddings_of_sparse_gradients(sgd, method, options):
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Embedding(6, 8, sparse=True), torch.nn.Flatten(), torch.nn.Linear(24, 3)
    )
    learner = method(model, sgd(model), ReplayMemory(9), path_steps=2, **options)
    for _ in range(2):
        learner.observe(torch.randint(6, (9, 3)), torch.arange(9) % 3)
        at_its_end = parameters(model)
        learner.end_task()
    assert not torch.equal(model[0].weight, at_its_end["0.weight"])
    assert model[0].sparse


def test_paths_need_tasks_that_end(model, sgd):
    with pytest.raises(ValueError, match=r"task_free=True: .* when a task ends"):
        MCSGDOCS(model, sgd(model), ReplayMemory(9), task_free=True)
