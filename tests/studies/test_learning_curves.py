import pytest

from corestream.studies.learning_curves import average_over_tasks, first_task


def test_average_accuracy_is_over_the_tasks_learned_so_far() -> None:
    assert average_over_tasks([[0.9, None], [0.7, 0.5]]) == pytest.approx([90.0, 60.0])
    assert first_task([[0.9, None], [0.7, 0.5]]) == pytest.approx([90.0, 70.0])
