import errno

import pytest
import torch

from corestream.errors import RunError
from corestream.studies import checkpoint, files

DIGEST = "0123456789abcdef"


def save(folder, value):
    checkpoint.save(folder, DIGEST, {"weight": torch.full((3,), float(value))}, {"step": value})


def newest(folder, ending):
    return sorted(folder.glob(f"*.{ending}"))[-1]


def test_what_is_saved_is_loaded_bit_for_bit(tmp_path):
    tensors = {
        "float": torch.randn(4, 5),
        "bytes": torch.get_rng_state(),
        "flag": torch.tensor(True),
        "empty": torch.empty(0, 3),
        "half": torch.randn(7).bfloat16(),
    }
    facts = {"position": {"task": 1}, "none": None, "number": 0.1}
    checkpoint.save(tmp_path / "c", DIGEST, tensors, facts)
    found = checkpoint.load(tmp_path / "c", DIGEST)
    assert found.facts == facts
    assert found.tensors.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found.tensors[name].dtype == tensor.dtype
        assert torch.equal(found.tensors[name], tensor)


def test_views_and_shared_storage_are_stored_whole(tmp_path):
    base = torch.arange(12.0).reshape(3, 4)
    tensors = {"base": base, "same": base, "column": base[:, 1], "row": base[2], "transposed": base.T}
    checkpoint.save(tmp_path / "c", DIGEST, tensors, {})
    found = checkpoint.load(tmp_path / "c", DIGEST).tensors
    assert all(torch.equal(found[name], tensor) for name, tensor in tensors.items())


def test_none_where_nothing_was_written(tmp_path):
    assert checkpoint.load(tmp_path / "c", DIGEST) is None


def test_only_the_newest_and_the_one_before_are_kept(tmp_path):
    for value in range(5):
        save(tmp_path / "c", value)
    assert len(list((tmp_path / "c").iterdir())) == 4
    assert checkpoint.load(tmp_path / "c", DIGEST).facts == {"step": 4}
    checkpoint.keep_newest(tmp_path / "none")
    checkpoint.keep_newest(tmp_path / "c")
    assert len(list((tmp_path / "c").iterdir())) == 2
    assert checkpoint.load(tmp_path / "c", DIGEST).facts == {"step": 4}


@pytest.mark.parametrize("ending", ["json", "safetensors"])
@pytest.mark.parametrize("damage", ["cut", "flipped", "gone"])
def test_a_damaged_newest_falls_back_to_the_one_before_and_says_so(tmp_path, ending, damage):
    folder = tmp_path / "c"
    save(folder, 1)
    save(folder, 2)
    path = newest(folder, ending)
    content = bytearray(path.read_bytes())
    if damage == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "flipped":
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    else:
        path.unlink()
    found = checkpoint.load(folder, DIGEST)
    assert found.facts == {"step": 1}
    assert bool(found.passed_over) == ((ending, damage) != ("json", "gone"))


def test_two_damaged_ones_are_a_clear_error_and_no_silent_restart(tmp_path):
    folder = tmp_path / "c"
    save(folder, 1)
    save(folder, 2)
    for path in folder.glob("*.safetensors"):
        path.write_bytes(b"")
    with pytest.raises(RunError, match=r"no checkpoint .* can be used.*Remove"):
        checkpoint.load(folder, DIGEST)


def test_a_checkpoint_of_another_configuration_is_refused(tmp_path):
    save(tmp_path / "c", 1)
    with pytest.raises(RunError, match="belongs to another configuration"):
        checkpoint.load(tmp_path / "c", "f" * 16)


def test_a_full_disk_leaves_the_last_checkpoint_and_a_clear_error(tmp_path, monkeypatch):
    folder = tmp_path / "c"
    save(folder, 1)

    def full(path, content):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "write_atomically", full)
        with pytest.raises(RunError, match=r"No space left on device.*last whole checkpoint is still there"):
            save(folder, 2)
    assert checkpoint.load(folder, DIGEST).facts == {"step": 1}
    save(folder, 3)
    assert checkpoint.load(folder, DIGEST).facts == {"step": 3}


def test_what_a_killed_process_left_behind_is_no_checkpoint_and_goes_away(tmp_path):
    folder = tmp_path / "c"
    save(folder, 1)
    (folder / ".000002.safetensors.99.tmp").write_bytes(b"half")
    (folder / "000002.safetensors").write_bytes(b"without its json")
    assert checkpoint.load(folder, DIGEST).facts == {"step": 1}
    save(folder, 2)
    assert sorted(path.name for path in folder.iterdir()) == [
        "000001.json",
        "000001.safetensors",
        "000002.json",
        "000002.safetensors",
    ]


def test_a_manifest_with_a_right_checksum_and_another_format_is_refused(tmp_path):
    folder = tmp_path / "c"
    save(folder, 1)
    path = newest(folder, "json")
    manifest = files.read_json(path)
    manifest["format"] = 99
    del manifest["checksum"]
    manifest["checksum"] = files.sha256(files.canonical(manifest))
    path.write_bytes(files.canonical(manifest))
    with pytest.raises(RunError, match="has format 99"):
        checkpoint.load(folder, DIGEST)
