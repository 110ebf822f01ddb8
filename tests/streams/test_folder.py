import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from corestream.errors import ConfigError, CorestreamWarning, DataError
from corestream.streams import FOLDER, benchmark, from_folder

COLOURS = {"ant": (255, 0, 0), "bee": (0, 255, 0), "cat": (0, 0, 255), "dog": (90, 90, 90)}


def fill(root: Path, count: int = 10) -> Path:
    for name, colour in COLOURS.items():
        (root / name).mkdir(parents=True)
        for i in range(count):
            Image.new("RGB", (10 + i, 20), colour).save(root / name / f"{i}.{'png' if i % 2 else 'jpg'}")
    return root


def test_class_folders_become_tasks_of_one_size(tmp_path: Path) -> None:
    stream = from_folder(fill(tmp_path), image_size=12)
    assert stream.input_shape == (3, 12, 12)
    assert stream.class_names == ("ant", "bee", "cat", "dog")
    assert [task.classes for task in stream] == [(0, 1), (2, 3)]
    assert stream.describe()["train"] == [16, 16]
    x, y, _ = stream[0].train.tensors()
    reds = x[y == 0].mean((0, 2, 3))
    assert reds[0] > 0.95 > 0.1 > reds[1]


def test_train_and_test_folders_are_kept_apart(tmp_path: Path) -> None:
    fill(tmp_path / "train", 6)
    fill(tmp_path / "test", 3)
    card = from_folder(tmp_path).describe()
    assert (card["train"], card["test"]) == ([12, 12], [6, 6])


def test_unreadable_files_are_named_and_skipped(tmp_path: Path) -> None:
    fill(tmp_path)
    (tmp_path / "ant/notes.txt").write_text("no picture")
    whole = (tmp_path / "bee/1.png").read_bytes()
    (tmp_path / "bee/broken.png").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "bee/.hidden").write_text("left alone")
    with pytest.warns(CorestreamWarning):
        stream = from_folder(tmp_path)
    assert [Path(text.partition(": ")[0]).name for text in stream.skipped] == ["notes.txt", "broken.png"]
    assert stream.describe()["train"] == [16, 16]


def test_what_is_left_out_is_told_once_where_a_stream_is_built(tmp_path: Path) -> None:
    root = fill(tmp_path / "my pictures")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        benchmark(f"folder:{root}")
    (root / "bee/broken.png").write_bytes(b"x")
    (root / "cat/notes.txt").write_text("no picture")
    with pytest.warns(CorestreamWarning) as told:
        benchmark(f"folder:{root}")
    (text,) = [str(warning.message) for warning in told]
    assert text.startswith(f"2 files of {root} were left out, the first bee/broken.png: Unidentified")
    assert text.endswith(f"; `corestream show 'folder:{root}'` names them all")


def test_folders_inside_a_class_are_named_as_skipped(tmp_path: Path) -> None:
    fill(tmp_path)
    (tmp_path / "dog/nested").mkdir()
    Image.new("RGB", (9, 9)).save(tmp_path / "dog/nested/x.png")
    with pytest.warns(CorestreamWarning, match="1 file of .* was left out, the first dog/nested: a folder"):
        stream = from_folder(tmp_path)
    assert [text.partition(": ")[0] for text in stream.skipped] == [str(tmp_path / "dog/nested")]
    assert stream.describe()["train"] == [16, 16]


def test_only_classes_with_images_are_numbered(tmp_path: Path) -> None:
    for half in ("train", "test"):
        fill(tmp_path / half)
        (tmp_path / half / "bat").mkdir()
    with pytest.warns(CorestreamWarning, match="2 files"):
        stream = from_folder(tmp_path)
    assert stream.class_names == tuple(COLOURS)
    assert (stream.num_classes, [task.classes for task in stream]) == (4, [(0, 1), (2, 3)])
    assert stream.describe()["test_per_class"] == [{"0": 10, "1": 10}, {"2": 10, "3": 10}]
    assert [text.partition(": ")[0] for text in stream.skipped] == [
        str(tmp_path / half / "bat") for half in ("train", "test")
    ]
    Image.new("RGB", (9, 9)).save(tmp_path / "test/bat/x.png")
    with pytest.raises(DataError, match="test/bat: a class without an image in the training folder"):
        from_folder(tmp_path)


