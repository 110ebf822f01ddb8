"""TinyImageNet: a zip with a tree of 64 × 64 JPEGs, 200 classes named by WordNet ids."""

from pathlib import Path

from corestream.streams.datasets.archives import Zip, open_zip
from corestream.streams.datasets.dataset import Dataset, Part
from corestream.streams.datasets.reading import Damaged, decode, stack

FILES = ("tiny-imagenet-200.zip",)
TOP = "tiny-imagenet-200"
CLASSES = 200


def read_tiny_imagenet(root: Path) -> Dataset:
    """`train/` as published; `val/` is the test part, for the published test images have no labels."""
    path = root / "tiny-imagenet" / FILES[0]
    with open_zip(path) as file:
        ids = file.read(f"{TOP}/wnids.txt").decode("ascii").split()
        if len(ids) != CLASSES or len(set(ids)) != CLASSES:
            raise Damaged(path, f"wnids.txt names {len(set(ids))} classes, expected {CLASSES}")
        place = {wordnet_id: i for i, wordnet_id in enumerate(ids)}
        train = _part(file, _training(file, place))
        test = _part(file, _validation(file, place))
        return Dataset("tiny-imagenet", train, test, _words(file, ids))


def _training(file: Zip, place: dict[str, int]) -> list[tuple[str, int]]:
    members = []
    for name in file.names:
        match name.split("/"):
            case [_, "train", wordnet_id, "images", _]:
                if wordnet_id not in place:
                    raise Damaged(
                        file.path, f"its member {name!r} is of a class that wnids.txt does not name"
                    )
                members.append((name, place[wordnet_id]))
    return sorted(members, key=lambda member: (member[1], member[0]))


def _validation(file: Zip, place: dict[str, int]) -> list[tuple[str, int]]:
    members = []
    lines = file.read(f"{TOP}/val/val_annotations.txt").decode("ascii").splitlines()
    for number, line in enumerate(lines, start=1):
        name, _, rest = line.partition("\t")
        wordnet_id = rest.partition("\t")[0]
        if wordnet_id not in place:
            raise Damaged(file.path, f"line {number} of val_annotations.txt names no known class")
        members.append((f"{TOP}/val/images/{name}", place[wordnet_id]))
    return members


def _part(file: Zip, members: list[tuple[str, int]]) -> Part:
    pictures = (decode(file.read(name), "JPEG", "RGB", size=(64, 64)) for name, _ in members)
    return stack(file.path, pictures, [label for _, label in members], CLASSES)


def _words(file: Zip, ids: list[str]) -> tuple[str, ...]:
    """The first word for each id, the id where words.txt is silent."""
    lines = file.read(f"{TOP}/words.txt").decode("utf-8", "replace").splitlines()
    words = dict(line.partition("\t")[::2] for line in lines)
    return tuple(words.get(wordnet_id, wordnet_id).partition(",")[0] for wordnet_id in ids)
