import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from corestream.studies import metrics

NAN = math.nan
MATRIX = torch.tensor([[0.9, NAN, NAN], [0.7, 0.8, NAN], [0.6, 0.85, 0.5]], dtype=torch.float64)


def test_average_accuracy_is_the_mean_of_the_learned_tasks():
    assert metrics.average_accuracy(MATRIX) == pytest.approx((0.6 + 0.85 + 0.5) / 3)
    assert metrics.average_accuracy(MATRIX, learned=2) == pytest.approx(0.75)


def test_forgetting_is_the_distance_from_the_peak_before_the_last_task():
    assert metrics.forgetting(MATRIX) == pytest.approx(((0.9 - 0.6) + (0.8 - 0.85)) / 2)
    assert metrics.forgetting(MATRIX, learned=2) == pytest.approx(0.2)


def test_forgetting_takes_the_peak_wherever_it_was():
    matrix = torch.tensor([[0.5, NAN, NAN], [0.9, 0.5, NAN], [0.4, 0.5, 0.5]])
    assert metrics.forgetting(matrix) == pytest.approx(0.25)


def test_forgetting_of_a_single_task_is_zero():
    assert metrics.forgetting(MATRIX, learned=1) == 0.0
    assert metrics.backward_transfer(MATRIX, learned=1) == 0.0


def test_backward_transfer_and_learning_accuracy_compare_with_the_diagonal():
    assert metrics.backward_transfer(MATRIX) == pytest.approx(((0.6 - 0.9) + (0.85 - 0.8)) / 2)
    assert metrics.learning_accuracy(MATRIX) == pytest.approx((0.9 + 0.8 + 0.5) / 3)


def test_measured_future_tasks_do_not_enter():
    full = MATRIX.nan_to_num(0.1)
    assert metrics.summary(full) == pytest.approx(metrics.summary(MATRIX))


def test_an_unmeasured_cell_that_is_needed_shows():
    assert math.isnan(metrics.average_accuracy(torch.full((2, 2), math.nan)))


@pytest.mark.parametrize("learned", [0, 4])
def test_a_number_of_tasks_outside_the_matrix_is_refused(learned):
    with pytest.raises(ValueError, match=f"learned is {learned}; allowed are 1 to 3"):
        metrics.average_accuracy(MATRIX, learned)


class Oracle(nn.Module):
    """Predicts the first feature, or the task where one is given."""

    def __init__(self):
        super().__init__()
        self.dropout = nn.Dropout(0.9)

    def forward(self, x, task=None):
        classes = x[:, 0] if task is None else task
        return self.dropout(nn.functional.one_hot(classes.long(), 3).float())


def test_evaluate_counts_per_class_and_leaves_the_mode():
    model = Oracle()
    model.dropout.eval()
    batches = [
        (torch.tensor([[0.0], [1.0]]), torch.tensor([0, 1])),
        (torch.tensor([[2.0], [1.0]]), torch.tensor([1, 1])),
    ]
    found = metrics.evaluate(model, batches, num_classes=3)
    assert found.accuracy == 0.75
    assert found.correct.tolist() == [1, 2, 0]
    assert found.total.tolist() == [1, 3, 0]
    assert model.training
    assert not model.dropout.training


def test_an_output_that_is_no_number_is_right_about_nothing():
    outputs = torch.tensor([[math.nan, 1.0], [2.0, 1.0], [-math.inf, 1.0]])
    found = metrics.evaluate(nn.Identity(), [(outputs, torch.tensor([0, 0, 1]))], 2)
    assert found.correct.tolist() == [1, 1]


def test_evaluate_passes_task_ids_on():
    batches = [(torch.zeros(2, 1), torch.tensor([1, 2]), torch.tensor([1, 2]))]
    assert metrics.evaluate(Oracle(), batches, num_classes=3).accuracy == 1.0


def test_evaluate_refuses_an_empty_test_set():
    with pytest.raises(ValueError, match="batches is empty"):
        metrics.evaluate(Oracle(), [], num_classes=3)


def test_memory_composition_counts_tasks_classes_and_noise():
    memory = SimpleNamespace(
        tasks=torch.tensor([0, 0, 1, 1]),
        targets=torch.tensor([3, 3, 3, 7]),
        ids=torch.tensor([0, 2, 1, -1]),
    )
    corrupted = [torch.tensor([True, False, False]), torch.tensor([False, True])]
    found = metrics.memory_composition(memory, corrupted)
    assert found == {
        "samples": 4,
        "tasks": {0: 2, 1: 2},
        "classes": {3: 3, 7: 1},
        "noise": pytest.approx(2 / 3),
    }


def test_the_share_of_noise_is_unknown_without_origins():
    memory = SimpleNamespace(
        tasks=torch.zeros(2).long(), targets=torch.zeros(2).long(), ids=torch.full((2,), -1)
    )
    assert metrics.memory_composition(memory, [torch.ones(5).bool()])["noise"] is None
