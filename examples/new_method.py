"""A method of your own in one file: remember, and replay, the samples that the model finds hardest."""

import corestream
import torch
from corestream import learners, models
from corestream.learners import Coreset, Method
from corestream.learners.settings import CoresetSettings
from corestream.studies.metrics import evaluate


class Hardest(Coreset):
    """Candidates, memory, replay and state are the skeleton's; a method is how it chooses."""

    def choose(self, samples, k):
        with torch.no_grad():
            losses = self._losses(samples.inputs, samples.targets)
        return losses.topk(min(k, len(losses))).indices


learners.register(
    Method("hardest", "remembers the samples of largest loss", Hardest, CoresetSettings, "shares", "class")
)

if __name__ == "__main__":
    stream = corestream.benchmark("rotated-digits", tasks=3)
    settings = learners.settings("hardest", stream.name)
    model = models.for_stream(stream, settings, seed=0)
    learner = learners.build("hardest", model, settings, stream=stream)
    for task in stream:
        for _ in range(settings.sweeps):
            learner.start_sweep()
            for x, y in task.train:
                learner.observe(x, y)
        learner.end_task()
    for task in stream:
        print(f"task {task.index}: {evaluate(model, task.test, stream.num_classes).accuracy:.1%}")