def test_a_training_folder_without_a_test_folder_is_told(tmp_path: Path) -> None:
    fill(tmp_path / "train")
    fill(tmp_path / "val")
    with pytest.raises(DataError, match="train/ is there and test/ is not; expected both"):
        from_folder(tmp_path)


def test_a_class_may_be_called_train(tmp_path: Path) -> None:
    (fill(tmp_path) / "dog").rename(tmp_path / "train")
    assert from_folder(tmp_path).class_names == ("ant", "bee", "cat", "train")


def test_a_photograph_taken_sideways_stands_upright(tmp_path: Path) -> None:
    fill(tmp_path)
    picture = Image.new("RGB", (20, 10))
    picture.paste((255, 255, 255), (0, 0, 10, 10))
    sideways = Image.Exif()
    sideways[0x0112] = 6  # to be turned by a quarter
    picture.save(tmp_path / "ant/0.jpg", exif=sideways)
    stream = from_folder(tmp_path, image_size=8, test_share=0.1)
    x = torch.cat([stream[0].train.tensors()[0], stream[0].test.tensors()[0]])
    photograph = x[x.mean((1, 2, 3)).sub(0.5).abs().argmin()]
    assert photograph[:, :3].mean() > 0.9
    assert photograph[:, -3:].mean() < 0.1


def saved(root: Path, picture: Image.Image, kind: str = "png") -> Path:
    """A folder of two classes, whose images are all the picture."""
    for name in "ab":
        (root / name).mkdir(parents=True)
        for number in range(4):
            picture.save(root / name / f"{number}.{kind}")
    return root


def test_grey_of_16_bits_keeps_its_shades(tmp_path: Path) -> None:
    shades = Image.fromarray(np.full((8, 8), 0x4321, np.uint16))
    x = from_folder(saved(tmp_path, shades, "tif"))[0].train.tensors()[0]
    assert (x * 255).round().unique().tolist() == [0x43]


@pytest.mark.parametrize("mode", ["I", "F"])
def test_pixels_without_a_known_range_are_left_out(tmp_path: Path, mode: str) -> None:
    fill(tmp_path)
    Image.new(mode, (8, 8)).save(tmp_path / "ant/x.tif")
    with pytest.warns(CorestreamWarning, match=f"ant/x.tif: ValueError: pixels of mode {mode} have no known"):
        stream = from_folder(tmp_path)
    assert len(stream.skipped) == 1


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "L"])
def test_what_is_transparent_is_white(tmp_path: Path, mode: str) -> None:
    drawing = Image.new("RGBA", (8, 8), (0, 0, 0, 0))
    drawing.paste((0, 0, 0, 255), (0, 0, 8, 4))
    if mode == "P":
        drawing = drawing.quantize(2)
    elif mode == "L":  # one of its shades stands for nothing
        drawing = Image.new("L", (8, 8), 7)
        drawing.paste(0, (0, 0, 8, 4))
        drawing.info["transparency"] = 7
    else:
        drawing = drawing.convert(mode)
    x = from_folder(saved(tmp_path, drawing), image_size=8)[0].train.tensors()[0]
    assert x[:, :, :4].unique().tolist() == [0.0]
    assert x[:, :, 4:].unique().tolist() == [1.0]


def test_a_photograph_may_be_of_any_size(tmp_path: Path) -> None:
    stream = from_folder(saved(tmp_path, Image.new("RGB", (5000, 20), (255, 0, 0))))
    assert stream.skipped == ()
    assert stream[0].train.tensors()[0].mean((0, 2, 3)).tolist() == [1, 0, 0]


