//! Where a line belongs: to which engine and model, by its labels.
//!
//! Worked number: a page of one API server of four data-parallel engines repeats the keys 0 to 3 in
//! each family; the engine is looked up once a change of key.

use super::{Engine, MAX_UNKNOWN, Reader, Refusal};
use crate::engine::exposition::{RawValue, Sample};

pub(super) const MAX_ENGINES: usize = 1_024;

/// The labels that say where a line belongs.
#[derive(Clone, Copy, Default)]
pub(super) struct Key<'t> {
    pub(super) rank: Option<&'t str>,
    pub(super) model: &'t str,
    pub(super) split: Option<RawValue<'t>>,
}

impl<'t> Reader<'t> {
    /// Where a line belongs. A sample that repeats the one before belongs where that one did.
    pub(super) fn key(&mut self, split: Option<&str>, sample: &Sample<'t, '_>) -> Key<'t> {
        if sample.repeats {
            return self.key;
        }
        let (rank, model) =
            self.dialect.map_or(("", ""), |dialect| (dialect.rank_label, dialect.model_label));
        let mut key = Key::default();
        for (name, value) in sample.labels.iter() {
            if name == rank {
                key.rank = Some(value.0);
            } else if name == model {
                key.model = value.0;
            } else if Some(name) == split {
                key.split = Some(value);
            }
        }
        self.key = key;
        key
    }

    /// The engine that a line belongs to; a line without a rank belongs to engine 0. `repeats`
    /// says that the line before asked for the same key.
    pub(super) fn engine(
        &mut self,
        key: &Key<'t>,
        repeats: bool,
    ) -> Result<&mut Engine<'t>, Refusal> {
        let (rank, model, index) = self.last;
        if index < self.engines.len() && (repeats || (rank == key.rank && model == key.model)) {
            return Ok(&mut self.engines[index]);
        }
        self.last.2 = usize::MAX; // nobody's, should this line be refused
        let rank = key.rank.map_or(Ok(0), str::parse).map_err(|_| Refusal::Rank)?;
        let index = self.place(rank, key.model)?;
        self.last = (key.rank, key.model, index);
        Ok(&mut self.engines[index])
    }

    /// One entry a rank and model. A line without a model belongs to the rank's first entry.
    fn place(&mut self, rank: u32, model: &'t str) -> Result<usize, Refusal> {
        let same = |engine: &Engine<'t>| {
            let alike = model.is_empty() || engine.model.is_empty() || engine.model == model;
            engine.rank == rank && alike
        };
        let index = match self.engines.iter().position(same) {
            Some(index) => index,
            None if self.engines.len() == MAX_ENGINES => return Err(Refusal::TooManyEngines),
            None => {
                self.engines.push(Engine { rank, ..Engine::default() });
                self.engines.len() - 1
            }
        };
        if self.engines[index].model.is_empty() && !model.is_empty() {
            self.engines[index].model = model;
            self.model(model);
        }
        Ok(index)
    }

    pub(super) fn model(&mut self, raw: &str) {
        let name = RawValue(raw).unescape();
        let names = &mut self.page.model_names;
        if names.len() < MAX_UNKNOWN && !names.contains(name.as_ref()) {
            names.insert(name.into_owned());
        }
    }
}
