//! Which sockets a configuration needs, and what each is bound to.
//!
//! Promises: pure. One group alone on its port is bound to, so that the kernel delivers nothing else and the destination of a
//! datagram needs no control message; groups that share a port share a socket that tells them apart by packet information, and
//! so keep their order of arrival. Does not do: opening.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use lockgate::receive::{Group, ReceiverConfig};

use super::options::{Options, Sharing};

/// One socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// The address and port to bind to.
    pub(super) bind: SocketAddr,
    /// The groups to join; none for a unicast socket.
    pub(super) groups: Vec<Group>,
    /// Whether each datagram comes with its destination and interface.
    pub(super) packet_info: bool,
}

impl Plan {
    /// Whether it receives groups.
    pub(super) fn is_multicast(&self) -> bool {
        !self.groups.is_empty()
    }

    /// Whether something may arrive that was not asked for: unicast to the shared port.
    pub(super) fn must_filter(&self) -> bool {
        self.groups.len() > 1
    }
}

/// The sockets of a configuration, in the order in which the configuration first needs them.
pub(super) fn plan(config: &ReceiverConfig, options: &Options) -> Vec<Plan> {
    let mut plans: Vec<Plan> = Vec::new();
    if let Some(unicast) = config.unicast {
        return vec![Plan {
            bind: unicast,
            groups: Vec::new(),
            packet_info: options.packet_info || unicast.ip().is_unspecified(),
        }];
    }
    for group in &config.groups {
        let shared = plans.iter_mut().find(|plan| {
            options.sockets == Sharing::PerPort
                && plan.bind.port() == group.port
                && plan.bind.is_ipv4() == group.address.is_ipv4()
        });
        match shared {
            Some(plan) => {
                plan.bind.set_ip(match group.address {
                    IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
                    IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
                });
                plan.packet_info = true;
                plan.groups.push(group.clone());
            }
            None => plans.push(Plan {
                bind: group.socket_address(),
                groups: vec![group.clone()],
                packet_info: options.packet_info,
            }),
        }
    }
    plans
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The plan of groups, one line each: bind address, number of groups, `i` with packet information.
    fn lines(groups: &[&str], sharing: Sharing) -> Vec<String> {
        let config = ReceiverConfig::multicast("lo", groups.iter().map(|one| one.parse().unwrap()));
        let options = Options {
            sockets: sharing,
            ..Options::default()
        };
        plan(&config, &options)
            .iter()
            .map(|plan| {
                assert_eq!(plan.must_filter(), plan.packet_info);
                let info = if plan.packet_info { " i" } else { "" };
                format!("{} {}{info}", plan.bind, plan.groups.len())
            })
            .collect()
    }

    #[test]
    fn a_group_alone_on_its_port_is_bound_to() {
        assert_eq!(
            lines(
                &["239.1.1.1:5000", "239.1.1.1:5001", "[ff15::1]:5000"],
                Sharing::PerPort
            ),
            ["239.1.1.1:5000 1", "239.1.1.1:5001 1", "[ff15::1]:5000 1"]
        );
    }

    #[test]
    fn groups_of_one_port_and_family_share_a_socket() {
        let groups = [
            "239.1.1.1:5000",
            "[ff15::1]:5000",
            "239.1.1.2:5000",
            "239.1.1.3:5001",
            "[ff15::2]:5000",
        ];
        assert_eq!(
            lines(&groups, Sharing::PerPort),
            ["0.0.0.0:5000 2 i", "[::]:5000 2 i", "239.1.1.3:5001 1"]
        );
        assert_eq!(
            lines(&groups, Sharing::PerGroup),
            groups.map(|group| format!("{group} 1"))
        );
    }

    #[test]
    fn a_wildcard_asks_for_the_destination() {
        for (address, info) in [
            ("10.0.0.1:5000", false),
            ("0.0.0.0:5000", true),
            ("[::]:5000", true),
        ] {
            let config = ReceiverConfig::unicast(address.parse().unwrap());
            let plans = plan(&config, &Options::default());
            assert_eq!(plans.len(), 1);
            assert_eq!(plans[0].packet_info, info, "{address}");
            assert!(!plans[0].is_multicast() && !plans[0].must_filter());
        }
    }
}
