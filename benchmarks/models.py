"""What per-sample gradients cost for models of Hugging Face, made from a configuration and without training.

    pip install transformers
    python benchmarks/models.py [--samples 8 32] [--rounds 5]

A plain forward and backward pass and the gradients with their Gram matrix take turns; medians are shown, in one thread, and the ratio is
the median of those within a round.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator

import torch
import transformers as hf
from torch import Tensor, nn

import corestream

LENGTH, WORDS = 48, 1000
SIZES = {"num_hidden_layers": 4, "num_attention_heads": 4, "hidden_size": 128, "intermediate_size": 512}
TEXT = {"vocab_size": WORDS, "max_position_embeddings": 128, "pad_token_id": 0, "num_labels": 3, **SIZES}


def models() -> Iterator[tuple[str, nn.Module]]:
    yield "BERT", hf.BertForSequenceClassification(hf.BertConfig(**TEXT))
    yield "RoBERTa", hf.RobertaForSequenceClassification(hf.RobertaConfig(**TEXT))
    yield "Llama", hf.LlamaForSequenceClassification(hf.LlamaConfig(**TEXT))
    yield "GPT-2", hf.GPT2ForSequenceClassification(hf.GPT2Config(**TEXT))
    yield (
        "ViT",
        hf.ViTForImageClassification(hf.ViTConfig(image_size=32, patch_size=4, num_labels=3, **SIZES)),
    )


def batch_for(name: str, count: int) -> tuple[dict[str, Tensor], Tensor]:
    if name == "ViT":
        inputs = {"pixel_values": torch.randn(count, 3, 32, 32)}
    else:
        words = torch.randint(1, WORDS, (count, LENGTH))
        inputs = {"input_ids": words, "attention_mask": torch.ones_like(words)}
    return inputs, torch.randint(3, (count,))


def seconds(step: Callable[[], object]) -> float:
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def measure(name: str, model: nn.Module, count: int, rounds: int) -> None:
    inputs, targets = batch_for(name, count)
    model.eval()

    def plain() -> None:
        nn.functional.cross_entropy(model(**inputs).logits, targets).backward()
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--samples", type=int, nargs="+", default=[8, 32])
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    hf.logging.set_verbosity_error()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print("| model | samples | plain ms | gradients and Gram ms | ratio |\n|---|---|---|---|---|")
    for name, model in models():
        for count in arguments.samples:
            measure(name, model, count, arguments.rounds)


if __name__ == "__main__":
    main()
