import pytest

from corestream.cli.options import gather, split_names


@pytest.mark.parametrize(
    ("text", "names"),
    [("a, b,c", ("a", "b", "c")), ("[1,2],[1],ocs", ("[1,2]", "[1]", "ocs")), ("[1,2,3,4]", ("[1,2,3,4]",))],
)
def test_commas_part_names_but_not_inside_brackets(text, names):
    assert split_names(text) == names


def test_a_files_names_may_have_hyphens_wherever_they_stand(tmp_path):
    file = tmp_path / "study.toml"
    file.write_text(
        "label-noise = 0.1\n[options]\nfull-classes = 'fixed'\n[settings]\nbatch-size = 40\n[settings.er-mir]\nlr-decay = 0.5\n"
    )
    found = gather(file, {}, ["label_noise"])
    assert found["label_noise"] == 0.1
    assert found["options"] == {"full_classes": "fixed"}
    assert found["settings"] == {"batch_size": 40, "er-mir": {"lr_decay": 0.5}}


@pytest.mark.parametrize("given", [{}, {"model": "resnet18"}])
def test_a_files_model_gives_way_to_the_command_lines(tmp_path, given):
    file = tmp_path / "study.toml"
    file.write_text("model = 'mlp'\n")
    found = gather(file, given, ["model"])
    assert found.get("model") == given.get("model")
    assert found["settings"] == {"network": "mlp"}
