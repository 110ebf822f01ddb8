"""Permuted MNIST: every task shuffles the pixels of all images in its own way."""

from functools import partial

from corestream.streams.benchmarks.recipe import domain_stream
from corestream.streams.datasets import load
from corestream.streams.images import take_pixels
from corestream.streams.request import Request
from corestream.streams.samples import Scale
from corestream.streams.seeds import generator
from corestream.streams.stream import Stream

TASKS = 20


def permuted_mnist(request: Request) -> Stream:
    """20 tasks, each with a permutation of the 784 pixels drawn by seed."""
    mnist = load("mnist", data_dir=request.data_dir, offline=request.offline)
    orders = [generator(request.seed, request.name, task, "pixels").permutation(784) for task in range(TASKS)]
    return domain_stream(
        request,
        mnist,
        renders=[partial(take_pixels, source=order) for order in orders],
        titles=[f"permutation {task + 1}" for task in range(TASKS)],
        input_shape=(1, 28, 28),
        scale=Scale(),
        batch_size=100,
    )
