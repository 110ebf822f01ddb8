import pytest
import torch
from safetensors.torch import load, save

from corestream import ReplayMemory, Samples


def candidates(targets, task=0, start=0):
    """Samples whose only feature is their number."""
    targets = torch.as_tensor(targets)
    numbers = torch.arange(start, start + len(targets))
    return Samples.of(numbers.float().unsqueeze(1), targets, task, ids=numbers)


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)


def test_what_is_no_state_is_refused():
    with pytest.raises(
        ValueError, match="not a ReplayMemory's: it has no capacity and no passed and no policy"
    ):
        ReplayMemory(5).load_state_dict({})


# Quota


@pytest.mark.parametrize("capacity", [12, 13, 20, 6])
def test_each_of_t_tasks_has_a_share_of_j_over_t(generator, capacity):
    memory = ReplayMemory(capacity)
    for task in range(5):
        memory.store(candidates(torch.arange(30) % 3, task), generator=generator)
        assert memory.counts() == dict.fromkeys(range(task + 1), capacity // (task + 1))
        assert len(memory) <= capacity


def test_a_share_is_balanced_over_classes(generator):
    memory = ReplayMemory(9)
    memory.store(candidates([0] * 50 + [1] * 5 + [2] * 5), generator=generator)
    assert torch.bincount(memory.targets).tolist() == [3, 3, 3]
    memory.store(candidates([3] * 50 + [4] * 50, task=1), generator=generator)
    assert sorted(torch.bincount(memory.targets).tolist()) == [1, 1, 2, 2, 2]


def test_a_class_with_too_few_leaves_its_share_to_the_others(generator):
    memory = ReplayMemory(12)
    memory.store(candidates([0] * 50 + [1] * 2 + [2]), generator=generator)
    assert torch.bincount(memory.targets).tolist() == [9, 2, 1]


@pytest.mark.parametrize("there", [1, 5, 11, 12, 13, 40])
def test_never_fewer_than_the_quota_are_kept_while_candidates_exist(generator, there):
    memory = ReplayMemory(12)
    memory.store(candidates(torch.randint(0, 9, (there,), generator=generator)), generator=generator)
    assert len(memory) == min(12, there)


def test_a_task_that_has_less_than_its_share_keeps_all_it_has(generator):
    memory = ReplayMemory(10)
    memory.store(candidates([0, 1]), generator=generator)
    memory.store(candidates([0] * 20, task=1), generator=generator)
    assert memory.counts() == {0: 2, 1: 5}
    memory.store(candidates([0] * 20, task=2), generator=generator)
    assert memory.counts() == {0: 2, 1: 3, 2: 3}


def test_the_quota_that_would_be_kept_is_told(generator):
    memory = ReplayMemory(10)
    assert memory.quota(candidates([0] * 20)) == 10
    memory.store(candidates([0] * 20), generator=generator)
    assert memory.quota(candidates([0] * 20, task=1)) == 5


def test_those_with_the_largest_priority_enter(generator):
    memory = ReplayMemory(4)
    targets, priority = torch.tensor([0, 0, 0, 1, 1, 1]), torch.tensor([1.0, 3.0, 2.0, 7.0, 9.0, 8.0])
    memory.store(candidates(targets), priority=priority, generator=generator)
    assert sorted(memory.ids.tolist()) == [1, 2, 4, 5]


def test_older_tasks_shrink_by_the_priority_they_are_given(generator):
    memory = ReplayMemory(8)
    memory.store(candidates([0] * 4 + [1] * 4), generator=generator)
    by_number = memory.ids.float()
    memory.store(candidates([2] * 20, task=1, start=100), shrink_priority=by_number, generator=generator)
    assert sorted(memory.ids[memory.tasks == 0].tolist()) == [2, 3, 6, 7]


def test_without_a_priority_any_of_them_may_enter_or_stay():
    entered, stayed = set(), set()
    for seed in range(40):
        memory, generator = ReplayMemory(4), torch.Generator().manual_seed(seed)
        memory.store(candidates([0] * 6), generator=generator)
        entered |= set(memory.ids.tolist())
        before = set(memory.ids.tolist())
        memory.store(candidates([0] * 6, task=1, start=10), generator=generator)
        stayed |= {sorted(before).index(i) for i in memory.ids[memory.tasks == 0].tolist()}
    assert entered == set(range(6))
    assert stayed == set(range(4))


def test_more_tasks_than_places_is_an_error(generator):
    memory = ReplayMemory(2)
    for task in range(2):
        memory.store(candidates([0] * 3, task), generator=generator)
    with pytest.raises(ValueError, match="capacity 2 has no room for 3 tasks"):
        memory.store(candidates([0] * 3, 2), generator=generator)
    assert memory.counts() == {0: 1, 1: 1}


# The other policies


def test_fixed_keeps_j_over_all_tasks_from_the_first_on(generator):
    memory = ReplayMemory(12, policy="fixed", tasks=3)
    for task in range(3):
        memory.store(candidates(torch.arange(20) % 2, task, 100 * task), generator=generator)
        assert memory.counts() == dict.fromkeys(range(task + 1), 4)
        if task == 0:
            first = memory.ids.tolist()
    assert memory.ids[memory.tasks == 0].tolist() == first
    with pytest.raises(
        ValueError, match=r"capacity of 12 is too small: 16 samples .* made for tasks=3, and this is one more"
    ):
        memory.store(candidates([0] * 20, 3), generator=generator)


def test_per_class_keeps_one_sample_of_each_class(generator):
    memory = ReplayMemory(7, policy="per-class")
    memory.store(candidates([0] * 30 + [1] + [2] * 2), generator=generator)
    memory.store(candidates([3] * 3 + [4] * 3, 1), generator=generator)
    assert torch.bincount(memory.targets).tolist() == [1, 1, 1, 1, 1]
    assert memory.counts() == {0: 3, 1: 2}
    with pytest.raises(
        ValueError, match="capacity of 7 is too small: 8 samples are to be kept under policy='per-class'"
    ):
        memory.store(candidates([5, 6, 7], 2), generator=generator)


def test_per_class_keeps_as_many_of_each_class_as_all_classes_leave_room_for(generator):
    memory = ReplayMemory(17, policy="per-class", classes=5)
    memory.store(candidates([0] * 30 + [1] + [2] * 9), generator=generator)
    assert torch.bincount(memory.targets).tolist() == [
        4,
        1,
        4,
    ]  # what class 1 has not got is left to the others
    memory.store(candidates([3] * 9 + [4] * 9, 1), generator=generator)
    assert torch.bincount(memory.targets).tolist() == [4, 1, 4, 3, 3]
    assert len(memory) <= 17


def test_a_reservoir_takes_samples_as_they_come(generator):
    memory = ReplayMemory(5, policy="reservoir")
    assert len(memory) == 0
    memory.add(candidates([0, 1, 2]), generator)
    assert memory.ids.tolist() == [0, 1, 2]
    for start in range(3, 100, 7):
        memory.add(candidates([0] * 7, task=1, start=start), generator)
        assert len(memory) == min(5, start + 7)
        assert len(set(memory.ids.tolist())) == len(memory)
    assert set(memory.counts()) <= {0, 1}


def test_a_reservoir_is_uniform_over_all_that_passed():
    counts, trials = torch.zeros(20), 800
    generator = torch.Generator().manual_seed(0)
    for _ in range(trials):
        memory = ReplayMemory(5, policy="reservoir")
        for start in range(0, 20, 4):
            memory.add(candidates([0] * 4, start=start), generator)
        counts[memory.ids] += 1
    expected = trials * 5 / 20
    assert float(((counts - expected) ** 2 / expected).sum()) / 0.75 < 19 + 5 * 38**0.5


def test_each_policy_has_its_own_verb(generator):
    with pytest.raises(
        ValueError, match="add is for policy='reservoir', and this memory has policy='quota': use store"
    ):
        ReplayMemory(3).add(candidates([0]), generator)
    with pytest.raises(ValueError, match="a reservoir takes samples by add"):
        ReplayMemory(3, policy="reservoir").store(candidates([0]), generator=generator)
    with pytest.raises(
        ValueError, match="replace is for the other policies: a reservoir takes samples by add"
    ):
        ReplayMemory(3, policy="reservoir").replace(candidates([0]))


# What it holds


INPUTS = {
    "images": torch.rand(12, 3, 4, 4),
    "bytes": torch.randint(0, 256, (12, 1, 5, 5), dtype=torch.uint8),
    "tokens": torch.randint(0, 99, (12, 7)),
    "half": torch.rand(12, 2, dtype=torch.bfloat16),
    "numbers": torch.rand(12, dtype=torch.float64),
    "tuple": (torch.rand(12, 2), torch.arange(12)),
    "dict": {"ids": torch.randint(0, 9, (12, 4)), "mask": torch.rand(12, 4) > 0.5},
    "channels last": torch.rand(12, 3, 4, 4).to(memory_format=torch.channels_last),
    "a view": torch.rand(4, 12, 3).transpose(0, 1),
}


@pytest.fixture(params=INPUTS.values(), ids=INPUTS.keys())
def inputs(request):
    return request.param


@pytest.mark.parametrize("policy", ["quota", "reservoir"])
def test_inputs_of_any_shape_and_dtype_come_back_as_they_went_in(inputs, policy, generator):
    samples = Samples.of(inputs, torch.arange(12) % 3, ids=torch.arange(12))
    memory = ReplayMemory(6, policy=policy)
    memory.add(samples, generator) if policy == "reservoir" else memory.store(samples, generator=generator)
    expected = samples[memory.ids]
    for kept, column in zip(memory.samples.columns(), expected.columns(), strict=True):
        assert kept.dtype == column.dtype
        assert torch.equal(kept, column)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("verb", ["store", "replace"])
def test_what_is_kept_has_the_strides_it_comes_back_with(channels, verb):
    """A convolution chooses its kernel by them: a run that goes on from a state would differ in the last bits."""
    x = torch.rand(6, channels, 4, 4).to(memory_format=torch.channels_last)
    memory, again = ReplayMemory(6), ReplayMemory(6)
    getattr(memory, verb)(Samples.of(x, torch.arange(6)))
    again.load_state_dict(load(save(memory.state_dict())))
    assert torch.equal(memory.inputs, x)
    assert memory.inputs.stride() == again.inputs.stride() == torch.empty(x.shape).stride()


@pytest.mark.parametrize("kept", [torch.rand(6, 4, 4), torch.rand(6, 1, 4)])
def test_what_is_laid_out_in_order_is_kept_without_another_copy(kept):
    memory = ReplayMemory(6)
    memory.replace(Samples.of(kept, torch.arange(6)))
    assert memory.inputs.data_ptr() == kept.data_ptr()


def test_samples_of_another_shape_or_type_are_refused_and_nothing_changes(generator):
    memory, y = ReplayMemory(4), torch.arange(4)
    memory.store(Samples.of(torch.rand(4, 7), y), generator=generator)
    before = generator.get_state()
    with pytest.raises(ValueError, match=r"must have one type: torch.float32 before, torch.float64 now"):
        memory.store(Samples.of(torch.rand(4, 7).double(), y), generator=generator)
    with pytest.raises(ValueError, match=r"must have one shape: \[7\] before, \[9\] now; pad"):
        memory.store(Samples.of(torch.rand(4, 9), y), generator=generator)
    assert memory.inputs.dtype == torch.float32
    assert len(memory) == 4
    assert torch.equal(generator.get_state(), before)


def test_a_candidate_whose_priority_is_not_a_number_comes_last(generator):
    memory = ReplayMemory(2)
    memory.store(candidates([0] * 4), priority=torch.tensor([0.1, torch.nan, 0.3, 0.2]), generator=generator)
    assert sorted(memory.ids.tolist()) == [2, 3]


def test_what_is_kept_is_a_copy(generator):
    x = torch.zeros(4, 2)
    memory = ReplayMemory(4)
    memory.store(Samples.of(x, torch.zeros(4, dtype=torch.long)), generator=generator)
    x.fill_(7)
    assert not memory.inputs.any()


@pytest.mark.parametrize("policy", ["quota", "reservoir"])
def test_a_state_survives_safetensors(inputs, policy, generator):
    samples = Samples.of(inputs, torch.arange(12) % 3, 4, ids=torch.arange(12))
    memory = ReplayMemory(6, policy=policy)
    memory.add(samples, generator) if policy == "reservoir" else memory.store(samples, generator=generator)
    again = ReplayMemory(6, policy=policy)
    again.load_state_dict(load(save(memory.state_dict())))
    assert len(again) == 6
    assert type(again.inputs) is type(memory.inputs)
    for one, two in zip(again.samples.columns(), memory.samples.columns(), strict=True):
        assert one.dtype == two.dtype
        assert torch.equal(one, two)
    assert torch.equal(
        again.sample(3, torch.Generator().manual_seed(1)).ids,
        memory.sample(3, torch.Generator().manual_seed(1)).ids,
    )


@pytest.mark.parametrize("policy", ["quota", "reservoir"])
def test_a_state_is_not_changed_by_what_comes_later(policy, generator):
    memory = ReplayMemory(3, policy=policy)
    keep = memory.add if policy == "reservoir" else lambda samples, g: memory.store(samples, generator=g)
    keep(candidates([0] * 3), generator)
    state = memory.state_dict()
    copy = {name: value.clone() for name, value in state.items()}
    for task in (1, 2):
        keep(candidates([0] * 30, task, start=30 * task), generator)
    assert memory.ids.max() >= 30
    assert all(torch.equal(state[name], copy[name]) for name in copy)


def test_a_reservoir_goes_on_from_its_state(generator):
    memory = ReplayMemory(5, policy="reservoir")
    memory.add(candidates([0] * 30), generator)
    again, other = ReplayMemory(5, policy="reservoir"), torch.Generator()
    again.load_state_dict(load(save(memory.state_dict())))
    other.set_state(generator.get_state())
    for one, numbers in ((memory, generator), (again, other)):
        one.add(candidates([0] * 30, start=30), numbers)
    assert memory.ids.tolist() == again.ids.tolist()


def test_an_empty_memory_has_a_state_too():
    again = ReplayMemory(6)
    again.load_state_dict(load(save(ReplayMemory(6).state_dict())))
    assert len(again) == 0
    with pytest.raises(ValueError, match="has capacity 7, and the state is of one with 6"):
        ReplayMemory(7).load_state_dict(again.state_dict())


@pytest.mark.parametrize(
    "balance", [None, lambda targets: (targets.flatten(1).mean(1) > 0.5).long()], ids=["none", "callable"]
)
@pytest.mark.parametrize(
    "targets",
    [torch.rand(20, 1), torch.rand(20, 3, 2), torch.randint(0, 9, (20, 6))],
    ids=["one", "several", "sequence"],
)
def test_regression_and_sequence_targets_are_kept(generator, balance, targets):
    if callable(balance) and not targets.is_floating_point():
        targets = targets.double()
    memory = ReplayMemory(8, balance=balance)
    memory.store(Samples.of(torch.rand(20, 2), targets, ids=torch.arange(20)), generator=generator)
    assert len(memory) == 8
    assert torch.equal(memory.targets, targets[memory.ids])


def test_a_callable_balances_over_its_groups(generator):
    memory = ReplayMemory(6, balance=lambda targets: (targets > 0.9).long())
    targets = torch.cat([torch.rand(40) * 0.8, torch.full((3,), 0.95)])
    memory.store(Samples.of(torch.rand(43, 2), targets), generator=generator)
    assert int((memory.targets > 0.9).sum()) == 3


def test_balance_by_class_refuses_numbers(generator):
    with pytest.raises(ValueError, match="balance='class' needs one integer target a sample"):
        ReplayMemory(2).store(Samples.of(torch.rand(5, 2), torch.rand(5)), generator=generator)


# Drawing


def test_a_draw_is_without_replacement_and_all_where_fewer_are_kept(generator):
    memory = ReplayMemory(6)
    memory.store(candidates([0] * 6), generator=generator)
    assert len(set(memory.sample(4, generator).ids.tolist())) == 4
    assert sorted(memory.sample(99, generator).ids.tolist()) == list(range(6))


def test_a_draw_is_uniform(generator):
    memory = ReplayMemory(8)
    memory.store(candidates([0] * 8), generator=generator)
    counts, trials = torch.zeros(8), 2000
    for _ in range(trials):
        counts[memory.sample(2, generator).ids] += 1
    expected = trials * 2 / 8
    assert float(((counts - expected) ** 2 / expected).sum()) / 0.75 < 7 + 5 * 14**0.5


def test_a_draw_from_one_task_has_each_task_as_often_and_each_of_its_samples(generator):
    memory = ReplayMemory(9, replay_from="task")
    memory.store(candidates([0] * 9), generator=generator)
    assert len(memory.draw(20, generator)) == 9
    memory.store(candidates([0] * 3, task=1, start=20), generator=generator)
    memory.load_state_dict(memory.state_dict())
    tasks, ids = [], []
    for _ in range(2000):
        drawn = memory.sample(2, generator)
        assert len(drawn) == 2
        assert drawn.tasks[0] == drawn.tasks[1]
        assert drawn.ids[0] != drawn.ids[1]
        tasks.append(int(drawn.tasks[0]))
        ids += drawn.ids.tolist()
    shares = torch.bincount(torch.tensor(tasks)) / len(tasks)
    kept = torch.tensor([4, 3]) / 7  # a task is drawn with the sample it was drawn by
    assert torch.allclose(shares, kept, atol=0.05)
    assert len(set(ids)) == 7
    assert len(memory.draw(20, generator)) == 3  # as many as the smallest task has, whichever it is


def test_a_reservoir_is_not_drawn_from_by_task():
    with pytest.raises(ValueError, match="reservoir"):
        ReplayMemory(9, policy="reservoir", replay_from="task")
    with pytest.raises(ValueError, match="'memory' or 'task'"):
        ReplayMemory(9, replay_from="class")


def test_a_draw_comes_from_the_generator_given_alone(generator):
    memory = ReplayMemory(8)
    memory.store(candidates([0] * 8), generator=generator)
    before = torch.get_rng_state()
    one = memory.sample(3, torch.Generator().manual_seed(5)).ids
    two = memory.sample(3, torch.Generator().manual_seed(5)).ids
    assert torch.equal(one, two)
    assert torch.equal(torch.get_rng_state(), before)


def test_two_equal_seeds_give_equal_memories():
    def run(seed):
        memory, generator = ReplayMemory(9), torch.Generator().manual_seed(seed)
        for task in range(4):
            memory.store(candidates(torch.arange(40) % 5, task, 100 * task), generator=generator)
        return memory.ids.tolist()

    assert run(3) == run(3)
    assert run(3) != run(4)


def test_an_empty_memory_says_so(generator):
    memory = ReplayMemory(3)
    assert len(memory) == 0
    assert memory.counts() == {}
    for look in (lambda: memory.inputs, lambda: memory.sample(1, generator)):
        with pytest.raises(LookupError, match=r"the memory is empty: .* reference=None"):
            look()
    memory.store(candidates([0]), generator=generator)
    with pytest.raises(ValueError, match="count must be a whole number of at least 1, got 0"):
        memory.sample(0, generator)


def test_what_is_kept_may_be_replaced_within_the_capacity():
    memory = ReplayMemory(3)
    memory.replace(candidates([0, 1, 2]))
    assert memory.ids.tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="4 samples do not fit a memory of capacity 3"):
        memory.replace(candidates([0] * 4))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"capacity": 0}, "capacity must be a whole number of at least 1, got 0"),
        ({"capacity": 2.5}, "got 2.5"),
        ({"capacity": True}, "got True"),
        (
            {"capacity": 5, "policy": "newest"},
            "policy must be one of quota, fixed, per-class, reservoir, got 'newest'",
        ),
        ({"capacity": 5, "balance": "task"}, "balance must be 'class', None or a callable, got 'task'"),
        ({"capacity": 5, "policy": "fixed"}, "tasks.*goes with policy='fixed'"),
        ({"capacity": 5, "tasks": 3}, "tasks.*goes with policy='fixed'"),
        (
            {"capacity": 5, "policy": "fixed", "tasks": 6},
            "tasks must be a whole number between 1 and the capacity of 5, got 6",
        ),
        ({"capacity": 5, "classes": 3}, "classes.*goes with policy='per-class'"),
        (
            {"capacity": 5, "policy": "per-class", "classes": 6},
            "classes must be a whole number between 1 and the capacity of 5, got 6",
        ),
        (
            {"capacity": 5, "policy": "per-class", "balance": None},
            "policy='per-class' keeps a share of each class, and balance=None knows no classes",
        ),
    ],
)
def test_a_wrong_argument_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        ReplayMemory(**arguments)