def test_folder_stands_in_for_a_benchmarks_name(tmp_path: Path) -> None:
    fill(tmp_path)
    stream = benchmark(f"folder:{tmp_path}", classes_per_task=1, image_size=8, noise=0.5, scenario="class")
    assert (len(stream), stream.input_shape, stream.scenario) == (4, (3, 8, 8), "class")
    assert stream.settings["classes_per_task"] == 1
    with pytest.raises(ConfigError, match="no option 'angles'"):
        benchmark(f"folder:{tmp_path}", angles="steps")


@pytest.mark.parametrize(("split", "scenario"), [("class", "task"), ("time", "domain")])
def test_the_scenario_follows_the_split_under_the_benchmarks_name_too(
    tmp_path: Path, split: str, scenario: str
) -> None:
    fill(tmp_path)
    assert from_folder(tmp_path, split=split).scenario == scenario
    assert benchmark(f"folder:{tmp_path}", split=split).scenario == scenario
    assert benchmark(f"folder:{tmp_path}", split=split, scenario="class").scenario == "class"
    assert FOLDER.checked_scenario(None, {"split": split}) == scenario
    assert FOLDER.checked_scenario(None) == "task"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"split": "time", "classes_per_task": 3}, "classes_per_task=3: only split=class takes it"),
        ({"num_tasks": 3}, "num_tasks=3: only split=time takes it, and split is class"),
    ],
)
def test_an_option_of_the_other_split_is_refused(tmp_path: Path, options: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        benchmark(f"folder:{fill(tmp_path)}", **options)


def test_recorded_options_make_the_stream_again(tmp_path: Path) -> None:
    recorded = FOLDER.checked_options({"split": "time", "num_tasks": 2, "image_size": 8})
    assert recorded["classes_per_task"] == 2
    assert len(benchmark(f"folder:{fill(tmp_path)}", **recorded)) == 2


def test_the_stream_does_not_depend_on_where_the_folder_lies(tmp_path: Path) -> None:
    first, second = (from_folder(fill(tmp_path / place / "insects"), noise=0.5) for place in ("a", "b"))
    assert torch.equal(first[0].train.tensors()[0], second[0].train.tensors()[0])


def test_an_image_size_of_numpy_is_taken(tmp_path: Path) -> None:
    assert from_folder(fill(tmp_path), image_size=np.int64(8)).input_shape == (3, 8, 8)


def test_the_order_of_a_folder_is_that_of_names_as_text(tmp_path: Path) -> None:
    for place, name in enumerate(("b/1", "b/10", "b/2", "c/0")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        for copy in "xy":
            Image.new("RGB", (8, 8), (place * 50,) * 3).save(tmp_path / f"{name}.{copy}.png")
    stream = from_folder(tmp_path, split="time", num_tasks=4, image_size=8)
    values = [round(255 * float(task.train.tensors()[0].mean())) for task in stream]
    assert values == [0, 50, 100, 150]


@pytest.mark.parametrize("size", [0, -1, 2.5, True, "32", 10**6])
def test_a_wrong_image_size_is_named(tmp_path: Path, size: object) -> None:
    with pytest.raises(ConfigError, match="image_size="):
        from_folder(tmp_path, image_size=size)


def test_wrong_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such folder"):
        from_folder(tmp_path / "nowhere")
    with pytest.raises(DataError, match="one folder of images per class"):
        from_folder(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no readable image"):
        from_folder(tmp_path)
    (tmp_path / "empty/notes.txt").write_text("no picture")
    with pytest.raises(
        DataError, match=r"no readable image; the first left out: empty/notes\.txt: Unidentified"
    ):
        from_folder(tmp_path)
    fill(tmp_path / "x/train")
    fill(tmp_path / "x/test")
    (tmp_path / "x/test/eel").mkdir()
    with pytest.raises(DataError, match="eel: a class that the training folder does not have"):
        from_folder(tmp_path / "x")
