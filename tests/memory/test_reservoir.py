import pytest
import torch

from corestream.memory import Reservoir, Samples
from corestream.memory.reservoir import places, places_one_by_one


def test_a_state_holds_what_is_kept_and_no_empty_slots():
    reservoir, generator = Reservoir(100), torch.Generator().manual_seed(0)
    some = Samples.of(torch.randn(5, 3), torch.arange(5))
    reservoir.add(some, torch.arange(5), generator)
    state = reservoir.state_dict()
    assert [len(value) for name, value in state.items() if name != "passed"] == [5, 5, 5, 5]
    twin = Reservoir(100)
    twin.load_state_dict(state)
    full = Samples.of(torch.randn(300, 3), torch.arange(300))
    for one in (reservoir, twin):
        one.add(full, torch.arange(300), torch.Generator().manual_seed(1))
    for mine, others in zip(reservoir.kept().columns(), twin.kept().columns(), strict=True):
        assert torch.equal(mine, others)


def passing(values, *, rows=None, generator=None, reservoir):
    samples = Samples.of(torch.tensor(values).float().unsqueeze(1), torch.tensor(values))
    rows = torch.arange(len(values)) if rows is None else torch.tensor(rows)
    reservoir.add(samples, rows, generator)


def test_all_are_kept_in_order_until_it_is_full():
    reservoir = Reservoir(5)
    passing([1, 2, 3], reservoir=reservoir)
    passing([4, 5], reservoir=reservoir)
    assert reservoir.kept().targets.tolist() == [1, 2, 3, 4, 5]


def test_it_never_holds_more_than_its_capacity_nor_anyone_twice():
    reservoir, generator = Reservoir(5), torch.Generator().manual_seed(0)
    for start in range(0, 200, 8):
        passing(list(range(start, start + 8)), generator=generator, reservoir=reservoir)
        kept = reservoir.kept().targets.tolist()
        assert len(kept) == min(5, start + 8)
        assert len(set(kept)) == len(kept)


def test_rows_of_minus_one_are_nobody():
    reservoir = Reservoir(4)
    passing([7, 8, 9], rows=[2, -1, 0, -1], reservoir=reservoir)
    assert reservoir.kept().targets.tolist() == [9, 7]
    passing([7, 8, 9], rows=[-1, -1], reservoir=reservoir)
    assert reservoir.kept().targets.tolist() == [9, 7]
    passing([7, 8, 9], rows=[1], reservoir=reservoir)
    assert reservoir.kept().targets.tolist() == [9, 7, 8]


@pytest.mark.parametrize("batch", [1, 7, 30])
def test_everyone_who_passed_is_kept_with_the_same_chance(batch):
    """Chi-square over who is kept; the limit is passed by chance once in 100,000."""
    capacity, length, trials = 6, 30, 500
    counts, generator = torch.zeros(length), torch.Generator().manual_seed(batch)
    for _ in range(trials):
        reservoir = Reservoir(capacity)
        for start in range(0, length, batch):
            passing(list(range(start, min(length, start + batch))), generator=generator, reservoir=reservoir)
        counts[reservoir.kept().targets] += 1
    expected = trials * capacity / length
    # the variance of one count is that of a draw without replacement: (1 - capacity/length) of the multinomial's
    statistic = (
        float(((counts - expected) ** 2 / expected).sum()) / (1 - capacity / length) * (length - 1) / length
    )
    assert statistic < 29 + 5 * (2 * 29) ** 0.5


def test_it_starts_anew_when_cleared():
    reservoir = Reservoir(3)
    passing([1, 2, 3, 4], reservoir=reservoir)
    reservoir.clear()
    assert reservoir.kept() is None
    passing([9], reservoir=reservoir)
    assert reservoir.kept().targets.tolist() == [9]


def test_the_same_generator_keeps_the_same():
    def run(seed):
        reservoir, generator = Reservoir(4), torch.Generator().manual_seed(seed)
        for start in range(0, 60, 5):
            passing(list(range(start, start + 5)), generator=generator, reservoir=reservoir)
        return reservoir.kept().targets.tolist()

    assert run(1) == run(1)
    assert run(1) != run(2)


def test_nothing_else_draws_from_torchs_own_generator():
    before = torch.get_rng_state()
    passing(list(range(20)), generator=torch.Generator().manual_seed(0), reservoir=Reservoir(4))
    assert torch.equal(torch.get_rng_state(), before)


def test_a_state_goes_on_as_if_nothing_had_happened():
    first, generator = Reservoir(4), torch.Generator().manual_seed(0)
    passing(list(range(11)), generator=generator, reservoir=first)
    second, other = Reservoir(4), torch.Generator()
    second.load_state_dict({name: value.clone() for name, value in first.state_dict().items()})
    other.set_state(generator.get_state())
    passing(list(range(11, 40)), generator=generator, reservoir=first)
    passing(list(range(11, 40)), generator=other, reservoir=second)
    assert torch.equal(first.kept().targets, second.kept().targets)
    assert torch.equal(first.kept().inputs, second.kept().inputs)
    second.load_state_dict(Reservoir(4).state_dict())
    assert second.kept() is None


def test_the_state_of_another_size_is_refused():
    first = Reservoir(4)
    passing([1, 2, 3, 4, 5, 6], reservoir=first)
    for size in (3, 5):
        with pytest.raises(ValueError, match=f"has {size} slots; after 6 samples the state has 4 of them"):
            Reservoir(size).load_state_dict(first.state_dict())


def test_an_empty_one_says_so():
    with pytest.raises(LookupError, match="empty"):
        _ = Reservoir(3).slots


def test_a_dict_may_name_its_tensors_in_another_order_each_time():
    reservoir, a, b = Reservoir(4), torch.zeros(2, 3), torch.ones(2, 3)
    rows, targets = torch.arange(2), torch.zeros(2)
    reservoir.add(Samples.of({"a": a, "b": b}, targets), rows, None)
    reservoir.add(Samples.of({"b": b, "a": a}, targets), rows, None)
    assert not reservoir.kept().inputs["a"].any()
    assert reservoir.kept().inputs["b"].all()


def test_both_ways_to_find_places_agree():
    generator = torch.Generator().manual_seed(3)
    for passed in (0, 3, 9, 40):
        for _ in range(50):
            rows = torch.randint(-1, 20, (12,), generator=generator)
            chance = torch.rand(12, generator=generator, dtype=torch.float64)
            place, after = places(rows, chance, torch.tensor(passed), 9)
            at_once = {slot: row for slot, row in zip(place.tolist(), rows.tolist(), strict=True) if slot < 9}
            assert (at_once, int(after)) == places_one_by_one(rows.tolist(), chance.tolist(), passed, 9)


def test_samples_of_another_shape_are_told():
    reservoir, rows = Reservoir(4), torch.arange(3)
    reservoir.add(Samples.of(torch.zeros(3, 7), torch.zeros(3, dtype=torch.long), 0), rows, None)
    with pytest.raises(ValueError, match=r"must have one shape: \[7\] before, \[9\] now; pad"):
        reservoir.add(Samples.of(torch.zeros(3, 9), torch.zeros(3, dtype=torch.long), 0), rows, None)


def test_samples_of_another_type_are_told():
    reservoir, x, y = Reservoir(4), torch.zeros(3, 2), torch.arange(3)
    reservoir.add(Samples.of(x, y), torch.arange(3), None)
    with pytest.raises(ValueError, match=r"one type: torch.int64 before, torch.int32 now"):
        reservoir.add(Samples.of(x, y.int()), torch.arange(3), None)
