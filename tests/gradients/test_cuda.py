"""On a CUDA device: the same numbers, no waiting, and trouble told at the next look."""

import copy

import pytest
import torch
from torch import nn

from corestream import OCS, NonFiniteError, ReplayMemory, per_sample_gradients, score
from corestream.gradients.rules import batch_norm

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


class Everything(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv1d(4, 8, 3, padding=1, groups=2), nn.GroupNorm(2, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)
        self.encoder, self.cells = nn.TransformerEncoder(layer, 1), nn.GRU(8, 8, batch_first=True)
        self.scale, self.head = nn.Parameter(torch.ones(8)), nn.Linear(8, 3)

    def forward(self, x):
        x = self.encoder(self.norm(torch.relu_(self.conv(x))).transpose(1, 2))
        return self.head(self.cells(x)[0][:, -1] * self.scale)


@pytest.fixture
def batch(images):
    x, y = images(6, 4, 5)
    return x.cuda(), y.cuda()


@pytest.fixture
def mlp():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, 3)).cuda()


def make(model, **options):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.8)
    generator = torch.Generator("cuda").manual_seed(0)
    options = {"k": 3, "replay": 4, "warm_start": 2, "tau": 5.0, "candidates": 20, **options}
    return OCS(model, optimizer, ReplayMemory(9), generator=generator, **options)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_it_is_exact_there_too(oracle, compare, batch, dtype):
    torch.manual_seed(0)
    small = nn.Sequential(nn.Conv1d(4, 8, 3), nn.GroupNorm(2, 8), nn.ReLU(), nn.Flatten(), nn.Linear(24, 3))
    model = (small if dtype == torch.bfloat16 else Everything()).to(dtype)
    rows = oracle(copy.deepcopy(model).double(), (batch[0].cpu().to(dtype).double(), batch[1].cpu()))
    with torch.backends.cudnn.flags(allow_tf32=False):
        grads = per_sample_gradients(model.cuda(), None, (batch[0].to(dtype), batch[1]))
    tolerance = {torch.float32: 1e-5, torch.float64: 1e-10, torch.bfloat16: 5e-2}[dtype]
    compare(OnHost(grads), rows, tolerance)


@pytest.mark.parametrize("shape", [(7, 5), (7, 5, 9), (7, 5, 4, 3), (7, 5, 4, 3, 2)], ids=len)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_statistics_of_a_batch_are_its_mean_and_variance(shape, dtype):
    x = 50 + torch.randn(shape, dtype=dtype, device="cuda")
    over = [0, *range(2, len(shape))]
    expected = x.mean(over), x.var(over, correction=0)
    torch.testing.assert_close(batch_norm.statistics(x, 1e-5), expected, rtol=1e-4, atol=1e-4)


class Renamed(nn.BatchNorm2d):
    pass


class OfItsOwn(nn.BatchNorm2d):
    def forward(self, x):
        return super().forward(x) + 0.1 * x


@pytest.mark.parametrize("norm", [nn.BatchNorm2d, Renamed, OfItsOwn])
def test_a_network_with_batchnorm_is_exact_there_too(norm):
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 6, 3, padding=1), norm(6), nn.ReLU(), nn.Conv2d(6, 4, 3, stride=2)]
    model = nn.Sequential(*layers, nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(36, 3)).double()
    x, y = torch.randn(6, 3, 8, 8, dtype=torch.float64), torch.arange(6) % 3
    here = per_sample_gradients(model, None, (x, y))
    gram, total = here.gram(), here.total()
    there = per_sample_gradients(copy.deepcopy(model).cuda(), None, (x.cuda(), y.cuda()))
    torch.testing.assert_close(there.gram().cpu(), gram)
    torch.testing.assert_close({name: part.cpu() for name, part in there.total().items()}, total)


class OnHost:
    """The same verbs, their answers brought back."""

    def __init__(self, grads):
        self.grads = grads

    def __getitem__(self, index):
        return OnHost(self.grads[index])

    def norms(self):
        return self.grads.norms().cpu()

    def gram(self, other=None):
        return self.grads.gram(None if other is None else other.grads).cpu()

    def dot(self, direction):
        return self.grads.dot({name: part.cuda() for name, part in direction.items()}).cpu()

    def combine(self, weights):
        return {name: part.cpu() for name, part in self.grads.combine(weights.cuda()).items()}

    def squares(self, weights=None):
        found = self.grads.squares(None if weights is None else weights.cuda())
        return {name: part.cpu() for name, part in found.items()}


