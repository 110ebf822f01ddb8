from types import SimpleNamespace

import numpy as np
import pytest
import torch

from corestream.errors import RunError
from corestream.studies.records import GrowingArray, Records


def test_rows_appended_in_parts_read_as_one_array(tmp_path):
    array = GrowingArray(tmp_path / "picks.npy", fill=-1)
    for start in range(0, 9, 3):
        for row in range(start, start + 3):
            array.append(torch.tensor([row, row + 1]))
        array.flush()
    assert np.load(tmp_path / "picks.npy").tolist() == [[row, row + 1] for row in range(9)]


def test_a_narrower_row_is_filled_up(tmp_path):
    array = GrowingArray(tmp_path / "picks.npy", fill=-1)
    array.append(torch.tensor([4, 5, 6]))
    array.append(torch.tensor([7]))
    array.flush()
    assert np.load(tmp_path / "picks.npy").tolist() == [[4, 5, 6], [7, -1, -1]]


def test_cutting_back_forgets_what_came_after_and_goes_on(tmp_path):
    path = tmp_path / "picks.npy"
    array = GrowingArray(path, fill=-1)
    for row in range(6):
        array.append(torch.tensor([row]))
    array.flush()
    resumed = GrowingArray(path, fill=-1)
    resumed.cut(4)
    resumed.append(torch.tensor([40]))
    assert resumed.flush() == 5
    assert np.load(path).ravel().tolist() == [0, 1, 2, 3, 40]


def test_a_wider_row_widens_the_rows_before_it(tmp_path):
    array = GrowingArray(tmp_path / "picks.npy", fill=-1)
    array.append(torch.tensor([1]))
    array.append(torch.tensor([2, 3]))  # waits beside a narrower one
    array.flush()
    array.append(torch.tensor([4, 5, 6]))  # comes after narrower ones were written
    assert array.flush() == 3
    array.append(torch.tensor([7]))
    array.flush()
    assert np.load(tmp_path / "picks.npy").tolist() == [[1, -1, -1], [2, 3, -1], [4, 5, 6], [7, -1, -1]]


def test_wider_scores_widen_with_what_stands_for_none(tmp_path):
    records = Records(tmp_path, ("scores",))
    for batch_size in (3, 5):
        scores = dict.fromkeys(("similarity", "diversity", "affinity", "total"), torch.ones(batch_size))
        records.add(torch.tensor([0]), SimpleNamespace(**scores), batch_size)
        records.flush()
    found = np.load(tmp_path / "scores.npy")
    assert found.shape == (2, 5, 4)
    assert np.isnan(found[0, 3:]).all()
    assert (found[0, :3] == 1).all()
    assert (found[1] == 1).all()


@pytest.mark.parametrize("flushed_before_the_kill", [False, True])
def test_a_file_cut_back_and_widened_again_has_the_same_bytes(tmp_path, flushed_before_the_kill):
    rows = [torch.arange(width) for width in (2, 2, 3, 120, 1)]

    def write(path, start, end):
        array = GrowingArray(path, fill=-1)
        array.cut(start)
        for row in rows[start:end]:
            array.append(row)
            array.flush()

    write(tmp_path / "whole.npy", 0, 5)
    write(tmp_path / "torn.npy", 0, 4 if flushed_before_the_kill else 2)
    write(tmp_path / "torn.npy", 2, 5)
    assert (tmp_path / "torn.npy").read_bytes() == (tmp_path / "whole.npy").read_bytes()


def test_a_file_with_fewer_rows_than_the_checkpoint_is_refused(tmp_path):
    array = GrowingArray(tmp_path / "picks.npy", fill=-1)
    array.append(torch.tensor([1]))
    array.flush()
    with pytest.raises(RunError, match="fewer than 3 rows"):
        GrowingArray(tmp_path / "picks.npy", fill=-1).cut(3)
    with pytest.raises(RunError, match="does not fit"):
        GrowingArray(tmp_path / "missing.npy", fill=-1).cut(3)


def test_only_what_was_asked_for_is_written(tmp_path):
    records = Records(tmp_path, ("scores",))
    scores = SimpleNamespace(
        **{name: torch.rand(5) for name in ("similarity", "diversity", "affinity", "total")}
    )
    records.add(torch.tensor([1, 2]), scores, 5)
    records.add(torch.tensor([1, 2]), None, 5)
    assert records.flush() == {"scores": 2}
    found = np.load(tmp_path / "scores.npy")
    assert found.shape == (2, 5, 4)
    assert np.array_equal(found[0, :, 3], scores.total.numpy())
    assert np.isnan(found[1]).all()
    assert not (tmp_path / "picks.npy").exists()


def test_rows_that_are_not_those_of_the_checkpoint_are_told(tmp_path):
    path = tmp_path / "picks.npy"
    array = GrowingArray(path, fill=-1)
    told = []
    for row in ([1, 2], [3, 4], [5, 6, 7]):
        array.append(torch.tensor(row))
        told.append((array.flush(), array.checksum))
    again = GrowingArray(path, fill=-1)
    for rows, checksum in told:  # those before the file was widened too
        again.check(rows, checksum)
    again.cut(2)
    assert again.checksum["crc"] != told[1][1]["crc"]  # of wider rows
    again.check(*told[1])
    content = bytearray(path.read_bytes())
    content[-9] ^= 1  # of the second row, before what fills it up
    path.write_bytes(content)
    GrowingArray(path, fill=-1).check(*told[0])
    with pytest.raises(ValueError, match=r"other rows than picks\.npy"):
        GrowingArray(path, fill=-1).check(*told[1])
    with pytest.raises(ValueError, match=r"needs 3 rows of picks\.npy, which has 2"):
        GrowingArray(path, fill=-1).check(*told[2])
    path.unlink()
    with pytest.raises(ValueError, match=r"picks\.npy, which cannot be read"):
        GrowingArray(path, fill=-1).check(*told[0])
