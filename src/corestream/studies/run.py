"""One run: a learner walks a stream. Small verbs, so that a driver can lead one run or several at once."""

from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from corestream import learners, models, streams
from corestream.errors import ConfigError, DataError
from corestream.gradients import is_batch_coupled
from corestream.gradients.restoring import in_mode
from corestream.learners import Learner
from corestream.states import part_of, prefixed
from corestream.streams import Batches, Stream
from corestream.streams.folder import PREFIX as FOLDER
from corestream.studies import checkpoint, randomness
from corestream.studies.config import RunConfig, pictures_of, run_settings
from corestream.studies.files import sha256
from corestream.studies.finite import FiniteWatch
from corestream.studies.ledger import Ledger
from corestream.studies.metrics import Evaluation, evaluate
from corestream.studies.position import Batch, Position
from corestream.studies.records import Records

TESTED_AT_ONCE = 10_000  # samples, on a card, where they do not depend on each other


class Run:
    """`step` trains on one batch and closes a task after its last one; `save` and `restore` hold everything.

    A task is closed in parts, so that who leads several runs can turn to others while a card is at work for this one.

    `training` is the stream learned from, `stream` the one evaluated on: they differ only for joint training.
    """

    def __init__(
        self,
        config: RunConfig,
        folder: Path,
        stream: Stream,
        training: Stream,
        learner: Learner,
        settings: Any,
    ) -> None:
        self.config, self.folder = config, folder
        self.stream, self.training, self.learner, self.settings = stream, training, learner, settings
        self.position = Position()
        self.ledger = Ledger(stream, training)
        self.records = Records(folder, config.record)
        self.watch = FiniteWatch(config.device)
        self.evaluator: Callable[[nn.Module, int, Batches, int], Evaluation] = _evaluate
        self._train: Batches | None = None
        self._batches: Iterator[tuple[Tensor, ...]] | None = None
        self._order: Tensor | None = None
        self._closing: Iterator[None] | None = None

    @property
    def finished(self) -> bool:
        return self.position.task == len(self.training)

    @property
    def share_done(self) -> float:
        """Of the whole run, from 0 to 1."""
        of_sweep = 0.0 if self._train is None else self.position.batch / len(self._train)
        inside = (self.position.sweep + of_sweep) / int(self.settings.sweeps)
        return (self.position.task + inside) / len(self.training)

    def step(self) -> bool:
        """Train on the next batch; True where that closed a task."""
        batch = self.next_batch()
        self.observe(batch)
        if not self.advance():
            return False
        while not self.close_task():
            pass
        return True

    def next_batch(self) -> Batch:
        if self._batches is None:
            self.open_sweep()
        assert self._batches is not None
        x, y, *task, index = next(self._batches)
        return Batch(x, y, task[0] if task else None, index)

    def observe(self, batch: Batch) -> None:
        if self._train is None or not self._train.always_finite:
            self.watch.check_inputs(batch, self.position)
        with self.watch.naming(self.learner, batch, self.position):
            done = self.learner.observe(batch.x, batch.y, batch.task, ids=batch.index)
            self.watch.check_loss(done)
        self.ledger.count(batch.index, done.picked)
        if self.config.record:
            picked = batch.index if done.picked is None else _places(batch.index, done.picked)
            self.records.add(picked, done.scores, len(batch.y))

    @property
    def sweep_is_open(self) -> bool:
        return self._batches is not None

    def advance(self) -> bool:
        """Move on to the next batch or sweep; True where none is left and the task is to be closed."""
        assert self._train is not None
        self.position.step += 1
        self.position.batch += 1
        if self.position.batch < len(self._train):
            return False
        self.position.batch, self._batches = 0, None
        self.position.sweep += 1
        return self.position.sweep >= int(self.settings.sweeps)

    def check(self) -> None:
        """Look at what a device has gathered since the last look: values not finite, wrong targets."""
        with self.watch.naming(self.learner, None, self.position):
            if self._train is not None:
                self.watch.look_at_inputs(self._train, self.position)  # they may be the reason for the rest
            self.learner.check()
            self.watch.look_at_parameters(self.learner.model)
            self.watch.verified(self.position)

    def save(self) -> None:
        """Write everything the run needs to go on from here, bit for bit."""
        tensors, random_facts = randomness.capture(self.config.device)
        tensors |= prefixed("learner.", self.learner.state_dict())
        tensors |= self.ledger.tensors()
        facts = {
            "position": asdict(self.position),
            "random": random_facts,
            "ledger": self.ledger.facts(),
            "records": self.records.flush(),
            "record_checksums": self.records.checksums(),
            "labels": self.labels,
        }
        checkpoint.save(self.folder / "checkpoint", self.config.digest(), tensors, facts)

    def restore(self) -> checkpoint.Checkpoint | None:
        """Go on where the last whole checkpoint was written; None where there is none."""
        saved = checkpoint.load(self.folder / "checkpoint", self.config.digest(), self._check_facts)
        if saved is None:
            self.records.cut({})
            return None
        if saved.facts["labels"] != self.labels:
            raise DataError(
                f"the run in {self.folder} was begun with other data files than {self.config.benchmark} has now; "
                "put them back (--data-dir), or give another --out"
            )
        self.learner.load_state_dict(part_of(saved.tensors, "learner."))
        self.position = Position(**saved.facts["position"])
        self.ledger.restore(saved.tensors, saved.facts["ledger"])
        self.records.cut(saved.facts["records"])
        self.watch.verified(self.position)
        randomness.restore(self.config.device, saved.tensors, saved.facts["random"])
        return saved

    def _check_facts(self, facts: dict[str, Any]) -> None:
        """A ValueError where a checkpoint's facts are not a run's, or its records are not those beside it."""
        if missing := sorted({"position", "random", "ledger", "records", "labels"} - set(facts)):
            raise ValueError(f"says nothing of {', '.join(missing)}")
        self.records.check(facts["records"], facts.get("record_checksums", {}))

    @cached_property
    def labels(self) -> str:
        """A checksum of all tasks' labels: other files, a sample of them say, have others, and other machines the same."""
        halves = (half.labels for task in self.stream for half in (task.train, task.test))
        return sha256(b"".join(labels.long().numpy().tobytes() for labels in halves))

    @property
    def batch_size(self) -> int:
        return int(self.settings.batch_size)

    @property
    def order(self) -> Tensor:
        """The places of the training samples in the order of the open sweep."""
        assert self._train is not None
        if self._order is None:
            self._order = self._train.order(self.position.sweep)
        return self._order

    @property
    def whole_batches_left(self) -> int:
        """Full batches that the open sweep has left, without a shorter last one."""
        assert self._train is not None
        return self._train.num_samples // self.batch_size - self.position.batch

    @property
    def next_size(self) -> int:
        """How many samples the next batch of the open sweep has."""
        assert self._train is not None
        return min(self.batch_size, self._train.num_samples - self.position.batch * self.batch_size)

    @property
    def steps_of_task(self) -> int:
        """How many batches the open task has in all its sweeps."""
        assert self._train is not None
        return len(self._train) * int(self.settings.sweeps)

    @property
    def closes_next(self) -> bool:
        """Whether the next batch is a task's last."""
        if self._train is None or self.is_closing or self.position.sweep + 1 < self.settings.sweeps:
            return False
        return self.position.batch + 1 == len(self._train)

    def skip(self, batches: int) -> None:
        """That many batches have been observed by other means; the sweep has more."""
        self.position.step += batches
        self.position.batch += batches

    def batch_at(self, places: Tensor) -> Batch:
        """The batch of these training samples."""
        assert self._train is not None
        x, y, *task, index = self._train.at(places)
        return Batch(x, y, task[0] if task else None, index)

    def open_sweep(self) -> None:
        """The batches from the position on; a resumed sweep is not started a second time."""
        if self._train is None:
            train = self.training[self.position.task].train
            self._train = train.with_batch_size(self.settings.batch_size).with_indices()
            self.ledger.open_task(self._train)
        if self.position.batch == 0:
            self.learner.start_sweep()
        self._batches, self._order = self._train.batches(self.position.sweep, self.position.batch), None

    @property
    def is_closing(self) -> bool:
        """Whether a task has been closed in part."""
        return self._closing is not None

    def close_task(self) -> bool:
        """The next part of what follows a task's last step; True where it was the last. A card may be still at work on the others."""
        if self._closing is None:
            self._closing = self._close_task()
        parts, self._closing = self._closing, None  # an error is the end of them
        for _ in parts:
            self._closing = parts
            return False
        return True

    def _close_task(self) -> Iterator[None]:
        """What the learner does at the end, the tests, and a note of what they found."""
        assert self._train is not None
        self.check()
        data = self.training[self.position.task].train.with_batch_size(self.settings.batch_size)
        data.epoch = self.settings.sweeps  # one more look comes after the sweeps, in an order of its own
        with self.watch.naming(self.learner, None, self.position):
            self.learner.conclude()
            yield
            self.learner.end_task(data)
        seen = len(self.stream) if len(self.training) < len(self.stream) else self.position.task + 1
        tested = self.evaluate(seen)
        yield
        correct, total = tested.cpu()
        self.ledger.close_task(correct, total, self._train, self.learner.memory)
        self._train.release()
        self.position.task += 1
        self.position.sweep, self._train = 0, None
        self.watch.verified(self.position)

    def evaluate(self, tasks: int) -> Tensor:
        """For each of the first `tasks` tasks, how many test samples of each class are right, and in all: [2, tasks, classes]."""
        model, found = self.learner.model, []
        size = int(self.settings.test_batch_size)
        with in_mode(model, "eval"):
            if self.config.device == "cuda" and not is_batch_coupled(model):
                size = max(size, TESTED_AT_ONCE)
        for number in range(tasks):
            test = self.stream[number].test.with_batch_size(size)
            evaluation = self.evaluator(model, number, test, self.stream.num_classes)
            found.append(torch.stack([evaluation.correct, evaluation.total]))
        return torch.stack(found, dim=1)


