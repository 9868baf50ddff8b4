//! Subjects' floors: a task about a version below one is stale.

use super::names::SubjectId;
use super::spec::Subject;
use super::task::{Cause, Stale};
use super::time::Timestamp;

/// What a subject's floor says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Floor {
    /// Versions below it are stale; absent: none is, unless the subject is revoked.
    pub min_version: Option<i64>,
    /// Every version is stale, for good.
    pub revoked: bool,
    /// Given with the last change; empty if it came with a task.
    pub reason: String,
    /// When it last changed.
    pub updated: Timestamp,
    /// Stale tasks may be left that were neither canceled nor told.
    pub walking: bool,
}

/// How far a floor is to be raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Raise {
    To(i64),
    /// Above every version.
    Revoke,
}

impl Floor {
    pub fn cause(&self) -> Cause {
        if self.revoked { Cause::Revoked } else { Cause::Superseded }
    }

    /// The version below which all are stale; absent: all are.
    pub fn limit(&self) -> Option<i64> {
        if self.revoked { None } else { Some(self.min_version.unwrap_or(0)) }
    }

    fn stale(&self, version: i64) -> bool {
        self.limit().is_none_or(|limit| version < limit)
    }
}

/// The floor after it is raised; absent: it was as high before, and nothing changes. A floor never sinks.
pub fn raised(before: Option<&Floor>, raise: Raise, reason: &str, now: Timestamp) -> Option<Floor> {
    let (min_version, revoked) = match before {
        Some(floor) => (floor.min_version, floor.revoked),
        None => (None, false),
    };
    let higher = match raise {
        Raise::Revoke => !revoked,
        Raise::To(version) => !revoked && min_version.is_none_or(|present| version > present),
    };
    let min_version = match raise {
        Raise::To(version) => Some(version),
        Raise::Revoke => min_version,
    };
    let floor = Floor { min_version, revoked: raise == Raise::Revoke, reason: reason.to_owned(), updated: now, walking: true };
    higher.then_some(floor)
}

/// Why a task about these subjects is stale, if it is; the first of them that is stale says it.
pub fn stale<'a>(subjects: &[Subject], floor: impl Fn(&SubjectId) -> Option<&'a Floor>) -> Option<Stale> {
    subjects.iter().find_map(|subject| {
        let floor = floor(&subject.id).filter(|floor| floor.stale(subject.version))?;
        Some(Stale {
            cause: floor.cause(),
            subject: subject.id.to_string(),
            version: subject.version,
            floor: floor.limit(),
            reason: floor.reason.clone(),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(7);

    fn at(version: i64) -> Floor {
        raised(None, Raise::To(version), "edited", NOW).unwrap()
    }

    fn subject(id: &str, version: i64) -> Subject {
        Subject { id: SubjectId::parse(id).unwrap(), version, raise_floor: false }
    }

    #[test]
    fn a_floor_only_rises_and_a_revoked_one_is_above_every_version() {
        let floor = at(3);
        assert_eq!(raised(Some(&floor), Raise::To(3), "", NOW), None);
        assert_eq!(raised(Some(&floor), Raise::To(2), "", NOW), None);
        assert_eq!(raised(Some(&floor), Raise::To(4), "", NOW).unwrap().min_version, Some(4));
        let revoked = raised(Some(&floor), Raise::Revoke, "left", NOW).unwrap();
        assert_eq!((revoked.min_version, revoked.revoked, revoked.limit()), (Some(3), true, None));
        assert_eq!(raised(Some(&revoked), Raise::Revoke, "", NOW), None);
        assert_eq!(raised(Some(&revoked), Raise::To(i64::MAX), "", NOW), None);
    }

    #[test]
    fn a_task_is_stale_below_the_floor_of_any_of_its_subjects() {
        let (floor, revoked) = (at(2), raised(None, Raise::Revoke, "left", NOW).unwrap());
        let of = |subjects: &[Subject]| {
            stale(subjects, |id| match id.as_str() {
                "m" => Some(&floor),
                "gone" => Some(&revoked),
                _ => None,
            })
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[subject("m", 2), subject("other", 0)]), None);
        let old = of(&[subject("other", 0), subject("m", 1)]).unwrap();
        assert_eq!((old.cause, old.version, old.floor), (Cause::Superseded, 1, Some(2)));
        let gone = of(&[subject("gone", i64::MAX)]).unwrap();
        assert_eq!((gone.cause, gone.floor, gone.reason.as_str()), (Cause::Revoked, None, "left"));
    }
}
