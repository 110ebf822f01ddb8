from typing import Any

import pytest

from corestream.studies.learning_curves import average_over_tasks, first_task, mean_matrix


def test_average_accuracy_is_over_the_tasks_learned_so_far() -> None:
    assert average_over_tasks([[0.9, None], [0.7, 0.5]]) == pytest.approx([90.0, 60.0])
    assert first_task([[0.9, None], [0.7, 0.5]]) == pytest.approx([90.0, 70.0])


def test_the_mean_matrix_is_over_finished_runs_and_the_tasks_learned_so_far(make_result: Any) -> None:
    runs = [make_result(seed=0, tasks=2), make_result(seed=2, tasks=2), make_result(seed=3, status="failed")]
    (only,), (lost, second) = mean_matrix(runs)
    assert (only, lost, second) == pytest.approx((81.0, 79.0, 81.0))


def test_joint_training_has_no_matrix(make_result: Any) -> None:
    assert mean_matrix([make_result(tasks=1)]) == []