def _evaluate(model: nn.Module, number: int, test: Batches, classes: int) -> Evaluation:
    return evaluate(model, test, classes)


def make_run(config: RunConfig, folder: Path, *, data_dir: Path | None = None, offline: bool = False) -> Run:
    """The stream, the network and the learner that a configuration describes, before the first step."""
    randomness.seed_all(config.seed)
    stream = make_stream(config, data_dir=data_dir, offline=offline).to(config.device)
    settings = run_settings(config)
    training = stream.joint() if config.method == "multitask" else stream
    _check_batches(training, int(settings.batch_size))
    learner = _build_learner(config, settings, stream, training)
    return Run(config, folder, stream, training, learner, settings)


def _check_batches(training: Stream, batch_size: int) -> None:
    """Each task must have a batch; to count samples needs no picture."""
    if not training.drop_last:
        return
    for task in training:
        if task.train.num_samples < batch_size:
            raise ConfigError(
                f"batch_size is {batch_size}; task {task.index + 1} has only {task.train.num_samples:,} training samples, "
                "and incomplete batches are dropped"
            )


def _build_learner(config: RunConfig, settings: Any, stream: Stream, training: Stream) -> Learner:
    """A value that the network or the learner does not take came from the settings."""
    try:
        model = models.for_stream(stream, settings, seed=config.seed).to(config.device)
        return learners.build(
            config.method, model, settings, stream=training, seed=config.seed, device=config.device
        )
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(f"method {config.method!r} cannot be built: {error}") from error


def make_stream(config: RunConfig, *, data_dir: Path | None = None, offline: bool = False) -> Stream:
    """The stream of a configuration: a benchmark, or pictures in a folder of the user's, which must not have changed since."""
    pictures = config.fingerprint.partition("+")[0] if config.benchmark.startswith(FOLDER) else ""
    if pictures and pictures != pictures_of(config.benchmark):
        raise DataError(
            f"{config.benchmark} no longer holds the pictures that this run is made with; put them back, "
            "or start the command anew for a run with those that are there now"
        )
    return streams.benchmark(
        config.benchmark,
        seed=config.seed,
        imbalanced=config.imbalanced,
        noise=config.noise,
        label_noise=config.label_noise,
        scenario=config.scenario,
        tasks=config.tasks,
        data_dir=data_dir,
        offline=offline,
        **config.options,
    )


def _places(index: Tensor, picked: Tensor) -> Tensor:
    """The picked samples' places in the training set; −1, which stands for none, stays −1."""
    return torch.where(picked >= 0, index[picked.clamp(min=0)], -1)