def test_scores_are_those_of_the_cpu(mlp, batch):
    there = score(mlp, None, batch, batch, tau=1.0).total
    here = score(
        mlp.cpu(), None, (batch[0].cpu(), batch[1].cpu()), (batch[0].cpu(), batch[1].cpu()), tau=1.0
    ).total
    torch.testing.assert_close(there.cpu(), here, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("single_pass", [True, False])
@pytest.mark.parametrize("reference", ["memory", "replay", 5])
def test_a_step_never_waits_for_the_device(mlp, batch, single_pass, reference):
    learner = make(mlp, single_pass=single_pass, reference=reference)
    for _ in range(3):
        learner.observe(*batch)
    learner.end_task()
    for _ in range(3):
        learner.observe(*batch)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(3):
            learner.observe(*batch)
    finally:
        torch.cuda.set_sync_debug_mode("default")


class Compared(nn.Module):
    """Its samples depend on each other."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x - x.mean(0))


def test_samples_that_depend_on_each_other_are_seen_at_a_tasks_first_step(mlp, batch):
    learner = make(Compared(mlp), single_pass=True)
    with pytest.raises(ValueError, match="samples depend on each other"):
        learner.observe(*batch)
    learner = make(mlp, single_pass=True)
    for _ in range(2):
        for _ in range(3):
            learner.observe(*batch)
        assert learner._looks.asked == 3
        learner.end_task()
        assert learner._looks.asked == 0


def test_one_pass_and_two_passes_are_the_same_steps(mlp, batch):
    one, two = (
        make(copy.deepcopy(mlp).double(), single_pass=True),
        make(copy.deepcopy(mlp).double(), single_pass=False),
    )
    x, y = batch[0].double(), batch[1]
    for _ in range(2):
        for n in range(4):
            assert torch.equal(one.observe(x + n, y).picked, two.observe(x + n, y).picked)
        one.end_task()
        two.end_task()
    for a, b in zip(one.model.parameters(), two.model.parameters(), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("look", ["loss", "check", "end_task"])
@pytest.mark.parametrize("trouble", ["input", "target"])
def test_a_batch_with_nothing_finite_is_told_at_the_next_look(mlp, batch, look, trouble):
    learner = make(mlp)
    learner.observe(*batch)
    x, y = batch
    step = learner.observe(x * torch.nan, y) if trouble == "input" else learner.observe(x, y * 0 - 100)
    with pytest.raises(NonFiniteError, match="no sample with a finite loss"):
        {"loss": lambda: step.loss, "check": learner.check, "end_task": learner.end_task}[look]()
    learner.check()  # told once


def test_samples_that_are_not_finite_are_never_picked(mlp, batch):
    learner = make(mlp, k=5, warm_start=0)
    x, y = batch
    x[[0, 2]], y[3] = torch.nan, 99
    picked = learner.observe(x, y).picked.tolist()
    assert sorted(picked[:3]) == [1, 4, 5]
    assert picked[3:] == [-1, -1]
    assert all(torch.isfinite(parameter).all() for parameter in mlp.parameters())


def test_a_state_moves_between_devices(mlp, batch):
    learner = make(mlp)
    for _ in range(3):
        learner.observe(*batch)
    learner.end_task()
    learner.observe(*batch)
    twin = make(copy.deepcopy(mlp))
    twin.load_state_dict({name: value.clone() for name, value in learner.state_dict().items()})
    assert torch.equal(learner.observe(*batch).picked, twin.observe(*batch).picked)


def test_a_step_can_be_captured_in_a_cuda_graph(mlp, batch):
    learner = make(mlp, warm_start=0)
    for _ in range(3):
        learner.observe(*batch)
    learner.end_task()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            learner.observe(*batch)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(learner.generator)
    before = [parameter.clone() for parameter in mlp.parameters()]
    with torch.cuda.graph(graph):
        learner.observe(*batch)
    graph.replay()
    graph.replay()
    torch.cuda.synchronize()
    assert all(torch.isfinite(parameter).all() for parameter in mlp.parameters())
    assert not all(torch.equal(a, b) for a, b in zip(before, mlp.parameters(), strict=True))


def test_recurrent_layers_can_be_scored_in_eval_mode():
    """Where cuDNN has no backward pass."""

    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.steps, self.head = nn.LSTM(4, 5, batch_first=True), nn.Linear(5, 3)

        def forward(self, x):
            return self.head(self.steps(x)[0][:, -1])

    torch.manual_seed(0)
    model, x, y = Last(), torch.randn(8, 6, 4), torch.arange(8) % 3
    expected = score(model, None, (x, y), mode="eval").total
    found = score(model.cuda(), None, (x.cuda(), y.cuda()), mode="eval").total
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-3, atol=1e-4)
    assert torch.backends.cudnn.enabled
