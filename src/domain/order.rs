//! Order within an ordering key: who may go next.

/// One unfinished task of a key, or an open repair that holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub position: i64,
    pub blocked: bool,
}

/// The position of the BLOCKED task that comes free, if one does: the lowest, when nothing unfinished stands outside BLOCKED
/// and no open repair of a lower position holds the key (`hold`: the lowest such position; absent unless the queue says HOLD).
pub fn settle_key(unfinished: &[Place], hold: Option<i64>) -> Option<i64> {
    if unfinished.iter().any(|place| !place.blocked) {
        return None;
    }
    let lowest = unfinished.iter().map(|place| place.position).min()?;
    hold.is_none_or(|held| held > lowest).then_some(lowest)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn blocked(position: i64) -> Place {
        Place { position, blocked: true }
    }

    #[test]
    fn the_lowest_blocked_task_goes_when_the_head_is_gone() {
        assert_eq!(settle_key(&[blocked(7), blocked(5)], None), Some(5));
        assert_eq!(settle_key(&[], None), None);
    }

    #[test]
    fn a_head_keeps_its_key_wherever_it_stands() {
        assert_eq!(settle_key(&[Place { position: 9, blocked: false }, blocked(5)], None), None);
    }

    #[test]
    fn an_open_repair_holds_only_what_came_after_it() {
        assert_eq!(settle_key(&[blocked(5)], Some(4)), None);
        assert_eq!(settle_key(&[blocked(3), blocked(5)], Some(4)), Some(3));
    }
}