def test_it_lives_on_the_device_its_samples_came_on():
    memory = ReplayMemory(4)
    memory.replace(candidates([0, 1, 2]).map(lambda column: column.to("meta")))
    assert memory.inputs.device.type == memory.tasks.device.type == "meta"


def test_every_kept_sample_needs_a_priority(generator):
    memory = ReplayMemory(8)
    memory.store(candidates([0] * 8), generator=generator)
    with pytest.raises(ValueError, match="each of 8 samples"):
        memory.store(candidates([2] * 20, task=1), shrink_priority=torch.ones(5), generator=generator)


def test_the_places_of_each_task_are_told_whatever_their_order():
    memory = ReplayMemory(5)
    assert memory.places_by_task() == []
    memory.replace(Samples.of(torch.rand(5, 2), torch.zeros(5).long(), torch.tensor([3, 1, 3, 1, 1])))
    assert [places.tolist() for places in memory.places_by_task()] == [[1, 3, 4], [0, 2]]


def test_a_balance_of_ones_own_looks_at_one_task_at_a_time(generator):
    seen = []

    def halves(targets):
        seen.append(len(targets))
        return (targets > targets.median()).long()

    memory = ReplayMemory(8, balance=halves)
    for task in range(3):
        memory.store(candidates(range(20), task=task), generator=generator)
    assert seen == [20, 8, 20, 4, 4, 20]


@pytest.mark.parametrize(("policy", "verb"), [("quota", "store"), ("quota", "replace"), ("reservoir", "add")])
def test_what_is_no_samples_is_told_how_to_become_them(policy, verb):
    memory = ReplayMemory(4, policy=policy)
    with pytest.raises(
        TypeError, match=rf"{verb} takes Samples, got tuple: give corestream\.Samples\.of\(x, y"
    ):
        getattr(memory, verb)((torch.zeros(3, 2), torch.arange(3)))


def test_samples_of_another_type_are_to_be_converted():
    memory = ReplayMemory(4)
    memory.store(Samples.of(torch.zeros(3, 2), torch.arange(3)))
    with pytest.raises(
        ValueError, match=r"float32 before, torch\.float64 now; convert them, x\.to\(torch\.float32\)"
    ):
        memory.store(Samples.of(torch.zeros(3, 2).double(), torch.arange(3), task=1))
