//! The cases, by subject, each with what it is about and what it proves.
//!
//! The list below is the only one: the table of cases and the macro that mounts them are both made from it.

mod accounting;
mod addressing;
mod batches;
mod capability;
mod closing;
mod delivery;
mod describe;
mod events;
mod opening;
mod validation;
mod waiting;

use lockgate::registry::Capability;

use crate::outcome::Checked;
use crate::rig::Rig;

/// One promise that every provider has to keep.
#[derive(Debug)]
#[non_exhaustive]
pub struct Case {
    /// The subject that it belongs to.
    pub subject: &'static str,
    /// Its name, unique within the subject.
    pub name: &'static str,
    /// What it is about, in one line.
    pub about: &'static str,
    /// The capabilities that it proves to work where they are claimed.
    pub proves: &'static [Capability],
    pub(crate) run: fn(&Rig<'_>) -> Checked,
}

macro_rules! cases {
    ($d:tt $(
        $subject:ident {
            $( $name:ident $( proves $($capability:ident)+ )? : $about:literal, )+
        }
    )+) => {
        /// Every case, in the order in which they run.
        pub const CASES: &[Case] = &[$($(
            Case {
                subject: stringify!($subject),
                name: stringify!($name),
                about: $about,
                proves: &[$($(Capability::$capability,)+)?],
                run: $subject::$name,
            },
        )+)+];

        /// Makes every case a test of its own, grouped by subject. Takes the name of a function in the same module that
        /// returns an [`Equipment`](crate::Equipment).
        #[macro_export]
        macro_rules! mount {
            ($d equipment:ident) => {
                $(
                    mod $subject {
                        $(
                            #[test]
                            fn $name() {
                                $d crate::__run_mounted(
                                    &super::$d equipment(),
                                    stringify!($subject),
                                    stringify!($name),
                                );
                            }
                        )+
                    }
                )+
            };
        }
    };
}

cases! { $
    describe {
        is_static_and_cheap: "describing answers the same each time and opens nothing",
        names_what_it_is: "name, version, summary, kinds and origin are filled in",
        inspects_when_asked: "an explicit look at the host has findings",
        is_given_back_when_registered_twice: "the second factory of a name comes back with both origins",
    }
    opening {
        refuses_without_a_name: "no open without a provider's name, not even of the only provider",
        refuses_another_name: "asking for another name gives a refusal that lists this provider",
        works_by_name: "an open by name gives an open receiver of that provider",
        tells_its_settings: "what was asked for and what was granted is told in words",
        serves_two_receivers_at_once proves Multicast: "two receivers of one group each get every packet",
        works_from_many_threads: "sixteen threads open, receive and close through one registry",
        works_again_after_a_close: "a closed receiver leaves nothing in the way of the next",
    }
    validation {
        accepts_what_the_equipment_asks_for: "the equipment's configuration is valid",
        comes_before_any_open: "each bad value is a fault with field and allowed values, and costs no open",
        tells_every_fault_at_once: "several bad values give as many faults",
        refuses_unknown_options: "an option that the provider doesn't know is a fault",
        is_pure: "validating twice gives the same faults and opens nothing",
    }
    capability {
        unclaimed_is_refused_before_the_provider: "what isn't claimed never reaches the provider",
        every_claim_has_a_case: "each claim of a receiver can be proven by a case of this kit",
    }
    delivery {
        is_exact_and_in_order: "every byte of every packet, in the order in which they were sent",
        keeps_every_size: "payloads from nothing to the MTU",
        goes_round_the_ring: "more packets than the ring has places, in portions",
        says_where_packets_came_from_and_went: "source, destination and interface are the packet's",
        stamps_nothing_unless_asked: "without a timestamp mode there is no time, rather than a zero",
        stamps_with_the_system_clock proves SoftwareTimestamps: "software timestamps are of the system's clock and between send and receive",
        stamps_with_the_device_clock proves HardwareTimestamps: "hardware timestamps are of a device's clock and don't go back",
        gives_whole_frames proves WholeFrame: "a whole frame holds its payload; who doesn't claim it gives none",
    }
    addressing {
        receives_ipv4 proves Ipv4: "a group or address of IPv4",
        receives_ipv6 proves Ipv6: "a group or address of IPv6",
        receives_unicast proves Unicast: "one unicast address and port, and nothing else",
        keeps_other_groups_out: "groups that weren't asked for are not delivered",
        keeps_other_ports_out: "other ports of the group are not delivered",
        takes_several_groups proves SeveralGroups: "several groups of one port, each packet once",
        takes_both_families: "groups of IPv4 and IPv6 in one receiver, each packet once",
        takes_several_ports proves SeveralPorts: "groups with different ports, and no mixture of them",
        keeps_other_sources_out proves SourceFilter: "only the sources that were named",
        selects_a_vlan proves VlanFilter: "only the VLAN that was asked for",
    }
    batches {
        stay_within_their_bound: "no batch is longer than asked for",
        may_be_empty: "nothing yet is an empty batch, not an error",
        lie_inside_their_slabs: "every descriptor names bytes inside its slab, and zero where reserved",
        stay_whole_while_more_arrives: "what a batch shows doesn't change while packets arrive",
        can_be_polled_in_another_thread: "a receiver moves to another thread",
    }
    waiting {
        times_out proves EventWait: "a wait without packets takes its time, and no more",
        returns_at_once_for_no_time: "a wait of no time doesn't wait",
        wakes_up_for_a_packet proves EventWait: "a sleeping wait wakes up when a packet arrives",
        is_ready_when_packets_are_there: "a wait doesn't sleep on packets that are there already",
        spins_when_asked proves BusyPoll: "busy polling receives and times out as sleeping does",
        offers_a_descriptor proves ReadinessFd: "the descriptor is readable when packets are there; who doesn't claim it offers none",
    }
    accounting {
        counts_what_was_delivered: "packets, bytes and batches are counted exactly",
        adds_up_when_overrun: "sent is received plus lost by place, also beyond what the ring holds",
        refuses_what_is_too_long: "a packet longer than its buffer is counted and not delivered cut",
        keeps_to_its_places: "a place that can't be counted stays unknown, one that can stays known",
        keeps_the_last_totals: "statistics after a close are the last totals",
    }
    closing {
        is_idempotent: "a second close succeeds and does nothing",
        ends_polls_and_waits: "polls and waits after a close tell that it is closed",
        gives_its_groups_back proves Multicast: "after a close nobody is a member of the group",
        is_done_by_drop: "a receiver dropped without close leaves nothing in the way",
        leaks_nothing: "opens and closes leave no descriptor, thread or mapping behind",
        works_under_decorators: "two decorators in a stack see each call once, and packets pass unchanged",
    }
    events {
        are_silent_without_a_cause: "a quiet receiver tells of nothing",
        reach_the_receiver: "a change of the link is told",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_told_in_a_line() {
        let mut names: Vec<_> = CASES.iter().map(|case| (case.subject, case.name)).collect();
        names.sort_unstable();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all);
        assert!(CASES.iter().all(|case| case.about.len() < 100));
    }

    /// A capability without a case could be claimed and never work.
    #[test]
    fn every_capability_of_receivers_is_proven_by_a_case() {
        for capability in Capability::all() {
            let proven = CASES.iter().any(|case| case.proves.contains(capability));
            assert_eq!(
                proven,
                !capability::NOT_FOR_THIS_KIT.contains(capability),
                "{capability}"
            );
        }
    }
}
