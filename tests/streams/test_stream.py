import gc
import weakref

import pytest
import torch

from corestream.errors import ConfigError
from corestream.streams import BENCHMARKS, Stream, benchmark, names


@pytest.fixture
def stream() -> Stream:
    return benchmark("rotated-digits")


def test_rotated_digits_needs_no_file_and_no_network(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("CORESTREAM_DATA", str(tmp_path / "nothing"))
    stream = benchmark("rotated-digits", offline=True)
    assert (len(stream), stream.num_tasks, stream.num_classes, stream.batch_size) == (10, 10, 10, 50)
    assert stream.input_shape == (1, 16, 16)
    assert stream.scenario == "domain"
    assert stream.describe()["train"] == [1297] * 10
    assert stream.describe()["test"] == [500] * 10


def test_a_stream_is_a_sequence_of_fresh_tasks(stream: Stream) -> None:
    assert [task.index for task in stream] == list(range(10))
    assert stream[-1].index == 9
    assert stream[3].train is not stream[3].train
    with pytest.raises(IndexError):
        stream[10]


def test_a_stream_can_be_cut_at_its_end(stream: Stream) -> None:
    cut = stream[:3]
    assert isinstance(cut, Stream)
    assert [task.index for task in cut] == [0, 1, 2]
    assert torch.equal(cut[2].train.tensors()[0], stream[2].train.tensors()[0])
    assert len(benchmark("rotated-digits", tasks=4)) == 4
    with pytest.raises(ValueError, match="cut at its end"):
        stream[3:]


def test_nothing_of_a_task_stays_when_it_is_let_go(stream: Stream) -> None:
    task = stream[0]
    next(iter(task.train))
    pixels = weakref.ref(task.train._half._pixels[0])
    del task
    gc.collect()
    assert pixels() is None


def test_the_joint_stream_holds_every_sample_of_every_task(stream: Stream) -> None:
    joint = stream[:3].joint()
    assert len(joint) == 1
    x, y = joint[0].train.tensors()
    assert len(x) == 3 * 1297
    assert torch.equal(x[1297 : 2 * 1297], stream[1].train.tensors()[0])
    assert torch.equal(y[:1297], stream[0].train.tensors()[1])
    assert len({len(batch[1]) for batch in joint[0].train}) == 1


def test_the_joint_stream_keeps_noise_and_its_record() -> None:
    noisy = benchmark("rotated-digits", noise=0.5, label_noise=0.1, tasks=2)
    joint = noisy.joint()[0].train
    assert torch.equal(joint.is_noise, torch.cat([task.train.is_noise for task in noisy]))
    assert torch.equal(joint.tensors()[0], torch.cat([task.train.tensors()[0] for task in noisy]))
    assert torch.equal(joint.targets, torch.cat([task.train.targets for task in noisy]))


def test_moving_to_the_same_device_changes_nothing(stream: Stream) -> None:
    assert torch.equal(stream.to("cpu")[1].train.tensors()[0], stream[1].train.tensors()[0])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_stream_on_the_device_is_the_stream_on_the_cpu(stream: Stream) -> None:
    there = stream.to("cuda")[4].train
    x, y = next(iter(there))
    assert x.device.type == y.device.type == "cuda"
    torch.testing.assert_close(there.tensors()[0].cpu(), stream[4].train.tensors()[0])


def test_the_card_counts_by_class() -> None:
    card = benchmark("rotated-digits", imbalanced=True, noise=0.4, tasks=2).describe()
    assert (card["tasks"], card["classes"], card["outputs"]) == (2, 10, 10)
    assert sum(card["train_per_class"][0].values()) == card["train"][0]
    assert card["noise_samples"][1] == round(0.4 * card["train"][1])
    assert card["settings"] == {
        "imbalanced": True,
        "noise": 0.4,
        "label_noise": 0.0,
        "angles": "steps",
        "full_classes": "random",
    }


def test_every_name_of_the_paper_is_there() -> None:
    assert names() == list(BENCHMARKS)
    assert set(names()) == {
        "rotated-digits",
        "rotated-mnist",
        "permuted-mnist",
        "split-cifar100",
        "multi-datasets",
        "split-tinyimagenet",
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "rotated-mnits"}, "did you mean 'rotated-mnist'"),
        ({"name": "zzz"}, "known are rotated-digits"),
        ({"name": "zzz"}, "or one of your own, once its file is imported, which CORESTREAM_IMPORT names"),
        ({"noise": 1.5}, "noise=1.5"),
        ({"noise": float("nan")}, "noise=nan"),
        ({"label_noise": -0.1}, "label_noise=-0.1"),
        ({"label_noise": True}, "label_noise=True"),
        ({"tasks": 0}, "tasks=0"),
        ({"tasks": 11}, "has 10 tasks"),
        ({"seed": 1.5}, "seed=1.5"),
        ({"scenario": "task"}, "rotated-digits has domain"),
        ({"angles": "up"}, "expected one of steps, random"),
        ({"turns": 3}, "no option 'turns'; its own are angles, full_classes"),
    ],
)
def test_a_wrong_argument_is_named_with_what_is_allowed(arguments: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        benchmark(**{"name": "rotated-digits", **arguments})
