"""RNN, LSTM and GRU, and their cells: at each step of time a linear layer of the input and one of the hidden state, inside one function
of torch's where no hook reaches.

During the call their forward runs from the same code with that function replaced by a loop over time, which tells us what the two linear
layers saw. What the loop does not know takes the general path: slower, still exact.
"""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from .rebuilt import rebuilt

State = tuple[Tensor, ...]  # the hidden state and, for an LSTM, the cell's
Cell = Callable[[Tensor, Tensor, State], State]


class Tell(Protocol):
    """Where a linear layer is told of: its input, weight and bias, something with the gradient of its output and, where it is used more
    than once, the graph's node of each use. Samples that are not `in_order` may have been sorted by the model. False: there are none."""

    def __call__(
        self, inputs: Tensor, weight: Tensor, bias: Tensor | None, output: Tensor, nodes: Sequence[Any] | None = None,
        in_order: bool = True,
    ) -> bool: ...  # fmt: skip


def _rnn_tanh(from_input: Tensor, from_hidden: Tensor, state: State) -> State:
    return (torch.tanh(from_input + from_hidden),)


def _rnn_relu(from_input: Tensor, from_hidden: Tensor, state: State) -> State:
    return (torch.relu(from_input + from_hidden),)


def _lstm(from_input: Tensor, from_hidden: Tensor, state: State) -> State:
    enter, forget, new, leave = (from_input + from_hidden).chunk(4, 1)
    cell = forget.sigmoid() * state[1] + enter.sigmoid() * new.tanh()
    return leave.sigmoid() * cell.tanh(), cell


def _gru(from_input: Tensor, from_hidden: Tensor, state: State) -> State:
    (hidden,) = state
    parts = [2 * hidden.shape[1], hidden.shape[1]]
    (gates, new), (hidden_gates, hidden_new) = from_input.split(parts, 1), from_hidden.split(parts, 1)
    reset, update = (gates + hidden_gates).sigmoid().chunk(2, 1)
    new = torch.tanh(new + reset * hidden_new)
    return (new + update * (hidden - new),)


CELLS: dict[str, Cell] = {"rnn_tanh": _rnn_tanh, "rnn_relu": _rnn_relu, "lstm": _lstm, "gru": _gru}


def has_loop(module: nn.Module) -> bool:
    """Whether `told_forward` takes it: a subclass may do something else."""
    kinds = (nn.RNN, nn.LSTM, nn.GRU, nn.RNNCell, nn.LSTMCell, nn.GRUCell)
    return type(module) in kinds and not getattr(module, "proj_size", 0)


def told_forward(module: nn.Module, tell: Tell) -> Callable[..., Any]:
    """`module.forward`, calling `tell` for every linear layer inside."""

    def forward(input: Any, hx: Any = None) -> Any:
        if isinstance(module, nn.RNNBase):
            functions = {name: _told_layers(module, cell, input, tell) for name, cell in CELLS.items()}
        else:
            functions = {f"{name}_cell": _told_step(cell, tell) for name, cell in CELLS.items()}
        own = rebuilt(type(module).forward, _VF=SimpleNamespace(**functions))
        return own.__get__(module)(input, hx)

    return forward


def _told_step(cell: Cell, tell: Tell) -> Callable[..., Any]:
    """One step of a cell, in the place of torch's function."""

    def step(x: Tensor, hx: Any, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None, b_hh: Tensor | None) -> Any:
        state = _as_state(hx)
        from_input, from_hidden = F.linear(x, w_ih, b_ih), F.linear(state[0], w_hh, b_hh)
        if tell(x, w_ih, b_ih, from_input):
            tell(state[0], w_hh, b_hh, from_hidden)
        after = cell(from_input, from_hidden, state)
        return after if len(after) > 1 else after[0]

    return step


def _told_layers(module: nn.RNNBase, cell: Cell, input: Any, tell: Tell) -> Callable[..., State]:
    """All layers and directions over all steps, in the place of torch's function."""

    def run(x: Tensor, *given: Any) -> State:
        packed = isinstance(input, PackedSequence)
        form, hx = (Packed(input), given[1]) if packed else (Straight(), given[0])
        turn = not packed and module.batch_first
        state = tuple(map(form.in_own_order, _as_state(hx)))
        size = 4 if module.bias else 2
        weights = [module._flat_weights[n : n + size] for n in range(0, len(module._flat_weights), size)]
        # torch takes a copy where it turns them: what was given may be changed afterwards
        sequences, ends = form.apart(x.clone().transpose(0, 1) if turn else x), list[State]()
        for layer in range(module.num_layers):
            if layer and module.training and module.dropout:
                # in the order in which torch has them, so that the same is drawn
                sequences = form.apart(F.dropout(form.together(sequences), module.dropout))
            sides = []
            for backwards in (False, True) if module.bidirectional else (False,):
                start = tuple(part[len(ends)] for part in state)
                outputs, end = _over_time(cell, form, sequences, start, weights[len(ends)], backwards, tell)
                sides.append(outputs)
                ends.append(end)
            sequences = torch.cat(sides, 2)
        after = (form.by_length(torch.stack(parts)) for parts in zip(*ends, strict=True))
        outputs = form.together(sequences)
        return outputs.transpose(0, 1) if turn else outputs, *after

    return run


