//! How far one watcher has come, and where it goes on: in the ring as long as that has it, in the log where it has not.

/// A watcher's place. A look goes: read the stable position, then take the mark, then [`Place::next`], and then the ring or the log.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// Everything up to here was taken.
    taken: i64,
    /// There may be more from this position on.
    more: Option<i64>,
}

impl Place {
    pub(super) fn after(begin: i64) -> Place {
        Place { taken: begin, more: Some(begin + 1) }
    }

    pub(super) fn taken(&self) -> i64 {
        self.taken
    }

    /// From where on to look. Absent: nothing up to `stable` concerns this watcher.
    pub(super) fn next(&mut self, stable: i64, mark: Option<i64>) -> Option<i64> {
        let from = self.more.take().into_iter().chain(mark).min();
        if from.is_none() {
            self.taken = self.taken.max(stable);
        }
        from.map(|from| from.max(self.taken + 1))
    }

    /// The ring had events up to `last` (absent: none), and where it has more.
    pub(super) fn ring_had(&mut self, last: Option<i64>, more: Option<i64>) {
        self.taken = last.unwrap_or(self.taken);
        self.more = more;
    }

    /// The log was read up to here. Whether that was all, the ring says, not the mark: it was taken for what stands first, and that may have
    /// been in front of this or behind it.
    pub(super) fn log_had(&mut self, upto: i64) {
        self.taken = self.taken.max(upto);
        self.more = Some(upto + 1);
    }

    /// Neither has anything from `from` on yet.
    pub(super) fn not_yet(&mut self, from: i64) {
        self.more = Some(from);
    }
}

#[cfg(test)]
mod tests;
