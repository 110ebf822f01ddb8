"""The replay memory: what is kept of the tasks that have passed, bounded by its capacity."""

import torch
from torch import Tensor

from ..counts import check_counts, is_count
from ..draws import random_places
from ..gradients.calling import Inputs
from ..states import part_of, prefixed
from .balance import Balance, groups
from .reservoir import Reservoir
from .samples import Samples
from .thinning import thinned

POLICIES = ("quota", "fixed", "per-class", "reservoir")


class ReplayMemory:
    """At most `capacity` (J) samples, kept by one of four policies.

    - "quota": J/t samples of each of the t tasks so far; older tasks shrink as new ones come.
    - "fixed": J/T samples a task, T given by `tasks`.
    - "per-class": J/C samples of each of a task's classes, C, the classes of all tasks, given by `classes`; otherwise one. A class that
      has fewer leaves its share to others of its task.
    - "reservoir": a uniform sample of all that passed; `add` it as it comes.

    With `replay_from="task"` what is drawn at once comes from one task, any of them by chance, and is never more than the smallest share
    of a task: a network that normalises by its batch then meets a task's own statistics, as in a test. With "memory" it comes from all.

    `balance` spreads a task's share over classes ("class"), over the groups a callable makes of the targets, or over nothing (None).
    Inputs may be a tensor or a tuple or dict of tensors, of any shape and dtype; they stay on the device they came on.
    """

    def __init__(
        self,
        capacity: int,
        *,
        policy: str = "quota",
        balance: Balance = "class",
        tasks: int | None = None,
        classes: int | None = None,
        replay_from: str = "memory",
    ) -> None:
        check_counts(capacity=capacity)
        if policy not in POLICIES:
            raise ValueError(f"policy must be one of {', '.join(POLICIES)}, got {policy!r}")
        if balance not in ("class", None) and not callable(balance):
            raise ValueError(f"balance must be 'class', None or a callable, got {balance!r}")
        if (policy == "fixed") != (tasks is not None):
            raise ValueError("tasks, the number of tasks T, goes with policy='fixed' and with no other")
        if tasks is not None and not (is_count(tasks) and tasks <= capacity):
            raise ValueError(
                f"tasks must be a whole number between 1 and the capacity of {capacity}, got {tasks}"
            )
        if policy == "per-class" and balance is None:
            raise ValueError(
                "policy='per-class' keeps a share of each class, and balance=None knows no classes: give balance='class' or a callable, "
                "or another policy"
            )
        if classes is not None and policy != "per-class":
            raise ValueError(
                "classes, the number of classes C, goes with policy='per-class' and with no other"
            )
        if classes is not None and not (is_count(classes) and classes <= capacity):
            raise ValueError(
                f"classes must be a whole number between 1 and the capacity of {capacity}, got {classes}"
            )
        if replay_from not in ("memory", "task"):
            raise ValueError(f"replay_from must be 'memory' or 'task', got {replay_from!r}")
        if replay_from == "task" and policy == "reservoir":
            raise ValueError(
                "replay_from='task' is for memories with a share for each task, not for a reservoir"
            )
        capacity = int(capacity)
        self.capacity, self.policy, self.balance, self.tasks_expected = capacity, policy, balance, tasks
        self._of_each_class = 1 if classes is None else capacity // classes
        self.replay_from = replay_from
        self._kept: Samples | None = None
        self._smallest_share = 0  # samples of the task that has the fewest
        self._reservoir = Reservoir(capacity) if policy == "reservoir" else None
        self._held = 0  # samples in the reservoir

    def __repr__(self) -> str:
        return f"ReplayMemory({len(self)} of {self.capacity} samples, policy={self.policy!r})"

    def __len__(self) -> int:
        if self._reservoir is not None:
            return self._held
        return 0 if self._kept is None else len(self._kept)

    @property
    def samples(self) -> Samples:
        """All that is kept."""
        if self._reservoir is not None and len(self):
            return self._reservoir.slots[: len(self)]
        if self._kept is None:
            raise LookupError(
                "the memory is empty: it is filled when a task ends, and until then a loop of one's own selects with reference=None"
            )
        return self._kept

    @property
    def inputs(self) -> Inputs:
        """What is kept, as a model takes it."""
        return self.samples.inputs

    @property
    def targets(self) -> Tensor:
        """The target of each sample."""
        return self.samples.targets

    @property
    def tasks(self) -> Tensor:
        """The task each sample came from."""
        return self.samples.tasks

    @property
    def ids(self) -> Tensor:
        """The caller's id of each sample, −1 where none was given."""
        return self.samples.ids

    def require_shares(self) -> None:
        """For methods that choose what is kept."""
        if self.policy == "reservoir":
            raise ValueError(
                "memory: policy='reservoir' leaves nothing to choose; give one with a share per task"
            )

    def require_reservoir(self) -> None:
        """For methods to which every sample is alike."""
        if self.policy != "reservoir":
            raise ValueError(f"memory must have policy='reservoir', got {self.policy!r}")

    def counts(self) -> dict[int, int]:
        """How many samples of each task are kept."""
        if not len(self):
            return {}
        tasks, numbers = torch.unique(self.tasks, return_counts=True)
        return dict(zip(tasks.tolist(), numbers.tolist(), strict=True))

    def sample(self, count: int, generator: torch.Generator | None = None) -> Samples:
        """`count` samples drawn uniformly without replacement, by `replay_from`; fewer where the memory or its smallest task has fewer."""
        check_counts(count=count)
        return self.samples[self.draw(count, generator)]

    def draw(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        """The positions in `samples` of what `sample` would give."""
        if self.replay_from == "memory":
            return self.draw_from_all(count, generator)
        keys = torch.rand(len(self), generator=generator, device=self.targets.device)
        tasks = self.samples.tasks
        one = torch.randint(len(self), (1,), generator=generator, device=tasks.device)
        # as many whichever task it is: a captured step cannot change its shapes
        return keys.masked_fill(tasks != tasks[one], -1).topk(min(count, self._smallest_share)).indices

    def draw_from_all(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        """The same from the whole memory, whatever `replay_from` is."""
        return random_places(len(self), count, generator, self.targets.device)

    def add(self, samples: Samples, generator: torch.Generator | None = None) -> None:
        """Let samples pass by a reservoir."""
        _require_samples("add", samples)
        if self._reservoir is None:
            raise ValueError(
                f"add is for policy='reservoir', and this memory has policy={self.policy!r}: use store"
            )
        self._reservoir.add(samples, torch.arange(len(samples), device=samples.targets.device), generator)
        self._held = min(self._held + len(samples), self.capacity)

    def store(
        self,
        candidates: Samples,
        *,
        priority: Tensor | None = None,
        shrink_priority: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        """Keep a task's share of its candidates, and make room for it.

        Of the candidates, and of each older task that must shrink, those with the largest priority stay, class by class in turn;
        where none is given, random ones. `priority` is the candidates', `shrink_priority` that of all `samples` kept so far.
        """
        _require_samples("store", candidates)
        self._refuse_reservoir("store")
        if self._kept is not None:
            candidates.require_kind_of(self._kept)
        shares = self.places_by_task()
        quota = self._quota(candidates, len(shares) + 1)
        kept = self._kept
        if kept is not None and self.policy == "quota":
            kept = thinned(kept, shares, quota, self.balance, shrink_priority, generator)
        everything = [torch.arange(len(candidates))]
        chosen = thinned(candidates, everything, quota, self.balance, priority, generator)
        # a copy, whatever becomes of the candidates
        kept = Samples.join([chosen] if kept is None else [kept, chosen])
        if len(kept) > self.capacity:
            told = (
                ""
                if self.tasks_expected is None
                else f", made for tasks={self.tasks_expected}, and this is one more"
            )
            raise ValueError(
                f"the memory's capacity of {self.capacity} is too small: {len(kept)} samples are to be kept under "
                f"policy={self.policy!r}{told}"
            )
        self._keep(kept)

    def store_first(
        self,
        chosen: Tensor,
        candidates: Samples,
        generator: torch.Generator | None = None,
        *,
        shrink_priority: Tensor | None = None,
    ) -> None:
        """Like `store`, for methods that rank: the `chosen` of the candidates come first, in their order, −1 where one is missing.

        The others follow at random, for classes that were left out. Without a priority older tasks shrink from the back of their own order.
        """
        count, device = len(candidates), candidates.targets.device
        chance = torch.rand(count + 1, generator=generator, device=device)
        places = torch.arange(len(chosen) + 1, 1, -1, device=device, dtype=chance.dtype)
        keys = chance.scatter(0, torch.where(chosen >= 0, chosen, count), places)[:count]
        self.store(
            candidates[keys.argsort(descending=True)],
            priority=-torch.arange(count),
            shrink_priority=-torch.arange(len(self)) if shrink_priority is None else shrink_priority,
            generator=generator,
        )

    def replace(self, samples: Samples) -> None:
        """Set what is kept, for methods with a policy of their own."""
        _require_samples("replace", samples)
        self._refuse_reservoir("replace")
        if len(samples) > self.capacity:
            raise ValueError(f"{len(samples)} samples do not fit a memory of capacity {self.capacity}")
        self._keep(samples)

    def _refuse_reservoir(self, verb: str) -> None:
        if self._reservoir is not None:
            raise ValueError(f"{verb} is for the other policies: a reservoir takes samples by add")

    def _keep(self, samples: Samples) -> None:
        # laid out as a state is read back: the strides alone decide which of a convolution's kernels runs, even where one channel
        # makes channels-last strides pass for contiguous
        self._kept = samples.map(lambda column: column.reshape(-1).view(column.shape))
        if self.replay_from == "task" and len(samples):
            self._smallest_share = int(torch.unique(samples.tasks, return_counts=True)[1].min())

    def quota(self, candidates: Samples) -> int:
        """How many of a new task's candidates `store` would keep."""
        return self._quota(candidates, len(self.counts()) + 1)

    def shrinks_for(self, candidates: Samples) -> bool:
        """Whether `store` would take from what is kept to make room for these candidates' share."""
        largest = max(self.counts().values(), default=0)
        return self.policy == "quota" and largest > self.quota(candidates)

    def _quota(self, candidates: Samples, tasks: int) -> int:
        if self.policy == "per-class":
            return self._of_each_class * len(torch.unique(groups(candidates.targets, self.balance)))
        quota = self.capacity // (self.tasks_expected or tasks)
        if quota < 1:
            raise ValueError(
                f"a memory of capacity {self.capacity} has no room for {tasks} tasks: give a larger capacity"
            )
        return quota

    def places_by_task(self) -> list[Tensor]:
        """The positions in `samples` of each task's, task by task; on the processor."""
        if not len(self):
            return []
        tasks = self.tasks.cpu()
        return [(tasks == task).nonzero().squeeze(1) for task in torch.unique(tasks)]

    def state_dict(self) -> dict[str, Tensor]:
        """A flat dict of tensors that later calls leave alone, and that safetensors can write."""
        state = {
            "capacity": torch.tensor(self.capacity),
            "policy": torch.tensor(POLICIES.index(self.policy)),
            "passed": torch.tensor(self._held),
        }
        held, prefix = (
            (self._kept, "samples.") if self._reservoir is None else (self._reservoir, "reservoir.")
        )
        if held is not None:
            state |= prefixed(prefix, held.state_dict())
        return {name: value.clone() for name, value in state.items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take over a state of a memory with the same capacity and policy."""
        if missing := sorted({"capacity", "policy", "passed"} - set(state)):
            raise ValueError(f"the state is not a ReplayMemory's: it has no {' and no '.join(missing)}")
        if int(state["capacity"]) != self.capacity:
            raise ValueError(
                f"this memory has capacity {self.capacity}, and the state is of one with {int(state['capacity'])}"
            )
        if (saved := POLICIES[int(state["policy"])]) != self.policy:
            raise ValueError(
                f"this memory has policy={self.policy!r}, and the state is of one with {saved!r}"
            )
        self._held = int(state["passed"])
        if self._reservoir is not None:
            self._reservoir.load_state_dict(part_of(state, "reservoir."))
            return
        columns = part_of(state, "samples.")
        self._kept = None
        if columns:
            self._keep(Samples.from_state_dict(columns).map(Tensor.clone))


def _require_samples(verb: str, given: object) -> None:
    if not isinstance(given, Samples):
        raise TypeError(
            f"{verb} takes Samples, got {type(given).__name__}: give corestream.Samples.of(x, y, task=…)"
        )
