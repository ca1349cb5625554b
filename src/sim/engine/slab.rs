//! Where an engine keeps its sequences: a slab of slots that are used again, with the links of the
//! one list (queue or batch) that a sequence is on.
//!
//! Every operation is O(1) and none allocates once the slab has grown to the most sequences that
//! were ever there together. Worked number: 256 running and 44 waiting sequences take 300 slots,
//! whether a hundred or a million requests pass through them.

use spillgate_core::units::Picos;

const NONE: u32 = u32::MAX;

/// Names a sequence until it leaves the engine; afterwards it names nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    slot: u32,
    generation: u32,
}

/// Where a sequence is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    /// Nobody uses the slot.
    #[default]
    Free,
    /// In the queue, without KV.
    Waiting,
    /// Its KV is reserved and on its way from a prefill engine.
    Pulling,
    /// Its KV is here; it joins the next step.
    Ready,
    /// Its prompt is being computed.
    Prefilling,
    /// One token a step.
    Decoding,
    /// Prefilled here; its KV waits to be pulled.
    Held,
}

/// One sequence.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sequence {
    /// The caller's number for it.
    pub(super) request: u32,
    /// Prompt tokens.
    pub(super) input: u32,
    /// Tokens to generate, at least one.
    pub(super) tokens: u32,
    /// Tokens generated before the present stay in the batch.
    pub(super) generated: u32,
    /// Tokens of KV to reserve at admission: the prompt, and after a preemption what it generated.
    pub(super) need: u32,
    /// Of those, computed or being computed in the running step.
    pub(super) computed: u32,
    /// The KV is computed here rather than pulled.
    pub(super) computes: bool,
    /// Where it is.
    pub(super) state: State,
    /// Number of its admission, unique in the engine; 0 while it is not admitted.
    pub(super) admission: u64,
    /// Step that made its first token (counted back over a preemption), while decoding.
    pub(super) first_step: u64,
    /// Arrival at this engine.
    pub(super) arrived: Picos,
    /// First time in a batch, once `scheduled` is set.
    pub(super) started: Picos,
    /// It has been in a batch.
    pub(super) scheduled: bool,
    /// Its first token.
    pub(super) first: Picos,
    /// Its last token before a preemption.
    pub(super) last: Picos,
    /// Times the slot was used before.
    pub(super) generation: u32,
    /// Its neighbours on the list that it is on.
    pub(super) previous: u32,
    pub(super) next: u32,
}

/// A doubly linked list through the slots.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    head: u32,
    tail: u32,
    len: u32,
}

impl Default for List {
    fn default() -> Self {
        Self { head: NONE, tail: NONE, len: 0 }
    }
}

impl List {
    pub(super) const fn len(&self) -> u32 {
        self.len
    }
    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }
    pub(super) const fn first(&self) -> Option<u32> {
        if self.len == 0 { None } else { Some(self.head) }
    }
    pub(super) const fn last(&self) -> Option<u32> {
        if self.len == 0 { None } else { Some(self.tail) }
    }
}

/// All sequences of one engine.
#[derive(Clone, Debug, Default)]
pub(super) struct Slab {
    slots: Vec<Sequence>,
    free: Vec<u32>,
}

impl Slab {
    /// A slot for `sequence`.
    pub(super) fn insert(&mut self, sequence: Sequence) -> (u32, Ticket) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Sequence::default());
            (self.slots.len() - 1) as u32
        });
        let generation = self.slots[slot as usize].generation;
        self.slots[slot as usize] = Sequence { generation, ..sequence };
        (slot, Ticket { slot, generation })
    }

    /// Gives the slot back; its tickets name nothing from now on.
    pub(super) fn remove(&mut self, slot: u32) {
        let sequence = &mut self.slots[slot as usize];
        sequence.state = State::Free;
        sequence.admission = 0;
        sequence.generation = sequence.generation.wrapping_add(1);
        self.free.push(slot);
    }

    /// The slot that a ticket names, if its sequence is still here.
    pub(super) fn find(&self, ticket: Ticket) -> Option<u32> {
        let sequence = self.slots.get(ticket.slot as usize)?;
        let same = sequence.generation == ticket.generation && sequence.state != State::Free;
        same.then_some(ticket.slot)
    }

    pub(super) fn at(&self, slot: u32) -> &Sequence {
        &self.slots[slot as usize]
    }

    pub(super) fn at_mut(&mut self, slot: u32) -> &mut Sequence {
        &mut self.slots[slot as usize]
    }

    /// Sequences in the engine, held ones included.
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// All sequences in the engine, by slot.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Sequence> {
        self.slots.iter().filter(|s| s.state != State::Free)
    }

    pub(super) fn push_back(&mut self, list: &mut List, slot: u32) {
        let tail = list.tail;
        let sequence = self.at_mut(slot);
        (sequence.previous, sequence.next) = (tail, NONE);
        if tail == NONE {
            list.head = slot;
        } else {
            self.at_mut(tail).next = slot;
        }
        list.tail = slot;
        list.len += 1;
    }

    pub(super) fn push_front(&mut self, list: &mut List, slot: u32) {
        let head = list.head;
        let sequence = self.at_mut(slot);
        (sequence.previous, sequence.next) = (NONE, head);
        if head == NONE {
            list.tail = slot;
        } else {
            self.at_mut(head).previous = slot;
        }
        list.head = slot;
        list.len += 1;
    }

    /// Takes a sequence off the list that it is on.
    pub(super) fn unlink(&mut self, list: &mut List, slot: u32) {
        let Sequence { previous, next, .. } = *self.at(slot);
        if previous == NONE {
            list.head = next;
        } else {
            self.at_mut(previous).next = next;
        }
        if next == NONE {
            list.tail = previous;
        } else {
            self.at_mut(next).previous = previous;
        }
        list.len -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting() -> Sequence {
        Sequence { state: State::Waiting, ..Sequence::default() }
    }

    #[test]
    fn a_ticket_names_nothing_once_its_slot_is_used_again() {
        let mut slab = Slab::default();
        let (slot, old) = slab.insert(waiting());
        slab.remove(slot);
        let (again, new) = slab.insert(waiting());
        assert_eq!(slot, again);
        assert_eq!(slab.find(old), None);
        assert_eq!(slab.find(new), Some(slot));
    }

    #[test]
    fn a_list_loses_its_middle_its_head_and_its_tail() {
        let (mut slab, mut list) = (Slab::default(), List::default());
        let slots: Vec<u32> = (0..4).map(|_| slab.insert(waiting()).0).collect();
        for &slot in &slots[1..] {
            slab.push_back(&mut list, slot);
        }
        slab.push_front(&mut list, slots[0]);
        slab.unlink(&mut list, slots[1]);
        assert_eq!((list.first(), list.last(), list.len()), (Some(slots[0]), Some(slots[3]), 3));
        slab.unlink(&mut list, slots[0]);
        slab.unlink(&mut list, slots[3]);
        assert_eq!((list.first(), list.last()), (Some(slots[2]), Some(slots[2])));
        slab.unlink(&mut list, slots[2]);
        assert!(list.is_empty() && list.first().is_none() && list.last().is_none());
    }
}
