"""Stable SGD (Mirzadeh et al. 2020): what the training regime alone does against forgetting."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from ..counts import check_not_negative
from .finetune import Finetune


class StableSGD(Finetune):
    """Finetune of a network with dropout, whose learning rate begins large and decays with each task, but not below `lr_floor`."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        lr_floor: float = 5e-5,
        **shared: Any,
    ) -> None:
        super().__init__(model, optimizer, **shared)
        check_not_negative(lr_floor=lr_floor)
        self.lr_floor = lr_floor

    def end_task(self, data: Iterable[Any] | None = None) -> None:
        before = [group["lr"] for group in self.optimizer.param_groups]
        super().end_task(data)
        for group, rate in zip(self.optimizer.param_groups, before, strict=True):
            group["lr"] = min(rate, max(group["lr"], self.lr_floor))  # one that was below the floor stays
