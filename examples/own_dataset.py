"""Any torch.utils.data.Dataset as a stream: the same classes all along, in the order in which the samples were taken.

python examples/own_dataset.py
"""

import corestream
import torch
from corestream.streams import from_dataset
from torch import Tensor, nn
from torch.utils.data import Dataset


class Drifting(Dataset[tuple[Tensor, int]]):
    """Two kinds of stripes, upright and level, that grow fainter from day to day."""

    def __len__(self) -> int:
        return 2000

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        noise = torch.randn(1, 12, 12, generator=torch.Generator().manual_seed(index)) * 0.5
        stripes = torch.arange(12).remainder(2).float().expand(1, 12, 12) * (1.5 - index / 2000)
        label = index % 2
        return noise + (stripes if label else stripes.transpose(1, 2)), label


torch.manual_seed(0)
stream = from_dataset(Drifting(), split="time", num_tasks=4, imbalanced=True, batch_size=50)
model = nn.Sequential(nn.Flatten(), nn.Linear(144, 64), nn.ReLU(), nn.Linear(64, stream.num_classes))
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.8)
learner = corestream.OCS(model, optimizer, corestream.ReplayMemory(capacity=40), warm_start=5)

print("training samples per class and task:", stream.describe()["train_per_class"])
for task in stream:
    for _ in range(3):
        for x, y in task.train:
            learner.observe(x, y)
    learner.end_task()
    accuracy = [
        (model(x).argmax(1) == y).float().mean().item()
        for x, y in (seen.test.tensors() for seen in stream[: task.index + 1])
    ]
    print(f"after piece {task.index + 1}: " + "  ".join(f"{a:.2f}" for a in accuracy))
