import pytest

from corestream.errors import ConfigError
from corestream.messages import check_name, counted, first_tasks, nearest


def test_a_right_name_comes_back():
    assert check_name("method", "ocs", ["ocs", "gss"]) == "ocs"


def test_a_wrong_name_is_answered_with_the_nearest_and_all_of_them():
    with pytest.raises(
        ConfigError, match=r"unknown method 'unifrom'; did you mean 'uniform'\? known are ocs, uniform"
    ):
        check_name("method", "unifrom", ["ocs", "uniform"])


def test_a_name_like_no_other_gets_no_suggestion():
    assert nearest("zzz", ["ocs", "uniform"]) == ""


def test_one_thing_is_not_told_in_the_plural():
    assert [counted(number, "run") for number in (0, 1, 2)] == ["0 runs", "1 run", "2 runs"]
    assert [counted(number, "class", "classes") for number in (1, 2)] == ["1 class", "2 classes"]
    assert [first_tasks(number) for number in (1, 2)] == ["first task", "first 2 tasks"]
