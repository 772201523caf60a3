//! The steps of a schedule, and how they are drawn from a seed.

/// A small generator whose whole state is its seed.
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// What one native release call will do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fate {
    Ambiguous,
    NothingDone,
    Panics,
    Works,
}

/// One step of a schedule. Indices are taken modulo what there is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Own {
        parent: u8,
        bytes: u16,
        fate: [Fate; 2],
    },
    Close(u8),
    Drop(u8),
    CloseAgain(u8),
    HandOver(u8),
    Retry(u8),
    Maintain(u8),
    Submit {
        lane: u8,
        loans: [u8; 2],
        how: How,
    },
    Batch {
        lane: u8,
        loan: u8,
        how: [How; 3],
    },
    Fence(u8, Truth),
    Report(u8, Truth),
    Poll(u8, View),
    Wait(u8, View),
    Recover(u8, View),
    Take(u8, View),
    Cancel(u8, View),
    DropHandle(u8),
    Sweep(u8),
    CloseLane(u8),
    Replace(u8),
    FailDrains(u8, u8),
    Shutdown,
    Abandon,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum How {
    NotSubmitted,
    Panics,
    Possibly,
    Submitted,
}

/// What a fence really is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Truth {
    Failed,
    Indeterminate,
    Pending,
    Succeeded,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum View {
    Future,
    Handle,
    Slot,
}

impl Step {
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        let fate = |rng: &mut Rng| match rng.below(8) {
            0 => Fate::Ambiguous,
            1 | 2 => Fate::NothingDone,
            3 if rng.below(4) == 0 => Fate::Panics,
            _ => Fate::Works,
        };
        let how = |rng: &mut Rng| match rng.below(12) {
            0 => Some(How::NotSubmitted),
            1 => Some(How::Possibly),
            2 if rng.below(4) == 0 => Some(How::Panics),
            _ => None,
        };
        let truth = |rng: &mut Rng| match rng.below(5) {
            0 => Truth::Failed,
            1 => Truth::Indeterminate,
            2 => Truth::Pending,
            _ => Truth::Succeeded,
        };
        let view = |rng: &mut Rng| match rng.below(3) {
            0 => View::Future,
            1 => View::Handle,
            _ => View::Slot,
        };
        let at = (rng.next() >> 16) as u8;
        let how = |rng: &mut Rng| how(rng).unwrap_or(How::Submitted);
        match rng.below(64) {
            0..8 => Self::Own {
                parent: at,
                bytes: rng.below(5_000) as u16,
                fate: [fate(rng), fate(rng)],
            },
            8..12 => Self::Close(at),
            12..14 => Self::Drop(at),
            14 => Self::CloseAgain(at),
            15 => Self::HandOver(at),
            16..19 => Self::Retry(at),
            19..21 => Self::Maintain(rng.below(4) as u8),
            21..30 => Self::Submit {
                lane: at,
                loans: [rng.next() as u8, rng.next() as u8],
                how: how(rng),
            },
            30 => Self::Batch {
                lane: at,
                loan: rng.next() as u8,
                how: [how(rng), how(rng), how(rng)],
            },
            31..36 => Self::Fence(at, truth(rng)),
            36..38 => Self::Report(at, truth(rng)),
            38..42 => Self::Poll(at, view(rng)),
            42..45 => Self::Wait(at, view(rng)),
            45..48 => Self::Recover(at, view(rng)),
            48..52 => Self::Take(at, view(rng)),
            52 => Self::Cancel(at, view(rng)),
            53..55 => Self::DropHandle(at),
            55..58 => Self::Sweep(1 + rng.below(64) as u8),
            58 => Self::CloseLane(at),
            59..61 => Self::Replace(at),
            61 => Self::FailDrains(at, rng.below(3) as u8),
            62 if rng.below(8) == 0 => Self::Shutdown,
            63 if rng.below(8) == 0 => Self::Abandon,
            _ => Self::Sweep(1),
        }
    }
}
