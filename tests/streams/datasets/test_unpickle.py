import os
import pickle

import numpy as np
import pytest

from corestream.streams.datasets.unpickle import Refused, load


class Shell:
    def __reduce__(self):
        return os.system, ("touch /should-not-exist",)


def test_a_cifar_dictionary_comes_out_as_it_went_in(python2_pickle) -> None:
    array = np.arange(12, dtype=np.uint8).reshape(3, 4)
    data = b"\x80\x02" + python2_pickle({b"data": array, b"labels": [1, 2, 3], b"name": b"x"}) + b"."
    content = load(data)
    assert np.array_equal(content[b"data"], array)
    assert content[b"labels"] == [1, 2, 3]
    assert content[b"name"] == b"x"


@pytest.mark.parametrize("protocol", range(6))
def test_a_pickle_that_imports_something_is_refused(protocol: int) -> None:
    with pytest.raises((Refused, pickle.UnpicklingError)):
        load(pickle.dumps({b"data": Shell()}, protocol=protocol))


@pytest.mark.parametrize(
    "name", [b"os\nsystem", b"builtins\neval", b"numpy\nload", b"numpy.core.multiarray\nscalar"]
)
def test_only_three_names_can_be_imported(name: bytes) -> None:
    with pytest.raises(Refused, match="imports"):
        load(b"\x80\x02c" + name + b"\n.")


def test_an_array_cannot_claim_more_than_its_bytes(python2_pickle) -> None:
    honest = python2_pickle(np.zeros((2, 3), np.uint8))
    forged = honest.replace(python2_pickle((2, 3)), python2_pickle((2**30, 2**30)))
    assert forged != honest
    with pytest.raises(Refused, match="shape"):
        load(b"\x80\x02}U\x01a" + forged + b"s.")


def test_an_array_of_objects_is_refused(python2_pickle) -> None:
    honest = python2_pickle(np.zeros((2, 3), np.uint8))
    forged = honest.replace(b"u1", b"O8")
    assert forged != honest
    with pytest.raises(Refused, match="type"):
        load(b"\x80\x02}U\x01a" + forged + b"s.")


def test_an_imported_name_takes_no_state() -> None:
    with pytest.raises(Refused, match="state"):
        load(b"\x80\x02cnumpy\ndtype\n}U\x01aU\x01bsb.")


def test_a_forged_memo_index_costs_no_memory() -> None:
    assert load(b"\x80\x02}r\xff\xff\xff\x7f.") == {}


def test_what_is_not_a_dictionary_is_refused() -> None:
    with pytest.raises(Refused, match="list"):
        load(b"\x80\x02].")
