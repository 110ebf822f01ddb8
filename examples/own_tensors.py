"""Your own tensors as a stream: in the order of time, six training images of ten replaced by noise.

python examples/own_tensors.py
"""

import corestream
import torch
from corestream.streams import from_tensors
from sklearn.datasets import load_digits
from torch import nn

torch.manual_seed(0)
digits = load_digits()
inputs = torch.from_numpy(digits.images).float() / 16
targets = torch.from_numpy(digits.target)

stream = from_tensors(inputs, targets, split="time", num_tasks=4, noise=0.6, batch_size=50)
model = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, stream.num_classes))
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.8)
learner = corestream.OCS(
    model, optimizer, corestream.ReplayMemory(capacity=100), k=5, replay=5, warm_start=10
)

picked = noise = 0
for task in stream:
    is_noise = task.train.is_noise
    for _ in range(10):
        for x, y, index in task.train.with_indices():
            step = learner.observe(x, y)
            places = step.picked[step.picked >= 0]  # −1 stands for none
            picked += len(places)
            noise += int(is_noise[index[places]].sum())
    learner.end_task()
    accuracy = [
        (model(x).argmax(1) == y).float().mean().item()
        for x, y in (seen.test.tensors() for seen in stream[: task.index + 1])
    ]
    print(f"after task {task.index + 1}: " + "  ".join(f"{a:.2f}" for a in accuracy))
print(f"{noise / picked:.0%} of the picked samples were noise, of all samples 60%")
