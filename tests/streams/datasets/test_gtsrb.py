import io

import numpy as np
import pytest
from PIL import Image

from corestream.errors import DataError
from corestream.streams.datasets.gtsrb import read_gtsrb

HEAD = b"Filename;Width;Height;Roi.X1;Roi.Y1;Roi.X2;Roi.Y2;ClassId\n"


def test_signs_are_cut_out_and_labelled(publisher) -> None:
    data = read_gtsrb(publisher.gtsrb(per_class=2))
    assert data.train.images.shape == (86, 3, 32, 32)
    assert data.train.labels.bincount().tolist() == [2] * 43
    assert data.test.labels.tolist() == list(range(43))


def test_only_the_region_is_kept(publisher) -> None:
    publisher.gtsrb()
    picture = np.zeros((36, 40, 3), np.uint8)
    picture[5:31, 5:35] = 200
    stream = io.BytesIO()
    Image.fromarray(picture).save(stream, "PPM")
    publisher.zip("gtsrb/GTSRB_Final_Test_Images.zip", {"I/a.ppm": stream.getvalue()})
    publisher.zip("gtsrb/GTSRB_Final_Test_GT.zip", {"GT.csv": HEAD + b"a.ppm;40;36;5;5;34;30;4\n"})
    assert (read_gtsrb(publisher.root).test.images == 200).all()


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (b"00000.ppm;40;36;5;5;34", "line 2"),
        (b"00000.ppm;40;36;5;5;x;30;0", "line 2"),
        (b"00000.ppm;40;36;5;5;99;30;0", "region"),
        (b"00000.ppm;40;36;5;5;34;30;43", "labels"),
        (b"nobody.ppm;40;36;5;5;34;30;0", "missing"),
        (b"\xff\xfe", "damaged"),
    ],
)
def test_a_bad_row_is_damage(publisher, row: bytes, reason: str) -> None:
    publisher.gtsrb()
    publisher.zip("gtsrb/GTSRB_Final_Test_GT.zip", {"GT-final_test.csv": HEAD + row + b"\n"})
    with pytest.raises(DataError, match=reason):
        read_gtsrb(publisher.root)


def test_a_member_that_points_outside_is_refused(publisher) -> None:
    publisher.gtsrb()
    publisher.zip("gtsrb/GTSRB-Training_fixed.zip", {"../escape.csv": HEAD})
    with pytest.raises(DataError, match="outside"):
        read_gtsrb(publisher.root)
    assert not (publisher.root.parent / "escape.csv").exists()


def test_a_member_that_is_no_image_is_damage(publisher) -> None:
    publisher.gtsrb()
    publisher.zip("gtsrb/GTSRB_Final_Test_Images.zip", {f"I/{i:05d}.ppm": b"P6 nonsense" for i in range(43)})
    with pytest.raises(DataError, match=r"Final_Test_Images\.zip: damaged"):
        read_gtsrb(publisher.root)