def _over_time(
    cell: Cell, form: "Straight", x: Tensor, state: State, weights: Sequence[Any], backwards: bool, tell: Tell
) -> tuple[Tensor, State]:  # fmt: skip
    """One layer in one direction, [N, T, width]: its outputs, and the state after the last step."""
    w_ih, w_hh, b_ih, b_hh = weights if len(weights) == 4 else (*weights, None, None)
    from_input = F.linear(x, w_ih, b_ih)
    learns = torch.is_grad_enabled() and any(p is not None and p.requires_grad for p in (w_hh, b_hh))
    if learns and not from_input.requires_grad:
        from_input = from_input + torch.zeros_like(from_input, requires_grad=True)
    if cell is not _gru or x.is_cuda:  # under autocast a GRU alone keeps its state as it is, on a processor
        state = tuple(part.to(from_input.dtype) for part in state)
    inputs, turned = from_input.unbind(1), w_hh.t()
    # A GRU multiplies what comes from the hidden state by a gate: its gradient is met at zeros that are added to it. In the others it is
    # that of what comes from the input.
    zeros = torch.zeros_like(from_input, requires_grad=learns) if cell is _gru else None
    added = None if zeros is None else zeros.unbind(1)
    outputs, before, uses = list[Tensor](), list[Tensor](), list[Any]()
    steps = range(len(inputs))
    for t in reversed(steps) if backwards else steps:
        hidden = state[0]
        from_hidden = hidden @ turned if b_hh is None else torch.addmm(b_hh, hidden, turned)
        before.append(hidden.detach())
        uses.append(from_hidden.grad_fn)
        if added is not None:
            from_hidden = from_hidden + added[t]
        after = cell(inputs[t], from_hidden, state)
        if form.there is not None:
            here = form.there[:, t, None]
            after = tuple(torch.where(here, new, old) for new, old in zip(after, state, strict=True))
        state = after
        outputs.append(state[0])
    if backwards:
        outputs.reverse()
        before.reverse()
    if tell(x, w_ih, b_ih, from_input, None, form.in_order):
        met = from_input if zeros is None else zeros
        tell(torch.stack(before, 1), w_hh, b_hh, met, uses, form.in_order)
    return torch.stack(outputs, 1), state


def _as_state(hx: Any) -> State:
    return (hx,) if isinstance(hx, Tensor) else tuple(hx)


class Straight:
    """Sequences of one length, which torch has as [T, N, width]."""

    there: Tensor | None = None  # [N, T]: whether a sequence has that step; None where all have all
    in_order = True  # whether sequences are in the order of their samples

    def apart(self, x: Tensor) -> Tensor:
        """[N, T, width], of what torch has."""
        return x.transpose(0, 1)

    def together(self, x: Tensor) -> Tensor:
        """What torch has, of [N, T, width]."""
        return x.transpose(0, 1).contiguous()

    def in_own_order(self, state: Tensor) -> Tensor:
        return state

    def by_length(self, state: Tensor) -> Tensor:
        return state


class Packed(Straight):
    """Sequences of many lengths, the longest first, one step of all after the other. They are run in the order of their samples, as far as
    torch knows it."""

    def __init__(self, packed: PackedSequence) -> None:
        self.packed, self.in_order = packed, packed.unsorted_indices is not None
        _, self.lengths = pad_packed_sequence(packed)
        order = torch.arange(int(self.lengths.max()), device=packed.data.device)
        self.there = order < self.lengths.to(order)[:, None]

    def apart(self, x: Tensor) -> Tensor:
        return pad_packed_sequence(PackedSequence(x, *self.packed[1:]), batch_first=True)[0]

    def together(self, x: Tensor) -> Tensor:
        lengths = self.lengths
        if self.packed.sorted_indices is not None:
            x, lengths = x[self.packed.sorted_indices], lengths[self.packed.sorted_indices.cpu()]
        return pack_padded_sequence(x, lengths, batch_first=True).data

    def in_own_order(self, state: Tensor) -> Tensor:
        order = self.packed.unsorted_indices
        return state if order is None else state.index_select(1, order)

    def by_length(self, state: Tensor) -> Tensor:
        order = self.packed.sorted_indices
        return state if order is None else state.index_select(1, order)
