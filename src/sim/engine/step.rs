//! The inside of a step: who is in it, how long it takes, and what it brings.
//!
//! KV of a decoding sequence is its prompt and all its tokens but the newest, whose KV the next
//! step writes. On a decode engine the first step computes the last prompt token again, so that
//! the same rule holds there.
//!
//! Worked number: a prompt of 100 tokens that generates 3 reserves 100 at admission, makes its
//! first token in step s, holds 101 in step s + 1 and 102 in step s + 2, its last.

use super::slab::{Sequence, State};
use super::{Engine, Event, Phase};
use spillgate_core::policy::Role;
use spillgate_core::units::{Picos, Tokens};
use std::cmp::Reverse;

/// Prompt work of one step.
#[derive(Default)]
struct Prompts {
    budget: u64,
    sequences: u64,
    tokens: u64,
    /// Twice the sum of tokens times mean context, which halves exactly at the end.
    twice_context: u64,
}

impl Engine {
    /// Forms the step that begins at `now`, if there is work for one.
    pub(super) fn begin(&mut self, now: Picos) {
        self.join(now);
        let preempted = self.make_room(now);
        self.step += 1;
        self.kv_used += self.decoding;
        self.kv_decoding += self.decoding;
        let mut prompts =
            Prompts { budget: self.token_budget - self.decoding, ..Prompts::default() };
        if let Some(slot) = self.partial {
            self.compute(slot, &mut prompts);
        }
        if !preempted {
            self.admit(now, &mut prompts);
        }
        if self.decoding + prompts.sequences == 0 {
            self.phase = Phase::Idle;
            // vLLM's loop runs empty steps while a pull is on its way, and publishes each.
            if !self.queue.is_empty() || self.deferred > 0 {
                self.publish();
            }
            return;
        }
        let length = self.profile.model.step(
            self.decoding + prompts.sequences,
            self.kv_decoding,
            prompts.tokens,
            prompts.twice_context / 2,
        );
        // A step of no length would never let time pass.
        self.phase = Phase::Step { began: now, ends: now + length.max(Picos(1)) };
    }

    /// Pulled sequences enter the batch.
    fn join(&mut self, now: Picos) {
        for (slot, admission) in self.ready.drain(..) {
            let sequence = self.sequences.at_mut(slot);
            if sequence.admission != admission {
                continue;
            }
            sequence.state = State::Decoding;
            sequence.first_step = self.step + 1;
            sequence.started = now;
            sequence.scheduled = true;
            self.deferred -= 1;
            self.decoding += 1;
            // The last prompt token is computed again.
            self.kv_used -= 1;
            self.kv_decoding += u64::from(sequence.input) - 1;
            self.firsts.push((slot, admission));
            let last_step = self.step + u64::from(sequence.tokens);
            self.endings.push(Reverse((last_step, admission, slot)));
        }
    }

    /// Preempts the last admitted until each decoding sequence can write one token more. The first
    /// admitted is never in danger: alone it fits, or it would have been refused.
    fn make_room(&mut self, now: Picos) -> bool {
        let mut preempted = false;
        while self.decoding > 0 && self.kv_used + self.decoding > self.capacity {
            let Some(slot) = self.admitted.last() else { break };
            self.preempt(slot, now);
            preempted = true;
        }
        if preempted {
            self.drop_stale_pulls();
        }
        preempted
    }

    fn preempt(&mut self, slot: u32, now: Picos) {
        let before = *self.sequences.at(slot);
        self.evict(slot);
        let sequence = self.sequences.at_mut(slot);
        sequence.state = State::Waiting;
        sequence.computed = 0;
        if before.state == State::Decoding {
            sequence.generated = (self.step + 1 - before.first_step) as u32;
            sequence.computes = true;
            sequence.need = sequence.input + sequence.generated;
            sequence.last = now;
            self.backlog += u64::from(sequence.need);
        }
        self.waiting_kv += u64::from(sequence.need);
        self.sequences.push_front(&mut self.queue, slot);
        self.metrics.preempted += 1;
    }

    fn admit(&mut self, now: Picos, prompts: &mut Prompts) {
        while let Some(slot) = self.queue.first() {
            let need = u64::from(self.sequences.at(slot).need);
            let room = self.kv_used + need <= self.capacity;
            if prompts.budget == 0 || self.admitted.len() >= self.max_sequences || !room {
                break;
            }
            self.sequences.unlink(&mut self.queue, slot);
            self.sequences.push_back(&mut self.admitted, slot);
            self.waiting_kv -= need;
            self.kv_used += need;
            self.admissions += 1;
            let sequence = self.sequences.at_mut(slot);
            sequence.admission = self.admissions;
            if sequence.computes {
                sequence.state = State::Prefilling;
                if !sequence.scheduled {
                    sequence.started = now;
                    sequence.scheduled = true;
                }
                self.compute(slot, prompts);
            } else {
                sequence.state = State::Pulling;
                self.deferred += 1;
                let there = now + self.profile.transfer(Tokens(need));
                self.pulls.push(Reverse((there, self.admissions, slot)));
            }
        }
    }

    /// As much of a prompt as the budget allows.
    fn compute(&mut self, slot: u32, prompts: &mut Prompts) {
        let sequence = self.sequences.at_mut(slot);
        let done = u64::from(sequence.computed);
        let chunk = (u64::from(sequence.need) - done).min(prompts.budget);
        if chunk == 0 {
            return;
        }
        prompts.budget -= chunk;
        prompts.sequences += 1;
        prompts.tokens += chunk;
        let twice = chunk.saturating_mul(2 * done + chunk);
        prompts.twice_context = prompts.twice_context.saturating_add(twice);
        sequence.computed += chunk as u32;
        if sequence.computed == sequence.need {
            self.firsts.push((slot, sequence.admission));
            self.partial = None;
        } else {
            self.partial = Some(slot);
        }
    }

