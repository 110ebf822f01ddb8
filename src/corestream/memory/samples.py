"""Samples with all that is known of them, as columns of tensors."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..gradients.calling import Inputs, join_inputs, leaves, map_inputs


@dataclass(frozen=True)
class Samples:
    """Inputs (a tensor, or a tuple or dict of tensors), targets, the task each came from, and the caller's id of each (−1 if none)."""

    inputs: Inputs
    targets: Tensor
    tasks: Tensor
    ids: Tensor

    @classmethod
    def of(
        cls, inputs: Inputs, targets: Tensor, task: int | Tensor = 0, ids: Tensor | None = None
    ) -> "Samples":
        """Samples of one task, or with the task of each."""
        shape, device = targets.shape[:1], targets.device
        tasks = task.to(device) if isinstance(task, Tensor) else torch.full(shape, task, device=device)
        known = torch.full(shape, -1, device=device) if ids is None else ids.to(device)
        samples = cls(inputs, targets, tasks, known)
        samples._require_one_length()
        return samples

    def __len__(self) -> int:
        return self.targets.shape[0]

    def map(self, function: Callable[[Tensor], Tensor]) -> "Samples":
        """A function applied to each tensor."""
        return Samples(
            map_inputs(function, self.inputs),
            function(self.targets),
            function(self.tasks),
            function(self.ids),
        )

    def __getitem__(self, index: slice | Tensor) -> "Samples":
        return self.map(lambda column: column[index])

    def columns(self) -> list[Tensor]:
        """All tensors, one row a sample each."""
        return [*leaves(self.inputs), self.targets, self.tasks, self.ids]

    @staticmethod
    def join(parts: Sequence["Samples"]) -> "Samples":
        """One after the other, in a copy."""
        return Samples(
            join_inputs([part.inputs for part in parts]),
            torch.cat([part.targets for part in parts]),
            torch.cat([part.tasks for part in parts]),
            torch.cat([part.ids for part in parts]),
        )

    def _require_one_length(self) -> None:
        lengths = {column.shape[0] if column.dim() else 0 for column in self.columns()}
        if len(lengths) > 1:
            raise ValueError(
                f"samples of which some columns have {min(lengths)} rows and others {max(lengths)}: "
                "each needs one row in all inputs, in targets, tasks and ids"
            )

    def require_kind_of(self, held: "Samples") -> None:
        """For samples that are to be kept beside others."""
        for column, other in zip(self.columns(), held.columns(), strict=True):
            if column.shape[1:] != other.shape[1:]:
                raise ValueError(
                    f"samples are kept side by side and must have one shape: {list(other.shape[1:])} before, "
                    f"{list(column.shape[1:])} now; pad them to one length"
                )
            if column.dtype != other.dtype:
                raise ValueError(
                    f"samples are kept side by side and must have one type: {other.dtype} before, {column.dtype} now; "
                    f"convert them, x.to({other.dtype})"
                )

    def state_dict(self) -> dict[str, Tensor]:
        """A flat dict: "targets", "tasks", "ids" and "inputs", or "inputs.at.0", "inputs.at.1", … or "inputs.key.0.name" and so on: the
        first of a dict's inputs stays the first, though files sort their names."""
        state = {"targets": self.targets, "tasks": self.tasks, "ids": self.ids}
        if isinstance(self.inputs, Tensor):
            return state | {"inputs": self.inputs}
        if isinstance(self.inputs, Mapping):
            named = enumerate(self.inputs.items())
            return state | {f"inputs.key.{place}.{name}": value for place, (name, value) in named}
        return state | {f"inputs.at.{place}": value for place, value in enumerate(self.inputs)}

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Tensor]) -> "Samples":
        """From what `state_dict` gives; the tensors are not copied."""
        inputs: Any
        if "inputs" in state:
            inputs = state["inputs"]
        elif keys := [name.split(".", 3) for name in state if name.startswith("inputs.key.")]:
            keys.sort(key=lambda parts: int(parts[2]))
            inputs = {parts[3]: state[".".join(parts)] for parts in keys}
        else:
            count = sum(name.startswith("inputs.at.") for name in state)
            if not count:
                raise KeyError("inputs")
            inputs = tuple(state[f"inputs.at.{i}"] for i in range(count))
        samples = cls(inputs, state["targets"], state["tasks"], state["ids"])
        samples._require_one_length()
        return samples
