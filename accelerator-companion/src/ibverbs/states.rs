//! The state table of queue pairs, to explain why a change was refused.
//!
//! Promises: what is said follows from the table alone: whether the change exists, which field is missing, which is not allowed.
//! Does not do: refusing a change before the kernel does, or guessing where the table has nothing to say.

use std::fmt::Write as _;

use lockgate_verbs_shim::{QpState, QpType, qp_fields as f};

/// A change of state, with the fields that it needs and those that it may have, as the kernel's table says
/// (`qp_state_table` in `drivers/infiniband/core/verbs.c`, Linux 6.1).
struct Change {
    from: QpState,
    to: QpState,
    needs: fn(QpType) -> u32,
    may: fn(QpType) -> u32,
}

const fn no(_: QpType) -> u32 {
    0
}

fn init_needs(kind: QpType) -> u32 {
    match kind {
        QpType::RawPacket => f::PORT,
        QpType::ReliableConnection | QpType::UnreliableConnection => {
            f::PKEY_INDEX | f::PORT | f::ACCESS
        }
        QpType::UnreliableDatagram => f::PKEY_INDEX | f::PORT | f::QKEY,
    }
}

fn receive_needs(kind: QpType) -> u32 {
    let connected = f::ADDRESS | f::PATH_MTU | f::DESTINATION | f::RECEIVE_PSN;
    match kind {
        QpType::RawPacket | QpType::UnreliableDatagram => 0,
        QpType::ReliableConnection => connected | f::MAX_DESTINATION_READS | f::MIN_RNR_TIMER,
        QpType::UnreliableConnection => connected,
    }
}

fn receive_may(kind: QpType) -> u32 {
    match kind {
        QpType::RawPacket => 0,
        QpType::ReliableConnection | QpType::UnreliableConnection => f::ACCESS | f::PKEY_INDEX,
        QpType::UnreliableDatagram => f::PKEY_INDEX | f::QKEY,
    }
}

fn send_needs(kind: QpType) -> u32 {
    match kind {
        QpType::RawPacket => 0,
        QpType::ReliableConnection => {
            f::TIMEOUT | f::RETRY_COUNT | f::RNR_RETRY | f::SEND_PSN | f::MAX_READS
        }
        QpType::UnreliableConnection | QpType::UnreliableDatagram => f::SEND_PSN,
    }
}

fn send_may(kind: QpType) -> u32 {
    match kind {
        QpType::RawPacket => 0,
        QpType::ReliableConnection => f::CURRENT_STATE | f::ACCESS | f::MIN_RNR_TIMER,
        QpType::UnreliableConnection => f::CURRENT_STATE | f::ACCESS,
        QpType::UnreliableDatagram => f::CURRENT_STATE | f::QKEY,
    }
}

fn drained_may(kind: QpType) -> u32 {
    match kind {
        QpType::RawPacket => 0,
        QpType::ReliableConnection => {
            f::PORT
                | f::ADDRESS
                | f::TIMEOUT
                | f::RETRY_COUNT
                | f::RNR_RETRY
                | f::MAX_READS
                | f::MAX_DESTINATION_READS
                | f::ACCESS
                | f::PKEY_INDEX
                | f::MIN_RNR_TIMER
        }
        QpType::UnreliableConnection => f::ADDRESS | f::ACCESS | f::PKEY_INDEX,
        QpType::UnreliableDatagram => f::PKEY_INDEX | f::QKEY,
    }
}

const TABLE: &[Change] = &[
    Change {
        from: QpState::Reset,
        to: QpState::Init,
        needs: init_needs,
        may: no,
    },
    Change {
        from: QpState::Init,
        to: QpState::Init,
        needs: no,
        may: init_needs,
    },
    Change {
        from: QpState::Init,
        to: QpState::ReadyToReceive,
        needs: receive_needs,
        may: receive_may,
    },
    Change {
        from: QpState::ReadyToReceive,
        to: QpState::ReadyToSend,
        needs: send_needs,
        may: send_may,
    },
    Change {
        from: QpState::ReadyToSend,
        to: QpState::ReadyToSend,
        needs: no,
        may: send_may,
    },
    Change {
        from: QpState::ReadyToSend,
        to: QpState::SendQueueDrain,
        needs: no,
        may: no,
    },
    Change {
        from: QpState::SendQueueDrain,
        to: QpState::ReadyToSend,
        needs: no,
        may: send_may,
    },
    Change {
        from: QpState::SendQueueDrain,
        to: QpState::SendQueueDrain,
        needs: no,
        may: drained_may,
    },
    Change {
        from: QpState::SendQueueError,
        to: QpState::ReadyToSend,
        needs: no,
        may: send_may,
    },
];