    /// A pull has arrived.
    pub(super) fn pulled(&mut self, events: &mut Vec<Event>) {
        let Some(Reverse((at, admission, slot))) = self.pulls.pop() else { return };
        self.drop_stale_pulls();
        let sequence = self.sequences.at_mut(slot);
        sequence.state = State::Ready;
        events.push(Event::Pulled { request: sequence.request, at });
        self.ready.push((slot, admission));
        self.wake(at);
    }

    /// The step's tokens leave.
    pub(super) fn end(&mut self, began: Picos, now: Picos, events: &mut Vec<Event>) {
        self.phase = Phase::Due(now);
        self.metrics.next_tokens(now.less(began), self.steady);
        self.metrics.generation_tokens += self.steady;
        let mut firsts = std::mem::take(&mut self.firsts);
        for (slot, admission) in firsts.drain(..) {
            let Sequence { admission: present, state, .. } = *self.sequences.at(slot);
            match state {
                _ if present != admission => {}
                State::Prefilling => self.prefilled(slot, now, events),
                _ => {
                    self.metrics.prompt_tokens += u64::from(self.sequences.at(slot).input);
                    self.first_token(slot, now, events);
                }
            }
        }
        self.firsts = firsts;
        self.steady = self.decoding;
        while let Some(Reverse((step, admission, slot))) = self.endings.peek().copied() {
            if step > self.step {
                break;
            }
            self.endings.pop();
            if self.sequences.at(slot).admission == admission {
                self.finish(slot, now, events);
            }
        }
        self.publish();
    }

    fn first_token(&mut self, slot: u32, now: Picos, events: &mut Vec<Event>) {
        let sequence = self.sequences.at_mut(slot);
        sequence.first = now;
        self.metrics.first_token(now.less(sequence.arrived));
        self.metrics.generation_tokens += 1;
        events.push(Event::FirstToken { request: sequence.request, at: now });
    }

    /// A prompt is computed to its end, for the first time or after a preemption.
    fn prefilled(&mut self, slot: u32, now: Picos, events: &mut Vec<Event>) {
        let sequence = *self.sequences.at(slot);
        self.backlog -= u64::from(sequence.need);
        if sequence.generated == 0 {
            self.metrics.prompt_tokens += u64::from(sequence.input);
            self.metrics.computed_tokens += u64::from(sequence.input);
        }
        match self.role {
            Role::Pooling => {
                self.sequences.at_mut(slot).first = now;
                return self.finish(slot, now, events);
            }
            Role::Prefill => return self.hold(slot, now, events),
            Role::Mixed | Role::Decode => {}
        }
        if sequence.generated == 0 {
            self.first_token(slot, now, events);
        } else {
            self.metrics.next_tokens(now.less(sequence.last), 1);
            self.metrics.generation_tokens += 1;
        }
        if sequence.generated + 1 >= sequence.tokens {
            return self.finish(slot, now, events);
        }
        let first_step = self.step - u64::from(sequence.generated);
        let last_step = first_step + u64::from(sequence.tokens) - 1;
        self.endings.push(Reverse((last_step, sequence.admission, slot)));
        self.decoding += 1;
        self.kv_decoding += u64::from(sequence.need);
        let sequence = self.sequences.at_mut(slot);
        sequence.state = State::Decoding;
        sequence.first_step = first_step;
    }

    /// A prefill engine is done with a request, but for its KV.
    fn hold(&mut self, slot: u32, now: Picos, events: &mut Vec<Event>) {
        let sequence = *self.sequences.at(slot);
        self.metrics.first_token(now.less(sequence.arrived));
        self.metrics.generation_tokens += 1;
        self.metrics.finish(sequence.started.less(sequence.arrived), sequence.input, 1);
        self.sequences.unlink(&mut self.admitted, slot);
        let sequence = self.sequences.at_mut(slot);
        sequence.state = State::Held;
        sequence.admission = 0;
        self.held += 1;
        events.push(Event::Prefilled { request: sequence.request, at: now });
    }

    fn finish(&mut self, slot: u32, now: Picos, events: &mut Vec<Event>) {
        let sequence = *self.sequences.at(slot);
        let output = if self.role == Role::Pooling { 0 } else { sequence.tokens };
        self.metrics.finish(sequence.started.less(sequence.arrived), sequence.input, output);
        self.evict(slot);
        self.sequences.remove(slot);
        let Sequence { request, first, .. } = sequence;
        events.push(Event::Finished { request, first, at: now });
    }

    /// Takes an admitted sequence out of the batch and frees its KV.
    pub(super) fn evict(&mut self, slot: u32) {
        let sequence = *self.sequences.at(slot);
        self.sequences.unlink(&mut self.admitted, slot);
        self.sequences.at_mut(slot).admission = 0;
        match sequence.state {
            State::Pulling | State::Ready => {
                self.deferred -= 1;
                self.kv_used -= u64::from(sequence.need);
            }
            State::Prefilling => {
                self.kv_used -= u64::from(sequence.need);
                self.partial = self.partial.filter(|partial| *partial != slot);
            }
            State::Decoding => {
                let kv = u64::from(sequence.input) + self.step - sequence.first_step;
                self.kv_used -= kv;
                self.kv_decoding -= kv;
                self.decoding -= 1;
                let coming = self.step + u64::from(!matches!(self.phase, Phase::Step { .. }));
                self.steady -= u64::from(sequence.first_step < coming);
            }
            State::Free | State::Waiting | State::Held => {}
        }
    }
}
