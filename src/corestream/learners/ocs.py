"""OCS: online coreset selection (Algorithm 1, Eq. 6 to 9)."""

import warnings
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from ..counts import check_counts, check_not_negative, is_count
from ..fusing import fusible
from ..gradients import PerSampleGradients, is_batch_coupled
from ..gradients.calling import Inputs, LossFn, Parameters, join_batches, map_inputs
from ..gradients.capture import DEFAULT_MAX_BYTES, capture
from ..gradients.independence import Looks, Situation, look, situation
from ..gradients.restoring import in_mode
from ..memory import ReplayMemory, Samples
from ..selection.criteria import Criteria, gradient_criteria, joint_criteria
from ..selection.scores import Scores, check_weights, require_finite, top, weigh
from .base import weighted_mean
from .drawn import Drawn
from .joint_update import is_unused, update_rows
from .optimized import optimized, outside
from .picks import KeepsPicks
from .step import Step

KNOWN_SHARES = 64
PATIENCE = 1000  # batches in which a task should have ended, or the end of one was forgotten


class OCS(KeepsPicks):
    """Train on the k samples of each batch that best represent it, differ from each other and agree with the memory.

    `k` is κ, `tau` τ and `lam` λ of the paper. `reference` is what A compares with: the whole "memory", the "replay" batch, or a random
    draw of so many samples. `weights` scale S, V and A. The first `warm_start` batches of a task's first sweep are picked from at
    random. A random `candidates` of a sweep's picks may enter the memory; `fill` says which do: "random" ones, those of best "score"
    S + V, those that "herding" puts first, whose mean embedding stays closest to that of their class, or those from which the network's
    tangent kernel would best learn the others ("bilevel").
    `parameters` restricts what selection looks at, never what learns. `score_mode` is the model's mode while scoring.

    One forward and backward serve selection and update where samples do not depend on each other, no gradient has a hook and the loss has
    nothing to learn (`single_pass`: True, False or "auto"); now and then a batch has a few passes more, to see whether they do.
    `task_free=True` is for streams without task boundaries: picks join the
    memory at once, and once it is full the class with most samples gives one up: that of lowest S + V with `fill="score"`, otherwise
    any, so that what is left of a class is a uniform sample of all its picks.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        memory: ReplayMemory,
        *,
        loss_fn: LossFn | None = None,
        k: int = 10,
        tau: float = 1000.0,
        lam: float = 1.0,
        replay: int = 10,
        reference: str | int = "memory",
        weights: tuple[float, float, float] = (1.0, 1.0, 1.0),
        warm_start: int = 100,
        candidates: int = 1000,
        fill: str = "random",
        parameters: Parameters | None = None,
        score_mode: str | None = None,
        single_pass: bool | str = "auto",
        lr_decay: float = 1.0,
        task_free: bool = False,
        generator: torch.Generator | None = None,
        max_bytes: int = DEFAULT_MAX_BYTES,
    ) -> None:
        super().__init__(
            model,
            optimizer,
            memory,
            candidates=candidates,
            fill=fill,
            task_free=task_free,
            parameters=parameters,
            score_mode=score_mode,
            max_bytes=max_bytes,
            loss_fn=loss_fn,
            lr_decay=lr_decay,
            generator=generator,
        )
        check_counts(k=k, replay=replay)
        check_not_negative(lam=lam)
        if warm_start != 0 and not is_count(warm_start):
            raise ValueError(f"warm_start must be a whole number from 0 on, got {warm_start!r}")
        check_weights(tau, weights)
        if reference not in ("memory", "replay") and not is_count(reference):
            raise ValueError(
                f"reference must be 'memory', 'replay' or a number of at least 1, got {reference!r}"
            )
        if single_pass not in (True, False, "auto"):
            raise ValueError(f"single_pass must be True, False or 'auto', got {single_pass!r}")
        self.k, self.tau, self.lam, self.replay, self.reference = k, tau, lam, replay, reference
        self.weights, self.single_pass = weights, single_pass
        self._known_shares: dict[tuple[int, int, torch.dtype, float], Tensor] = {}
        self._looks = Looks()  # for samples that depend on each other
        self._situation: Situation | None = None  # loss and modes at the last of them
        self._apart = False  # whether selection and update go apart, for much that selection need not look at has no rule
        self._warm = torch.full((), warm_start, device=self.device)
        self._steps = torch.zeros((), dtype=torch.long, device=self.device)  # by which a warm start ends
        self._batches = 0  # before the first sweep that was told of, or the first end of a task

    @property
    def warm_start(self) -> int:
        return int(self._warm)

    @warm_start.setter
    def warm_start(self, batches: int) -> None:
        self._warm.fill_(batches)

    # One step

    def _learn(self, inputs: Inputs, targets: Tensor, ids: Tensor | None) -> Step:
        self._check_fill(inputs, targets)
        step, remembered = self._take_step(inputs, targets, self._draw())
        self._remember(inputs, targets, ids, remembered)
        self._steps += 1
        self._batches += 1
        if self._batches == PATIENCE and not self.task_free and not len(self.memory):
            self._warn_where_no_task_ends()
        return step

    def _take_step(self, inputs: Inputs, targets: Tensor, drawn: Drawn) -> tuple[Step, Tensor]:
        """Pick and update; returns with the step the positions of the memory's candidates, −1 for none."""
        step = None
        if self._in_one_pass():
            step = self._learn_in_one_pass(inputs, targets, drawn)
        if step is None:
            step = self._learn_in_two_passes(inputs, targets, drawn)
        assert step.picked is not None
        return step, step.picked

    def _in_one_pass(self) -> bool:
        coupled = self._coupled or is_batch_coupled(self.model)
        other_mode = self.score_mode is not None and any(
            module.training != (self.score_mode == "train") for module in self.model.modules()
        )
        needs_two = coupled or other_mode or self._does_more()
        if needs_two:
            self._refuse_single_pass()
        return not needs_two and (
            self.single_pass is True or (self.single_pass == "auto" and not self._apart)
        )

    def _refuse_single_pass(self) -> None:
        """An error where one pass was asked for, and two are needed."""
        if self.single_pass is True:
            raise ValueError(
                "single_pass=True: samples depend on each other or change the model's buffers, score_mode is not the mode the model trains "
                "in, or the update has hooks, sparse gradients or parameters beside the model's, so that the gradients of selection are "
                "not those of the update; give single_pass='auto' or False"
            )

    def _does_more(self) -> bool:
        """Whether an ordinary backward pass does more than give the model's parameters their gradients: it calls hooks, reaches what the
        loss has to learn, or gives sparse ones, which some optimisers need."""
        own = {id(p) for p in (*self.parameters.values(), *self._gone)}
        learning = (p for p in optimized(self.optimizer) if p.requires_grad)
        hooked = any(id(p) not in own or p._backward_hooks or p._post_accumulate_grad_hooks for p in learning)
        return hooked or any(
            isinstance(module, nn.Embedding | nn.EmbeddingBag)
            and module.sparse
            and module.weight.requires_grad
            for module in self.model.modules()
        )

    def _draw(self) -> Drawn:
        if not len(self.memory):
            return Drawn()
        positions, kept = self.memory.draw(self.replay, self.generator), self.memory.samples
        if self.reference == "memory":
            return Drawn(kept, positions)
        if self.reference == "replay":
            return Drawn(kept[positions], torch.arange(len(positions), device=positions.device))
        compared = self.memory.draw_from_all(int(self.reference), self.generator)
        return Drawn(kept[compared], kept[positions])

    def _learn_in_one_pass(self, inputs: Inputs, targets: Tensor, drawn: Drawn) -> Step | None:
        """None where it shows that samples depend on each other: the reference would have a part in the batch's gradients, and what is
        not picked in the model's own statistics."""
        count, (reference, replayed) = len(targets), drawn
        others = [part for part in drawn if isinstance(part, Samples)]
        x, y = join_batches([(inputs, targets), *((part.inputs, part.targets) for part in others)])
        self._coupled = not self._stand_alone(x, y)
        if not self._coupled:
            try:
                grads = capture(self.model, self.loss_fn, x, y, self.parameters, self.max_bytes)
            except MemoryError:  # of rows that selection need not look at
                if self.selected is None or self.single_pass is True:
                    raise
                self._apart = True
                return None
            self._coupled = grads.coupled
        if self._coupled:
            self._refuse_single_pass()
            return None
        if grads.unused == self.parameters.keys():
            raise ValueError("the losses depend on no parameter of the model that learns")
        self._apart = self.selected is not None and not grads.general <= self._wanted.keys()
        scored = grads if self.selected is None else grads.only(list(self._wanted))
        behind = count + (0 if reference is None else len(reference))
        criteria = joint_criteria(scored if behind == len(y) else scored[:behind], count)
        if scored is not grads and not grads.all_finite:
            # the update has the other parameters' gradients too
            criteria = criteria._replace(finite=grads.finite[:count])
        scores, picked = self._pick(criteria, inputs, grads)
        if isinstance(replayed, Tensor):
            again = count + replayed
        else:
            again = torch.arange(behind, len(y), device=y.device)
        shares = self._shares(len(picked), len(again), grads.losses.dtype)
        if grads.all_finite:
            rows, weights = torch.cat([picked, again]), shares
        else:
            rows, weights = update_rows(picked, again, grads.finite, shares)
        gradients = grads.combine(weights, rows)
        self._step({name: None if is_unused(name, g, grads, rows) else g for name, g in gradients.items()})
        losses = grads.losses
        return Step(self, lambda: losses[rows] @ weights, picked, scores)

    def _stand_alone(self, inputs: Inputs, targets: Tensor) -> bool:
        """Whether samples are independent. It is looked at now and then, beginning anew with each task and where the loss or a layer's
        mode changes; between the looks the answer is yes."""
        now = situation(self.model, self.loss_fn)
        if self._situation is not None and now != self._situation:
            self._looks = Looks()
        self._situation = now
        return not self._looks.is_due(targets, self.device) or look(self.model, self.loss_fn, inputs, targets)

    def _shares(self, picks: int, replays: int, dtype: torch.dtype) -> Tensor:
        """One over all picks, and λ over all replayed samples; made once for each pair of numbers."""
        key = picks, replays, dtype, self.lam
        if len(self._known_shares) > KNOWN_SHARES:  # λ may be another one at every step
            self._known_shares.clear()
        if key not in self._known_shares:
            shares = [1 / picks] * picks + [self.lam / max(1, replays)] * replays
            self._known_shares[key] = torch.tensor(shares, dtype=dtype, device=self.device)
        return self._known_shares[key]

    def _learn_in_two_passes(self, inputs: Inputs, targets: Tensor, drawn: Drawn) -> Step:
        """Score first; then an ordinary forward and backward over the picked and over the replay batch, each with its own statistics."""
        with in_mode(self.model, self.score_mode):
            grads = self._gradients(inputs, targets, self._wanted)
            old = drawn.reference
            others = None if old is None else self._gradients(old.inputs, old.targets, self._wanted)
        scores, picked = self._pick(gradient_criteria(grads, others), inputs, grads)
        del grads, others
        return Step(self, self._train_on(picked, inputs, targets, drawn.replay_batch), picked, scores)

    def _train_on(self, picked: Tensor, inputs: Inputs, targets: Tensor, again: Samples | None) -> Tensor:
        """One step down the mean loss of the picked + λ · that of the replay batch (Eq. 9)."""
        # the best sample stands in, with no weight, for those that are missing
        rows = picked.where(picked >= 0, picked[0])
        losses = self._losses(map_inputs(lambda column: column[rows], inputs), targets[rows])
        loss = weighted_mean(losses, picked >= 0)
        if again is not None:
            loss = loss + self.lam * self._losses(again.inputs, again.targets).mean()
        self._spoil(~loss.detach().isfinite())
        self._descend(loss, finite=self.selected is not None)  # what selection does not look at may not be
        return loss

    def _pick(self, criteria: Criteria, inputs: Inputs, grads: PerSampleGradients) -> tuple[Scores, Tensor]:
        """The k best samples, or k at random while the task is new."""
        scores = weigh(criteria, self.tau, self.weights)
        total, finite = scores.total, criteria.finite
        if not total.is_cuda:
            require_finite(total, inputs, grads)
            if int(self._steps) >= int(self._warm):
                return scores, top(total, self.k, all_finite=finite is None)
        chance = torch.rand(total.shape, generator=self.generator, device=self.device, dtype=total.dtype)
        return scores, self._first(total, finite, chance)

    def _first(self, total: Tensor, finite: Tensor | None, chance: Tensor) -> Tensor:
        """The k best samples, or those of the greatest `chance` while the task is new, without a look at a card."""
        return _first(total, finite, chance, self._steps, self._warm, self._spoiled, self.k)

    # The life of a task

    def start_sweep(self) -> None:
        """Candidates for the memory are the picks from here on. A warm start ends with a task's first sweep."""
        super().start_sweep()
        self._batches = PATIENCE  # who knows of sweeps knows of tasks
        # without a look at a card
        self._steps.copy_(torch.where(self._steps > 0, self._steps.maximum(self._warm), 0))

    def _finish_task(self, data: Iterable[Any] | None) -> None:
        self._warn_where_all_was_random()
        super()._finish_task(data)
        self._batches = PATIENCE
        self._steps.zero_()
        # the next step has other samples in the memory, and on a card it may wait
        self._looks, self._coupled = Looks(), False

    def _warn_where_all_was_random(self) -> None:
        steps, warm = int(self._steps), int(self._warm)
        if 0 < steps <= warm:
            warnings.warn(
                f"all {steps} batches of this task were picked from at random, for warm_start={warm}: give a smaller one, or call "
                "start_sweep() before each sweep over the task, which ends it",
                stacklevel=outside(),
            )

    @staticmethod
    def _warn_where_no_task_ends() -> None:
        warnings.warn(
            f"no task has ended in {PATIENCE} batches: nothing is remembered, there is nothing to compare with, and what is picked may be "
            "worse than chance. Call end_task() when a task ends, or give task_free=True for a stream without tasks",
            stacklevel=outside(),
        )

    def __getstate__(self) -> dict[str, Any]:
        """For pickle, which cannot write the code of a loss."""
        return {**self.__dict__, "_situation": None}

    def _state(self) -> dict[str, Tensor]:
        seen = {
            "coupled": torch.tensor(self._coupled),
            "apart": torch.tensor(self._apart),
            "asked": torch.tensor(self._looks.asked),
            "classes": torch.tensor(sorted(self._looks.classes), dtype=torch.long),
        }
        return {"steps": self._steps, **seen, **super()._state()}

    def _load_state(self, state: dict[str, Tensor]) -> None:
        super()._load_state(state)
        self._steps.copy_(state["steps"])
        self._coupled, self._apart, self._situation = bool(state["coupled"]), bool(state["apart"]), None
        self._looks = Looks(int(state["asked"]), state["classes"].tolist())
        self._batches = PATIENCE  # it is not in the state


@fusible
def _first(
    total: Tensor, finite: Tensor | None, chance: Tensor, steps: Tensor, warm: Tensor, spoiled: Tensor, k: int
) -> Tensor:
    """The k first, ranked by chance alone while the task is new; nothing to pick from spoils the learner."""
    if finite is not None:
        spoiled.logical_or_(~finite.any())
        chance = chance.masked_fill(~finite, -torch.inf)
    return top(torch.where(steps < warm, chance, total), k)
