import numpy as np
import pytest
import scipy.io

from corestream.streams.datasets.matfile import arrays


@pytest.mark.parametrize("compress", [True, False])
@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int32, np.float64, np.uint16])
def test_arrays_are_those_scipy_wrote(tmp_path, compress: bool, dtype: type) -> None:
    values = np.random.default_rng(0).integers(0, 100, (3, 4, 2)).astype(dtype)
    scipy.io.savemat(
        tmp_path / "a.mat", {"X": values, "text": "hello", "y": values[0]}, do_compression=compress
    )
    found = arrays((tmp_path / "a.mat").read_bytes())
    assert np.array_equal(found["X"], values)
    assert np.array_equal(found["y"], values[0])
    assert found.keys() == {"X", "y"}


def test_a_declared_shape_without_its_bytes_is_refused(tmp_path) -> None:
    scipy.io.savemat(tmp_path / "a.mat", {"X": np.zeros((5, 7), np.uint8)})
    data = (tmp_path / "a.mat").read_bytes()
    forged = data.replace((5).to_bytes(4, "little") + (7).to_bytes(4, "little"), b"\xff\xff\xff\x7f" * 2)
    assert forged != data
    with pytest.raises(ValueError, match="shape"):
        arrays(forged)


def test_another_format_is_refused() -> None:
    with pytest.raises(ValueError, match="MATLAB 5"):
        arrays(b"\x89HDF" + bytes(300))
