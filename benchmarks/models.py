"""What per-sample gradients cost for recurrent models and, where transformers is installed, for models of Hugging Face, made from a
configuration and without training.

    python benchmarks/models.py [--samples 8 32] [--rounds 5] [--words 48] [--recurrent | --step]

Of a layer with a forward pass of its own nothing is known, so that it takes one backward pass a sample.

A plain forward and backward pass and the gradients with their Gram matrix take turns; medians are shown, in one thread, and the ratio is
the median of those within a round. `--step` shows what whole steps of OCS take with a GRU: a batch of 32, a memory of 100, 8 picked.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

import corestream
from corestream.gradients import cross_entropy

try:
    import transformers as hf
except ImportError:
    hf = None

WORDS = 1000
SIZES = {"num_hidden_layers": 4, "num_attention_heads": 4, "hidden_size": 128, "intermediate_size": 512}
TEXT = {"vocab_size": WORDS, "max_position_embeddings": 128, "pad_token_id": 0, "num_labels": 3, **SIZES}


class OwnLSTM(nn.LSTM):
    def forward(self, *args: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        return super().forward(*args)


class OwnGRU(nn.GRU):
    def forward(self, *args: Tensor) -> tuple[Tensor, Tensor]:
        return super().forward(*args)


class Reader(nn.Module):
    """Reads the words one after the other."""

    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.words, self.cells, self.head = (
            nn.Embedding(WORDS, 64),
            kind(64, 128, batch_first=True),
            nn.Linear(128, 3),
        )

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.head(self.cells(self.words(input_ids))[0][:, -1])


def recurrent() -> Iterator[tuple[str, nn.Module]]:
    yield from ((kind.__name__, Reader(kind)) for kind in (nn.RNN, nn.GRU, nn.LSTM))
    yield "LSTM, own forward", Reader(OwnLSTM)


def hugging_face() -> Iterator[tuple[str, nn.Module]]:
    yield "BERT", hf.BertForSequenceClassification(hf.BertConfig(**TEXT))
    yield "RoBERTa", hf.RobertaForSequenceClassification(hf.RobertaConfig(**TEXT))
    yield "Llama", hf.LlamaForSequenceClassification(hf.LlamaConfig(**TEXT))
    yield "GPT-2", hf.GPT2ForSequenceClassification(hf.GPT2Config(**TEXT))
    pictures = hf.ViTConfig(image_size=32, patch_size=4, num_labels=3, **SIZES)
    yield "ViT", hf.ViTForImageClassification(pictures)


def batch_for(name: str, count: int, length: int = 48) -> tuple[dict[str, Tensor], Tensor]:
    if name == "ViT":
        inputs = {"pixel_values": torch.randn(count, 3, 32, 32)}
    else:
        words = torch.randint(1, WORDS, (count, length))
        inputs = {"input_ids": words, "attention_mask": torch.ones_like(words)}
    return inputs, torch.randint(3, (count,))


def seconds(step: Callable[[], object]) -> float:
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def measure(name: str, model: nn.Module, count: int, length: int, rounds: int) -> None:
    inputs, targets = batch_for(name, count, length)
    model.eval()

    def plain() -> None:
        cross_entropy(model(**inputs), targets).mean().backward()
        model.zero_grad()

    def gram() -> Tensor:
        return corestream.per_sample_gradients(model, None, (inputs, targets)).gram()

    for _ in range(4):  # what is looked at in the first batches alone
        plain()
        gram()
    times = [(seconds(plain), seconds(gram)) for _ in range(rounds)]
    one, other = (1000 * statistics.median(column) for column in zip(*times, strict=True))
    ratio = statistics.median(ours / theirs for theirs, ours in times)
    print(f"| {name} | {count} | {one:.0f} | {other:.0f} | {ratio:.2f} |", flush=True)


def step_of(kind: type[nn.RNNBase], length: int, **options: Any) -> Callable[[], object]:
    """Another step of OCS, whose memory is full."""
    model, memory = Reader(kind), corestream.ReplayMemory(100)
    memory.replace(corestream.Samples.of(*batch_for("", 100, length)))
    sgd = torch.optim.SGD(model.parameters(), lr=0.01)
    learner = corestream.OCS(model, sgd, memory, k=8, replay=8, warm_start=0, **options)
    return lambda: learner.observe(*batch_for("", 32, length))


def measure_steps(length: int, rounds: int) -> None:
    steps = {
        "GRU": step_of(nn.GRU, length),
        "GRU, own forward": step_of(OwnGRU, length),
        "GRU, own forward, by the head alone": step_of(OwnGRU, length, parameters=["head"]),
    }
    for _ in range(4):  # what is looked at in the first batches alone
        for step in steps.values():
            step()
    times = [[seconds(step) for step in steps.values()] for _ in range(rounds)]
    print("| model | a step, ms |\n|---|---|")
    for name, column in zip(steps, zip(*times, strict=True), strict=True):
        print(f"| {name} | {1000 * statistics.median(column):.0f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--samples", type=int, nargs="+", default=[8, 32])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--words", type=int, default=48, help="of a text; those of Hugging Face take at most 128"
    )
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--recurrent", action="store_true", help="these alone")
    only.add_argument("--step", action="store_true", help="steps of OCS alone")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if arguments.step:
        measure_steps(arguments.words, arguments.rounds)
    else:
        others = () if hf is None or arguments.recurrent else hugging_face()
        print("| model | samples | plain ms | gradients and Gram ms | ratio |\n|---|---|---|---|---|")
        for name, model in (*recurrent(), *others):
            for count in arguments.samples:
                measure(name, model, count, arguments.words, arguments.rounds)


if __name__ == "__main__":
    main()
