"""Several processes, each with its own part of every batch, pick the samples that one process would pick from the whole batch.

python examples/several_processes.py                         # two processes on this machine
torchrun --nproc-per-node=4 examples/several_processes.py    # as many as you like; with more options, on several machines

Samples and their gradients stay where they are. Sums travel: in each step four of the size of the model, one score per sample, and counts.
On GPUs, give `init_process_group` "nccl", and put model, samples and generator on the GPU of the process.
"""

import tempfile

import corestream
import torch
import torch.distributed as dist
from torch import nn

K, TAU, LAM = 5, 3.0, 1.0  # k of the whole batch
REPLAY, CAPACITY = 3, 50  # of each process


def add_up(tensor):
    """Over all processes. One process alone would give `lambda tensor: tensor` to the functions below, and rank 0 of 1."""
    dist.all_reduce(tensor)
    return tensor


def flat(gradient):
    return torch.cat([part.flatten() for part in gradient.values()])


def shaped(vector, like):
    parts = vector.split([part.numel() for part in like.values()])
    return {name: part.view(like[name].shape) for name, part in zip(like, parts, strict=True)}


def score(grads, count, add_up):
    """S, V and A of a process's first `count` samples among those of all processes; the samples behind them are the reference."""
    norms = grads.norms()[:count]
    new, tiny = grads[:count], torch.finfo(norms.dtype).tiny
    inverse = 1 / norms.clamp_min(tiny)  # a gradient of zero has the cosine 0 with all others
    is_old = torch.arange(len(grads), device=norms.device) >= count
    batch = new.combine(torch.ones_like(norms))  # Σ g, which has the direction of the mean
    units = new.combine(inverse)  # Σ g/‖g‖: its product with another g/‖g‖ is a sum of cosines
    past = grads.combine(is_old.to(norms.dtype))
    sums = add_up(torch.stack([flat(batch), flat(units), flat(past)]))
    lengths = sums.norm(dim=1).clamp_min(tiny)
    others = (add_up(new.finite.sum()) - 1).clamp_min(1)

    to_batch, to_units, to_past = (new.dot(shaped(vector, batch)) * inverse for vector in sums)
    similarity, affinity = to_batch / lengths[0], to_past / lengths[2]
    diversity = (norms * inverse - to_units) / others  # the sample's cosine with itself is taken out again
    total = (similarity + diversity + TAU * affinity).masked_fill(~new.finite, -torch.inf)
    return corestream.Scores(similarity, diversity, affinity, total)


def pick(total, add_up, rank, world):
    """Which of a process's samples are among the k best of all processes, and how many those are."""
    counts = torch.zeros(world, dtype=torch.long, device=total.device)
    counts[rank] = len(total)
    counts = add_up(counts)
    first = int(counts[:rank].sum())
    everyone = total.new_zeros(int(counts.sum()))
    everyone[first : first + len(total)] = total
    best = add_up(everyone).topk(min(K, len(everyone)))
    best = best.indices[best.values > -torch.inf] - first
    if not len(best):
        raise corestream.NonFiniteError("no sample of the batch has a finite loss and gradient")
    return best[(best >= 0) & (best < len(total))], len(best)


def learn(model, optimizer, new, old, replayed, add_up, rank, world):
    """One step on the mean loss of all picks + λ · that of all replayed (Eq. 9); returns the picks among this process's new samples."""
    samples = corestream.Samples.join([new, old])
    grads = corestream.per_sample_gradients(model, None, (samples.inputs, samples.targets))
    picked, picks = pick(score(grads, len(new), add_up).total, add_up, rank, world)
    replays = int(add_up(torch.tensor(len(replayed), device=picked.device)))
    weights = torch.zeros_like(grads.losses)
    weights[picked] = 1 / picks
    weights[len(new) + replayed] = LAM / max(1, replays)
    own = grads.combine(weights)
    gradient = shaped(add_up(flat(own)), own)
    for name, parameter in model.named_parameters():
        parameter.grad = gradient.get(name)
    optimizer.step()
    return picked


def train(rank, world):
    torch.manual_seed(0)  # all processes begin with the same model
    model = nn.Sequential(nn.Flatten(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.8)
    memory, generator = corestream.ReplayMemory(CAPACITY), torch.Generator().manual_seed(rank)
    stream = corestream.benchmark("rotated-digits", noise=0.6, tasks=3)
    picks = torch.zeros(2)  # noise, and all
    for task in stream:
        for _ in range(5):
            kept = []
            for batch in task.train.with_indices():
                x, y, index = (part.tensor_split(world)[rank] for part in batch)  # or a sampler's part
                new = corestream.Samples.of(x, y, task.index)
                old = memory.samples if len(memory) else new[:0]
                replayed = torch.randperm(len(old), generator=generator)[:REPLAY]
                picked = learn(model, optimizer, new, old, replayed, add_up, rank, world)
                kept.append(new[picked])
                picks += torch.tensor([task.train.is_noise[index[picked]].sum(), len(picked)])
        memory.store(corestream.Samples.join(kept), generator=generator)
    noise, total = add_up(picks).tolist()
    if rank == 0:
        tests = [task.test.tensors() for task in stream]
        print("accuracy:", *(f"{(model(x).argmax(1) == y).float().mean():.2f}" for x, y in tests))
        print(f"{noise / total:.0%} of the picked samples were noise, of all samples 60%")


def start(rank=-1, world=-1, meeting="env://"):
    torch.set_num_threads(1)  # processes on one machine share its cores
    dist.init_process_group("gloo", meeting, rank=rank, world_size=world)
    train(dist.get_rank(), dist.get_world_size())
    dist.barrier()  # nobody leaves while another still needs its answer
    dist.destroy_process_group()


if __name__ == "__main__":
    if dist.is_torchelastic_launched():  # by torchrun, which tells each process its rank
        start()
    else:
        with tempfile.TemporaryDirectory() as folder:
            torch.multiprocessing.spawn(start, (2, f"file://{folder}/meeting"), nprocs=2)
