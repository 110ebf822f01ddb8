"""A folder of images as a stream: one folder per class, or train/ and test/ of them.

python examples/own_folder.py [FOLDER]        without FOLDER a small one is painted first
"""

import random
import sys
import tempfile
from pathlib import Path

import corestream
import torch
from corestream.streams import from_folder
from PIL import Image, ImageDraw
from torch import nn

SHAPES = {  # how Pillow draws it, how wide it is, in which style
    "bar": ("rectangle", 6, {"fill": "white"}),
    "disc": ("ellipse", 22, {"fill": "white"}),
    "frame": ("rectangle", 22, {"outline": "white", "width": 3}),
    "square": ("rectangle", 22, {"fill": "white"}),
}


def paint(root: Path) -> Path:
    """Four classes of forty pictures, and one file that is none."""
    number = random.Random(0).randrange
    root.mkdir()
    for shape, (method, width, style) in SHAPES.items():
        (root / shape).mkdir()
        for i in range(40):
            picture = Image.new("RGB", (48, 48), (number(80), number(80), number(80)))
            x, y = number(4, 20), number(4, 20)
            getattr(ImageDraw.Draw(picture), method)((x, y, x + width, y + 22), **style)
            picture.save(root / shape / f"{i}.png")
    (root / "disc" / "notes.txt").write_text("not a picture")
    return root


torch.manual_seed(0)
with tempfile.TemporaryDirectory() as temporary:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else paint(Path(temporary) / "shapes")
    stream = from_folder(folder, image_size=24, classes_per_task=2, scenario="class", batch_size=16)
print("classes:", ", ".join(stream.class_names))
for skipped in stream.skipped:
    print("left out:", skipped)

model = nn.Sequential(
    nn.Conv2d(3, 16, 5, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(), nn.Flatten(),
    nn.LazyLinear(stream.num_classes),
)  # fmt: skip
model(torch.zeros(1, *stream.input_shape))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.8)
learner = corestream.OCS(
    model, optimizer, corestream.ReplayMemory(capacity=48), k=8, tau=1.0, replay=16, warm_start=4
)
for task in stream:
    for _ in range(40):
        for x, y in task.train:
            learner.observe(x, y)
    learner.end_task()
    for seen in stream[: task.index + 1]:
        x, y = seen.test.tensors()
        right = (model(x).argmax(1) == y).float().mean().item()
        classes = ", ".join(stream.class_names[label] for label in seen.classes)
        print(f"after {task.title}: {right:.2f} on {classes}")