const NAMES: &[(u32, &str)] = &[
    (f::ACCESS, "access"),
    (f::ADDRESS, "ah"),
    (f::CURRENT_STATE, "cur_qp_state"),
    (f::DESTINATION, "dest_qp_num"),
    (f::MAX_DESTINATION_READS, "max_dest_rd_atomic"),
    (f::MAX_READS, "max_rd_atomic"),
    (f::MIN_RNR_TIMER, "min_rnr_timer"),
    (f::PATH_MTU, "path_mtu"),
    (f::PKEY_INDEX, "pkey_index"),
    (f::PORT, "port_num"),
    (f::QKEY, "qkey"),
    (f::RECEIVE_PSN, "rq_psn"),
    (f::RETRY_COUNT, "retry_cnt"),
    (f::RNR_RETRY, "rnr_retry"),
    (f::SEND_PSN, "sq_psn"),
    (f::TIMEOUT, "timeout"),
];

fn names(fields: u32) -> String {
    let list: Vec<_> = NAMES
        .iter()
        .filter(|(bit, _)| fields & bit != 0)
        .map(|(_, name)| *name)
        .collect();
    list.join(", ")
}

/// What the table says about a change that was refused.
pub(crate) fn explain(kind: QpType, from: QpState, to: QpState, fields: u32) -> String {
    let mut text = format!("{kind:?} from {from:?} to {to:?}");
    // From every state, without any field.
    if matches!(to, QpState::Error | QpState::Reset) {
        extra(&mut text, fields & !f::STATE);
        return text;
    }
    let Some(change) = TABLE
        .iter()
        .find(|change| change.from == from && change.to == to)
    else {
        let targets: Vec<_> = TABLE
            .iter()
            .filter(|change| change.from == from)
            .map(|change| format!("{:?}", change.to))
            .chain(["Error".to_owned(), "Reset".to_owned()])
            .collect();
        let _ = write!(
            text,
            ": there is no such change; from {from:?} to: {}",
            targets.join(", ")
        );
        return text;
    };
    let needs = (change.needs)(kind);
    let missing = needs & !fields;
    if missing != 0 {
        let _ = write!(text, ": missing: {}", names(missing));
    }
    let left = fields & !(needs | (change.may)(kind) | f::STATE);
    extra(&mut text, left);
    if missing == 0 && left == 0 {
        text.push_str(": the fields are those of the table, so one of the values is refused");
    }
    text
}

fn extra(text: &mut String, fields: u32) {
    if fields != 0 {
        let _ = write!(text, ": not allowed: {}", names(fields));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_says_what_is_wrong() {
        let rc = QpType::ReliableConnection;
        for (kind, from, to, fields, words) in [
            (
                rc,
                QpState::Reset,
                QpState::ReadyToSend,
                f::STATE,
                "there is no such change; from Reset to: Init, Error, Reset",
            ),
            (
                rc,
                QpState::Reset,
                QpState::Init,
                f::STATE | f::PORT,
                "missing: access, pkey_index",
            ),
            (
                QpType::UnreliableDatagram,
                QpState::Reset,
                QpState::Init,
                f::STATE | f::PORT | f::PKEY_INDEX | f::QKEY | f::ACCESS,
                "not allowed: access",
            ),
            (
                rc,
                QpState::Init,
                QpState::ReadyToReceive,
                f::STATE | receive_needs(rc),
                "one of the values is refused",
            ),
            (
                QpType::RawPacket,
                QpState::Reset,
                QpState::Init,
                f::STATE,
                "missing: port_num",
            ),
            (
                rc,
                QpState::ReadyToSend,
                QpState::Error,
                f::STATE | f::PORT,
                "not allowed: port_num",
            ),
        ] {
            let text = explain(kind, from, to, fields);
            assert!(text.contains(words), "{text}");
        }
    }

    #[test]
    fn every_field_has_a_name() {
        let named = NAMES.iter().fold(0, |bits, (bit, _)| bits | bit);
        let kinds = [
            QpType::RawPacket,
            QpType::ReliableConnection,
            QpType::UnreliableConnection,
            QpType::UnreliableDatagram,
        ];
        for change in TABLE {
            for kind in kinds {
                assert_eq!(
                    ((change.needs)(kind) | (change.may)(kind)) & !named,
                    0,
                    "{kind:?}"
                );
            }
        }
    }
}
