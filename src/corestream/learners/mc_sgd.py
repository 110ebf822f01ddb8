"""MC-SGD: mode connectivity SGD (Mirzadeh et al. 2021), with a random memory and with OCS."""

from collections.abc import Iterable
from typing import Any

from torch import Tensor

from ..counts import check_counts, check_positive
from ..memory import ReplayMemory, Reservoir, Samples
from ..states import prefixed
from .base import Learner
from .mode_connectivity import connect
from .ocs import OCS
from .optimized import optimized
from .uniform import RandomMemory


class Connected(Learner):
    """What both have in common: each task is learned from the last solution w̄, and its end ŵ is then replaced by a
    solution with low replay loss on the straight paths from w̄ and from ŵ."""

    follows_model = False  # a path leads from parameters to the same ones
    memory: ReplayMemory
    candidates: Reservoir
    replay: int

    def __init__(
        self,
        *args: Any,
        path_steps: int = 200,
        path_points: int = 5,
        path_lr: float = 0.01,
        **shared: Any,
    ) -> None:
        super().__init__(*args, **shared)
        if getattr(self, "task_free", False):
            raise ValueError("task_free=True: MC-SGD's paths are found when a task ends; give OCS itself")
        check_counts(path_steps=path_steps, path_points=path_points)
        check_positive(path_lr=path_lr)
        self.path_steps, self.path_points, self.path_lr = path_steps, path_points, path_lr
        self._solution = {name: p.detach().clone() for name, p in self.parameters.items()}

    def _conclude(self) -> None:
        candidates, learning = self.candidates.kept(), self._learning()
        if self.task == 0 or candidates is None or not len(self.memory) or not learning:
            return
        connect(
            self.model,
            self.loss_fn,
            learning,
            {name: self._solution[name] for name in learning},
            self.memory.samples,
            candidates,
            steps=self.path_steps,
            points=self.path_points,
            lr=self.path_lr,
            batch=self.replay,
            generator=self.generator,
        )

    def _learning(self) -> dict[str, Tensor]:
        """What a path may move: a parameter that is frozen, or that the optimiser does not have, stays where it is."""
        held = set(map(id, optimized(self.optimizer)))
        return {name: p for name, p in self.parameters.items() if p.requires_grad and id(p) in held}

    def _finish_task(self, data: Iterable[Any] | None) -> None:
        for name, parameter in self.parameters.items():
            self._solution[name].copy_(parameter.detach())
        super()._finish_task(data)

    def _state(self) -> dict[str, Tensor]:
        return super()._state() | prefixed("solution.", self._solution)

    def _load_state(self, state: dict[str, Tensor]) -> None:
        super()._load_state(state)
        for name, value in self._solution.items():
            value.copy_(state[f"solution.{name}"])


class MCSGD(Connected, RandomMemory):
    """Plain SGD on each task, a random memory, and the paths."""

    def _replayed(self, samples: Samples) -> Samples | None:
        return None


class MCSGDOCS(Connected, OCS):
    """OCS chooses what is trained on and remembered; the paths are the same."""
